//! Each operation of a load against time: means and extremes of stretches, faults beside them.

use super::chart::{Axis, Frame, hue};
use super::series::{line, spread};
use super::stage::{draw_bands, fault_words, stage};
use super::steps::Point;
use crate::Folder;
use crate::escape::{Html, T, put};
use crate::words::plural;
use weir_core::units::human;

/// Lines of a picture; more are counted.
const LINES_MAX: usize = 8;

/// Nothing for a point that recorded no operations.
pub(crate) fn figures(folder: &Folder, point: &Point<'_>) -> Html {
    let mut out = Html::new();
    for operations in folder.operations.of(point.id) {
        let curves = operations.curves();
        let high = curves.iter().map(|curve| curve.high()).fold(0.0, f64::max);
        let Some(stage) = stage(folder, point, operations.trial) else { continue };
        let unit = curves.first().map_or("1", |curve| curve.unit.as_str());
        let axes = (Axis::exact(0.0, stage.seconds, "s", 8), Axis::above_zero(high, unit, 5));
        let (Some(x), Some(y)) = axes else { continue };
        let frame = Frame::new(940.0, 240.0, x, y);
        let label = format!("{}, {}", operations.field, point.id);
        let mut svg = frame.begin(&label, "time from the step’s start", &operations.field);
        draw_bands(&mut svg, &frame, &stage);
        for (index, curve) in curves.iter().take(LINES_MAX).enumerate() {
            if curves.len() == 1
                && let Some(spread) = spread(&frame, curve, stage.start_ns)
            {
                put!(&mut svg, "<path class=\"spread f0\" d=\"", spread, "Z\"/>");
            }
            put!(&mut svg, "<path class=\"curve ", hue(index), "\" d=\"");
            put!(&mut svg, line(&frame, curve, stage.start_ns, false), "\"/>");
        }
        let samples: usize = curves.iter().map(|curve| curve.sample_count).sum();
        let mut words = format!(
            "{} of trial {}: {}, at most {}. Line: the mean of a stretch",
            plural(samples, "record", "records"),
            operations.trial,
            operations.about,
            human(high, unit),
        );
        words += if curves.len() == 1 { "; shaded: from the least to the most in it. " } else { ". " };
        if curves.len() > LINES_MAX {
            words += &format!("{} more are recorded. ", plural(curves.len() - LINES_MAX, "line", "lines"));
        }
        put!(&mut out, "<figure><div class=wide>", frame.end(svg), "</div><figcaption>");
        put!(&mut out, T(words), T(fault_words(&stage)), "</figcaption></figure>\n");
    }
    out
}
