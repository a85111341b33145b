//! From the faults of a scenario to changes of links at exact times, and to the ground truth of what was injected.

use std::time::Duration;
use weir_core::Instant;
use weir_core::scenario::{Fault, FaultAction};
use weir_core::schedule::{Change, Set};

/// Most occurrences of one fault that are scheduled at a time; one every 10 ms for a quarter of an hour.
const OCCURRENCES_MAX: usize = 100_000;

/// One occurrence, on the experiment's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Occurrence {
    pub fault: String,
    pub on: String,
    pub start: Instant,
    pub end: Instant,
    pub what: String,
}

/// All occurrences of `fault` from `origin` (the start of the trial or of its step) until `until`, and the changes of links
/// that bring them about.
pub fn occurrences(fault: &Fault, origin: Instant, until: Instant) -> (Vec<Occurrence>, Vec<Change>) {
    let (mut found, mut changes) = (Vec::new(), Vec::new());
    let mut start = origin + fault.at;
    while start < until && found.len() < OCCURRENCES_MAX {
        let end = start + fault.action.duration();
        let (on, off) = settings(&fault.action);
        for link in &fault.on {
            changes.push(Change { at_ns: start.as_ns(), link: *link, set: on.clone() });
            changes.push(Change { at_ns: end.as_ns(), link: *link, set: off.clone() });
        }
        found.push(Occurrence {
            fault: fault.name.clone(),
            on: fault.on_text.clone(),
            start,
            end,
            what: sentence(&fault.action),
        });
        match fault.every {
            Some(every) if every > Duration::ZERO => start = start + every,
            _ => break,
        }
    }
    (found, changes)
}

fn settings(action: &FaultAction) -> (Set, Set) {
    match action {
        FaultAction::Outage { .. } => (Set::Outage(true), Set::Outage(false)),
        FaultAction::Rate { to, .. } => (Set::Rate(Some(*to)), Set::Rate(None)),
        FaultAction::Delay { add, .. } => {
            (Set::DelayAdd(u64::try_from(add.as_nanos()).unwrap_or(u64::MAX)), Set::DelayAdd(0))
        }
        FaultAction::Loss { ratio, .. } => (Set::Loss(Some(*ratio)), Set::Loss(None)),
    }
}

fn sentence(action: &FaultAction) -> String {
    use weir_core::units::duration_text;
    let time = duration_text(action.duration());
    match action {
        FaultAction::Outage { .. } => format!("outage for {time}"),
        FaultAction::Rate { to, .. } => format!("rate {to} for {time}"),
        FaultAction::Delay { add, .. } => format!("{} more delay for {time}", duration_text(*add)),
        FaultAction::Loss { ratio, .. } => format!("loss of {} % for {time}", ratio * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(every: Option<Duration>) -> Fault {
        Fault {
            name: "cut".to_owned(),
            at: Duration::from_secs(1),
            step: None,
            every,
            on: vec![4, 5],
            on_text: "link.wan".to_owned(),
            action: FaultAction::Outage { duration: Duration::from_millis(300) },
        }
    }

    #[test]
    fn an_outage_begins_and_ends_on_each_of_its_links() {
        let origin = Instant::from_ns(5_000_000_000);
        let (found, changes) = occurrences(&cut(None), origin, origin + Duration::from_secs(60));
        assert_eq!(found.len(), 1);
        let expected = [
            Change { at_ns: 6_000_000_000, link: 4, set: Set::Outage(true) },
            Change { at_ns: 6_300_000_000, link: 4, set: Set::Outage(false) },
            Change { at_ns: 6_000_000_000, link: 5, set: Set::Outage(true) },
            Change { at_ns: 6_300_000_000, link: 5, set: Set::Outage(false) },
        ];
        assert_eq!(changes, expected);
    }

    #[test]
    fn a_repeated_fault_ends_with_the_trial_and_never_floods() {
        let origin = Instant::ZERO;
        let (found, _) =
            occurrences(&cut(Some(Duration::from_secs(10))), origin, origin + Duration::from_secs(35));
        assert_eq!(
            found.iter().map(|it| it.start.as_ns() / 1_000_000_000).collect::<Vec<_>>(),
            [1, 11, 21, 31]
        );
        let (found, _) = occurrences(&cut(Some(Duration::from_nanos(1))), origin, Instant::NEVER);
        assert_eq!(found.len(), OCCURRENCES_MAX);
    }
}
