//! The resolved scenario: what the run state machine works from.

use super::service::NoSystems;
use crate::evidence::Factor;
use crate::fault::{Act, FaultKinds};
use crate::metric::Metric;
use crate::model::Model;
use crate::param::{Param, Value, Values};
use crate::regression::FitKind;
use crate::schedule::Match;
use crate::topology::Topology;
use crate::units::BitsPerSecond;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a scenario needs to know of a workload to check a step; handed in by the registry, since core knows none.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadSchema {
    pub name: &'static str,
    pub about: &'static str,
    /// Parameters beyond the common keys of a step.
    pub params: &'static [Param],
    /// The first is the one that stands for the workload where there is room for one.
    pub metrics: &'static [Metric],
    /// Keys by which a step says who takes part.
    pub roles: &'static [RoleKey],
    /// Factors that it may name beside the shared ones; of what is no workload the shared ones.
    pub factors: &'static [&'static Factor],
    /// It tries to fill the path, so that a step of it has a ceiling.
    pub fills_path: bool,
    /// Why the workload of this name refuses these values for a step of this shape, in words that name the keys.
    pub refusal: fn(&str, &Values, &Shape) -> Option<String>,
    /// What making a connection takes with these values.
    pub opening: fn(&str, &Values) -> Opening,
}

/// Who takes part in a step, as far as it is known before anything starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Number of hosts of each role, in the order of the workload's keys.
    pub hosts: Vec<(&'static str, usize)>,
    /// Pairs of hosts that load each other at once; 0 of a workload that pairs none.
    pub pairs: usize,
    /// Between the farthest hosts that speak with each other; zero where it is not known.
    pub rtt: Duration,
}

impl Shape {
    pub fn of_pairs(pairs: usize, rtt: Duration) -> Shape {
        Shape { hosts: vec![("from", pairs), ("to", pairs)], pairs, rtt }
    }
}

/// What it takes until a connection can be used: so many round trips, for which there is so much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    pub limit: Duration,
    pub round_trips: u32,
}

impl Opening {
    /// Of what connects nothing: any path is short enough.
    pub const NONE: Opening = Opening { limit: Duration::MAX, round_trips: 1 };

    /// The longest round trip over which one can be made.
    pub fn rtt_max(self) -> Duration {
        self.limit / self.round_trips.max(1)
    }
}

impl WorkloadSchema {
    /// Name of the schema that is no workload: its metrics are measured beside every step, of links, hosts and the run.
    pub const BESIDE: &str = "*";

    /// True for one that steps can name.
    pub fn is_workload(&self) -> bool {
        self.name != Self::BESIDE
    }
}

/// A key of a step that says which hosts have a role. Where a workload has several, hosts of its first role load those of the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleKey {
    /// A parameter of kind `Hosts` of the workload; of paired roles a common key of steps.
    pub key: &'static str,
    pub hosts: RoleHosts,
}

/// Which hosts have a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleHosts {
    /// Exactly one, which speaks with all that have another role.
    One,
    Many,
    /// Those that `from` and `to` pair with each other, as `pairing` and `pairs` say, all at once or in `turns`.
    Paired,
}

impl RoleKey {
    pub const fn one(key: &'static str) -> RoleKey {
        RoleKey { key, hosts: RoleHosts::One }
    }
    pub const fn many(key: &'static str) -> RoleKey {
        RoleKey { key, hosts: RoleHosts::Many }
    }
}

/// The roles of a workload that loads pairs of hosts.
pub static FROM_TO: &[RoleKey] =
    &[RoleKey { key: "from", hosts: RoleHosts::Paired }, RoleKey { key: "to", hosts: RoleHosts::Paired }];

pub(crate) fn is_paired(keys: &[RoleKey]) -> bool {
    keys.iter().any(|role| role.hosts == RoleHosts::Paired)
}

/// What the command line changes.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `PATH=VALUE`, in order.
    pub sets: Vec<String>,
    pub trials: Option<u32>,
    pub seed: Option<u64>,
    pub short: bool,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub name: String,
    pub about: String,
    pub origin: Option<String>,
    pub scale: BTreeMap<String, f64>,
    pub trials: u32,
    pub trials_min: u32,
    pub seed: u64,
    /// Names of the swept dimensions, in file order.
    pub dimensions: Vec<String>,
    /// Case × combination, in file order.
    pub configurations: Vec<Configuration>,
    pub criteria: Vec<Criterion>,
    /// Criteria left out of the short form or without a point in it: their texts.
    pub not_judged: Vec<String>,
    /// The scenario with overrides applied and every default spelled out; running it again repeats the run.
    pub resolved: String,
    pub warnings: Vec<String>,
}

/// One lab, or the same real hosts, with one set of parameters; all steps run in it, one trial after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// `case` and parameters, `as-built/pairs=9`; empty text when there is only one.
    pub id: String,
    pub case: Option<String>,
    /// Swept parameters by dimension name, and what the case sets, by last word of the path.
    pub parameters: BTreeMap<String, Value>,
    /// Of real hosts: their names and sites, without links.
    pub topology: Topology,
    /// Real hosts in the order of the topology's; `None` for a lab.
    pub hosts: Option<Vec<RealHost>>,
    /// Those that its steps need.
    pub services: Vec<Service>,
    pub steps: Vec<Step>,
    pub faults: Vec<Fault>,
    /// `metric.statistic` to value in the metric's base unit.
    pub published: BTreeMap<String, f64>,
}

/// What processes of a system are for. A closed list, so that a scenario can change its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Knows where things are.
    Manager,
    /// Keeps them.
    Server,
    /// Stands between, as a door or a cache.
    Proxy,
    /// Uses the system, where that takes more than a URL: a mount.
    Client,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Manager, Role::Server, Role::Proxy, Role::Client];

    pub const fn name(self) -> &'static str {
        match self {
            Role::Manager => "manager",
            Role::Server => "server",
            Role::Proxy => "proxy",
            Role::Client => "client",
        }
    }
}

/// How processes of a service stand to the load where a core is short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// They give way to it.
    #[default]
    Low,
    Normal,
    /// They go before it.
    High,
}

impl Priority {
    pub const NAMES: &'static [&'static str] = &["low", "normal", "high"];

    pub(super) fn parse(name: &str) -> Option<Priority> {
        [Priority::Low, Priority::Normal, Priority::High].into_iter().find(|priority| priority.name() == name)
    }

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Steps of nice.
    pub const fn nice(self) -> i32 {
        match self {
            Priority::Low => 10,
            Priority::Normal => 0,
            Priority::High => -10,
        }
    }
}

/// On how many hosts a system has a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleNeed {
    pub role: Role,
    pub least: usize,
    pub most: usize,
}

/// What a scenario needs to know of a real system to check a service; read from its recipe.
#[derive(Clone, Debug)]
pub struct SystemSchema {
    pub name: &'static str,
    pub about: &'static str,
    pub roles: Vec<RoleNeed>,
    /// Options of its own, as `set.NAME.OPTION`.
    pub options: &'static [Param],
    /// Its clients mount it.
    pub mounts: bool,
    /// Files can be put on it before anything runs.
    pub takes_content: bool,
    /// Over how many folders, each of which may be a disk, a server of it spreads what it has; 0: it has nothing on a disk.
    pub disks_most: u32,
    /// Whose daemons can be taken out of service while they go on with what they have.
    pub drains: Vec<Role>,
    /// Schemes of the URLs of services from which it can get what it does not have itself; none where it gets nothing.
    pub origins: Vec<String>,
}

/// The systems that this program can start.
pub trait Systems: std::fmt::Debug {
    /// By name, or by the folder of a recipe. Errors: why not, for people.
    fn find(&self, name: &str) -> Result<&'static SystemSchema, String>;
    fn names(&self) -> Vec<String>;
    /// Where clients find a service that is started so: its URL, or where they mount it. Errors: why it has none, for people.
    fn address(&self, service: &Service, topology: &Topology) -> Result<String, String>;
}

/// What a scenario may say beyond the language's own tables; handed in by the registry, since core knows none of it.
#[derive(Clone, Copy, Debug)]
pub struct Language<'a> {
    pub workloads: &'a [WorkloadSchema],
    pub systems: &'a dyn Systems,
    pub faults: FaultKinds,
}

impl Language<'static> {
    /// Networks and faults without kinds: what core has by itself.
    pub const NONE: Language<'static> =
        Language { workloads: &[], systems: &NoSystems, faults: FaultKinds::NONE };
}

/// A real system on hosts of the lab, or one that others run.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    pub name: String,
    /// Name or folder of its recipe; empty of one that others run.
    pub system: String,
    /// Where clients find it: a URL or a folder.
    pub at: String,
    /// Hosts by index in the topology of each role that it has.
    pub place: Vec<(Role, Vec<usize>)>,
    /// Of its processes, of roles whose priority is not low.
    pub priority: Vec<(Role, Priority)>,
    /// The engine's own, defaults filled in.
    pub options: Values,
    /// How its clients have it.
    pub mount: Option<Mount>,
    pub content: Option<Content>,
    /// What each of its servers keeps its data on; `None`: on the machine's own disk.
    pub disk: Option<DiskShape>,
    /// From where it gets what it does not have itself.
    pub origin: Option<Origin>,
}

/// A service from which another one gets what it does not have.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// Its name, and those of the services that it gets things from in turn.
    pub services: Vec<String>,
    /// Its URL.
    pub at: String,
}

impl Service {
    /// Every host of it by index, some more than once.
    pub fn hosts(&self) -> impl Iterator<Item = usize> + '_ {
        self.place.iter().flat_map(|(_, hosts)| hosts.iter().copied())
    }

    pub fn priority_of(&self, role: Role) -> Priority {
        self.priority.iter().find(|(own, _)| *own == role).map(|(_, priority)| *priority).unwrap_or_default()
    }

    /// Hosts by index that have a role.
    pub fn hosts_as(&self, role: Role) -> &[usize] {
        self.place.iter().find(|(own, _)| *own == role).map_or(&[], |(_, hosts)| hosts)
    }
}

/// How clients of a service have it mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The folder.
    pub at: String,
    /// With commas between them.
    pub options: String,
}

/// A disk of stated rate, positioning time and cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskShape {
    pub size_bytes: u64,
    /// `None`: as fast as the machine.
    pub rate: Option<BitsPerSecond>,
    pub position: Duration,
    pub cache_bytes: u64,
    /// Requests that it positions for at the same time.
    pub depth: u32,
    /// Disks of one name share rate and cache.
    pub array: Option<String>,
    /// How many of them each server has.
    pub count: u32,
}

impl DiskShape {
    /// What a server's disk is called, by its number among the server's: `HOST`, or `HOST.NUMBER` where there are several.
    pub fn name_on(&self, host: &str, number: u32) -> String {
        if self.count == 1 { host.to_owned() } else { format!("{host}.{number}") }
    }
}

/// Files that are on a service before the first trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Below the service's own; `{n}` is the file's number.
    pub path: String,
    pub files: u64,
    /// Of each.
    pub size_bytes: u64,
}

/// A host of `[hosts]`. No text of it begins with `-` or has a letter that a shell would read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealHost {
    /// `SITE-NUMBER`
    pub name: String,
    /// Where its launcher reaches it: a name or an address, without brackets.
    pub address: String,
    /// Port of its ssh server; the launcher's own choice unless given.
    pub port: Option<u16>,
    /// A name of `weir list launcher`.
    pub launcher: String,
    pub user: Option<String>,
    /// Hosts to go over, as `ssh -J` takes them.
    pub jump: Option<String>,
    /// The weir program there; looked for, and copied over if it is missing, unless given.
    pub agent: Option<String>,
    /// The interface whose address the data goes to; that of `address` unless given.
    pub data_interface: Option<String>,
    /// Ports that data connections may be accepted on, first and last; any unless given.
    pub data_ports: Option<[u16; 2]>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub name: String,
    pub workload: String,
    /// The point this step is of its configuration: `STEP` or `STEP/case,pairs=13`.
    pub point: String,
    /// Who loads whom, by index in the topology: of paired roles `(from, to)`, already cut to `pairs`; of others each host of the
    /// first role with each of the second that is another, and none where there is one role.
    pub pairs: Vec<(usize, usize)>,
    /// Hosts by index of each role, in the order of the workload's keys; a host may have several.
    pub roles: Vec<(&'static str, Vec<usize>)>,
    /// Whether the roles are `from` and `to`, which are paired.
    pub is_paired: bool,
    /// Whether its workload tries to fill the path.
    pub fills_path: bool,
    /// Pairs by index, round after round, of a step whose pairs take turns; empty where all load at once.
    pub rounds: Vec<Vec<usize>>,
    /// The metric that stands for the workload where there is room for one.
    pub main_metric: &'static str,
    pub start: StepStart,
    /// Services that its targets are on, by name.
    pub services: Vec<String>,
    /// Directed links by index whose packets are kept, sorted.
    pub capture: Vec<usize>,
    /// Common keys and the workload's own, defaults filled in. Common ones: `duration`, `bytes`, `count`, `warm_up`, `streams`,
    /// `interval`, `tcp` (a table), `pairs`.
    pub values: Values,
    /// What identifies the point in `where` and in the summary's `parameters`.
    pub parameters: BTreeMap<String, Value>,
    /// Keys of these that are there whether they are swept or not.
    pub in_points: Vec<&'static str>,
}

impl Step {
    /// Its shape while these of its pairs load at once, the farthest with this round trip.
    pub fn shape(&self, pairs: &[(usize, usize)], rtt: Duration) -> Shape {
        let at_once = if self.is_paired { pairs.len() } else { 0 };
        super::step::shape(&self.roles_of(pairs), at_once, rtt)
    }

    /// Hosts of each role while these of its pairs load.
    pub fn roles_of(&self, pairs: &[(usize, usize)]) -> Vec<(&'static str, Vec<usize>)> {
        if self.is_paired { super::step::paired_roles(pairs) } else { self.roles.clone() }
    }

    /// Every host that takes part, in no order, some more than once.
    pub fn hosts(&self) -> impl Iterator<Item = usize> + '_ {
        self.roles.iter().flat_map(|(_, hosts)| hosts.iter().copied())
    }

    /// What identifies the point, for documents: plain numbers stay numbers, quantities are their text, but sizes that every point says
    /// are in bytes.
    pub fn parameters_json(&self) -> BTreeMap<String, serde_json::Value> {
        let json = |(name, value): (&String, &Value)| {
            let json = match value {
                Value::Size(bytes) if self.in_points.contains(&name.as_str()) => bytes.0.into(),
                _ => value.to_json(),
            };
            (name.clone(), json)
        };
        self.parameters.iter().map(json).collect()
    }

    /// From the step's start to its steady state: `warm_up`, counted from the start of the last stream where they start one after
    /// the other (`ramp`).
    // Spec: net-protocol.md#ramp-2
    pub fn steady_after(&self) -> Duration {
        let of = |key: &str| self.values.duration(key).unwrap_or_default();
        ramp_length(of("ramp"), self.values.count("streams").unwrap_or(1)).saturating_add(of("warm_up"))
    }
}

/// From the start of the first of a pair's streams to that of the last.
pub fn ramp_length(ramp: Duration, streams: u64) -> Duration {
    let nanoseconds = ramp.as_nanos().saturating_mul(u128::from(streams.saturating_sub(1)));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

#[derive(Clone, Debug, PartialEq)]
pub enum StepStart {
    /// When the step at this index has ended; `None` for the first.
    After(Option<usize>),
    /// From the trial's start.
    At(Duration),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    pub name: String,
    pub at: Duration,
    /// `at` counts from this step's start instead of the trial's.
    pub step: Option<usize>,
    pub every: Option<Duration>,
    /// Each occurrence is later by a part of this, drawn anew; zero: none is.
    pub spread: Duration,
    /// Directed links by index; none for what happens to processes.
    pub on: Vec<usize>,
    /// As written, for people: `link.wan`.
    pub on_text: String,
    pub act: Act,
    /// From its beginning to its end; `None`: it has none.
    pub duration: Option<Duration>,
    /// What happens, in words.
    pub sentence: String,
    /// Whom it meets and when, one for each phase; one alone where there are no phases.
    pub parts: Vec<FaultPart>,
}

/// A part of a fault that has its own times.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultPart {
    /// How much later than the fault's `at`.
    pub phase: Duration,
    pub affected: Affected,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Affected {
    /// All packets of the links.
    Link,
    /// The packets of the links that match.
    Packets(Match),
    /// The processes of these hosts, by index in the topology.
    Processes(Vec<usize>),
    /// The disks of a service on these hosts: all of each, or the one of this number.
    Disks { service: String, hosts: Vec<usize>, number: Option<u32> },
    /// The processes of a service, of one role, on these hosts.
    Daemons { service: String, role: Role, hosts: Vec<usize> },
}

impl Affected {
    /// Hosts by index that it is on; none of what happens to links.
    pub fn hosts(&self) -> &[usize] {
        match self {
            Affected::Processes(hosts) | Affected::Daemons { hosts, .. } | Affected::Disks { hosts, .. } => {
                hosts
            }
            Affected::Link | Affected::Packets(_) => &[],
        }
    }

    /// The same on these hosts.
    pub fn on_hosts(&self, on: Vec<usize>) -> Affected {
        let mut other = self.clone();
        match &mut other {
            Affected::Processes(hosts) | Affected::Daemons { hosts, .. } | Affected::Disks { hosts, .. } => {
                *hosts = on
            }
            Affected::Link | Affected::Packets(_) => {}
        }
        other
    }

    /// Whether it can touch the step: its hosts, or what passes between those that load each other, either way. A fault with a phase
    /// for each sender happens to a step only when it is the turn of one of the step's own hosts.
    pub fn concerns(&self, pairs: &[(usize, usize)], step_hosts: &[usize]) -> bool {
        match self {
            Affected::Link => true,
            Affected::Packets(matches) => {
                let has = |hosts: &[u32], host: usize| {
                    hosts.is_empty() || hosts.iter().any(|one| *one as usize == host)
                };
                let passes = |from, to| has(&matches.from, from) && has(&matches.to, to);
                // Of hosts that load no others nobody knows with whom they speak.
                let speaks = |host| has(&matches.from, host) || has(&matches.to, host);
                match pairs {
                    [] => step_hosts.iter().any(|host| speaks(*host)),
                    pairs => pairs.iter().any(|(from, to)| passes(*from, *to) || passes(*to, *from)),
                }
            }
            Affected::Processes(hosts) => step_hosts.iter().any(|host| hosts.contains(host)),
            // Only services that steps need are up.
            Affected::Daemons { .. } | Affected::Disks { .. } => true,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Criterion {
    pub text: String,
    /// `None` for a bound on the limiting factor.
    pub metric: Option<String>,
    /// `mean` unless the metric's name said otherwise: `median`, `p99`, `cv`, `spread`, …
    pub statistic: String,
    /// A glob over entities: `link.wan.forward`, `host.left-0.access.*`, `pair.left-0.*`.
    pub on: Option<String>,
    /// `on` is about pairs that take turns.
    pub of_pairs: bool,
    pub select: Select,
    /// Workloads whose steps have the metric; empty: every step has it.
    pub workloads: Vec<String>,
    pub minus: Option<Reference>,
    pub of: Option<Reference>,
    /// Divide by this parameter of the point after `of`.
    pub per: Option<String>,
    /// Judge a line through the points instead of each point.
    pub fit: Option<Fit>,
    /// Ask the bound of this share of the trials, each by itself.
    pub share: Option<f64>,
    pub bound: Bound,
    pub confident: bool,
    /// What a value beyond the bound is called; it does not fail the run then.
    pub otherwise: Option<String>,
    pub trials_min: Option<u32>,
    /// Line in the scenario file, for messages.
    pub line: usize,
}

/// Which points: every condition must hold. `step` is a condition like the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Select {
    /// Any of these cases; empty: any.
    pub cases: Vec<String>,
    pub parameters: BTreeMap<String, Condition>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    OneOf(Vec<Value>),
    Range { from: Value, to: Value },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Reference {
    Model(Model),
    /// The point of the same case (and step) with these parameters; others as in the point judged.
    Point(BTreeMap<String, Value>),
    /// The same parameters in another case.
    Case(String),
    /// Other pairs of the same point, together: a glob over their entities.
    Pairs(String),
    Published,
}

/// A line through points that differ in one parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The parameter.
    pub x: String,
    /// Least and largest of its values that count, in its base unit.
    pub over: [f64; 2],
    pub value: FitKind,
    /// Base unit of the parameter: `1`, `bit/s`, `B`, `s` or `Hz`.
    pub x_unit: &'static str,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
    Between(f64, f64),
    LimitingFactor(String),
}
