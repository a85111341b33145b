//! Where a step lies in its trial, and what happened in it: faults, and the end of the warm-up.

use super::chart::Frame;
use super::steps::Point;
use crate::Folder;
use crate::escape::{Html, T, put};
use std::collections::{BTreeMap, BTreeSet};
use weir_core::record::TrialRecord;
use weir_core::units::human;

/// Strips of one fault that are drawn apart.
const LANES_MAX: usize = 16;

/// A fault's effect on the step's clock, in seconds.
pub(super) struct Band {
    pub name: String,
    pub from: f64,
    pub to: f64,
    /// What it did, where the timeline says; tells the parts of a fault apart that strike at phases of their own.
    pub what: String,
    /// Strip of the plot's height that it is drawn in, and of how many: parts of one fault lie one below the other.
    pub lane: (usize, usize),
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
    let record: Option<&&TrialRecord> = point.trials.iter().find(|it| it.trial == trial);
    let (configuration, start_ns, end_ns) = match record {
        Some(record) => (record.configuration.as_str(), record.start_ns as f64, record.end_ns as f64),
        None => not_ended(folder, point, trial)?,
    };
    let seconds = (end_ns - start_ns) / 1e9;
    if seconds <= 0.0 {
        return None;
    }
    let mut bands: Vec<Band> = Vec::new();
    // Beginning and end carry the same details, so parts of one fault that overlap are told apart by them.
    let mut open: BTreeMap<String, (f64, String, String)> = BTreeMap::new();
    let here = |at: i64| ((at as f64) - start_ns) / 1e9;
    for event in &folder.timeline {
        let (Some(at), true) = (event.trial_ns, event.trial == Some(trial)) else { continue };
        if event.configuration.as_ref().is_some_and(|it| *it != configuration) {
            continue;
        }
        let named = ["fault", "name"].iter().find_map(|key| event.data.get(*key)?.as_str());
        let name = named.unwrap_or(&event.text).to_owned();
        let what = event.data.get("what").and_then(|it| it.as_str()).unwrap_or_default().to_owned();
        let key = event.data.iter().map(|(key, value)| format!("{key}={value};")).collect::<String>();
        let key = if key.is_empty() { name.clone() } else { key };
        match event.event.as_str() {
            "fault-start" => {
                open.insert(key, (here(at), name, what));
            }
            "fault-end" => {
                if let Some((from, name, what)) = open.remove(&key) {
                    bands.push(Band { name, from, to: here(at), what, lane: (0, 1) });
                }
            }
            _ => {}
        }
    }
    let lasting = open.into_values();
    bands.extend(lasting.map(|(from, name, what)| Band { name, from, to: seconds, what, lane: (0, 1) }));
    bands.retain(|band| band.to >= 0.0 && band.from <= seconds);
    into_lanes(&mut bands);
    bands.sort_by(|a, b| a.from.total_cmp(&b.from));
    bands.truncate(200);
    let warm_up = point.plan.map(|plan| plan.steady_after_ns as f64 / 1e9);
    let warm_up = warm_up.filter(|it| *it > 0.0 && *it < seconds);
    Some(Stage { start_ns, seconds, bands, warm_up })
}

/// Configuration, start and end so far of a step that has no record: its trial runs, or the run was killed in it.
fn not_ended<'a>(folder: &'a Folder, point: &Point<'_>, trial: u32) -> Option<(&'a str, f64, f64)> {
    let mut configurations = folder.plan.iter().flat_map(|plan| &plan.configurations);
    let own = configurations.find(|it| it.steps.iter().any(|step| step.point == point.id))?;
    let step = &own.steps.iter().find(|step| step.point == point.id)?.name;
    let start = folder.timeline.iter().find(|event| {
        event.event == "step-start"
            && event.trial == Some(trial)
            && event.step.as_ref() == Some(step)
            && event.configuration.as_ref() == Some(&own.id)
    })?;
    Some((&own.id, start.trial_ns? as f64, folder.curves.end_ns(point.id)?))
}

/// Parts of one fault that do different things get a strip each, in the order of what they do.
fn into_lanes(bands: &mut [Band]) {
    let mut parts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for band in bands.iter() {
        parts.entry(band.name.clone()).or_default().insert(band.what.clone());
    }
    for band in bands {
        let of_fault = &parts[&band.name];
        let lane = of_fault.iter().position(|what| *what == band.what).unwrap_or(0);
        // More strips than this are thinner than a line of text is high.
        band.lane = if of_fault.len() <= LANES_MAX { (lane, of_fault.len()) } else { (0, 1) };
    }
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
        let height = (frame.floor() - frame.top) / band.lane.1 as f64;
        let top = frame.top + height * band.lane.0 as f64;
        put!(&mut *out, "<rect class=band x=", from, " y=", top, " width=", (to - from).max(1.0));
        put!(
            &mut *out,
            " height=",
            height,
            " /><path class=bandedge d=\"M",
            from,
            " ",
            top,
            "V",
            top + height
        );
        put!(&mut *out, "M", to, " ", top, "V", top + height, "\"/>");
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
    let mut strips: BTreeMap<&str, BTreeMap<usize, &str>> = BTreeMap::new();
    for band in stage.bands.iter().filter(|band| band.lane.1 > 1) {
        strips.entry(&band.name).or_default().insert(band.lane.0, &band.what);
    }
    let strips: String = strips
        .into_iter()
        .map(|(name, of)| {
            format!(" Strips of {name}, from the top: {}.", of.into_values().collect::<Vec<_>>().join("; "))
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
    warm_up + &faults + &strips
}
