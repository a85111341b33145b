//! Going on with a run that was cut short: only as the same run, and openly about what changed around it.

use crate::run::campaign::plan_record;
use serde_json::Value;
use std::fmt::Write as _;
use weir_core::record::{ConfigurationRecord, PlanRecord};
use weir_core::scenario::Plan;
use weir_report::Interrupted;

/// Changes of the environment that are said one by one; a machine of another kind would fill pages.
const CHANGES_MAX: usize = 8;

/// Why `plan` is not the run that `interrupted` began; `None` when it is, to the last default. `settled` is what the resolved
/// scenario in the folder resolves to itself: defaults that the first resolution computed for each configuration are written
/// there, and a second one may spell out what belongs to them.
pub fn difference(interrupted: &Interrupted, plan: &Plan, settled: &str) -> Option<String> {
    let before = &interrupted.plan;
    // Through the text and back, as the other was: both then hold the numbers that JSON can say.
    let now: PlanRecord = serde_json::to_string(&plan_record(plan))
        .and_then(|text| serde_json::from_str(&text))
        .unwrap_or_else(|_| plan_record(plan));
    let numbers = [
        ("seed", before.seed, now.seed),
        ("number of trials", before.trials.into(), now.trials.into()),
        ("number of points' configurations", count(before), count(&now)),
    ];
    if let Some((what, before, now)) = numbers.into_iter().find(|(_, before, now)| before != now) {
        return Some(format!("its {what} is {before}, and here it is {now}"));
    }
    if plan.resolved != settled
        && let Some(text) = first_difference(&interrupted.scenario_toml, &plan.resolved)
    {
        return Some(format!("the resolved scenario is another: {text}"));
    }
    let changed = |(before, now): &(&ConfigurationRecord, &ConfigurationRecord)| before != now;
    if let Some((before, _)) = before.configurations.iter().zip(&now.configurations).find(changed) {
        let of = if before.id.is_empty() { String::new() } else { format!(" for {}", before.id) };
        return Some(format!(
            "this version of weir makes another plan of it{of} than the one that began the run"
        ));
    }
    // The resolved scenario of a short form no longer has the criteria that it leaves out. Its text was compared above, and where
    // it resolves to more than itself the digests of the two differ.
    let now = PlanRecord {
        not_judged: before.not_judged.clone(),
        scenario_blake3: before.scenario_blake3.clone(),
        ..now
    };
    (*before != now)
        .then(|| "this version of weir makes another plan of it than the one that began the run".to_owned())
}

fn count(plan: &PlanRecord) -> u64 {
    plan.configurations.len() as u64
}

fn first_difference(before: &str, now: &str) -> Option<String> {
    let shown = |line: Option<&str>| line.map_or_else(|| "nothing".to_owned(), |line| format!("`{line}`"));
    let (mut left, mut right) = (before.lines(), now.lines());
    for number in 1.. {
        match (left.next(), right.next()) {
            (None, None) => break,
            (before, now) if before == now => {}
            (before, now) => {
                return Some(format!(
                    "line {number} of scenario.toml is {}, and here {}",
                    shown(before),
                    shown(now)
                ));
            }
        }
    }
    None
}

/// What is different on this machine since the run began, in words; what changes by itself is passed over.
pub fn environment_changes(before: &Value, now: &Value) -> Vec<String> {
    let mut changes = Vec::new();
    compare("", before, now, &mut changes);
    let more = changes.len().saturating_sub(CHANGES_MAX);
    changes.truncate(CHANGES_MAX);
    if more > 0 {
        let _ = changes.last_mut().map(|last| write!(last, "; and {more} more"));
    }
    changes
}

fn compare(path: &str, before: &Value, now: &Value, changes: &mut Vec<String>) {
    match (before, now) {
        (Value::Object(left), Value::Object(right)) => {
            for (key, before) in left {
                // Load differs from one minute to the next; the lab's notes and what the hosts say come once they are up.
                let later = ["lab", "hosts", "clock"].contains(&key.as_str());
                let passing = path.is_empty() && (key.contains("load") || key.ends_with("_before") || later);
                if passing {
                    continue;
                }
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match right.get(key) {
                    Some(now) => compare(&below, before, now, changes),
                    None => changes.push(format!("{below} was {before} and is not known now")),
                }
            }
        }
        _ if before != now => changes.push(format!("{path} was {before} and is {now}")),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // Spec: results.md#results-9
    #[test]
    fn a_changed_kernel_is_said_and_a_changed_load_is_not() {
        let before = json!({"kernel": "6.1", "load_average_before": "0.1", "sysctls": {"a": "1", "b": "2"}, "lab": ["x"]});
        let now = json!({"kernel": "6.2", "load_average_before": "0.9", "sysctls": {"a": "1", "b": "3"}});
        assert_eq!(
            environment_changes(&before, &now),
            ["kernel was \"6.1\" and is \"6.2\"", "sysctls.b was \"2\" and is \"3\""]
        );
    }

    #[test]
    fn the_first_line_that_differs_is_shown_from_both() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        let said = first_difference("a\nb = 1\n", "a\nb = 2\n").unwrap();
        assert_eq!(said, "line 2 of scenario.toml is `b = 1`, and here `b = 2`");
        let said = first_difference("a\n", "a\nc\n").unwrap();
        assert_eq!(said, "line 2 of scenario.toml is nothing, and here `c`");
    }
}
