//! Where a step lies in its trial, and what happened in it: faults, and the end of the warm-up.

use super::chart::Frame;
use super::steps::Point;
use crate::Folder;
use crate::escape::{Html, T, put};
use crate::words::parameter_number;
use std::collections::BTreeMap;
use weir_core::record::TrialRecord;
use weir_core::units::human;

/// A fault's effect on the step's clock, in seconds.
pub(super) struct Band {
    pub name: String,
    pub from: f64,
    pub to: f64,
}

/// Where the trial's step lies, and what happened in it.
pub(super) struct Stage {
    pub start_ns: f64,
    pub seconds: f64,
    pub bands: Vec<Band>,
    /// When the warm-up ended, on the step's clock.
    pub warm_up: Option<f64>,
}

pub(super) fn stage(folder: &Folder, point: &Point<'_>, trial: u32) -> Option<Stage> {
    let record: &TrialRecord = point.trials.iter().find(|it| it.trial == trial)?;
    let (start_ns, end_ns) = (record.start_ns as f64, record.end_ns as f64);
    let seconds = (end_ns - start_ns) / 1e9;
    if seconds <= 0.0 {
        return None;
    }
    let mut bands: Vec<Band> = Vec::new();
    let mut open: BTreeMap<String, f64> = BTreeMap::new();
    let here = |at: i64| ((at as f64) - start_ns) / 1e9;
    for event in &folder.timeline {
        let (Some(at), true) = (event.trial_ns, event.trial == Some(trial)) else { continue };
        if event.configuration.as_ref().is_some_and(|it| *it != record.configuration) {
            continue;
        }
        let named = ["fault", "name"].iter().find_map(|key| event.data.get(*key)?.as_str());
        let name = named.unwrap_or(&event.text).to_owned();
        match event.event.as_str() {
            "fault-start" => {
                open.insert(name, here(at));
            }
            "fault-end" => {
                if let Some(from) = open.remove(&name) {
                    bands.push(Band { name, from, to: here(at) });
                }
            }
            _ => {}
        }
    }
    bands.extend(open.into_iter().map(|(name, from)| Band { name, from, to: seconds }));
    bands.retain(|band| band.to >= 0.0 && band.from <= seconds);
    bands.sort_by(|a, b| a.from.total_cmp(&b.from));
    bands.truncate(200);
    let asked = point.plan.and_then(|plan| parameter_number(plan.parameters.get("warm_up")?));
    let warm_up = asked.map(|(seconds, _)| seconds).filter(|it| *it > 0.0 && *it < seconds);
    Some(Stage { start_ns, seconds, bands, warm_up })
}

pub(super) fn draw_bands(out: &mut Html, frame: &Frame, stage: &Stage) {
    let mut named_until = f64::NEG_INFINITY;
    if let Some(warm_up) = stage.warm_up {
        let x = frame.px(warm_up);
        put!(&mut *out, "<rect class=warm x=", frame.left, " y=", frame.top, " width=", x - frame.left);
        put!(
            &mut *out,
            " height=",
            frame.floor() - frame.top,
            " /><text class=soft text-anchor=end x=",
            x - 4.0
        );
        put!(&mut *out, " y=", frame.top + 12.0, ">warm-up</text>");
    }
    for band in &stage.bands {
        let (from, to) = (frame.px(band.from.max(0.0)), frame.px(band.to.min(stage.seconds)));
        put!(&mut *out, "<rect class=band x=", from, " y=", frame.top, " width=", (to - from).max(1.0));
        put!(
            &mut *out,
            " height=",
            frame.floor() - frame.top,
            " /><path class=bandedge d=\"M",
            from,
            " ",
            frame.top,
            "V",
            frame.floor()
        );
        put!(&mut *out, "M", to, " ", frame.top, "V", frame.floor(), "\"/>");
        // Names that would lie over each other are left to the caption.
        if from >= named_until {
            let name: String = band.name.chars().take(24).collect();
            named_until = from + 7.0 * name.chars().count() as f64 + 8.0;
            let at_end = named_until > frame.width - frame.right;
            let x = if at_end { from - 4.0 } else { from + 2.0 };
            let anchor = if at_end { "end" } else { "start" };
            put!(
                &mut *out,
                "<text class=bandname text-anchor=",
                anchor,
                " x=",
                x,
                " y=",
                frame.top - 4.0,
                ">",
                T(name),
                "</text>"
            );
        }
    }
}

pub(super) fn fault_words(stage: &Stage) -> String {
    let said: Vec<String> = stage
        .bands
        .iter()
        .take(6)
        .map(|band| {
            format!(
                "{} from {} for {}",
                band.name,
                human(band.from.max(0.0), "s"),
                human(band.to - band.from, "s")
            )
        })
        .collect();
    let more = stage.bands.len().saturating_sub(6);
    let warm_up =
        stage.warm_up.map(|it| format!(" Grey: warm-up, until {}.", human(it, "s"))).unwrap_or_default();
    let faults = match (said.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => format!(" Shaded: {}.", said.join("; ")),
        (false, _) => format!(" Shaded: {}; and {more} more.", said.join("; ")),
    };
    warm_up + &faults
}
