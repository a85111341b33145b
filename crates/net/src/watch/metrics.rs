//! What a watch measures, beside what every stream does.

use crate::generator;
use crate::stream;
use std::sync::LazyLock;
use weir_core::metric::{Better, Metric, Scope};

pub const PROBE: &str = "watch.probe_goodput_bits_per_second";
pub const PROBE_PERIOD: &str = "watch.probe_longest_period_seconds";
pub const PROBES_FAILED: &str = "watch.failed_probes";
pub const PROBES_GOOD: &str = "watch.good_probe_ratio";
pub const BELOW: &str = "watch.below_ratio";
pub const DEEPEST: &str = "watch.deepest_second_ratio";
pub const UNIMPAIRED: &str = "watch.unimpaired_bits_per_second";
pub const SAMPLES: &str = "watch.samples";
pub const SAMPLES_LOST: &str = "watch.lost_samples";

static OWN: &[Metric] = &[
    Metric::new(
        PROBE,
        "bit/s",
        Better::Higher,
        Scope::Operation,
        "One probe: payload that the receiving program got on a connection made for it, from its first bytes on for \
            `probe_duration`, divided by the time between the receiver's own looks at the clock. Slow start is in it, as it is \
            in any scheduled test.",
    ),
    Metric::new(
        PROBE_PERIOD,
        "s",
        Better::Neither,
        Scope::Operation,
        "The longest period of which one probe sees the four cycles that telling it takes: a quarter of its time.",
    ),
    Metric::new(
        PROBES_FAILED,
        "probes",
        Better::Lower,
        Scope::Trial,
        "Probes that were due and gave no figure: no connection, or one that broke.",
    ),
    Metric::new(
        PROBES_GOOD,
        "1",
        Better::Higher,
        Scope::Trial,
        "Share of the probes that reported at least 0.9 of the unimpaired rate: what scheduled tests would have said \
            of the path. Failed ones did not.",
    ),
    Metric::new(
        UNIMPAIRED,
        "bit/s",
        Better::Neither,
        Scope::Trial,
        "What shares of the unimpaired rate are of: `unimpaired` where it is given, else the highest of all probes \
            and of the rates that 95 % of the seconds of each long flow stay below.",
    ),
    Metric::new(
        BELOW,
        "1",
        Better::Lower,
        Scope::Flow,
        "Share of the whole seconds of the long flow's steady state that carried less than 0.9 of the unimpaired \
            rate (rates are told apart to 1 %).",
    ),
    Metric::new(
        DEEPEST,
        "1",
        Better::Higher,
        Scope::Flow,
        "What the poorest whole second of the long flow's steady state carried, as a share of the unimpaired rate.",
    ),
    Metric::new(
        SAMPLES,
        "samples",
        Better::Neither,
        Scope::Flow,
        "Samples taken of the long flow's sending end.",
    ),
    Metric::new(
        SAMPLES_LOST,
        "samples",
        Better::Lower,
        Scope::Host,
        "Samples of a host that nobody carried away in time and that are missing in the fine series.",
    ),
];

/// Those of a stream, whose long flows a watch has, and its own.
pub static METRICS: LazyLock<Vec<Metric>> = LazyLock::new(|| {
    let streams = stream::metrics::METRICS.iter().copied();
    let clocks = [generator::LATENESS.name, generator::MISSED.name];
    streams.filter(|metric| !clocks.contains(&metric.name)).chain(OWN.iter().copied()).collect()
});
