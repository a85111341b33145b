//! When the parts of a trial are planned to run.

use std::ops::Range;
use std::time::Duration;
use weir_core::scenario::StepStart;

/// From the trial's start, in the order of `parts`: when each begins and how long it takes. An `After` names a part before it.
pub fn windows<'a>(parts: impl IntoIterator<Item = (&'a StepStart, Duration)>) -> Vec<Range<Duration>> {
    let mut windows: Vec<Range<Duration>> = Vec::new();
    for (start, duration) in parts {
        let start = match start {
            StepStart::At(at) => *at,
            StepStart::After(None) => Duration::ZERO,
            StepStart::After(Some(before)) => {
                windows.get(*before).map(|window| window.end).unwrap_or_default()
            }
        };
        windows.push(start..start.saturating_add(duration));
    }
    windows
}

/// When the last of them ends.
pub fn length(windows: &[Range<Duration>]) -> Duration {
    windows.iter().map(|window| window.end).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_at_the_same_time_take_as_long_as_the_longest_and_parts_in_a_row_their_sum() {
        let seconds = Duration::from_secs;
        let (first, second) = (StepStart::After(None), StepStart::After(Some(0)));
        let row = windows([(&first, seconds(3)), (&second, seconds(4))]);
        assert_eq!((row[1].clone(), length(&row)), (seconds(3)..seconds(7), seconds(7)));
        let at = StepStart::At(seconds(1));
        let beside =
            windows([(&at, seconds(60)), (&at, seconds(50)), (&StepStart::After(Some(1)), seconds(2))]);
        assert_eq!((beside[2].clone(), length(&beside)), (seconds(51)..seconds(53), seconds(61)));
        assert_eq!(length(&[]), Duration::ZERO);
    }
}
