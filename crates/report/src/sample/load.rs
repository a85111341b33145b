//! Series and distributions of the synthetic run.

use super::CEILING;
use weir_core::record::{Histogram, Observed, Row, Series};

/// A small generator: samples need texture, not quality.
pub(super) struct Noise(pub u64);

impl Noise {
    /// Between 0 and 1.
    pub fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

pub(super) fn histogram(noise: &mut Noise, count: usize) -> Histogram {
    let mut values: Vec<u64> = (0..count)
        .map(|_| {
            let tail = -noise.next().max(1e-9).ln();
            let spike = if noise.next() > 0.985 { noise.next() * 400_000.0 } else { 0.0 };
            (16_190_000.0 + tail * 38_000.0 + spike) as u64
        })
        .collect();
    values.sort_unstable();
    let mut histogram = Histogram {
        min_ns: values[0],
        max_ns: values[count - 1],
        sum_ns: values.iter().map(|value| *value as f64).sum(),
        ..Histogram::default()
    };
    for value in values {
        let edge = value.div_ceil(8_192) * 8_192;
        if histogram.value_ns.last() == Some(&edge) {
            *histogram.count.last_mut().expect("one count a value") += 1;
        } else {
            histogram.value_ns.push(edge);
            histogram.count.push(1);
        }
    }
    histogram
}

/// Rate of all flows at `second` of a stream step, as a share of the ceiling.
fn share(step: &str, second: f64, noise: &mut Noise) -> f64 {
    let ramp = (second / 0.28).min(1.0).powi(2);
    let base = match step {
        "outage" if (1.0..1.3).contains(&second) => 0.0,
        "outage" if (1.3..1.42).contains(&second) => 0.0,
        "outage" if second >= 1.42 => (0.35 + (second - 1.42) * 0.95).min(0.995),
        "one" if (0.4..0.9).contains(&second) => 0.78 + (second - 0.4) * 0.43,
        _ => 0.993,
    };
    (base * ramp * (1.0 + (noise.next() - 0.5) * 0.012)).min(1.0)
}

pub(super) fn stream_series(
    step: &str,
    streams: usize,
    seconds: f64,
    start_ns: i64,
    interval_ms: usize,
    noise: &mut Noise,
) -> Vec<Series> {
    let samples = (seconds * 1e3) as usize / interval_ms + 1;
    let t_ns: Vec<i64> =
        (0..samples).map(|index| start_ns + (index * interval_ms) as i64 * 1_000_000).collect();
    let named = |entity: String, name: &str, unit: &str, cumulative| Series {
        entity,
        name: name.to_owned(),
        unit: unit.to_owned(),
        cumulative,
        t_ns: t_ns.clone(),
        value: Vec::with_capacity(samples),
    };
    let flow = |flow: usize| format!("flow.left-0.right-0.{flow}");
    let mut received: Vec<Series> =
        (0..streams).map(|it| named(flow(it), "stream.received_bytes", "B", true)).collect();
    let mut windows: Vec<Series> =
        (0..streams).map(|it| named(flow(it), "tcp.congestion_window_segments", "segments", false)).collect();
    let mut round_trips: Vec<Series> =
        (0..streams).map(|it| named(flow(it), "tcp.rtt_seconds", "s", false)).collect();
    let mut queue = named("link.wan.forward".to_owned(), "port.queue_bytes", "B", false);
    let mut backward = named("link.wan.backward".to_owned(), "port.queue_bytes", "B", false);
    let drops = named("link.wan.forward".to_owned(), "port.dropped_loss_packets", "packets", true);
    let mut weights: Vec<f64> = (0..streams).map(|_| 0.5 + noise.next()).collect();
    let mut totals = vec![0.0; streams];
    let mut standing: f64 = 0.0;
    for index in 0..samples {
        let second = (index * interval_ms) as f64 / 1e3;
        let rate = share(step, second, noise) * CEILING / 8.0;
        let sum: f64 = weights.iter().sum();
        standing = if rate == 0.0 {
            0.0
        } else {
            (standing + (noise.next() - 0.47) * 9e4 * (interval_ms as f64).sqrt()).clamp(0.0, 2_097_152.0)
        };
        for it in 0..streams {
            received[it].value.push(totals[it]);
            totals[it] += rate * weights[it] / sum * interval_ms as f64 / 1e3;
            let window = rate * weights[it] / sum * (0.016 + standing / 125e6) / 1448.0;
            windows[it].value.push(if rate == 0.0 { 1.0 } else { window.round().max(10.0) });
            round_trips[it].value.push(0.01608 + standing / 125e6);
            weights[it] = (weights[it] + (noise.next() - 0.5) * 0.03).clamp(0.3, 2.0);
        }
        queue.value.push(standing.round());
        backward.value.push(0.0);
    }
    let mut drops = drops;
    drops.value = vec![0.0; samples];
    received.into_iter().chain(windows).chain(round_trips).chain([queue, backward, drops]).collect()
}

/// What is sampled whatever the load: CPU of cores and processes, and the links.
pub(super) fn machine_series(seconds: f64, start_ns: i64) -> Vec<Series> {
    let samples = (seconds * 10.0) as usize + 1;
    let counter = |entity: &str, name: &str, unit: &str, per_sample: f64| Series {
        entity: entity.to_owned(),
        name: name.to_owned(),
        unit: unit.to_owned(),
        cumulative: true,
        t_ns: (0..samples).map(|index| start_ns + index as i64 * 100_000_000).collect(),
        value: (0..samples)
            .map(|index| 6_000.0 + index as f64 * (0.8 + index as f64 / 100.0) * per_sample)
            .collect(),
    };
    vec![
        counter("machine", "cpu.busy_seconds", "s", 0.12),
        counter("machine.cpu0", "cpu.busy_seconds", "s", 0.09),
        counter("machine.cpu1", "cpu.busy_seconds", "s", 0.03),
        counter("process.fabric", "cpu.process_seconds", "s", 0.08),
        counter("process.left-0", "cpu.process_seconds", "s", 0.0),
        counter("link.wan.forward", "port.wire_bytes", "B", 8_000.0),
        counter("link.wan.backward", "port.wire_bytes", "B", 7_000.0),
        counter("link.wan.forward", "port.sent_packets", "packets", 6.0),
    ]
}

pub(super) fn lateness() -> Row {
    let histogram = Histogram {
        value_ns: vec![10_000, 900_000],
        count: vec![985, 15],
        min_ns: 1_700,
        max_ns: 899_000,
        sum_ns: 23e6,
    };
    Row {
        entity: "trial".to_owned(),
        metric: "fabric.lateness_seconds".to_owned(),
        value: Observed::Histogram(histogram),
    }
}
