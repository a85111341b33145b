//! How a watched path is shown.

use super::metrics::{BELOW, DEEPEST, PROBE, PROBE_PERIOD, PROBES_GOOD, UNIMPAIRED};
use std::borrow::Cow::Borrowed;
use weir_core::shown::{Part, Place, SeriesShown, Shown, TwoViews};

pub static SHOWN: Shown = Shown {
    series: Borrowed(&[SeriesShown::new(PROBE, "goodput of short tests", Place::Elsewhere)]),
    ledgers: Borrowed(&[]),
    views: Borrowed(&[VIEWS]),
};

const VIEWS: TwoViews = TwoViews {
    dots: Borrowed(PROBE),
    reference: (Borrowed(UNIMPAIRED), super::outcome::GOOD_RATIO),
    of_dots: (
        Borrowed("short tests"),
        Borrowed(&[
            Borrowed(&[
                Part::Percent(Borrowed(PROBES_GOOD)),
                Part::Text(Borrowed(" of ")),
                Part::Dots(Borrowed("test"), Borrowed("tests")),
                Part::Text(Borrowed(" reported at least 0.9 of the unimpaired rate")),
            ]),
            Borrowed(&[
                Part::Text(Borrowed("each is too short for periods beyond ")),
                Part::Figure(Borrowed(PROBE_PERIOD), Borrowed("s")),
            ]),
        ]),
    ),
    of_line: (
        Borrowed("long flow"),
        Borrowed(&[Borrowed(&[
            Part::Percent(Borrowed(BELOW)),
            Part::Text(Borrowed(
                " of its seconds were below 0.9 of the unimpaired rate; the poorest carried ",
            )),
            Part::Percent(Borrowed(DEEPEST)),
            Part::Text(Borrowed(" of it")),
        ])]),
    ),
};
