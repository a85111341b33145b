//! Steps whose pairs take turns: what is said of their rounds, and one record of all turns.

use crate::machine::core_count;
use crate::run::measure::{Measured, Window};
use crate::run::outlook;
use crate::run::records::{Lateness, Recorder, Taken};
use crate::run::trial::TrialOutput;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;
use weir_agent::job::{StepJob, StepResult};
use weir_core::evidence::UNKNOWN;
use weir_core::failure::Failure;
use weir_core::record::{LimitingFactor, Observed, PairRecord, Row, Series, TrialRecord};
use weir_core::scenario::{Step, StepStart};
use weir_core::statistics::most_frequent;
use weir_core::topology::Topology;

/// Pairs that an event names; more are counted.
const NAMED_MAX: usize = 8;

/// When each group of a trial's jobs is planned to run: the jobs of one load together.
pub fn planned(jobs: &[StepJob<'_>]) -> Vec<Range<Duration>> {
    let mut groups: BTreeMap<usize, (&StepStart, Duration)> = BTreeMap::new();
    for job in jobs {
        let (_, longest) = groups.entry(job.group).or_insert((&job.start, Duration::ZERO));
        *longest = (*longest).max(job.estimate.duration);
    }
    outlook::windows(groups.into_values())
}

/// `step matrix: round 2 of 6: a-0 to b-0, c-0 to d-0`
pub fn round_text(topology: &Topology, step: &Step, round: usize) -> String {
    let pairs = &step.rounds[round];
    let name = |host: usize| topology.hosts[host].name.as_str();
    let named = pairs.iter().take(NAMED_MAX).map(|pair| {
        let (from, to) = step.pairs[*pair];
        format!("{} to {}", name(from), name(to))
    });
    let more = match pairs.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = named.collect::<Vec<_>>().join(", ");
    format!("step {}: round {} of {}: {named}{more}", step.name, round + 1, step.rounds.len())
}

/// What the turns of a step leave, gathered.
#[derive(Default)]
struct Gathered {
    pairs: Vec<(usize, PairRecord)>,
    rows: Vec<Row>,
    granted: serde_json::Map<String, serde_json::Value>,
    failures: Vec<Failure>,
    failure_count: u64,
    own: Vec<Series>,
    of_hosts: BTreeMap<(String, String), Series>,
    /// Names of flows that are taken.
    flows: BTreeSet<String>,
    /// First and last begin of each round, ns.
    began_ns: BTreeMap<usize, (u64, u64)>,
}

/// Makes one record of all turns of a step. A turn that failed is told beside the others, and the trial counts as long as one
/// pair does; `broken_off` says that the trial was ended from outside, and does not.
pub fn record(
    recorder: &Recorder<'_>,
    turns: Vec<(usize, StepResult)>,
    lateness: &dyn Fn(usize) -> Lateness,
    broken_off: bool,
    output: &mut TrialOutput,
) {
    let jobs: Vec<usize> = turns.iter().map(|(job, _)| *job).collect();
    let Some(first) = jobs.first().copied() else { return };
    let input = recorder.input;
    let configuration = input.configuration;
    let step = &configuration.steps[input.parts[first].step];
    let mut gathered = Gathered::default();
    for (job, result) in turns {
        let Some(turn) = input.parts[job].turn else { continue };
        let taken = recorder.take(job, &step.of_pair(turn.pair), result, lateness(job));
        gathered.add(&configuration.topology, step, (turn.pair, turn.round), taken);
    }
    let Gathered { mut pairs, mut rows, granted, failures, failure_count, own, of_hosts, began_ns, .. } =
        gathered;
    // A host that was lost before the step fails its turns then, and they are not when the step was.
    let began = || pairs.iter().filter(|(_, pair)| pair.start_ns < pair.end_ns);
    let whole = Window {
        start_ns: began().map(|(_, pair)| pair.start_ns).min().unwrap_or(0),
        end_ns: began().map(|(_, pair)| pair.end_ns).max().unwrap_or(0),
    };
    pairs.sort_by_key(|(pair, _)| *pair);
    let pairs: Vec<PairRecord> = pairs.into_iter().map(|(_, pair)| pair).collect();
    let of_hosts: Vec<Series> = of_hosts.into_values().collect();
    let faults = recorder.faults_of(step, whole);
    let before = jobs.iter().find_map(|job| Some(lateness(*job)?.0));
    let after = jobs.iter().rev().find_map(|job| Some(lateness(*job)?.1));
    let edges = before.zip(after);
    // The links, the fabric and the machine over the whole step, its rounds and what lies between them.
    let measured = Measured {
        topology: &configuration.topology,
        pairs: &step.pairs,
        ceiling_bits_per_second: None,
        whole,
        steady: whole,
        series: recorder.series,
        of_hosts: &of_hosts,
        faults: &faults,
        outcomes: &[],
        lateness: edges,
        core_count: core_count(),
    };
    rows.extend(measured.rows());
    if let Some(spread_ns) = began_ns.values().map(|(first, last)| last - first).max() {
        rows.push(Row {
            entity: "trial".to_owned(),
            metric: "control.start_spread_seconds".to_owned(),
            value: Observed::Value(spread_ns as f64 / 1e9),
        });
    }
    recorder.samples(step, whole, own, &of_hosts, output);
    recorder.failures(step, failures, output);
    let factor = limiting_factor(&pairs);
    let reason = does_not_count(&pairs, broken_off).or_else(|| factor.unfit());
    output.records.push(TrialRecord {
        point: step.point.clone(),
        configuration: configuration.id.clone(),
        step: step.name.clone(),
        trial: input.trial,
        valid: reason.is_none(),
        reason,
        start_ns: whole.start_ns,
        end_ns: whole.end_ns,
        limiting_factor: factor,
        rows,
        pairs,
        granted,
        failure_count,
    });
}

impl Gathered {
    /// `at`: pair and round.
    fn add(&mut self, topology: &Topology, step: &Step, at: (usize, usize), taken: Taken) {
        let (pair, round) = at;
        let entity = step.pair_entity(topology, pair);
        let (from, to) = step.pairs[pair];
        let mut rows = taken.rows;
        for row in &mut rows {
            if row.entity == "trial" || row.entity.starts_with("flow.") {
                row.entity.clone_from(&entity);
            }
        }
        let failed = taken.reason.is_some();
        let kept = if failed { std::mem::take(&mut rows) } else { Vec::new() };
        self.rows.append(&mut rows);
        let mut names = BTreeMap::new();
        for mut series in taken.own {
            series.entity = self.free_name(&series.entity, &mut names);
            self.own.push(series);
        }
        for mut failure in taken.failures {
            failure.job = self.free_name(&failure.job, &mut names);
            self.failures.push(failure);
        }
        self.failure_count += taken.failure_count;
        for (of, granted) in taken.granted {
            let of = self.free_name(&of, &mut names);
            self.granted.insert(of, granted);
        }
        self.flows.extend(names.into_values());
        for series in taken.of_hosts {
            self.add_host_series(series);
        }
        for began in taken.began_ns {
            let (first, last) = self.began_ns.entry(round).or_insert((began, began));
            (*first, *last) = ((*first).min(began), (*last).max(began));
        }
        self.pairs.push((
            pair,
            PairRecord {
                entity,
                from: topology.hosts[from].name.clone(),
                to: topology.hosts[to].name.clone(),
                round: u32::try_from(round).unwrap_or(u32::MAX),
                start_ns: taken.whole.start_ns,
                end_ns: taken.whole.end_ns,
                failure: taken.reason,
                limiting_factor: taken.factor,
                rows: kept,
            },
        ));
    }

    /// The name of a flow, or the next number that no turn before has taken: a pair there and the pair back both have
    /// `flow.A.B.0` where flows go both ways.
    fn free_name(&self, name: &str, names: &mut BTreeMap<String, String>) -> String {
        if let Some(known) = names.get(name) {
            return known.clone();
        }
        let mut free = name.to_owned();
        if let Some((stem, number)) = name.rsplit_once('.')
            && let Ok(number) = number.parse::<u32>()
        {
            let taken =
                |free: &String| self.flows.contains(free) || names.values().any(|other| other == free);
            let mut next = number;
            while taken(&free) {
                next += 1;
                free = format!("{stem}.{next}");
            }
        }
        names.insert(name.to_owned(), free.clone());
        free
    }

    /// A host was watched in each of its turns. Two turns of one round saw the same, and the first is kept.
    fn add_host_series(&mut self, series: Series) {
        let key = (series.entity.clone(), series.name.clone());
        let Some(known) = self.of_hosts.get_mut(&key) else {
            self.of_hosts.insert(key, series);
            return;
        };
        let last = known.t_ns.last().copied().unwrap_or(i64::MIN);
        let first = series.t_ns.partition_point(|t| *t <= last);
        known.t_ns.extend_from_slice(&series.t_ns[first..]);
        known.value.extend_from_slice(&series.value[first..]);
    }
}

/// Why a trial does not count as a whole.
fn does_not_count(pairs: &[PairRecord], broken_off: bool) -> Option<String> {
    let failed = || pairs.iter().find_map(|pair| Some((pair, pair.failure.as_deref()?)));
    let (pair, reason) = failed()?;
    if broken_off {
        return Some(reason.to_owned());
    }
    pairs.iter().all(|pair| pair.failure.is_some()).then(|| match pairs.len() {
        1 => format!("{}: {reason}", pair.entity),
        count => format!("none of {count} pairs counts; {}: {reason}", pair.entity),
    })
}

/// What limited most of the pairs that count, with the evidence of the one that is surest of it.
fn limiting_factor(pairs: &[PairRecord]) -> LimitingFactor {
    let good = || pairs.iter().filter(|pair| pair.failure.is_none());
    let Some((name, count)) = most_frequent(good().map(|pair| pair.limiting_factor.name.as_str())) else {
        let evidence = vec!["no pair counts".to_owned()];
        return LimitingFactor::new(&UNKNOWN, 0.0, evidence);
    };
    let agreeing = || good().filter(|pair| pair.limiting_factor.name == name);
    let sum: f64 = agreeing().map(|pair| pair.limiting_factor.confidence).sum();
    let surest =
        agreeing().max_by(|a, b| a.limiting_factor.confidence.total_cmp(&b.limiting_factor.confidence));
    let all = good().count();
    let mut evidence: Vec<String> = surest
        .into_iter()
        .flat_map(|pair| pair.limiting_factor.evidence.iter().map(|text| format!("{}: {text}", pair.entity)))
        .collect();
    if count < all {
        evidence.push(format!("{count} of {all} pairs"));
    }
    let disturbed = good().find_map(|pair| pair.limiting_factor.disturbed.clone());
    let next = surest.map(|pair| pair.limiting_factor.next.clone()).unwrap_or_default();
    LimitingFactor { name: name.to_owned(), confidence: sum / all as f64, evidence, next, disturbed }
}
