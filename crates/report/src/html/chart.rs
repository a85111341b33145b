//! Axes with round numbers, and the frame every plot shares.

use crate::escape::{Html, T, put};
use weir_core::units::human;

/// Largest magnitude that is drawn; beyond it differences of two values overflow.
const DRAWN_MAX: f64 = 1e200;

/// One axis: its range in base units, and how its numbers are written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    pub low: f64,
    pub high: f64,
    /// In base units, with what is written there.
    pub ticks: Vec<(f64, String)>,
    /// The unit the tick texts are in: `Mbit/s`; empty for plain numbers.
    pub unit: String,
}

impl Axis {
    /// A linear axis with about `count` ticks that covers `low..=high`. Where `from_zero`, it starts at 0 unless values are
    /// below. `None` when the values cannot be drawn.
    pub fn linear(low: f64, high: f64, unit: &str, count: usize, from_zero: bool) -> Option<Axis> {
        if !(low.is_finite() && high.is_finite() && low.abs() < DRAWN_MAX && high.abs() < DRAWN_MAX) {
            return None;
        }
        let (mut low, mut high) = (low.min(high), low.max(high));
        if from_zero {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if high - low <= high.abs().max(low.abs()) * 1e-9 {
            // All values alike: a range around them, so that the line is neither floor nor ceiling.
            let pad = if high == 0.0 { 1.0 } else { high.abs() * 0.1 };
            (low, high) = if from_zero && low >= 0.0 { (low, high + pad) } else { (low - pad, high + pad) };
        }
        let (name, factor) = display_unit(low.abs().max(high.abs()), unit);
        let step = nice_step((high - low) / factor, count);
        let first = (low / factor / step + 1e-9).floor();
        let last = (high / factor / step - 1e-9).ceil();
        let decimals = (-(step.log10() + 1e-9).floor()).clamp(0.0, 9.0) as usize;
        let tick_count = (last - first).clamp(1.0, 40.0) as i64;
        let ticks: Vec<(f64, String)> = (0..=tick_count)
            .map(|index| (first + index as f64) * step)
            .map(|value| (value * factor, format!("{:.decimals$}", if value == 0.0 { 0.0 } else { value })))
            .collect();
        Some(Axis {
            low: first * step * factor,
            high: (first + tick_count as f64) * step * factor,
            ticks,
            unit: name,
        })
    }

    /// Decades that cover `low..=high`, both above zero; places on it are decimal logarithms.
    pub fn decades(low: f64, high: f64, unit: &str) -> Option<Axis> {
        if !(low > 0.0 && high.is_finite() && high < DRAWN_MAX) {
            return None;
        }
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let last = last.max(first + 1);
        // Where there are many, every second or third has a number.
        let step = ((last - first) / 9 + 1) as usize;
        let text = |decade: i32| human(10_f64.powi(decade), unit);
        let ticks = (first..=last).step_by(step).map(|decade| (f64::from(decade), text(decade))).collect();
        Some(Axis { low: f64::from(first), high: f64::from(last), ticks, unit: String::new() })
    }

    /// From 0 to a little above `high`, with ticks on round numbers inside.
    pub fn above_zero(high: f64, unit: &str, count: usize) -> Option<Axis> {
        let mut axis = Axis::linear(0.0, high, unit, count, true)?;
        if high > 0.0 {
            axis.high = high * 1.1;
            let ticks = axis.ticks.iter().rev().filter(|(value, _)| *value <= axis.high).count();
            axis.ticks.truncate(ticks);
        }
        Some(axis)
    }

    /// Covers exactly `low..=high`, with ticks on round numbers inside it; for time, where air at the end says nothing.
    pub fn exact(low: f64, high: f64, unit: &str, count: usize) -> Option<Axis> {
        let mut axis = Axis::linear(low, high, unit, count, false)?;
        if high > low {
            let slack = (high - low) * 1e-6;
            axis.ticks.retain(|(value, _)| *value >= low - slack && *value <= high + slack);
            (axis.low, axis.high) = (low, high);
        }
        Some(axis)
    }

    fn share(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }
}

/// 1, 2 or 5 times a power of ten, so that `range` has about `count` of it.
fn nice_step(range: f64, count: usize) -> f64 {
    let rough = range / count.max(1) as f64;
    let power = 10_f64.powf(rough.log10().floor());
    // The geometric middles between them, so that the count is met as nearly above as below.
    let factor = match rough / power {
        ratio if ratio < 1.414 => 1.0,
        ratio if ratio < 3.162 => 2.0,
        ratio if ratio < 7.071 => 5.0,
        _ => 10.0,
    };
    factor * power
}

/// The unit in which a value of this magnitude is written, and its size in base units.
fn display_unit(magnitude: f64, unit: &str) -> (String, f64) {
    const TIME: &[(&str, f64)] = &[("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    const PREFIX: &[(&str, f64)] = &[("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];
    let pick = |steps: &[(&'static str, f64)]| {
        *steps.iter().rev().find(|(_, factor)| magnitude >= *factor * 0.999).unwrap_or(&steps[0])
    };
    match unit {
        "s" => {
            let (name, factor) = pick(TIME);
            (name.to_owned(), factor)
        }
        "bit/s" | "B" | "B/s" | "Hz" => {
            let (prefix, factor) = pick(PREFIX);
            (format!("{prefix}{unit}"), factor)
        }
        "1" | "" => (String::new(), 1.0),
        "core" => ("% of a core".to_owned(), 0.01),
        other if magnitude >= 1e5 => {
            let (prefix, factor) = pick(PREFIX);
            let thousands = if prefix == "k" { "thousand " } else { prefix };
            (format!("{thousands}{other}"), factor)
        }
        other => (other.to_owned(), 1.0),
    }
}

/// A plot's place on its SVG, in pixels.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub width: f64,
    pub height: f64,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    pub x: Axis,
    pub y: Axis,
}

impl Frame {
    pub fn new(width: f64, height: f64, x: Axis, y: Axis) -> Frame {
        // Alike for almost all plots, so that the time axes of a point stand below each other.
        let widest = y.ticks.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(1);
        Frame {
            width,
            height,
            left: (16.0 + 6.6 * widest as f64).max(50.0),
            right: 14.0,
            top: 30.0,
            bottom: 40.0,
            x,
            y,
        }
    }
    pub fn px(&self, x: f64) -> f64 {
        self.left + self.x.share(x) * (self.width - self.left - self.right)
    }
    pub fn py(&self, y: f64) -> f64 {
        self.height - self.bottom - self.y.share(y) * (self.height - self.top - self.bottom)
    }
    /// The plotting area's lower edge.
    pub fn floor(&self) -> f64 {
        self.height - self.bottom
    }

    /// Opens the drawing: grid, tick texts, titles. `x_title` and `y_title` go without units. Close with `end`.
    pub fn begin(&self, label: &str, x_title: &str, y_title: &str) -> Html {
        let mut out = Html::new();
        put!(
            &mut out,
            "<svg class=plot role=img viewBox=\"0 0 ",
            self.width,
            " ",
            self.height,
            "\" aria-label=\""
        );
        put!(&mut out, T(label), "\">\n<g class=grid>");
        for (value, _) in &self.y.ticks {
            let y = self.py(*value);
            put!(&mut out, "<path d=\"M", self.left, " ", y, "H", self.width - self.right, "\"/>");
        }
        put!(&mut out, "</g><g class=tick text-anchor=end>");
        for (value, text) in &self.y.ticks {
            put!(
                &mut out,
                "<text x=",
                self.left - 7.0,
                " y=",
                self.py(*value) + 4.0,
                ">",
                T(text),
                "</text>"
            );
        }
        put!(&mut out, "</g><g class=tick text-anchor=middle>");
        for (value, text) in &self.x.ticks {
            let x = self.px(*value);
            put!(&mut out, "<path class=notch d=\"M", x, " ", self.floor(), "v4\"/>");
            put!(&mut out, "<text x=", x, " y=", self.floor() + 17.0, ">", T(text), "</text>");
        }
        put!(
            &mut out,
            "</g><path class=axis d=\"M",
            self.left,
            " ",
            self.floor(),
            "H",
            self.width - self.right,
            "\"/>"
        );
        put!(&mut out, "<text class=title x=4 y=14>", T(titled(y_title, &self.y.unit)), "</text>");
        put!(
            &mut out,
            "<text class=title text-anchor=end x=",
            self.width - self.right,
            " y=",
            self.height - 6.0,
            ">"
        );
        put!(&mut out, T(titled(x_title, &self.x.unit)), "</text>\n");
        out
    }

    pub fn end(&self, mut out: Html) -> Html {
        put!(&mut out, "</svg>");
        out
    }
}

fn titled(title: &str, unit: &str) -> String {
    if unit.is_empty() { title.to_owned() } else { format!("{title}, {unit}") }
}

/// `M x y L x y …` through pixel positions.
pub(crate) fn path(points: impl IntoIterator<Item = (f64, f64)>) -> Html {
    let mut out = Html::new();
    for (index, (x, y)) in points.into_iter().enumerate() {
        put!(&mut out, if index == 0 { "M" } else { "L" }, x, " ", y);
    }
    out
}

/// The mark of a figure from elsewhere, around a place in pixels.
pub(crate) fn diamond(class: &'static str, x: f64, y: f64) -> Html {
    let mut out = Html::new();
    put!(&mut out, "<path class=\"curve ", class, "\" fill=\"var(--paper)\" d=\"M", x - 5.0, " ", y);
    put!(&mut out, "L", x, " ", y - 5.0, "L", x + 5.0, " ", y, "L", x, " ", y + 5.0, "Z\"/>");
    out
}

/// Text before the class of the colour a line or mark of this index has; the same hue is not used twice in a plot.
pub(crate) fn hue(index: usize) -> &'static str {
    const HUES: [&str; 8] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];
    HUES[index % HUES.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_numbers_in_the_unit_people_use() {
        let axis = Axis::linear(0.0, 941.3e6, "bit/s", 5, true).unwrap();
        assert_eq!(
            (texts(&axis), axis.unit.as_str()),
            (vec!["0", "200", "400", "600", "800", "1000"], "Mbit/s")
        );
        let axis = Axis::linear(0.016_08, 0.016_51, "s", 5, false).unwrap();
        assert_eq!(
            (texts(&axis), axis.unit.as_str()),
            (vec!["16.0", "16.1", "16.2", "16.3", "16.4", "16.5", "16.6"], "ms")
        );
        let axis = Axis::linear(3.0, 3.0, "segments", 4, false).unwrap();
        assert!(axis.high > 3.0 && axis.low < 3.0, "{axis:?}");
    }

    #[test]
    fn an_axis_of_time_ends_where_the_time_ends() {
        let axis = Axis::exact(0.0, 3.07, "s", 6).unwrap();
        assert_eq!((axis.high, texts(&axis)), (3.07, vec!["0.0", "0.5", "1.0", "1.5", "2.0", "2.5", "3.0"]));
    }

    #[test]
    fn an_axis_from_zero_reaches_a_little_above_its_highest_value() {
        let axis = Axis::above_zero(1.02e9, "bit/s", 5).unwrap();
        assert_eq!((axis.low, axis.high.round()), (0.0, 1.122e9));
        assert_eq!(texts(&axis), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts(&Axis::above_zero(1.0, "core", 4).unwrap()), ["0", "20", "40", "60", "80", "100"]);
    }

    proptest! {
        #[test]
        fn any_two_numbers_give_a_bounded_axis_that_covers_them_or_none(
            low in proptest::num::f64::ANY, high in proptest::num::f64::ANY, zero: bool
        ) {
            if let Some(axis) = Axis::linear(low, high, "s", 5, zero) {
                prop_assert!(axis.ticks.len() <= 41 && axis.ticks.len() >= 2);
                let slack = (axis.high - axis.low) * 1e-6;
                prop_assert!(axis.low <= low.min(high) + slack && axis.high >= low.max(high) - slack, "{axis:?}");
            }
        }
    }
}
