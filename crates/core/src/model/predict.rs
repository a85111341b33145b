//! What a model says of a metric at a point, and why it says nothing where it does not.

use super::{
    Aggregate, Flow, Model, Segments, aggregates, ceiling_of, ceiling_of_metric, closed_replay, flow_of,
    fluid, has_ceiling, mathis, overload_backlog, slow_start, window,
};
use crate::metric::{Metric, Modelled};
use crate::scenario::plan::{Configuration, Step};
use crate::units::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;

impl Model {
    /// Why the model says nothing of this metric at this point, found without computing what it would say; `None` where it
    /// does.
    pub fn refusal(self, configuration: &Configuration, step: &Step, metric: &Metric) -> Option<String> {
        let mut one = step.clone();
        one.pairs.truncate(1);
        match self {
            _ if !self.speaks_of(metric) => Some(format!("{} and {} is not", self.subject(), metric.name)),
            Model::Ceiling | Model::FluidShare if metric.unit == "bit/s" => {
                (!has_ceiling(configuration, step)).then(|| "no link on the path has a rate".to_owned())
            }
            _ => self.predict(configuration, &one, metric).err(),
        }
    }

    /// What the model says, in the metric's unit. Metrics `domain.total_…` are of all flows together, others of one flow in
    /// the mean. Errors: what the step does not say, or what the model is not valid for.
    pub fn predict(self, configuration: &Configuration, step: &Step, metric: &Metric) -> Result<f64, String> {
        if !self.speaks_of(metric) {
            return Err(format!("{} and {} is not", self.subject(), metric.name));
        }
        let of_flows =
            |rate: &dyn Fn(usize, usize) -> Result<f64, String>| of_flows(configuration, step, metric, rate);
        let topology = &configuration.topology;
        let rtt = |from, to| topology.rtt(from, to).filter(|rtt| !rtt.is_zero());
        let no_rtt = || "the path has no round trip".to_owned();
        match self {
            Model::FluidShare if metric.unit == "s" => {
                let bytes = bytes_of(step)?;
                let links = topology.directed_links();
                let flows = aggregates_of(configuration, step)?;
                let seconds = fluid::mean_completion(&links, &flows, bytes.0 as f64);
                seconds.ok_or_else(|| "a flow has no share of its path".to_owned())
            }
            Model::Ceiling | Model::FluidShare => ceiling_of_metric(configuration, step, metric.name)
                .ok_or_else(|| "no link on the path has a rate".to_owned()),
            Model::Window => {
                let tcp = step.values.table("tcp");
                let own = tcp.and_then(|tcp| tcp.size("window")).ok_or("the step sets no `tcp.window`")?;
                of_flows(&|from, to| rtt(from, to).and_then(|rtt| window(own, rtt)).ok_or_else(no_rtt))
            }
            Model::Mathis => {
                let tcp = step.values.table("tcp");
                let congestion = tcp.and_then(|tcp| tcp.text("congestion")).unwrap_or_default();
                if congestion != "reno" {
                    return Err(format!("it is not valid for {congestion}, only for reno"));
                }
                let links = topology.directed_links();
                of_flows(&|from, to| {
                    let path = topology.path(from, to).ok_or("there is no path")?;
                    if path.iter().any(|index| links[*index].impairments.burst_loss.is_some()) {
                        return Err("it is not valid for loss in bursts".to_owned());
                    }
                    let kept: f64 = path.iter().map(|index| 1.0 - links[*index].loss).product();
                    let mtu = path.iter().map(|index| links[*index].mtu).min().unwrap_or(1500);
                    let segments = Segments::of(step).between(topology, from, to);
                    let mss = Bytes(u64::from(segments.payload_bytes(mtu)));
                    let rtt = rtt(from, to).ok_or_else(no_rtt)?;
                    mathis(mss, rtt, 1.0 - kept)
                        .ok_or_else(|| "no link on the path loses at random".to_owned())
                })
            }
            Model::SlowStart => {
                let bytes = bytes_of(step)?;
                let (from, to) = *step.pairs.first().ok_or("no host takes part")?;
                let links = topology.directed_links();
                let mtu = topology.path(from, to).into_iter().flatten().map(|index| links[index].mtu).min();
                let mss = Segments::of(step).between(topology, from, to).payload_bytes(mtu.unwrap_or(1500));
                let share = ceiling_of(configuration, step)
                    .map(|ceiling| ceiling.total_bits_per_second / ceiling.flow_count as f64);
                let own = step.values.table("tcp").and_then(|tcp| tcp.size("window"));
                let rtt = topology.rtt(from, to).unwrap_or(Duration::ZERO);
                slow_start(bytes, Bytes(u64::from(mss)), rtt, share, own)
                    .ok_or_else(|| "the path has neither a round trip nor a rate".to_owned())
            }
            Model::OverloadBacklog => backlog(configuration, step),
            Model::ClosedReplay => replayed(step),
        }
    }

    fn speaks_of(self, metric: &Metric) -> bool {
        let completion = metric.modelled == Modelled::Completion;
        match self {
            Model::Ceiling | Model::Window | Model::Mathis => metric.unit == "bit/s",
            Model::FluidShare => metric.unit == "bit/s" || completion,
            Model::SlowStart => completion,
            Model::OverloadBacklog => metric.modelled == Modelled::Undelivered,
            Model::ClosedReplay => metric.modelled == Modelled::JobTime,
        }
    }

    fn subject(self) -> &'static str {
        match self {
            Model::Ceiling => "the ceiling is a rate,",
            Model::Window | Model::Mathis => "the model is of a rate,",
            Model::FluidShare => "the model is of a rate or of the time that bytes take,",
            Model::SlowStart => "the model is of the time that bytes take,",
            Model::OverloadBacklog => "the model is of the share of events that is not delivered,",
            Model::ClosedReplay => "the model is of the time of replayed jobs,",
        }
    }
}

/// Bytes that each flow of the step moves.
fn bytes_of(step: &Step) -> Result<Bytes, String> {
    let size = |key: &str| match step.values.get(key) {
        Some(crate::Value::Size(size)) => Some(*size),
        _ => None,
    };
    size("bytes")
        .or_else(|| size("size"))
        .ok_or_else(|| "the step does not say how many bytes a flow moves".to_owned())
}

fn aggregates_of(configuration: &Configuration, step: &Step) -> Result<Vec<Aggregate>, String> {
    let topology = &configuration.topology;
    let streams = step.values.count("streams").unwrap_or(1);
    let flow = flow_of(step).unwrap_or(Flow::Up);
    aggregates(topology, &topology.directed_links(), &step.pairs, streams, flow, Segments::of(step))
        .ok_or_else(|| "no link on the path has a rate".to_owned())
}

/// The capacity of an event builder is that of its slowest flow, from a source to a builder, where all have as much to carry.
fn replayed(step: &Step) -> Result<f64, String> {
    let given = |key: &str| format!("the step does not say `{key}`");
    let values = &step.values;
    let jobs = values.count("jobs").ok_or_else(|| given("jobs"))?;
    let reads = values.count("reads").ok_or_else(|| given("reads"))?;
    let service = values.duration("bottleneck").ok_or_else(|| given("bottleneck"))?;
    Ok(closed_replay(jobs, reads, values.duration("think").unwrap_or_default(), service))
}

fn backlog(configuration: &Configuration, step: &Step) -> Result<f64, String> {
    let given = |key: &str| format!("the step does not say `{key}`");
    let values = &step.values;
    let rate_hz = values.frequency("rate").ok_or_else(|| given("rate"))?.0;
    let fragment = values.size("fragment_size").ok_or_else(|| given("fragment_size"))?;
    let run = values
        .duration("duration")
        .or_else(|| values.count("events").map(|events| Duration::from_secs_f64(events as f64 / rate_hz)))
        .ok_or_else(|| given("duration"))?;
    let wait = values.duration("stop_wait").ok_or_else(|| given("stop_wait"))?;
    let of_each = values.count("sources_per_host").unwrap_or(1);
    let sources = step.pairs.iter().map(|(source, _)| source).collect::<BTreeSet<_>>().len();
    let event_bits = 8.0 * (fragment.0.max(1) * of_each * sources.max(1) as u64) as f64;
    let flows = aggregates_of(configuration, step)?;
    let shares = fluid::fill(&configuration.topology.directed_links(), &flows);
    let slowest = shares.into_iter().flatten().fold(f64::INFINITY, f64::min);
    let deliverable_hz = step.pairs.len() as f64 * slowest / event_bits;
    overload_backlog(rate_hz, deliverable_hz, run, wait)
        .ok_or_else(|| "the step issues no heartbeat".to_owned())
}

/// A rate for each flow, never more than the ceiling leaves: their sum for a `total_` metric, else their mean.
fn of_flows(
    configuration: &Configuration,
    step: &Step,
    metric: &Metric,
    rate: &dyn Fn(usize, usize) -> Result<f64, String>,
) -> Result<f64, String> {
    let streams = step.values.count("streams").unwrap_or(1) as f64;
    let mut sum = 0.0;
    let mut flows = 0.0;
    for (first, second) in &step.pairs {
        let ways: &[(usize, usize)] = match flow_of(step).unwrap_or(Flow::Up) {
            Flow::Up => &[(*first, *second)],
            Flow::Down => &[(*second, *first)],
            Flow::Both => &[(*first, *second), (*second, *first)],
        };
        for (from, to) in ways {
            sum += streams * rate(*from, *to)?;
            flows += streams;
        }
    }
    let most = ceiling_of(configuration, step).map_or(f64::INFINITY, |it| it.total_bits_per_second);
    let total = sum.min(most);
    let of_all = metric.name.split_once('.').is_some_and(|(_, quantity)| quantity.starts_with("total_"));
    Ok(if of_all { total } else { total / flows })
}
