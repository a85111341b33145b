//! A synthetic run like the quickstart's, for tests: idle latency, one stream, eight streams, an outage of 300 ms, and a sweep
//! over streams. Nothing in it was measured.

mod load;

use crate::Writer;
use load::{Noise, histogram, stream_series};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use weir_core::chunk::ChunkRecord;
use weir_core::evidence::{Factor, LINK_RATE, LOSS, UNKNOWN};
use weir_core::metric::{Better, Metric, Scope};
use weir_core::record::*;
use weir_core::regression::FitKind;
use weir_core::shown::{Place, SeriesShown, Shown, TwoViews};
use weir_core::topology::*;
use weir_core::{BitsPerSecond, Bytes};

const TRIALS: u32 = 5;
const CEILING: f64 = 941.48e6;

const METRICS: &[Metric] = &[
    Metric::new(
        "latency.round_trip_seconds",
        "s",
        Better::Lower,
        Scope::Operation,
        "one request and its reply, from the intended send time in open loop",
    )
    .column(11),
    Metric::new(
        "stream.total_goodput_bits_per_second",
        "bit/s",
        Better::Higher,
        Scope::Trial,
        "receiver's payload summed over the flows of a trial",
    )
    .column(10)
    .swept(),
    Metric::new(
        "stream.flow_goodput_bits_per_second",
        "bit/s",
        Better::Higher,
        Scope::Flow,
        "receiver's payload, per flow",
    ),
    Metric::new(
        "stream.fairness_jain",
        "1",
        Better::Higher,
        Scope::Trial,
        "Jain's index over the flows' goodput",
    )
    .column(12),
    Metric::new(
        "stream.retransmitted_segments",
        "segments",
        Better::Lower,
        Scope::Flow,
        "segments sent again",
    )
    .column(13),
    Metric::new("stream.stalled_seconds", "s", Better::Lower, Scope::Trial, "longest time without progress"),
    Metric::new(
        "stream.recovery_seconds",
        "s",
        Better::Lower,
        Scope::Trial,
        "from a fault's end to 90 % of the rate before it",
    )
    .column(14),
];

fn map(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// As whoever measures the series of this run would declare them.
fn shown() -> Shown {
    let series = vec![
        SeriesShown::new("stream.received_bytes", "goodput", Place::Lead(0)),
        SeriesShown { is_queue: true, ..SeriesShown::new("port.queue_bytes", "queue depth", Place::Open(5)) },
        SeriesShown::new("tcp.congestion_window_segments", "congestion window", Place::Open(10)),
        SeriesShown::new("tcp.rtt_seconds", "round trip as TCP saw it", Place::Open(11)),
        SeriesShown::new("port.dropped_loss_packets", "drops so far, random loss", Place::Open(21)),
        SeriesShown::new("port.wire_bytes", "rate on the wire", Place::Folded),
        SeriesShown::new("port.sent_packets", "packets sent", Place::Folded),
        SeriesShown::new("cpu.process_seconds", "CPU in use, each process", Place::Folded),
        SeriesShown {
            sum: "machine".into(),
            ..SeriesShown::new("cpu.busy_seconds", "CPU in use, each core", Place::Folded)
        },
    ];
    let nothing = |name: &str| (name.to_owned().into(), Vec::new().into());
    let views = TwoViews {
        dots: "watch.probe_goodput_bits_per_second".into(),
        reference: ("watch.unimpaired_bits_per_second".into(), 0.9),
        of_dots: nothing("short tests"),
        of_line: nothing("long flow"),
    };
    Shown { series: series.into(), views: vec![views].into(), ..Shown::default() }
}

pub(crate) fn topology() -> Topology {
    let access = Access { rate: Some(BitsPerSecond(10_000_000_000)), delay_ns: 20_000, ..Access::default() };
    let direction = Direction {
        rate: Some(BitsPerSecond(1_000_000_000)),
        delay_ns: 8_000_000,
        queue: Queue::drop_tail(Some(Bytes(2 << 20)), None),
        ..Direction::default()
    };
    let site = |name: &str| Site::new(name, TcpProfile::Modern);
    let host = |name: &str, site| Host::new(name, site, access.clone());
    Topology {
        sites: vec![site("left"), site("right")],
        hosts: vec![host("left-0", 0), host("right-0", 1)],
        links: vec![Link {
            name: "wan".to_owned(),
            between: [0, 1],
            forward: direction.clone(),
            backward: direction,
            mtu: 1500,
        }],
        auxiliary: None,
    }
}

/// Step name, workload, streams, seconds.
const STEPS: [(&str, &str, u64, f64); 4] = [
    ("idle", "latency", 1, 1.7),
    ("one", "stream", 1, 4.0),
    ("eight", "stream", 8, 4.0),
    ("outage", "stream", 1, 4.0),
];

pub(crate) fn plan() -> PlanRecord {
    let steps = STEPS.iter().map(|(name, workload, streams, _)| StepRecord {
        roles: Vec::new(),
        name: (*name).to_owned(),
        workload: (*workload).to_owned(),
        point: (*name).to_owned(),
        parameters: if *workload == "stream" {
            map(json!({"streams": streams}))
        } else {
            map(json!({"size": "64B"}))
        },
        pairs: vec![["left-0".to_owned(), "right-0".to_owned()]],
        rounds: Vec::new(),
        ceiling_bits_per_second: (*workload == "stream").then_some(CEILING),
        steady_after_ns: 0,
    });
    PlanRecord {
        schema: RESULTS_SCHEMA.to_owned(),
        scenario: "quickstart".to_owned(),
        about:
            "One 1 Gbit/s link of 16 ms: idle latency, one stream, eight streams, an outage and the way back"
                .to_owned(),
        origin: None,
        scale: BTreeMap::new(),
        trials: TRIALS,
        trials_min: 3,
        seed: 42,
        configurations: vec![ConfigurationRecord {
            id: String::new(),
            case: None,
            topology: topology(),
            steps: steps.collect(),
            published: BTreeMap::new(),
        }],
        scenario_blake3: None,
        not_judged: Vec::new(),
    }
}

fn measured(unit: &str, n: u64, mean: f64, spread: f64) -> MetricSummary {
    MetricSummary {
        unit: unit.to_owned(),
        n,
        min: mean - 2.0 * spread,
        mean,
        median: mean + spread * 0.1,
        p95: mean + 1.6 * spread,
        p99: mean + 1.9 * spread,
        max: mean + 2.0 * spread,
        ci95: Some([mean - spread, mean + spread]),
        range: None,
    }
}

fn factor(name: &Factor, confidence: f64, evidence: &[&str]) -> LimitingFactor {
    LimitingFactor::new(name, confidence, evidence.iter().map(|line| (*line).to_owned()).collect())
}

fn of_step(step: &str) -> LimitingFactor {
    match step {
        "idle" => factor(&UNKNOWN, 1.0, &["no load: 0.1 % of link.wan.forward used"]),
        "outage" => factor(
            &LOSS,
            0.71,
            &[
                "1,412 of 290,114 segments sent again (0.49 %)",
                "link.wan.forward lost 1,388 packets to the outage",
            ],
        ),
        _ => factor(
            &LINK_RATE,
            0.98,
            &["link.wan.forward ran at 99.3 % of its rate", "its queue was not empty for 97 % of the time"],
        ),
    }
}

fn point(step: &str, metrics: &[(&str, MetricSummary)]) -> PointSummary {
    let plan = plan();
    let planned = plan.configurations[0].steps.iter().find(|it| it.name == step).expect("a planned step");
    PointSummary {
        id: step.to_owned(),
        step: step.to_owned(),
        case: None,
        parameters: planned.parameters.clone(),
        trials: TRIALS,
        valid_trials: if step == "eight" { TRIALS - 1 } else { TRIALS },
        metrics: metrics.iter().map(|(name, metric)| ((*name).to_owned(), metric.clone())).collect(),
        limiting_factor: of_step(step),
        matrix: None,
    }
}

#[allow(clippy::too_many_arguments)]
fn criterion(
    text: &str,
    metric: &str,
    unit: &str,
    bound: Value,
    value: f64,
    spread: f64,
    verdict: Verdict,
    why: &str,
    at: &str,
) -> CriterionResult {
    CriterionResult {
        text: text.to_owned(),
        metric: Some(metric.to_owned()),
        unit: Some(unit.to_owned()),
        bound: map(bound),
        value: Some(json!(value)),
        ci95: Some([value - spread, value + spread]),
        range: None,
        verdict,
        otherwise: None,
        why: why.to_owned(),
        points: vec![at.to_owned()],
        fits: Vec::new(),
    }
}

pub(crate) fn summary() -> Summary {
    let goodput = "stream.total_goodput_bits_per_second";
    let inside = "the 95 % interval lies inside the bound";
    Summary {
        schema: SUMMARY_SCHEMA.to_owned(),
        scenario: "quickstart".to_owned(),
        origin: None,
        scale: BTreeMap::new(),
        verdict: Verdict::Pass,
        criteria: vec![
            criterion(
                "the path answers in the configured 16 ms",
                "latency.round_trip_seconds.median",
                "s",
                json!({"at_most": 0.0166}),
                0.016_243,
                0.000_03,
                Verdict::Pass,
                inside,
                "idle",
            ),
            criterion(
                "one stream fills the link",
                goodput,
                "1",
                json!({"at_least": 0.95}),
                0.9873,
                0.003,
                Verdict::Pass,
                inside,
                "one",
            ),
            criterion(
                "eight streams fill it",
                goodput,
                "1",
                json!({"at_least": 0.97}),
                0.9942,
                0.001,
                Verdict::Pass,
                inside,
                "eight",
            ),
            criterion(
                "and share it",
                "stream.fairness_jain",
                "1",
                json!({"at_least": 0.6}),
                0.912,
                0.041,
                Verdict::Pass,
                inside,
                "eight",
            ),
            criterion(
                "the outage is seen",
                "stream.stalled_seconds.max",
                "s",
                json!({"between": [0.25, 1.0]}),
                0.4127,
                0.052,
                Verdict::Pass,
                inside,
                "outage",
            ),
            criterion(
                "and the rate comes back",
                "stream.recovery_seconds.max",
                "s",
                json!({"at_most": 2.0}),
                0.731,
                0.11,
                Verdict::Pass,
                inside,
                "outage",
            ),
        ],
        points: vec![
            point("idle", &[("latency.round_trip_seconds", measured("s", 500, 0.016_25, 0.000_03))]),
            point(
                "one",
                &[
                    (goodput, measured("bit/s", 5, 0.9873 * CEILING, 2e6)),
                    ("stream.retransmitted_segments", measured("segments", 5, 412.0, 31.0)),
                ],
            ),
            point(
                "eight",
                &[
                    (goodput, measured("bit/s", 4, 0.9942 * CEILING, 1e6)),
                    ("stream.fairness_jain", measured("1", 4, 0.912, 0.04)),
                    ("stream.retransmitted_segments", measured("segments", 32, 208.0, 90.0)),
                ],
            ),
            point(
                "outage",
                &[
                    (goodput, measured("bit/s", 5, 0.81 * CEILING, 9e6)),
                    ("stream.stalled_seconds", measured("s", 5, 0.4127, 0.05)),
                    ("stream.recovery_seconds", measured("s", 5, 0.731, 0.1)),
                ],
            ),
        ],
        warnings: vec![
            "stream.reordered_segments not measured: TCP_INFO on this kernel lacks the field".to_owned(),
        ],
        results: Some("results/quickstart/20260101T120000Z-4f2a".to_owned()),
    }
}

/// The summary with one criterion missed and one open.
pub(crate) fn failing_summary() -> Summary {
    let mut summary = summary();
    summary.verdict = Verdict::Fail;
    summary.scale = BTreeMap::from([("rate".to_owned(), 10.0)]);
    summary.origin = Some("E001-04".to_owned());
    for streams in [1.0_f64, 2.0, 4.0, 8.0, 16.0, 32.0] {
        let mean = CEILING * (1.0 - 0.72_f64.powf(streams));
        let mut swept = summary.points[1].clone();
        swept.id = format!("many/streams={streams}");
        swept.step = "many".to_owned();
        swept.parameters = map(json!({"streams": streams as u64}));
        let goodput = "stream.total_goodput_bits_per_second".to_owned();
        swept.metrics = BTreeMap::from([(goodput, measured("bit/s", 5, mean, 2.5e7 / streams))]);
        summary.points.push(swept);
    }
    summary.criteria[1].verdict = Verdict::Fail;
    summary.criteria[1].value = Some(json!(0.871));
    summary.criteria[1].ci95 = Some([0.862, 0.880]);
    summary.criteria[1].why = "0.871 is below 0.95, and so is the whole 95 % interval".to_owned();
    summary.criteria[3].verdict = Verdict::Inconclusive;
    summary.criteria[3].text =
        "and all eight of them share it as evenly as the queue in front of them allows".to_owned();
    summary.criteria[3].value = None;
    summary.criteria[3].ci95 = None;
    summary.criteria[3].why =
        "2 of 5 trials are valid, 3 are needed: the emulator was late in the others".to_owned();
    summary.criteria.push(CriterionResult {
        text: "the link is what limits it".to_owned(),
        metric: None,
        unit: None,
        bound: map(json!({"limiting_factor": "link-rate"})),
        value: Some(json!("link-rate")),
        ci95: None,
        range: None,
        verdict: Verdict::Pass,
        otherwise: None,
        why: String::new(),
        points: vec!["eight".to_owned()],
        fits: Vec::new(),
    });
    summary.criteria.push(fitted(&summary, FitKind::Slope, [1.0, 4.0], json!({"at_least": 50e6})));
    summary.criteria.push(fitted(&summary, FitKind::Knee, [1.0, 32.0], json!({"between": [4.0, 8.0]})));
    summary
}

/// A criterion with a line that is really drawn, through the points of the sweep over streams.
fn fitted(summary: &Summary, kind: FitKind, over: [f64; 2], bound: Value) -> CriterionResult {
    let goodput = "stream.total_goodput_bits_per_second";
    let on_it = |point: &&PointSummary| point.step == "many";
    let placed = summary.points.iter().filter(on_it).filter_map(|point| {
        let x = point.parameters["streams"].as_f64().filter(|x| (over[0]..=over[1]).contains(x))?;
        Some(FitPoint { point: point.id.clone(), x, y: point.metrics[goodput].mean })
    });
    let points: Vec<FitPoint> = placed.collect();
    let places: Vec<(f64, f64)> = points.iter().map(|it| (it.x, it.y)).collect();
    let (name, unit) = if kind.is_along() {
        ("from five or six streams on the link is full", "1")
    } else {
        ("every stream up to four adds its share", "bit/s")
    };
    let drawn = kind.draw(&places).expect("points that are not one line");
    let spread = drawn.value * 0.04;
    let inside = "the 95 % interval lies inside the bound";
    let mut criterion =
        criterion(name, goodput, unit, bound, drawn.value, spread, Verdict::Pass, inside, &points[0].point);
    criterion.fits.push(FitResult {
        kind,
        metric: goodput.to_owned(),
        statistic: "mean".to_owned(),
        x: "streams".to_owned(),
        x_unit: "1".to_owned(),
        y_unit: "bit/s".to_owned(),
        points,
        corners: drawn.corners,
        value: drawn.value,
        ci95: criterion.ci95,
        range: None,
    });
    criterion
}

/// A second configuration: four sites in a ring, and a sweep over streams.
fn sweep(plan: &mut PlanRecord) {
    let mut topology = topology();
    let access = topology.hosts[0].access.clone();
    for (site, name, hosts) in [(0, "left", 1..13), (2, "archive", 0..2), (3, "cern", 0..250)] {
        if site >= topology.sites.len() {
            topology.sites.push(Site::new(name, TcpProfile::Stock));
        }
        topology
            .hosts
            .extend(hosts.map(|number| Host::new(&format!("{name}-{number}"), site, access.clone())));
    }
    let mut lossy = topology.links[0].clone();
    lossy.forward.loss = 8e-6;
    for (name, between) in [("to-archive", [1, 2]), ("long-haul", [2, 3]), ("back", [3, 0])] {
        lossy.forward.delay_ns *= 2;
        topology.links.push(Link { name: name.to_owned(), between, ..lossy.clone() });
    }
    plan.scale = BTreeMap::from([("rate".to_owned(), 10.0)]);
    plan.origin = Some("E001-04".to_owned());
    plan.configurations[0].topology = topology;
    let steps = &mut plan.configurations[0].steps;
    for streams in [1, 2, 4, 8, 16, 32] {
        let mut step = steps[1].clone();
        step.name = "many".to_owned();
        step.point = format!("many/streams={streams}");
        step.parameters = map(json!({"streams": streams}));
        steps.push(step);
    }
}

/// Gives the run in `directory` fine series.
pub(crate) fn write_chunks(directory: &Path, chunks: impl IntoIterator<Item = ChunkRecord>) {
    let line = |chunk: ChunkRecord| serde_json::to_string(&chunk).expect("no chunk fails to be text") + "\n";
    let text: String = chunks.into_iter().map(line).collect();
    std::fs::write(directory.join(crate::writer::CHUNKS), text).expect("room");
}

/// Writes the whole run into `directory`.
pub(crate) fn write(directory: &Path, summary: &Summary, interval_ms: usize) {
    let mut writer = Writer::create(directory).expect("a new folder");
    writer.scenario_toml("[scenario]\nname = \"quickstart\"\ntrials = 5\nseed = 42\n").expect("room");
    writer
        .environment(&json!({
            "kernel": "Linux 6.12.10-amd64", "cpu": {"model": "AMD EPYC 9354", "cores": 2}, "clock_source": "tsc", "clock": "shared",
            "load_before_start": [0.12, 0.08, 0.05], "memory_bytes": 8_335_000_000_u64, "weir": "0.1.0",
            "sysctl": {"net.ipv4.tcp_rmem": "4096 131072 6291456", "net.ipv4.tcp_wmem": "4096 16384 4194304", "net.core.default_qdisc": "fq"},
            "lab": {"hosts": 2, "tcp_profile": {"left": "modern", "right": "modern"}}
        }))
        .expect("room");
    let mut plan = plan();
    if summary.points.iter().any(|point| point.step == "many") {
        sweep(&mut plan);
    }
    writer.plan(&plan).expect("room");
    writer.metrics(METRICS).expect("room");
    writer.shown(&shown()).expect("room");
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let mut clock_ns = 5_000_000_000_u64;
    for trial in 0..TRIALS {
        let trial_start = clock_ns;
        let mut steps = Vec::new();
        let event = |kind: &str, step: Option<&str>, at_ns: u64, text: String, data: Value| TimelineEvent {
            at_ns,
            utc: format!(
                "2026-01-01T12:{:02}:{:02}.{:06}Z",
                at_ns / 60_000_000_000,
                at_ns / 1_000_000_000 % 60,
                at_ns / 1_000 % 1_000_000
            ),
            event: kind.to_owned(),
            configuration: Some(String::new()),
            trial: Some(trial),
            step: step.map(str::to_owned),
            trial_ns: Some((at_ns - trial_start) as i64),
            text,
            data: map(data),
        };
        writer
            .timeline(&event("trial-start", None, clock_ns, format!("trial {trial} begins"), json!({})))
            .expect("room");
        for (step, workload, streams, seconds) in STEPS {
            let start_ns = (clock_ns - trial_start) as i64;
            writer
                .timeline(&event("step-start", Some(step), clock_ns, format!("{step} begins"), json!({})))
                .expect("room");
            if step == "outage" {
                let data = json!({"fault": "cut", "on": "link.wan"});
                writer
                    .timeline(&event(
                        "fault-start",
                        Some(step),
                        clock_ns + 1_000_000_000,
                        "cut: outage of link.wan for 300 ms".to_owned(),
                        data.clone(),
                    ))
                    .expect("room");
                writer
                    .timeline(&event(
                        "fault-end",
                        Some(step),
                        clock_ns + 1_300_000_000,
                        "cut: link.wan is back".to_owned(),
                        data,
                    ))
                    .expect("room");
            }
            let end_ns = start_ns + (seconds * 1e9) as i64;
            let valid = !(step == "eight" && trial == 3);
            let mut rows = Vec::new();
            if workload == "latency" {
                let value = Observed::Histogram(histogram(&mut noise, 100));
                rows.push(Row {
                    entity: "flow.left-0.right-0.0".to_owned(),
                    metric: "latency.round_trip_seconds".to_owned(),
                    value,
                });
            } else {
                let goodput = Observed::Value(CEILING * (0.985 + noise.next() * 0.01));
                rows.push(Row {
                    entity: "trial".to_owned(),
                    metric: "stream.total_goodput_bits_per_second".to_owned(),
                    value: goodput,
                });
            }
            rows.push(load::lateness());
            let loaded = if workload == "latency" {
                Vec::new()
            } else {
                stream_series(step, streams as usize, seconds, start_ns, interval_ms, &mut noise)
            };
            for series in loaded.into_iter().chain(load::machine_series(seconds, start_ns)) {
                let (point, step) = (step.to_owned(), step.to_owned());
                writer.samples(&SampleRecord { point, trial, step, series }).expect("room");
            }
            let record = TrialRecord {
                point: step.to_owned(),
                configuration: String::new(),
                step: step.to_owned(),
                trial,
                valid,
                reason: (!valid)
                    .then(|| "the load ran 3.12 s of the planned 3 s, more than 1 % beyond".to_owned()),
                start_ns,
                end_ns,
                limiting_factor: of_step(step),
                rows,
                pairs: Vec::new(),
                granted: Map::new(),
                failure_count: 0,
            };
            steps.push(record);
            clock_ns += (seconds * 1e9) as u64;
            writer
                .timeline(&event("step-end", Some(step), clock_ns, format!("{step} ends"), json!({})))
                .expect("room");
        }
        writer.trial(&steps).expect("room");
        clock_ns += 400_000_000;
    }
    writer.summary(summary).expect("room");
}
