//! What an event step asks for: its parameters, checked.

use crate::sizes::{Sizes, Spec};
use crate::{death_policy, original, preset, scheduler, send_order};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_core::param::Kind;
use weir_core::param::{Member, MemberSchema, Seam};
use weir_core::scenario::RoleKey;
use weir_core::{Param, Values};
use weir_seams::death_policy::DeathPolicyEntry;
use weir_seams::scheduler::SchedulerEntry;
use weir_seams::workload::WorkloadError;
use weir_transport::tcp_options::TcpOptions;

/// Fewest and most heartbeats a second.
const RATE_HZ: (f64, f64) = (0.001, 1e7);
/// What a role may be told to hold.
const MEMORY_BYTES: (f64, f64) = (4096.0, 1e12);
/// Source slots are numbers of 16 bits.
pub const SOURCES_MAX: usize = 4096;
const FOREVER_NS: f64 = 30.0 * 86_400e9;

pub static ROLES: &[RoleKey] =
    &[RoleKey::many("sources"), RoleKey::many("builders"), RoleKey::one("scheduler_host")];

/// Schedulers, and the documents' schemes, whose parameters are their scheduler's.
pub static SCHEDULER: Seam = Seam {
    name: "scheduler",
    members: || {
        let schema = |name, entry: &SchedulerEntry| MemberSchema { name, params: entry.params };
        let own = scheduler::SCHEDULERS.iter().map(|entry| schema(entry.name, entry));
        let schemes = preset::PRESETS.iter().filter(|preset| scheduler::entry(preset.name).is_none());
        let schemes =
            schemes.filter_map(|preset| Some(schema(preset.name, scheduler::entry(preset.scheduler)?)));
        own.chain(schemes).collect()
    },
};

pub static DEATH_POLICY: Seam = Seam {
    name: "death-policy",
    members: || {
        let schema = |entry: &DeathPolicyEntry| MemberSchema { name: entry.name, params: entry.params };
        death_policy::DEATH_POLICIES.iter().map(schema).collect()
    },
};

const OWN: &[Param] = &[
    Param::new("sources", Kind::Hosts, "Hosts with a source each; a host may have several roles.").required(),
    Param::new("builders", Kind::Hosts, "Hosts with a builder each.").required(),
    Param::new("scheduler_host", Kind::Hosts, "The host with the scheduler.").required(),
    Param::new("sources_per_host", Kind::Count, "As many sources on each of these hosts.").default("1").range(1.0, 1024.0),
    Param::new("builders_per_host", Kind::Count, "As many builders on each of these hosts.").default("1").range(1.0, 1024.0),
    Param::new("profile", Kind::Choice(&["weir", "o2balancer2"]), "Whose rules hold: weir's own, or those of the program of document 002, each of which is a key of its own.").default("weir"),
    Param::new("rate", Kind::Frequency, "Heartbeats a second, by an absolute clock.").default("50Hz").range(RATE_HZ.0, RATE_HZ.1),
    Param::new("search_to", Kind::Frequency, "Instead of one rate the highest that is carried, from `rate` up to this one: nothing is dropped, and what is held does not grow; each rate lasts `duration`.").range(RATE_HZ.0, RATE_HZ.1),
    Param::new("events", Kind::Count, "Heartbeats in all, instead of a duration.").range(1.0, 1e15),
    Param::new("fragment_size", Kind::Size, "Payload of each source's fragment.").default("20kB").range(0.0, 67_108_864.0).in_points(),
    Param::new(
        "fragment_sizes",
        Kind::Text,
        "Instead of one size: uniform:min=10kB:max=30kB, normal:20kB:sigma=5kB, exponential:20kB, log-normal:20kB:sigma=10kB, or list:FILE with one size a line.",
    ),
    Param::new("scheduler", Kind::Member(&SCHEDULER), "Who gets an event: a name of `weir list scheduler`, or of one of the documents' schemes (round-robin, blacklist, re-initialisation, whitelist), which say the death policy too.").default(scheduler::DEFAULT),
    Param::new("death_policy", Kind::Member(&DEATH_POLICY), "What a builder's end and return mean: a name of `weir list death-policy`; the scheme's own, or whitelist, unless given."),
    Param::new(
        "control",
        Kind::Choice(&["data", "auxiliary"]),
        "The network on which scheduler, sources and builders speak: that of the fragments, or the lab's auxiliary one.",
    )
    .default("data")
    .auxiliary("auxiliary"),
    Param::new(
        "trigger",
        Kind::Choice(&["scheduler", "source"]),
        "What makes a fragment: the scheduler's heartbeat when it arrives, or each source's own clock.",
    )
    .default("scheduler"),
    Param::new("memory", Kind::Size, "What a builder can hold.").default("256MiB").range(MEMORY_BYTES.0, MEMORY_BYTES.1),
    Param::new("buffer", Kind::Size, "What a source can hold.").default("256MiB").range(MEMORY_BYTES.0, MEMORY_BYTES.1),
    Param::new("grant_window", Kind::Size, "Bytes on their way to one builder from all sources at most; more makes queues, less than a path holds makes gaps.").default("1MiB").range(4096.0, 1e10),
    Param::new("probe", Kind::Duration, "How often peers are asked for a sign of life.").default("50ms").range(1e6, 60e9),
    Param::new("detect", Kind::Duration, "Silence after which a peer counts as gone.").default("400ms").range(5e6, 600e9),
    Param::new("source_deadline", Kind::Duration, "How long events wait for a source that is away.").default("10s").range(1e6, FOREVER_NS),
    Param::new("deadline", Kind::Duration, "Age at which an event is given up; never unless given.").range(1e6, FOREVER_NS),
    Param::new("partial", Kind::Flag, "True gives an event out with what there is of it at its deadline; false drops it.").default("false"),
    Param::new("drain", Kind::Duration, "How long held events may take to end after the last heartbeat.").default("10s").range(1e6, FOREVER_NS),
    Param::new("recover", Kind::Choice(&["remake", "lose"]), "What a source that was started again does about fragments from before: makes them again, as they follow from seed, source and heartbeat, or says they are lost, as a detector's are.").default("remake"),
    Param::new("work", Kind::Duration, "Time a builder spends on each event, one after the other, before it says that it is done.").default("0s").range(0.0, 3600e9),
];

/// Keys of an event step: its own, and the rules of the original's profile.
pub static PARAMS: &[Param] = &{
    let mut all = [OWN[0]; OWN.len() + original::PARAMS.len()];
    let mut place = 0;
    while place < all.len() {
        all[place] = if place < OWN.len() { OWN[place] } else { original::PARAMS[place - OWN.len()] };
        place += 1;
    }
    all
};

/// Whose rules hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    Weir,
    /// The program of document 002.
    O2Balancer2,
}

/// Where scheduler, sources and builders speak to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControlNetwork {
    Data,
    Auxiliary,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventPlan {
    pub profile: Profile,
    pub rate_hz: f64,
    /// Heartbeats in all; of each rate that is tried, in a search.
    pub events: u64,
    pub search_to_hz: Option<f64>,
    /// Of these, not measured.
    pub warm_up: Duration,
    pub interval: Duration,
    pub fragment_size: String,
    pub scheduler: Member,
    pub death_policy: Member,
    pub control: ControlNetwork,
    pub trigger_at_source: bool,
    pub memory_bytes: u64,
    pub buffer_bytes: u64,
    pub grant_window_bytes: u64,
    pub probe: Duration,
    pub detect: Duration,
    pub source_deadline: Duration,
    pub deadline: Option<Duration>,
    pub partial: bool,
    pub drain: Duration,
    pub lose: bool,
    pub work: Duration,
    pub tcp: TcpOptions,
}

impl EventPlan {
    /// Errors name the keys that contradict each other.
    pub fn from_values(values: &Values) -> Result<EventPlan, WorkloadError> {
        let stop = |text: String| Err(WorkloadError::new(text));
        let rate_hz = values.frequency("rate").map_or(50.0, |rate| rate.0);
        let duration = values.duration("duration");
        let events = match (values.count("events"), duration) {
            (Some(_), Some(_)) => {
                return stop("`events` and `duration` both say when it ends; give one of them".to_owned());
            }
            (Some(events), None) => events,
            (None, Some(duration)) => (duration.as_secs_f64() * rate_hz).round() as u64,
            (None, None) => {
                return stop("an event step needs `duration`, or the number of `events`".to_owned());
            }
        };
        if events == 0 {
            return stop(format!("`rate` {rate_hz} Hz has no heartbeat within the `duration`"));
        }
        let (scheduler, death_policy) = scheme(values);
        let duration_of = |key: &str| values.duration(key).unwrap_or_default();
        let size_of = |key: &str| values.size(key).map_or(0, |size| size.0);
        let plan = EventPlan {
            profile: match values.text("profile").as_deref() {
                Some("o2balancer2") => Profile::O2Balancer2,
                _ => Profile::Weir,
            },
            rate_hz,
            events,
            search_to_hz: values.frequency("search_to").map(|rate| rate.0),
            warm_up: duration_of("warm_up"),
            interval: duration_of("interval").max(Duration::from_millis(1)),
            fragment_size: values
                .text("fragment_sizes")
                .unwrap_or_else(|| format!("{}B", values.size("fragment_size").map_or(0, |size| size.0))),
            scheduler,
            death_policy,
            control: match values.text("control").as_deref() {
                Some("auxiliary") => ControlNetwork::Auxiliary,
                _ => ControlNetwork::Data,
            },
            trigger_at_source: values.text("trigger").as_deref() == Some("source"),
            memory_bytes: size_of("memory"),
            buffer_bytes: size_of("buffer"),
            grant_window_bytes: size_of("grant_window"),
            probe: duration_of("probe"),
            detect: duration_of("detect"),
            source_deadline: duration_of("source_deadline"),
            deadline: values.duration("deadline"),
            partial: values.flag("partial").unwrap_or(false),
            drain: duration_of("drain"),
            lose: values.text("recover").as_deref() == Some("lose"),
            work: duration_of("work"),
            // Hosts may be where weir has no privileges; the record of a run has what was granted.
            tcp: TcpOptions { or_as_allowed: true, ..TcpOptions::from_values_at_once(values) },
        };
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let stop = |text: String| Err(WorkloadError::new(text));
        if let Err(error) = Spec::parse(&self.fragment_size) {
            return stop(format!("`fragment_sizes`: {error}"));
        }
        if self.profile == Profile::O2Balancer2 && self.fixed_size().is_none() {
            return stop(
                "`fragment_sizes` is not for the profile o2balancer2, whose fragments have one size"
                    .to_owned(),
            );
        }
        if self.detect < 2 * self.probe {
            return stop(format!(
                "`detect` {:?} is less than two of `probe` {:?}: a peer could be called gone between two questions",
                self.detect, self.probe
            ));
        }
        if self.partial && self.deadline.is_none() {
            return stop(
                "`partial` says what becomes of an event at its `deadline`, and none is given".to_owned(),
            );
        }
        if let Some(to_hz) = self.search_to_hz {
            if self.profile == Profile::O2Balancer2 {
                return stop("`search_to` is not for the profile o2balancer2, which has one rate".to_owned());
            }
            if self.trigger_at_source {
                return stop("`search_to` needs `trigger` = \"scheduler\": sources keep one rate".to_owned());
            }
            if to_hz < self.rate_hz {
                return stop(format!(
                    "`search_to` {to_hz} Hz is below `rate`, {} Hz, where it begins",
                    self.rate_hz
                ));
            }
        }
        if self.tcp.is_mixed() {
            return stop("`tcp.congestion` of an event step is one, not a mix".to_owned());
        }
        Ok(())
    }

    /// Payload of every fragment, where all are alike.
    pub fn fixed_size(&self) -> Option<u64> {
        match Spec::parse(&self.fragment_size) {
            Ok(Spec::Ready(Sizes::Fixed(bytes))) => Some(u64::from(bytes)),
            _ => None,
        }
    }

    /// From the first heartbeat to one period after the last.
    pub fn length(&self) -> Duration {
        Duration::try_from_secs_f64(self.events as f64 / self.rate_hz).unwrap_or(Duration::MAX)
    }
}

/// Scheduler and death policy, by their own names or by a document's scheme.
fn scheme(values: &Values) -> (Member, Member) {
    let named = values.member("scheduler").unwrap_or_else(|| Member::named(scheduler::DEFAULT));
    let preset = preset::preset(&named.name);
    let policy = preset.map_or(death_policy::DEFAULT, |preset| preset.death_policy);
    let policy = values.member("death_policy").unwrap_or_else(|| Member::named(policy));
    let name = preset.map_or(named.name, |preset| preset.scheduler.to_owned());
    (Member { name, given: named.given }, policy)
}

/// The order in which sources send; there is one so far.
pub const SEND_ORDER: &str = send_order::DEFAULT;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::Value;

    fn with(changes: &[(&str, Value)]) -> Result<EventPlan, WorkloadError> {
        let mut values = Values::defaults(PARAMS);
        values.set("duration", Value::Duration(Duration::from_secs(30)));
        for (key, value) in changes {
            values.set(key, value.clone());
        }
        EventPlan::from_values(&values)
    }

    #[test]
    fn the_documents_schemes_bring_their_death_policies_and_single_keys_override_them() {
        let text = |text: &str| Value::Text(text.to_owned());
        let names = |plan: EventPlan| (plan.scheduler.name, plan.death_policy.name);
        let named = |scheduler: &str| names(with(&[("scheduler", text(scheduler))]).unwrap());
        assert_eq!(names(with(&[]).unwrap()), ("least-outstanding".to_owned(), "whitelist".to_owned()));
        assert_eq!(named("blacklist"), ("round-robin".to_owned(), "blacklist".to_owned()));
        assert_eq!(named("re-initialisation"), ("round-robin".to_owned(), "re-initialise".to_owned()));
        assert_eq!(named("two-choices"), ("two-choices".to_owned(), "whitelist".to_owned()));
        let both = with(&[("scheduler", text("blacklist")), ("death_policy", text("whitelist"))]).unwrap();
        assert_eq!(names(both), ("round-robin".to_owned(), "whitelist".to_owned()));
    }

    #[test]
    fn heartbeats_follow_from_rate_and_duration_and_contradictions_are_refused() {
        assert_eq!(with(&[]).unwrap().events, 1500);
        let refused = |changes: &[(&str, Value)]| with(changes).unwrap_err().text;
        assert!(refused(&[("events", Value::Count(6))]).contains("`events` and `duration`"));
        assert!(refused(&[("partial", Value::Flag(true))]).contains("`deadline`"));
        assert!(refused(&[("probe", Value::Duration(Duration::from_millis(300)))]).contains("`detect`"));
        let low = Value::Frequency(weir_core::Hertz(10.0));
        assert!(refused(&[("search_to", low)]).contains("is below `rate`"));
        assert!(refused(&[("fragment_sizes", Value::Text("much".to_owned()))]).contains("`fragment_sizes`"));
    }
}
