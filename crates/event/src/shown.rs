//! How the series and counts of event building are shown.

use crate::metrics::{BUILT, DROPPED_FOR};
use std::borrow::Cow::Borrowed;
use weir_core::shown::{End, Ledger, Place, SeriesShown, Shown};

pub static SHOWN: Shown =
    Shown { series: Borrowed(SERIES), ledgers: Borrowed(&[LEDGER]), views: Borrowed(&[]) };

const SERIES: &[SeriesShown] = &[
    SeriesShown {
        name: Borrowed("event.taken_bytes"),
        spoken: Borrowed("goodput"),
        place: Place::Lead(1),
        of: (Borrowed("builder"), Borrowed("builders")),
        is_queue: false,
        sum: Borrowed(""),
    },
    SeriesShown::new("event.held", "events held", Place::Open(2)),
    SeriesShown::new("event.generated", "heartbeats", Place::Folded),
    SeriesShown::new("event.heartbeats", "heartbeats", Place::Folded),
    SeriesShown::new("event.acknowledged", "acknowledgements", Place::Folded),
];

const LEDGER: Ledger = Ledger {
    whole: (Borrowed("event.generated"), Borrowed("generated")),
    ends: Borrowed(&[
        (Borrowed("event.complete"), Borrowed("complete"), End::Good),
        (Borrowed("event.partial"), Borrowed("partial"), End::Part),
        (Borrowed(DROPPED), Borrowed("dropped"), End::Bad),
        (Borrowed("event.held"), Borrowed("held"), End::Open),
    ]),
    reasons: Some((Borrowed(DROPPED), Borrowed(DROPPED_FOR), Borrowed("reason."))),
    holders: (Borrowed(BUILT), Borrowed("builder"), Borrowed("builders")),
    caption: Borrowed("how every event ended, and where the complete ones were built."),
};
const DROPPED: &str = "event.dropped";
