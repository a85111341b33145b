//! Every key of the scenario language, declared once: the decoder, the paths, `weir explain` and the suggestions of
//! nearest names derive from these tables. Parameters of workloads come from their own entries.

use super::impairments;
use super::plan::Priority;
use super::turns::Turns;
use crate::param::{Kind, Param};
use crate::regression::FitKind;

/// Trials of a run at most.
pub const TRIALS_MAX: u32 = 10_000;

const DAY_NS: f64 = 86_400e9;
const HOUR_NS: f64 = 3_600e9;

/// A table of the language.
#[derive(Debug)]
pub(super) struct TableSchema {
    /// As `weir explain` takes it: `lab.link`.
    pub name: &'static str,
    /// As a file writes it: `[[lab.link]]`.
    pub header: &'static str,
    pub about: &'static str,
    pub keys: &'static [Param],
}

const fn text(name: &'static str, about: &'static str) -> Param {
    Param::new(name, Kind::Text, about)
}
const fn count(name: &'static str, about: &'static str) -> Param {
    Param::new(name, Kind::Count, about).range(0.0, 9.0e18)
}
const fn duration(name: &'static str, about: &'static str) -> Param {
    Param::new(name, Kind::Duration, about).range(0.0, 30.0 * DAY_NS)
}
const fn rate(name: &'static str, about: &'static str) -> Param {
    Param::new(name, Kind::Rate, about).range(1.0, 1e14)
}
const fn size(name: &'static str, about: &'static str) -> Param {
    Param::new(name, Kind::Size, about).range(0.0, 1e16)
}
const fn ratio(name: &'static str, about: &'static str) -> Param {
    Param::ratio(name, about)
}
const fn flag(name: &'static str, about: &'static str) -> Param {
    Param::new(name, Kind::Flag, about)
}

pub(super) static SCENARIO: &[Param] = &[
    text("name", "Name of the scenario, and of its folder of results: a-z, 0-9 and -, at most 63 letters.")
        .required(),
    text("about", "One line on what the scenario shows.").default(""),
    text("origin", "The row of EXPERIMENTS.md that it reproduces, when it has one."),
    text(
        "scale",
        "Factors by which the scenario is scaled, printed beside every result; results are never rescaled.",
    ),
    count("trials", "Repetitions of every point; from five on results have 95 % intervals.")
        .default("5")
        .range(1.0, TRIALS_MAX as f64),
    count(
        "trials_min",
        "Valid trials a criterion needs to be judged; half of the trials, rounded up, unless given.",
    )
    .range(1.0, 10_000.0),
    count("seed", "Seed of everything random: losses, resampling.").default("1"),
];

pub(super) static QUEUE: &[Param] = &[
    size(
        "bytes",
        "IP bytes that may wait, the packet being sent not counted; one bandwidth-delay product of the longest path, at least 256 KiB, unless `bytes` or `packets` is given.",
    ),
    count("packets", "Packets that may wait; with `bytes`, whichever limit is met first.").range(1.0, 1e9),
    Param::new(
        "discipline",
        Kind::Choice(&["drop-tail", "red", "codel"]),
        "What is dropped, and when: what does not fit; packets at random as the mean queue grows (Floyd and Jacobson 1993); packets that waited too long (RFC 8289).",
    )
    .default("drop-tail"),
    size("min", "Of red: mean queue from which packets are dropped; a third of `max` unless given."),
    size("max", "Of red: mean queue from which every packet is dropped; half of `bytes` unless given."),
    ratio("probability", "Of red: probability of a drop as the mean queue reaches `max`; 10 % unless given."),
    duration("target", "Of codel: the waiting time that is tolerated; 5 ms unless given.").range(1e3, HOUR_NS),
    duration("interval", "Of codel: for how long it may be exceeded; 100 ms unless given.").range(1e3, HOUR_NS),
];

/// The keys of a wire: its own, and the impairments.
macro_rules! wire_keys {
    ($impairments:expr, [$($own:expr),* $(,)?] $(,)?) => {{
        const OWN: &[Param] = &[$($own),*];
        const ALL: [Param; OWN.len() + impairments::COUNT] = joined(OWN, &$impairments);
        &ALL
    }};
}

const fn joined<const ALL: usize>(first: &[Param], second: &[Param]) -> [Param; ALL] {
    let mut all = [first[0]; ALL];
    let mut place = 0;
    while place < ALL {
        all[place] = if place < first.len() { first[place] } else { second[place - first.len()] };
        place += 1;
    }
    all
}

/// Where what is not said is somebody else's.
const fn without_defaults(mut keys: [Param; impairments::COUNT]) -> [Param; impairments::COUNT] {
    let mut place = 0;
    while place < keys.len() {
        keys[place].default = None;
        place += 1;
    }
    keys
}

pub(super) static ACCESS: &[Param] = wire_keys!(
    impairments::KEYS,
    [
        rate("rate", "Rate on the wire, framing included; as fast as the machine unless given."),
        duration("delay", "Propagation, one way.").default("0us").range(0.0, HOUR_NS),
        ratio("loss", "Probability that a packet is lost on the wire, for each direction.").default("0%"),
        count("mtu", "Largest IP packet in bytes, a plain number.").default("1500").range(576.0, 9000.0),
        size(
            "framing",
            "Bytes the wire adds to each IP packet; Ethernet's preamble, header, check and gap unless given.",
        )
        .default("38B")
        .range(0.0, 1024.0),
        Param::new(
            "queue",
            Kind::Table(QUEUE),
            "Limit of the queue; without it the host's own interface holds packets back and drops none, and the switch's port to the host has the default queue.",
        ),
    ],
);

/// As `ACCESS`, without defaults: what is not given is the site's.
pub(super) static ACCESS_OF_HOST: &[Param] = wire_keys!(
    without_defaults(impairments::KEYS),
    [
        rate("rate", "Rate on the wire, framing included."),
        duration("delay", "Propagation, one way.").range(0.0, HOUR_NS),
        ratio("loss", "Probability that a packet is lost on the wire."),
        count("mtu", "Largest IP packet in bytes, a plain number.").range(576.0, 9000.0),
        size("framing", "Bytes the wire adds to each IP packet.").range(0.0, 1024.0),
        Param::new("queue", Kind::Table(QUEUE), "Limit of the queue."),
    ],
);

pub(super) static AUXILIARY: &[Param] = &[
    rate("rate", "Rate on the wire, framing included, of each host; as fast as the machine unless given."),
    duration("delay", "Propagation from each host to the one switch, one way.")
        .default("0us")
        .range(0.0, HOUR_NS),
];

static ROUTE: Param = text("routes", "Name of the link.");

const BUFFER_KEY: Param = size(
    "buffer",
    "Bytes that the output queues of all its ports share, beside each queue's own limit; no limit unless given.",
)
.range(1.0, 1e16);
const ROUTES_KEY: Param = Param::new(
    "routes",
    Kind::Map(&ROUTE),
    "Fixed routes, SITE = \"LINK\": packets for hosts of the site leave by this link instead of the shortest path's.",
);

pub(super) static LAB: &[Param] = &[
    Param::new(
        "auxiliary",
        Kind::Table(AUXILIARY),
        "A second interface of every host, for control, on a switch of its own; true for one that is as fast as the machine.",
    ),
    text("site", "A site: hosts behind one switch."),
    text("switch", "A switch between sites."),
    text("router", "A router between sites."),
    text("host", "What one host has otherwise than its site says."),
    text("link", "A link between two sites."),
];

const USER: Param = text("user", "Who to be on the hosts; ssh's own choice unless given.");
const DATA_INTERFACE: Param =
    text("data_interface", "The interface whose address data goes to; that of `address` unless given.");
const DATA_PORTS: Param = text(
    "data_ports",
    "Ports on which data connections may be accepted, as \"5300-5399\"; any unless given.",
);
const JUMP: Param =
    text("jump", "Hosts to go over, as `ssh -J` takes them: [user@]host[:port], with commas.");
const AGENT: Param =
    text("agent", "The weir program on the hosts; a copy of this one, made there once, unless given.");
const LAUNCHER: Param =
    Param::new("launcher", Kind::Choice(&["ssh", "local"]), "How the agent gets started.");

/// What holds for all hosts; each host may say its own.
pub(super) static HOSTS: &[Param] = &[USER, DATA_INTERFACE, DATA_PORTS, JUMP, AGENT, LAUNCHER.default("ssh")];

pub(super) static REAL_HOST: &[Param] = &[
    text("address", "Name or address of the host, with the port of its ssh server if it is another than 22.")
        .required(),
    USER,
    DATA_INTERFACE,
    DATA_PORTS,
    JUMP,
    AGENT,
    LAUNCHER,
];

pub(super) static SITE: &[Param] = &[
    text("name", "Name of the site; its hosts are NAME-0, NAME-1, …").required(),
    count("hosts", "Number of hosts; 0 makes the site a stage of the path.").default("1").range(0.0, 4_094.0),
    Param::new("access", Kind::Table(ACCESS), "The link of each host to the site's switch, both directions alike."),
    Param::new("tcp_profile", Kind::Choice(&["stock", "modern", "legacy"]), "Settings of TCP on the hosts: the kernel's defaults; cubic with socket memory up to four times the longest path's bandwidth-delay product; or as hosts were in 2005.").default("modern"),
    CPU_KEY,
    MEMORY_KEY,
    BUFFER_KEY,
    ROUTES_KEY,
];

pub(super) static SWITCH: &[Param] =
    &[text("name", "Name of the switch; links name it like a site.").required(), BUFFER_KEY, ROUTES_KEY];

pub(super) static ROUTER: &[Param] = &[
    text("name", "Name of the router; links name it like a site.").required(),
    flag(
        "replies",
        "True answers what it cannot forward (time exceeded, packet too big); false drops it in silence, a black hole for path MTU discovery.",
    )
    .default("true"),
    BUFFER_KEY,
    ROUTES_KEY,
];

const CPU_KEY: Param = Param::new(
    "cpu",
    Kind::Ratio,
    "Cores that all that runs on a host has together, as 0.2; as many as there are unless given.",
)
.range(0.01, 1024.0);
const MEMORY_KEY: Param =
    size("memory", "Memory that all that runs on a host has together; as much as there is unless given.")
        .range(16e6, 1e15);

pub(super) static HOST: &[Param] = &[
    text("name", "Which host, SITE-NUMBER.").required(),
    CPU_KEY,
    MEMORY_KEY,
    Param::new(
        "access",
        Kind::Table(ACCESS_OF_HOST),
        "What of the site's `access` is different for this host.",
    ),
];

pub(super) static DIRECTION: &[Param] = wire_keys!(
    without_defaults(impairments::KEYS),
    [
        rate("rate", "Rate on the wire, framing included."),
        duration("delay", "Propagation in this direction.").range(0.0, HOUR_NS),
        ratio("loss", "Probability that a packet is lost on the wire."),
        Param::new("queue", Kind::Table(QUEUE), "Queue before this direction of the link."),
        size("framing", "Bytes the wire adds to each IP packet.").range(0.0, 1024.0),
    ],
);

pub(super) static LINK: &[Param] = wire_keys!(
    impairments::KEYS,
    [
    text("name", "Name of the link; the two sites' names joined by - unless given."),
    text("between", "The two sites, switches or routers, as [\"left\", \"right\"]; forward is from the first to the second.")
        .required(),
    rate(
        "rate",
        "Rate on the wire, framing included, of each direction; as fast as the machine unless given.",
    ),
    duration("rtt", "Propagation there and back, split evenly between the directions; instead of `delay`.")
        .range(0.0, HOUR_NS),
    duration("delay", "Propagation one way; instead of `rtt`.").range(0.0, HOUR_NS),
    ratio("loss", "Probability that a packet is lost on the wire, for each direction.").default("0%"),
    Param::new("queue", Kind::Table(QUEUE), "Queue before each direction of the link."),
    count(
        "mtu",
        "Largest IP packet in bytes, a plain number; the largest `access.mtu` of the lab unless given.",
    )
    .range(576.0, 9000.0),
    size("framing", "Bytes the wire adds to each IP packet; Ethernet's unless given.")
        .default("38B")
        .range(0.0, 1024.0),
    Param::new("forward", Kind::Table(DIRECTION), "What is different from the first site to the second."),
    Param::new("backward", Kind::Table(DIRECTION), "What is different from the second site to the first."),
    ],
);

pub(super) static TCP: &[Param] = &[
    text("congestion", "Congestion control, set on every socket; a mix like \"cubic+bbr\" is handed to the streams of a pair in turn.").default("cubic"),
    size("window", "Cap on what one connection has in flight.").range(1.0, 1e12),
    size("send_buffer", "Asked of the kernel for the sending socket; the record says what was granted.")
        .range(1.0, 1e12),
    size("receive_buffer", "Asked of the kernel for the receiving socket; the record says what was granted.")
        .range(1.0, 1e12),
    size("mss", "Largest segment, in bytes of payload and options.").range(88.0, 8_960.0),
    rate(
        "pacing",
        "Cap on the rate at which one connection sends payload; the kernel spaces its segments. The record says what was granted.",
    )
    .range(8.0, 1e14),
    flag("nodelay", "Send small segments at once (no Nagle); the workload's own choice unless given."),
];

pub(super) static STEP: &[Param] = &[
    text("name", "Name of the step.").required(),
    text("workload", "What generates the load: a name of `weir list workload`.").required(),
    Param::new("from", Kind::Hosts, "Hosts that send (or ask): names, globs like \"left-*\", ranges like \"left-[0-3]\", or a list of them.").required(),
    Param::new("to", Kind::Hosts, "Hosts that receive (or answer).").required(),
    Param::new("pairing", Kind::Choice(&["zip", "all"]), "Pair the first with the first, the second with the second; or each with all.").default("zip"),
    Param::new("turns", Kind::Choice(Turns::NAMES), "Pairs take turns, in rounds in which no two pass the same link (disjoint), or the same link the same way (duplex); all load at once unless given."),
    count("pairs", "How many of the pairs are active, the first of them; all unless given.").range(1.0, 16_384.0),
    text("after", "Start when this step has ended; the step before it in the file unless `after` or `at` is given."),
    duration("at", "Start this long after the trial's start."),
    duration("duration", "How long the step loads, warm-up included; with `turns` each round.").range(1e6, 30.0 * DAY_NS),
    size("bytes", "Payload of each flow, instead of a duration.").range(1.0, 1e16),
    count("count", "Number of operations, instead of a duration.").range(1.0, 1e12),
    duration("warm_up", "Part of the duration, at its beginning, that is not measured.").default("0s"),
    count("streams", "Connections of each pair.").default("1").range(1.0, 4_096.0),
    duration("interval", "Resolution of the series.").default("10ms").range(1e6, 3_600e9),
    count("ip", "Version of the internet protocol.").default("4").range(4.0, 6.0),
    Param::new("tcp", Kind::Table(TCP), "Settings of the step's TCP sockets."),
    Param::new("user", Kind::Account, "The account, a name or a number, as which the load runs on its hosts; as weir itself unless given."),
    Param::new("capture", Kind::Hosts, "Ports whose packets are kept, as link.NAME.forward or host.NAME.access.backward; a link alone means both directions, NAME may be a glob."),
];

/// Keys of a step that say where and when; the rest goes to the workload.
pub(super) const STEP_PLACING: &[&str] =
    &["name", "workload", "from", "to", "pairing", "turns", "after", "at", "capture"];

/// Keys of a step that pair hosts, which workloads that place roles do not take.
pub(super) const STEP_PAIRING: &[&str] =
    &["from", "to", "pairing", "turns", "pairs", "bytes", "count", "streams"];

pub(super) static MATCH: &[Param] = &[
    Param::new("from", Kind::Hosts, "Hosts that send the packets; any unless given."),
    Param::new("to", Kind::Hosts, "Hosts that the packets are for; any unless given."),
    count("port", "Port of either end, for TCP and UDP.").range(1.0, 65_535.0),
    Param::new(
        "protocol",
        Kind::Choice(&["tcp", "udp", "icmp"]),
        "Protocol of the packets; any unless given.",
    ),
    ratio("share", "Share of these packets, evenly spread: 0.5 takes every second.").default("100%"),
];

pub(super) const PHASE: Param =
    Param::new("phase", Kind::Duration, "How much later.").range(0.0, 30.0 * DAY_NS);

pub(crate) const FAULT: &[Param] = &[
    text("name", "Name of the fault.").required(),
    flag("enabled", "False leaves the fault out.").default("true"),
    duration("at", "When it starts, from the trial's start or from the start of `step`.").default("0s"),
    text("step", "The step from whose start `at` counts."),
    duration("every", "Repeat it after this time; once unless given.").range(1.0, 30.0 * DAY_NS),
    duration("spread", "Every occurrence is later by a part of this, drawn anew for each and in each trial.").default("0s"),
    Param::new(
        "phase",
        Kind::Map(&PHASE),
        "How much later than `at` it meets the packets that a host sends (or the processes of a host), HOST = time; HOST may be a glob, and hosts not named have none.",
    ),
    text(
        "on",
        "link.NAME (both directions), link.NAME.forward, host.NAME.access.backward, host.NAME, site.NAME (the access links of all its hosts); NAME may be a glob. Of what happens to processes also service.NAME.ROLE[.HOST]; of what happens to disks service.NAME.disk[.HOST[.NUMBER]].",
    )
    .required(),
    Param::new("match", Kind::Table(MATCH), "Only the packets for which all of this holds."),
    // The kinds come from their owners, through the registry.
    Param::new("do", Kind::Table(&[]), "What happens; one of them.").required(),
];

pub(super) static PLACE: &[Param] = &[
    Param::new("manager", Kind::Hosts, "Hosts of what knows where things are."),
    Param::new("server", Kind::Hosts, "Hosts of what keeps them."),
    Param::new("proxy", Kind::Hosts, "Hosts of what stands between, as a door or a cache."),
    Param::new("client", Kind::Hosts, "Hosts on which the system is mounted."),
];

const fn priority(role: &'static str) -> Param {
    Param::new(role, Kind::Choice(Priority::NAMES), "Of its processes of this role.")
        .default(Priority::NAMES[0])
}

pub(super) static PRIORITY: &[Param] =
    &[priority("manager"), priority("server"), priority("proxy"), priority("client")];

pub(super) static MOUNT: &[Param] = &[
    text("at", "The folder at which clients have it, like /data.").required(),
    text("options", "Mount options, a list; [\"nosuid\", \"nodev\"] unless given."),
];

/// Options that mean the same for every engine that has them: a recipe declares them as `replicas-data` and so on.
pub(super) static REPLICAS: &[Param] = &[
    count("data", "Copies of each piece of data, the first included.").range(1.0, 9.0),
    count("metadata", "Copies of what says where data is, the first included.").range(1.0, 9.0),
];
pub(super) static STRIPE: &[Param] = &[
    size("unit", "Bytes that stay together; a larger file lies on several servers.").range(4096.0, 1e12),
    count("count", "Servers or disks over which a file is spread.").range(1.0, 1024.0),
];

pub(super) static CONTENT: &[Param] = &[
    text("path", "Path of each file below the service's own; {n} is its number from 0.").required(),
    count("files", "How many files.").default("1").range(1.0, 1e6),
    size("size", "Bytes of each.").required(),
];

pub(super) static DISK: &[Param] = &[
    size("size", "Bytes that it holds; what is more is refused as on a full disk.").required().range(1e6, 1e16),
    rate("rate", "How fast it reads and writes, like 120MB/s; as fast as the machine unless given."),
    duration("position", "From anywhere to anywhere on it, before a read or write that does not go on where the last one ended.")
        .default("0s")
        .range(0.0, 1e9),
    size("cache", "Bytes read or written lately that are read again at no cost.").default("0B"),
    count("depth", "Requests that it positions for at the same time, as an array of so many spindles does.")
        .default("1")
        .range(1.0, 1024.0),
    text("array", "Disks of one name, of whatever service, share rate and cache."),
    count("count", "How many of them each server has, where its system spreads what it keeps over several.")
        .default("1")
        .range(1.0, 64.0),
];

pub(super) static SERVICE: &[Param] = &[
    text("name", "Name of the service; targets name it as service:NAME/PATH.").required(),
    text(
        "system",
        "The system that is started: one of `weir list system`, or the folder of a recipe beside the scenario.",
    ),
    text(
        "given",
        "Where it is already, as a URL or a folder, on hosts that others run; nothing is started then.",
    ),
    Param::new("place", Kind::Table(PLACE), "Hosts of its processes, by role."),
    Param::new(
        "disk",
        Kind::Table(DISK),
        "What each of its servers keeps its data on: a disk that is as slow as this says.",
    ),
    Param::new(
        "priority",
        Kind::Table(PRIORITY),
        "Of its processes, by role, where a core is short: low ones give way to the load (nice 10), normal ones are its equals, high ones go before it (nice -10).",
    ),
    Param::new("mount", Kind::Table(MOUNT), "How clients have it, where it is mounted."),
    Param::new(
        "content",
        Kind::Table(CONTENT),
        "Files that are on it before the first trial, of content that can be verified from seed and offset.",
    ),
    text(
        "origin",
        "A service above it in the file, from which it gets the files that it does not have itself; refused where the system gets none.",
    ),
    Param::new(
        "replicas",
        Kind::Table(REPLICAS),
        "How many copies there are; refused where the system keeps none.",
    ),
    Param::new(
        "stripe",
        Kind::Table(STRIPE),
        "How files are spread; refused where the system does not spread them.",
    ),
    Param::new(
        "set",
        Kind::Options,
        "Options of its engine, set.ENGINE = { OPTION = value }; those of other engines do nothing.",
    ),
];

pub(super) static SWEEP_VALUES: &[Param] = &[
    text("values", "The list of values.").required(),
    text("alias", "Name of the dimension, where the last word of the path is taken."),
];

pub(super) static CASE: &[Param] = &[
    text("name", "Name of the variant.").required(),
    flag("enabled", "False declares the variant and does not run it; true unless given."),
    text("set", "What the variant changes, PATH = value."),
    text("published", "Figures to draw beside ours, \"metric.statistic\" = value with its unit."),
];

pub(super) static REFERENCE: &[Param] = &[
    Param::new(
        "model",
        Kind::Choice(crate::model::NAMES),
        "What a model says of the point: what the framing of the links leaves for payload (ceiling), a window each round trip, Reno under random loss (mathis), the time of a fresh connection (slow-start), shares without a protocol (fluid-share), what overload leaves undelivered (overload-backlog), jobs that read in turn (closed-replay).",
    ),
    text("point", "The point of the same case with these parameters, the others as in the point judged."),
    text("case", "The point with the same parameters in another case."),
    flag("published", "The published figure of the point's case."),
    text(
        "on",
        "Other pairs of the same point, together, where pairs take turns: pair.FROM.TO, local.FROM.TO; globs.",
    ),
];

pub(super) static FIT: &[Param] = &[
    text("x", "The parameter that the points differ in.").required(),
    text("over", "Least and largest value of `x` that count, as a list of two.").required(),
    Param::new("value", Kind::Choice(FitKind::NAMES), "What is judged of the fit: how much the metric grows for each unit of `x`, at which `x` it begins to grow otherwise, or what it is at an `x` of nought.").required(),
];

pub(super) static CRITERION: &[Param] = &[
    text("text", "The expectation in people's words.").required(),
    text(
        "metric",
        "domain.quantity_unit, with .mean (unless named), .median, .min, .max, .pNN, .cv or .spread.",
    ),
    text(
        "on",
        "Whose, for metrics of links and hosts: link.NAME.forward, host.NAME.access.backward; of a service: service.NAME.disk.HOST (of one of several HOST.NUMBER), service.NAME.DAEMON.HOST; of pairs that take turns: pair.FROM.TO, local.FROM.TO within a site; globs take the worst.",
    ),
    text("where", "Which points: parameter = value, a list of values or { from, to }; step picks a step."),
    text("case", "Which cases: a name or a list."),
    text("for_each", "A parameter: one criterion for each of its values."),
    Param::new("minus", Kind::Table(REFERENCE), "Subtract this first."),
    Param::new("of", Kind::Table(REFERENCE), "Divide by this first."),
    text("per", "Then divide by this parameter of the point."),
    Param::new(
        "fit",
        Kind::Table(FIT),
        "Judge a line through the points, or two of them, instead of each point.",
    ),
    ratio(
        "share",
        "The bound is asked of this share of the trials, each by itself, instead of all of them together.",
    )
    .range(1e-9, 1.0),
    text("at_least", "Least value that passes, with its unit."),
    text("at_most", "Largest value that passes, with its unit."),
    text("between", "Least and largest value that pass, with their units."),
    text("limiting_factor", "What must have bounded the trials, instead of a bound on a metric."),
    text(
        "otherwise",
        "What a value beyond the bound is called, in place of a failure: it is said, and does not decide the run's verdict.",
    ),
    flag("confident", "True demands that the whole 95 % interval keeps the bound.").default("false"),
    count("trials_min", "Valid trials that this criterion needs; the scenario's unless given.")
        .range(1.0, 10_000.0),
    flag("short", "False leaves the criterion out of the short form.").default("true"),
];

pub(super) static SHORT: &[Param] = &[
    count("trials", "Trials of the short form.").range(1.0, TRIALS_MAX as f64),
    text("cases", "The cases that run; all unless given."),
    text("set", "What the short form changes, PATH = value."),
];

/// Top-level keys.
pub(super) static ROOT: &[Param] = &[
    text("scenario", "What the scenario is."),
    text("lab", "The emulated network."),
    text("hosts", "Real machines, instead of a lab."),
    text("service", "A real system on the lab's hosts, or one that is there already."),
    text("step", "A workload on the timeline."),
    text("sweep", "Parameters to vary."),
    text("case", "A named variant."),
    text("fault", "Something that happens to links, packets or processes."),
    text("criterion", "An expectation that is judged."),
    text("short", "What --short changes."),
];

pub(super) static TABLES: &[TableSchema] = &[
    TableSchema { name: "scenario", header: "[scenario]", about: "What the scenario is.", keys: SCENARIO },
    TableSchema { name: "lab", header: "[lab]", about: "The emulated network.", keys: LAB },
    TableSchema {
        name: "lab.site",
        header: "[[lab.site]]",
        about: "A site: hosts behind one switch.",
        keys: SITE,
    },
    TableSchema {
        name: "lab.switch",
        header: "[[lab.switch]]",
        about: "A switch between sites: forwards, with an output queue for each port.",
        keys: SWITCH,
    },
    TableSchema {
        name: "lab.router",
        header: "[[lab.router]]",
        about: "A router between sites: as a switch, and it counts hop limits down and answers what it cannot forward.",
        keys: ROUTER,
    },
    TableSchema {
        name: "lab.host",
        header: "[[lab.host]]",
        about: "What one host has otherwise than its site says.",
        keys: HOST,
    },
    TableSchema {
        name: "lab.link",
        header: "[[lab.link]]",
        about: "A link between two sites, switches or routers. Sites without a direct link are routed over the fewest links.",
        keys: LINK,
    },
    TableSchema {
        name: "hosts",
        header: "[hosts]",
        about: "Real machines instead of a lab; what is said here holds for all of them.",
        keys: HOSTS,
    },
    TableSchema {
        name: "hosts.host",
        header: "[hosts.SITE-NUMBER]",
        about: "One real host; steps name it as they name a lab's hosts.",
        keys: REAL_HOST,
    },
    TableSchema {
        name: "service",
        header: "[[service]]",
        about: "A real system, started on hosts of the lab before the trials that need it, or one that is there already.",
        keys: SERVICE,
    },
    TableSchema {
        name: "step",
        header: "[[step]]",
        about: "A workload on the timeline; steps run one after the other unless `after` or `at` says otherwise.",
        keys: STEP,
    },
    TableSchema {
        name: "sweep",
        header: "[sweep]",
        about: "PATH = [values]; points are the product of the dimensions. A dimension is called by the last word of its path; where two would be called the same, write PATH = { values = [...], alias = \"name\" }.",
        keys: SWEEP_VALUES,
    },
    TableSchema {
        name: "case",
        header: "[[case]]",
        about: "A named variant, multiplied by the sweep; where there are cases only they run.",
        keys: CASE,
    },
    TableSchema {
        name: "fault",
        header: "[[fault]]",
        about: "Something that happens to a link, to some of its packets or to a host's processes while a trial runs.",
        keys: FAULT,
    },
    TableSchema {
        name: "criterion",
        header: "[[criterion]]",
        about: "An expectation that is judged.",
        keys: CRITERION,
    },
    TableSchema { name: "short", header: "[short]", about: "What --short changes.", keys: SHORT },
];

/// Keys whose table may be written as one plain value: the key of the table that it stands for.
pub(super) fn shorthand(key: &str) -> Option<&'static str> {
    (key == "jitter").then_some("by")
}

/// Values of a choice that the language has and this version does not: refused by name.
pub(super) const LATER_VALUES: &[(&str, &[&str])] = &[("workload", &["copy"])];

/// True for a value that this version does not have.
pub(super) fn is_later_value(key: &str, value: &str) -> bool {
    LATER_VALUES.iter().any(|(name, values)| *name == key && values.contains(&value))
}

#[cfg(test)]
mod tests;
