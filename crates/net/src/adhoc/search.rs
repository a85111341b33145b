//! The smallest value of a parameter that fills a path (of the streams, or of the window of one), and the highest that it
//! carries (of the rate of datagrams).

use std::collections::BTreeMap;

/// Where a search begins and ends, and how exactly it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub least: u64,
    pub most: u64,
    /// The answer is exact to one part in so many; 0 finds the very value.
    pub parts: u64,
}

pub const STREAMS: Bounds = Bounds { least: 1, most: 1024, parts: 0 };
pub const WINDOW_BYTES: Bounds = Bounds { least: 16 << 10, most: 1 << 30, parts: 8 };
pub const RATE_BITS_PER_SECOND: Bounds = Bounds { least: 1_000_000, most: 400_000_000_000, parts: 50 };

impl Bounds {
    /// How near two values may come before the search ends.
    fn step(&self, value: u64) -> u64 {
        value.checked_div(self.parts).unwrap_or(1).max(1)
    }
}

/// A doubling that gains less than this has gained nothing.
const GAIN: f64 = 1.03;
/// Doublings in a row that gain nothing before the path is taken to be full: one alone may be noise.
const FLAT: u32 = 2;

/// What a search came to. What was carried is in the unit of what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub smallest: u64,
    pub carried: f64,
    /// The most that was carried, and the smallest value that did.
    pub most_carried: f64,
    pub most_at: u64,
    /// The last doubling before `Bounds::most` still gained: more than that may carry more.
    pub grows: bool,
}

/// Doubles from the least value until two doublings in a row gain less than 3 % each, then halves the step between the last
/// value that was short of `target` times the most and the first that was not. Each call of `measure` is one
/// measurement; its first error ends the search.
// Spec: net-protocol.md#search-1
pub fn smallest<E>(
    bounds: Bounds,
    target: f64,
    mut measure: impl FnMut(u64) -> Result<f64, E>,
) -> Result<Found, E> {
    let mut tried = BTreeMap::new();
    let (mut most_carried, mut most_at, mut flat) = (0.0_f64, bounds.least, 0);
    let mut value = bounds.least;
    loop {
        let carried = measure(value)?;
        tried.insert(value, carried);
        flat = if carried < most_carried * GAIN { flat + 1 } else { 0 };
        if carried > most_carried {
            (most_carried, most_at) = (carried, value);
        }
        if flat == FLAT || value >= bounds.most {
            break;
        }
        value = value.saturating_mul(2).min(bounds.most);
    }
    let grows = flat == 0;
    let goal = most_carried * target;
    let first = tried.iter().find(|(_, carried)| **carried >= goal);
    let (mut smallest, mut carried) =
        first.map_or((most_at, most_carried), |(value, carried)| (*value, *carried));
    let mut short = tried.range(..smallest).next_back().map_or(smallest, |(value, _)| *value);
    while smallest - short > bounds.step(smallest) {
        let middle = short + (smallest - short) / 2;
        let measured = measure(middle)?;
        if measured >= goal {
            (smallest, carried) = (middle, measured);
        } else {
            short = middle;
        }
    }
    Ok(Found { smallest, carried, most_carried, most_at, grows })
}

/// What came of offering one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    Carried,
    /// More was lost than is allowed.
    Lost,
    /// This end could not send as much: the path has not been asked.
    NotOffered,
}

impl Probe {
    pub fn in_words(self) -> &'static str {
        match self {
            Probe::Carried => "all was carried",
            Probe::Lost => "more was lost than is allowed",
            Probe::NotOffered => "this end could not send as much",
        }
    }
}

/// Attempts at a value before an end is taken to be too slow for it, and before a path is taken to lose too much: a machine
/// that was elsewhere for a few milliseconds says nothing of either.
const OFFERS: u32 = 3;
const LOSSES: u32 = 2;

/// The answer to one value, asked again as long as it may be a hiccup of an end. `measure` is told what came of the attempt
/// before.
// Spec: net-protocol.md#search-7
pub fn confirmed<E>(mut measure: impl FnMut(Option<Probe>) -> Result<Probe, E>) -> Result<Probe, E> {
    let (mut unsent, mut lost, mut before) = (0, 0, None);
    loop {
        let probe = measure(before)?;
        match probe {
            Probe::Carried => return Ok(probe),
            Probe::Lost => lost += 1,
            Probe::NotOffered => unsent += 1,
        }
        if lost == LOSSES || unsent == OFFERS {
            return Ok(probe);
        }
        before = Some(probe);
    }
}

/// The highest value that was carried, and what came of the next above; `Carried` where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Highest {
    pub value: Option<u64>,
    pub above: Probe,
}

/// Doubles from the least value until one is not carried, then halves the step between the last that was and the first that
/// was not. Each call of `measure` is one measurement; its first error ends the search.
// Spec: net-protocol.md#search-5
pub fn highest<E>(bounds: Bounds, mut measure: impl FnMut(u64) -> Result<Probe, E>) -> Result<Highest, E> {
    let mut carried = None;
    let mut next = bounds.least;
    let (mut limit, mut above) = loop {
        match measure(next)? {
            Probe::Carried if next >= bounds.most => {
                return Ok(Highest { value: Some(next), above: Probe::Carried });
            }
            Probe::Carried => {
                carried = Some(next);
                next = next.saturating_mul(2).min(bounds.most);
            }
            other => break (next, other),
        }
    };
    while let Some(value) = carried
        && limit - value > bounds.step(value)
    {
        let middle = value + (limit - value) / 2;
        match measure(middle)? {
            Probe::Carried => carried = Some(middle),
            other => (limit, above) = (middle, other),
        }
    }
    Ok(Highest { value: carried, above })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    /// Values in the order they were measured, and what was found.
    fn on(bounds: Bounds, target: f64, rate: impl Fn(u64) -> f64) -> (Vec<u64>, Found) {
        let mut asked = Vec::new();
        let found = smallest(bounds, target, |value| {
            asked.push(value);
            Ok::<f64, Infallible>(rate(value))
        });
        (asked, found.unwrap_or_else(|never| match never {}))
    }

    // Spec: net-protocol.md#search-1
    #[test]
    fn eleven_streams_of_a_tenth_fill_a_line() {
        let (asked, found) = on(STREAMS, 0.95, |streams| (streams as f64 / 10.5).min(1.0));
        assert_eq!(asked, [1, 2, 4, 8, 16, 32, 64, 12, 10, 9]);
        assert_eq!((found.smallest, found.most_at, found.grows), (10, 16, false));
        assert!((found.carried - 10.0 / 10.5).abs() < 1e-9);
    }

    #[test]
    fn one_stream_that_fills_it_is_asked_twice_more_and_no_further() {
        let (asked, found) = on(STREAMS, 0.95, |_| 9.4e8);
        assert_eq!(asked, [1, 2, 4]);
        assert_eq!(found.smallest, 1);
    }

    #[test]
    fn a_rate_that_never_levels_off_is_said_to_grow() {
        let (asked, found) = on(Bounds { most: 100, ..STREAMS }, 0.95, |streams| streams as f64);
        assert_eq!(asked[..8], [1, 2, 4, 8, 16, 32, 64, 100]);
        assert_eq!((found.smallest, found.grows), (95, true));
    }

    // Spec: net-protocol.md#search-4
    #[test]
    fn a_probe_that_does_not_count_ends_the_search() {
        let mut asked = Vec::new();
        let found = smallest(STREAMS, 0.95, |streams| {
            asked.push(streams);
            if streams < 4 { Ok(streams as f64) } else { Err("cut short") }
        });
        assert_eq!(found, Err("cut short"));
        assert_eq!(asked, [1, 2, 4]);
        assert_eq!(highest(RATE_BITS_PER_SECOND, |_| Err("cut short")), Err("cut short"));
    }

    #[test]
    fn a_path_that_carries_nothing_is_no_endless_search() {
        let (asked, found) = on(STREAMS, 0.95, |_| 0.0);
        assert!(asked.len() <= 11, "{asked:?}");
        assert_eq!(found.most_carried, 0.0);
    }

    // Spec: net-protocol.md#search-6
    #[test]
    fn what_keeps_a_rate_from_being_higher_is_told() {
        let to = |capacity: u64, otherwise: Probe| {
            highest::<Infallible>(RATE_BITS_PER_SECOND, |rate| {
                Ok(if rate <= capacity { Probe::Carried } else { otherwise })
            })
            .unwrap_or_else(|never| match never {})
        };
        assert_eq!(to(30_000_000, Probe::NotOffered).above, Probe::NotOffered);
        assert_eq!(to(0, Probe::Lost), Highest { value: None, above: Probe::Lost });
        let most = RATE_BITS_PER_SECOND.most;
        assert_eq!(to(u64::MAX, Probe::Lost), Highest { value: Some(most), above: Probe::Carried });
    }

    // Spec: net-protocol.md#search-7
    #[test]
    fn one_hiccup_is_no_answer() {
        use Probe::{Carried, Lost, NotOffered};
        let asked = |answers: &[Probe]| {
            let mut left = answers.iter().copied();
            let mut told = Vec::new();
            let answer = confirmed(|before| {
                told.extend(before);
                left.next().ok_or("asked too often")
            });
            assert_eq!(left.len(), 0, "asked too seldom");
            (answer, told.len())
        };
        assert_eq!(asked(&[Carried]), (Ok(Carried), 0));
        assert_eq!(asked(&[NotOffered, Carried]), (Ok(Carried), 1));
        assert_eq!(asked(&[Lost, Carried]), (Ok(Carried), 1));
        assert_eq!(asked(&[Lost, Lost]), (Ok(Lost), 1));
        assert_eq!(asked(&[NotOffered, Lost, NotOffered, Lost]), (Ok(Lost), 3));
        assert_eq!(asked(&[NotOffered, NotOffered, NotOffered]), (Ok(NotOffered), 2));
        assert_eq!(asked(&[Lost]), (Err("asked too often"), 1));
    }

    proptest! {
        // Spec: net-protocol.md#search-2
        #[test]
        fn a_window_is_found_to_an_eighth(full in 16_384_u64..1 << 28, target in 0.5..1.0) {
            let (asked, found) = on(WINDOW_BYTES, target, |window| window.min(full) as f64);
            let needed = full as f64 * target;
            prop_assert!(found.smallest as f64 >= needed);
            let less = found.smallest - found.smallest / WINDOW_BYTES.parts - 1;
            prop_assert!(found.smallest == WINDOW_BYTES.least || (less as f64) < needed, "{found:?}");
            prop_assert!(asked.len() < 30);
            prop_assert!(!found.grows);
        }

        // Spec: net-protocol.md#search-5
        #[test]
        fn the_highest_rate_is_found_to_a_fiftieth(capacity in 1_000_000_u64..400_000_000_000) {
            let mut probes = 0;
            let found = highest(RATE_BITS_PER_SECOND, |rate| {
                probes += 1;
                Ok::<Probe, Infallible>(if rate <= capacity { Probe::Carried } else { Probe::Lost })
            });
            let Ok(Highest { value: Some(value), above }) = found else { panic!("{found:?}") };
            prop_assert!(value <= capacity && capacity <= value + value / 50 + 1, "{value} {capacity}");
            prop_assert_eq!(above, Probe::Lost);
            prop_assert!(probes < 30);
        }
    }
}
