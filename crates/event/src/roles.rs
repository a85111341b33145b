//! The roles of one plan, ready to run: what a workload's tasks and the daemons share.

use crate::builder::{self, Builder, Built};
use crate::director::{BuilderLine, Director, Failure, GroupRole, Probe, SearchPlan, Settings};
use crate::ledger::Totals;
use crate::message::Outcome;
use crate::payload::{Block, Payload};
use crate::plan::{EventPlan, SEND_ORDER};
use crate::shell::{BuilderShell, Order, SchedulerShell, ShellError, SourceShell};
use crate::sizes::{Listed, Sizes, Spec};
use crate::source::{self, Recover, Source};
use crate::{death_policy, scheduler, send_order};
use serde::{Deserialize, Serialize};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_core::record::{Histogram, Series};
use weir_core::time::nanoseconds;
use weir_core::times::Times;
use weir_core::{Instant, Value};
use weir_seams::membership::{Member, Membership, Seat, Watch};
use weir_sys::clock::{self, ThreadMark};
use weir_sys::memory::ResidentPeak;
use weir_transport::{Key, key};

/// Samples of one series; a longer run has them further apart.
const SAMPLES_MAX: u64 = 200_000;

/// What a scheduler saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SchedulerReport {
    pub totals: Totals,
    /// Heartbeats, on this host's clock; 0 where there was none.
    pub first_beat_ns: u64,
    pub last_beat_ns: u64,
    /// Heartbeats at the first moment: those that a scheduler started again has learned of.
    pub first_generated: u64,
    pub ended_ns: u64,
    /// Held when the last heartbeat was issued.
    pub undelivered: u64,
    /// Shares of the time from the first heartbeat to the last: in which an event waited for room at a builder, that the
    /// scheduler's thread spent on a CPU, and in which it could have run and waited for one.
    pub waiting_ratio: f64,
    pub busy_ratio: f64,
    #[serde(default)]
    pub core_wait_ratio: f64,
    pub failures: Vec<Failure>,
    /// Rates that were tried, in order; empty without a search.
    pub searched: Vec<Probe>,
    pub builders: Vec<BuilderLine>,
    pub control_bytes: u64,
    /// Memory of the process above what it had when the role began, at the most.
    #[serde(default)]
    pub resident_bytes_max: u64,
    /// Events held, and heartbeats issued, over time.
    pub series: Vec<Series>,
}

pub struct SchedulerRole {
    pub listener: TcpListener,
    pub key: Option<Key>,
    pub plan: EventPlan,
    pub sources: u32,
    /// That must be there before the first heartbeat.
    pub builders: u32,
    /// No heartbeat is issued before.
    pub not_before: Instant,
    pub seed: u64,
    /// How many heartbeats in all; `None`: until it is told to stop.
    pub events: Option<u64>,
    /// Services that say who may join, by role; of a role without one, everyone who proves the key.
    pub members: Vec<(GroupRole, Box<dyn Watch>)>,
}

impl SchedulerRole {
    /// Runs until the ledger is closed. `look` is called at every turn.
    pub fn run(
        self,
        order: &dyn Order,
        mut look: impl FnMut(&Director, Instant),
    ) -> Result<SchedulerReport, ShellError> {
        let memory = ResidentPeak::begin();
        let plan = &self.plan;
        let chosen = scheduler::entry(&plan.scheduler.name)
            .ok_or_else(|| unknown("scheduler", &plan.scheduler.name))?;
        let policy = death_policy::entry(&plan.death_policy.name)
            .ok_or_else(|| unknown("death policy", &plan.death_policy.name))?;
        let mut own = plan.scheduler.values(chosen.params);
        // What is drawn follows from the run's seed, unless the scheduler has been given one of its own.
        if own.get("seed").is_none() && chosen.params.iter().any(|param| param.name == "seed") {
            own.set("seed", Value::Count(self.seed));
        }
        let settings = Settings {
            rate_hz: plan.rate_hz,
            events: self.events,
            sources: self.sources,
            builders: self.builders,
            trigger_at_source: plan.trigger_at_source,
            not_before: self.not_before,
            deadline: plan.deadline,
            partial: plan.partial,
            grant_window_bytes: plan.grant_window_bytes,
            probe: plan.probe,
            detect: plan.detect,
            drain: plan.drain,
            source_deadline: plan.source_deadline,
            send_order: SEND_ORDER.to_owned(),
            search: plan.search_to_hz.map(|to_hz| SearchPlan { to_hz, probe: plan.length() }),
            seed: self.seed,
            ..Settings::default()
        };
        let run = hexadecimal(&key::random::<16>().map_err(ShellError::of("no random bytes"))?);
        let core = Director::new(
            settings,
            (chosen.build)(&own),
            (policy.build)(&plan.death_policy.values(policy.params)),
            run,
        );
        let mut shell = SchedulerShell::new(core, self.listener, self.key)?;
        for (role, watch) in self.members {
            shell.watch(role, watch)?;
        }
        let mut record = Record::new(self.plan.interval, self.plan.length(), self.events);
        shell.run(order, |core, now| {
            record.look(core, now);
            look(core, now);
        })?;
        Ok(record.report(&shell, &memory))
    }
}

fn unknown(what: &str, name: &str) -> ShellError {
    ShellError(format!("no {what} is called {name:?}"))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is kept while a scheduler runs.
struct Record {
    events: Option<u64>,
    every_ns: u64,
    next_ns: u64,
    first_beat_ns: u64,
    last_beat_ns: u64,
    first_generated: u64,
    undelivered: u64,
    generated: u64,
    looked_ns: u64,
    waiting_ns: u64,
    /// Of this thread, at the first heartbeat and at the last, where that one is known.
    first_mark: Option<ThreadMark>,
    last_mark: Option<ThreadMark>,
    t_ns: Vec<i64>,
    held: Vec<f64>,
    issued: Vec<f64>,
}

impl Record {
    fn new(interval: Duration, length: Duration, events: Option<u64>) -> Record {
        Record {
            events,
            every_ns: nanoseconds(interval).max(nanoseconds(length) / SAMPLES_MAX).max(1),
            next_ns: 0,
            first_beat_ns: 0,
            last_beat_ns: 0,
            first_generated: 0,
            undelivered: 0,
            generated: 0,
            looked_ns: 0,
            waiting_ns: 0,
            first_mark: None,
            last_mark: None,
            t_ns: Vec::new(),
            held: Vec::new(),
            issued: Vec::new(),
        }
    }

    fn look(&mut self, core: &Director, now: Instant) {
        let ledger = core.ledger();
        let generated = ledger.generated();
        let beating = self.generated > 0 && self.events.is_none_or(|events| self.generated < events);
        if beating && core.waits_for_room() {
            self.waiting_ns += now.as_ns().saturating_sub(self.looked_ns);
        }
        self.looked_ns = now.as_ns();
        if generated > self.generated {
            if self.generated == 0 {
                self.first_beat_ns = now.as_ns();
                self.first_generated = generated;
                self.first_mark = Some(ThreadMark::at(now.as_ns()));
            }
            if self.events.is_some_and(|events| generated >= events) {
                self.last_mark = Some(ThreadMark::at(now.as_ns()));
            }
            self.generated = generated;
            self.last_beat_ns = now.as_ns();
            // What is held when the last heartbeat is issued: overwritten until that one.
            self.undelivered = ledger.held_count();
        }
        let late = self.t_ns.len() as u64 >= SAMPLES_MAX && self.events.is_none();
        if now.as_ns() >= self.next_ns && !late {
            self.next_ns = now.as_ns() + self.every_ns;
            self.t_ns.push(i64::try_from(now.as_ns()).unwrap_or(i64::MAX));
            self.held.push(ledger.held_count() as f64);
            self.issued.push(generated as f64);
        }
    }

    fn report(self, shell: &SchedulerShell, memory: &ResidentPeak) -> SchedulerReport {
        let of = |part_ns: u128, whole_ns: u64| part_ns as f64 / whole_ns.max(1) as f64;
        let beating_ns = self.last_beat_ns.saturating_sub(self.first_beat_ns);
        let last = self.last_mark.unwrap_or_else(|| ThreadMark::at(clock::monotonic().as_ns()));
        let shares = self.first_mark.and_then(|first| last.shares_since(&first));
        let (busy_ratio, core_wait_ratio) = shares.unwrap_or_default();
        let series = |name: &str, cumulative: bool, value: Vec<f64>| Series {
            entity: "trial".to_owned(),
            name: name.to_owned(),
            unit: "events".to_owned(),
            cumulative,
            t_ns: self.t_ns.clone(),
            value,
        };
        SchedulerReport {
            totals: shell.core.ledger().totals(),
            first_beat_ns: self.first_beat_ns,
            last_beat_ns: self.last_beat_ns,
            first_generated: self.first_generated,
            ended_ns: clock::monotonic().as_ns(),
            undelivered: self.undelivered,
            waiting_ratio: of(u128::from(self.waiting_ns), beating_ns).min(1.0),
            busy_ratio,
            core_wait_ratio,
            failures: shell.core.failures().cloned().collect(),
            searched: shell.core.searched().to_vec(),
            builders: shell.core.builder_lines().collect(),
            control_bytes: shell.control_bytes(),
            resident_bytes_max: memory.grown_bytes(),
            series: vec![
                series("event.held", false, self.held),
                series("event.generated", true, self.issued),
            ],
        }
    }
}

/// What a source did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceReport {
    pub name: String,
    pub why: String,
    pub made: u64,
    pub sent: u64,
    pub sent_bytes: u64,
    pub again: u64,
    pub lost: u64,
    /// Heard from builders: what the scheduler does not see of the control traffic.
    pub grant_bytes: u64,
    /// Memory of the process above what it had when the role began, at the most.
    #[serde(default)]
    pub resident_bytes_max: u64,
}

pub struct SourceRole {
    pub name: String,
    pub host: String,
    pub scheduler: SocketAddr,
    pub key: Option<Key>,
    pub plan: EventPlan,
    /// Where it has to be listed to take part.
    pub membership: Option<Box<dyn Membership>>,
}

impl SourceRole {
    /// Runs until the scheduler ends the run or `order` says stop.
    pub fn run(self, order: &dyn Order) -> Result<SourceReport, ShellError> {
        let memory = ResidentPeak::begin();
        let sizes = sizes(&self.plan.fragment_size)?;
        let payload = Payload::synthetic(&Arc::new(Block::random(sizes.bytes_max())), sizes);
        let incarnation = incarnation();
        let settings = source::Settings {
            name: self.name.clone(),
            host: self.host,
            incarnation,
            buffer_bytes: self.plan.buffer_bytes,
            recover: if self.plan.lose { Recover::Lose } else { Recover::Remake },
            orders: send_order::SEND_ORDERS,
        };
        let core = Source::new(settings, payload, clock::monotonic());
        let mut shell = SourceShell::new(core, self.scheduler, self.key, self.plan.tcp)?;
        if let Some(seat) = seat(self.membership.as_deref(), &self.name, incarnation, String::new())? {
            shell.take_seat(seat)?;
        }
        let why = shell.run(order)?;
        let figures = shell.core.figures();
        Ok(SourceReport {
            name: self.name,
            why,
            made: figures.made,
            sent: figures.sent,
            sent_bytes: figures.sent_bytes,
            again: figures.again,
            lost: figures.lost,
            grant_bytes: shell.granted_bytes(),
            resident_bytes_max: memory.grown_bytes(),
        })
    }
}

/// What a builder did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BuilderReport {
    pub name: String,
    pub why: String,
    pub figures: builder::Figures,
    /// From heartbeat to the last byte.
    pub assembly: Option<Histogram>,
    /// Payload of complete events, cumulative, and of what is held of those to come.
    pub taken: Series,
    /// Memory of the process above what it had when the role began, at the most.
    #[serde(default)]
    pub resident_bytes_max: u64,
}

pub struct BuilderRole {
    pub name: String,
    pub host: String,
    pub scheduler: SocketAddr,
    /// Where sources connect, and how they reach it.
    pub listener: TcpListener,
    pub data: SocketAddr,
    pub key: Option<Key>,
    pub plan: EventPlan,
    /// Where it has to be listed to take part.
    pub membership: Option<Box<dyn Membership>>,
}

impl BuilderRole {
    /// Runs until the scheduler ends the run or `order` says stop.
    pub fn run(self, order: &dyn Order) -> Result<BuilderReport, ShellError> {
        let memory = ResidentPeak::begin();
        let incarnation = incarnation();
        let settings = builder::Settings {
            name: self.name.clone(),
            host: self.host,
            incarnation,
            memory_bytes: self.plan.memory_bytes,
            data: self.data,
            work: self.plan.work,
        };
        let core = Builder::new(settings, clock::monotonic());
        let mut shell = BuilderShell::new(core, self.scheduler, self.listener, self.key)?;
        if let Some(seat) = seat(self.membership.as_deref(), &self.name, incarnation, self.data.to_string())?
        {
            shell.take_seat(seat)?;
        }
        let mut assembly = Times::new().map_err(ShellError::of("cannot keep times"))?;
        let every_ns = nanoseconds(self.plan.interval).max(1_000_000);
        let mut taken = Series {
            entity: format!("builder.{}", self.name),
            name: "event.taken_bytes".to_owned(),
            unit: "B".to_owned(),
            cumulative: true,
            ..Series::default()
        };
        let (mut total_bytes, mut next_ns) = (0u64, 0);
        let why = shell.run(order, |event: Built, now| {
            if event.outcome != Outcome::Complete {
                return;
            }
            assembly.record(event.age_ns);
            total_bytes += event.bytes - u64::from(event.fragments) * crate::wire::HEADER_BYTES as u64;
            // Sources that run ahead of each other leave megabytes half built: counted when they come, not when the last one does.
            let so_far = (total_bytes + event.held_bytes) as f64;
            // The last one of an interval stands for it; a pause shows as a gap between true times.
            let at = i64::try_from(now.as_ns()).unwrap_or(i64::MAX);
            if now.as_ns() >= next_ns || taken.t_ns.len() as u64 >= SAMPLES_MAX {
                next_ns = now.as_ns() + every_ns;
                if (taken.t_ns.len() as u64) < SAMPLES_MAX {
                    taken.t_ns.push(at);
                    taken.value.push(so_far);
                    return;
                }
            }
            if let (Some(t_ns), Some(value)) = (taken.t_ns.last_mut(), taken.value.last_mut()) {
                (*t_ns, *value) = (at, so_far);
            }
        })?;
        Ok(BuilderReport {
            name: self.name,
            why,
            figures: shell.core.figures(),
            assembly: assembly.distribution(),
            taken,
            resident_bytes_max: memory.grown_bytes(),
        })
    }
}

/// Fragments' sizes as a plan writes them. Errors: a list that cannot be read.
fn sizes(text: &str) -> Result<Sizes, ShellError> {
    match Spec::parse(text) {
        Ok(Spec::Ready(sizes)) => Ok(sizes),
        Ok(Spec::List(file)) => {
            let text = std::fs::read_to_string(&file)
                .map_err(|error| ShellError(format!("fragment sizes: cannot read {file}: {error}")))?;
            let listed = Listed::read(&text)
                .map_err(|error| ShellError(format!("fragment sizes: {file}: {error}")))?;
            Ok(Sizes::Listed(listed))
        }
        Err(error) => Err(ShellError(format!("fragment size {text:?}: {error}"))),
    }
}

/// Errors: the member cannot take part there.
fn seat(
    membership: Option<&dyn Membership>,
    name: &str,
    incarnation: u64,
    address: String,
) -> Result<Option<Box<dyn Seat>>, ShellError> {
    let Some(service) = membership else { return Ok(None) };
    let member = Member { name: name.to_owned(), incarnation, address, details: serde_json::Value::Null };
    service.join(&member).map(Some).map_err(|error| ShellError(error.text))
}

/// Real time as a label: of two with one name the one that was started later stays.
fn incarnation() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    nanoseconds(since)
}
