//! `weir event`: the roles of event building as daemons.

mod members;

use super::address::{key, resolve};
use crate::output::{say, say_json, tell};
use anyhow::{Context, anyhow, bail};
use clap::{Args as ClapArgs, Subcommand};
use members::{Members, MembersOf, set_pairs};
use serde_json::{Value as Json, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_core::evidence::{Around, Load, limiting_factor};
use weir_core::param::{Kind, Member, parse_default};
use weir_core::record::{PointSummary, SUMMARY_SCHEMA, Summary, Verdict};
use weir_core::units::human;
use weir_core::{Instant, Param, Value, Values};
use weir_event::plan::{DEATH_POLICY, EventPlan, PARAMS, SCHEDULER};
use weir_event::roles::{BuilderRole, SchedulerReport, SchedulerRole, SourceRole};
use weir_event::shell::Order;
use weir_event::{metrics, workload};
use weir_seams::membership::check_name;
use weir_transport::{Key, exposure, tcp};

/// Of a scheduler, unless another is given.
const DEFAULT_PORT: u16 = 5302;

/// Build events: a scheduler, sources and builders, each a program of its own.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples, each on its host, in any order:
  weir event scheduler --listen 0.0.0.0:5302 --rate 200Hz --events 6000 --sources 2 --key-file key --json
  weir event source --scheduler there --name s0 --fragment-size 20kB --key-file key
  weir event source --scheduler there --name s1 --fragment-sizes exponential:20kB --key-file key
  weir event builder --scheduler there --name b0 --memory 1GiB --key-file key

Every role may be stopped and started again at any time; of two with one name the one started later stays.
With --membership zookeeper, given to every role, a peer takes part only while its ephemeral node is there.
SIGINT or SIGTERM: a scheduler issues no more heartbeats, drains and closes its ledger; a source or builder leaves.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(alias = "icn")]
    Scheduler(Box<SchedulerArgs>),
    #[command(alias = "flp")]
    Source(SourceArgs),
    #[command(alias = "epn")]
    Builder(BuilderArgs),
}

/// Issue heartbeats, choose a builder for each event, and keep the ledger.
#[derive(ClapArgs)]
struct SchedulerArgs {
    /// Where sources and builders connect
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:5302")]
    listen: String,
    /// Heartbeats a second
    #[arg(long, value_name = "RATE", default_value = "50Hz")]
    rate: String,
    /// Heartbeats in all; until a signal unless given
    #[arg(long, value_name = "N")]
    events: Option<u64>,
    /// Find the highest rate that is carried, from --rate up to this one; each lasts as long as --events at --rate
    #[arg(long, value_name = "RATE", requires = "events")]
    search_to: Option<String>,
    /// Sources of which an event is made; the first heartbeat waits for them
    #[arg(long, value_name = "N", default_value_t = 1)]
    sources: u32,
    /// Builders that the first heartbeat waits for
    #[arg(long, value_name = "N", default_value_t = 1)]
    builders: u32,
    /// Who gets an event: `weir list scheduler`, or a scheme of the documents
    #[arg(long, value_name = "NAME")]
    scheduler: Option<String>,
    /// A parameter of it, like slots=64; may be repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "scheduler")]
    scheduler_set: Vec<String>,
    /// What a builder's end means: `weir list death-policy`
    #[arg(long, value_name = "NAME")]
    death_policy: Option<String>,
    /// A parameter of it
    #[arg(long, value_name = "KEY=VALUE", requires = "death_policy")]
    death_policy_set: Vec<String>,
    /// Bytes on their way to one builder at most
    #[arg(long, value_name = "SIZE")]
    grant_window: Option<String>,
    /// Silence after which a peer counts as gone
    #[arg(long, value_name = "TIME")]
    detect: Option<String>,
    /// How often peers are asked for a sign of life
    #[arg(long, value_name = "TIME")]
    probe: Option<String>,
    /// Age at which an event is given up; never unless given
    #[arg(long, value_name = "TIME")]
    deadline: Option<String>,
    /// How long held events may take to end after the last heartbeat
    #[arg(long, value_name = "TIME")]
    drain: Option<String>,
    /// How long events wait for a source that is away
    #[arg(long, value_name = "TIME")]
    source_deadline: Option<String>,
    /// Give events out with what there is of them at their deadline
    #[arg(long)]
    partial: bool,
    /// scheduler: fragments are made when the heartbeat arrives; source: by each source's own clock
    #[arg(long, value_name = "scheduler|source")]
    trigger: Option<String>,
    /// Seed of payloads, sizes and choices
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    members: Members,
    /// Only peers that know this key may join
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Print the summary document, with the ledger, on standard output and nothing else
    #[arg(long)]
    json: bool,
}

/// Make a fragment of every heartbeat, keep it until its event is built, and send it where the scheduler says.
#[derive(ClapArgs)]
struct SourceArgs {
    /// Where the scheduler listens
    #[arg(long, value_name = "HOST[:PORT]")]
    scheduler: String,
    /// Its name in the run: a-z, 0-9 and -
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Payload of a fragment
    #[arg(long, value_name = "SIZE", conflicts_with = "fragment_sizes")]
    fragment_size: Option<String>,
    /// Sizes drawn anew for each fragment, like exponential:20kB; weir explain step.fragment_sizes has all forms
    #[arg(long, value_name = "SIZES")]
    fragment_sizes: Option<String>,
    /// What it can hold
    #[arg(long, value_name = "SIZE")]
    buffer: Option<String>,
    /// After a restart: make fragments from before again, or say they are lost
    #[arg(long, value_name = "remake|lose")]
    recover: Option<String>,
    #[command(flatten)]
    members: Members,
    /// The key the scheduler was started with
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Print what it did as one JSON line at the end
    #[arg(long)]
    json: bool,
}

/// Join the fragments of its heartbeats to events.
#[derive(ClapArgs)]
struct BuilderArgs {
    /// Where the scheduler listens
    #[arg(long, value_name = "HOST[:PORT]")]
    scheduler: String,
    /// Its name in the run: a-z, 0-9 and -
    #[arg(long, value_name = "NAME")]
    name: String,
    /// What it can hold
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Where sources reach it [default: the address it reaches the scheduler from, any port]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// Time it spends on each event
    #[arg(long, value_name = "TIME")]
    work: Option<String>,
    #[command(flatten)]
    members: Members,
    /// The key the scheduler was started with
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Print what it did as one JSON line at the end
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<i32> {
    match &args.command {
        Command::Scheduler(args) => scheduler(args),
        Command::Source(args) => source(args),
        Command::Builder(args) => builder(args),
    }
}

/// SIGINT and SIGTERM end a role.
#[derive(Default)]
struct Signals {
    done: AtomicU64,
}

impl Order for Signals {
    fn stopping(&self) -> bool {
        weir_sys::signal::interrupts() > 0
    }
    fn report(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }
    fn warn(&self, what: &str) {
        tell(format_args!("weir: {what}"));
    }
}

/// The plan that follows from flags; those not given have the scenario's defaults.
fn plan(
    given: &[(&'static str, Option<&String>)],
    more: &[(&'static str, Value)],
) -> anyhow::Result<EventPlan> {
    let mut values = Values::defaults(PARAMS);
    for (name, text) in given {
        let Some(text) = text else { continue };
        let param: &Param = PARAMS.iter().find(|param| param.name == *name).expect("declared");
        let flag = name.replace('_', "-");
        let value =
            parse_default(param.kind, text.trim()).map_err(|error| anyhow!("--{flag}: {}", error.problem))?;
        if !param.allows(&value) {
            bail!("--{flag} {text}: out of range; weir explain step.{name} says what it takes");
        }
        values.set(name, value);
    }
    for (name, value) in more {
        values.set(name, value.clone());
    }
    EventPlan::from_values(&values).map_err(|error| anyhow!(error.text))
}

fn scheduler(args: &SchedulerArgs) -> anyhow::Result<i32> {
    let address = resolve(&args.listen, DEFAULT_PORT)?;
    let key = key(args.key_file.as_deref())?;
    needs_key(&address, key.as_ref())?;
    let mut more = vec![("events", Value::Count(args.events.unwrap_or(1)))];
    if args.partial {
        more.push(("partial", Value::Flag(true)));
    }
    for (key, seam, name, pairs) in [
        ("scheduler", &SCHEDULER, &args.scheduler, &args.scheduler_set),
        ("death_policy", &DEATH_POLICY, &args.death_policy, &args.death_policy_set),
    ] {
        let Some(name) = name else { continue };
        let flag = format!("--{}", key.replace('_', "-"));
        let named = parse_default(Kind::Member(seam), name.trim());
        let named = named.map_err(|error| anyhow!("{flag}: {}", error.problem))?;
        let mut member = Member::of(&named).expect("a name was read");
        set_pairs(&mut member, seam, &format!("{flag}-set"), pairs)?;
        more.push((key, member.into_value()));
    }
    let scheduler = more.iter().find(|(key, _)| *key == "scheduler");
    let scheduler = scheduler.map_or(json!(weir_event::scheduler::DEFAULT), |(_, value)| value.to_json());
    let plan = plan(
        &[
            ("rate", Some(&args.rate)),
            ("search_to", args.search_to.as_ref()),
            ("grant_window", args.grant_window.as_ref()),
            ("detect", args.detect.as_ref()),
            ("probe", args.probe.as_ref()),
            ("deadline", args.deadline.as_ref()),
            ("drain", args.drain.as_ref()),
            ("source_deadline", args.source_deadline.as_ref()),
            ("trigger", args.trigger.as_ref()),
        ],
        &more,
    )?;
    if !(1..=workload::SOURCES_MAX as u32).contains(&args.sources) || args.builders == 0 {
        bail!("--sources is 1 to {} and --builders at least 1", workload::SOURCES_MAX);
    }
    weir_sys::signal::count_interrupts();
    weir_sys::socket::raise_open_files().context("cannot raise the limit of open files")?;
    let listener = tcp::listen(address, None)?;
    if !args.json {
        let at = listener.local_addr()?;
        tell(format_args!(
            "weir: scheduler at {at}; waits for {} sources and {} builders",
            args.sources, args.builders
        ));
    }
    let role = SchedulerRole {
        listener,
        key,
        plan,
        sources: args.sources,
        builders: args.builders,
        not_before: Instant::ZERO,
        seed: args.seed,
        events: args.events.filter(|_| args.search_to.is_none()),
        members: args.members.watches()?,
    };
    let mut told = 0;
    let report = role.run(&Signals::default(), |core, _| {
        // Who waits for days hears it when it happens; the ledger has how it went.
        let before = told;
        for failure in core.failures().filter(|failure| failure.number > before) {
            told = failure.number;
            let (what, name) = (if failure.is_builder { "builder" } else { "source" }, &failure.name);
            tell(format_args!(
                "weir: {what} {name} is gone: told after {:.0} ms, {} events in flight",
                failure.detect_ns as f64 / 1e6,
                failure.events_affected
            ));
        }
    })?;
    let mut document = serde_json::to_value(summary(args, scheduler, &report))?;
    if let Json::Object(document) = &mut document {
        document.insert("ledger".to_owned(), json!(report.totals));
        document.insert("failures".to_owned(), json!(report.failures));
        document.insert("builders".to_owned(), json!(report.builders));
        document.insert("searched".to_owned(), json!(report.searched));
    }
    if args.json {
        say_json(serde_json::to_string_pretty(&document)?)?;
    } else {
        say(table(&report))?;
    }
    Ok(if report.totals.is_closed() { 0 } else { 3 })
}

fn summary(args: &SchedulerArgs, scheduler: Json, report: &SchedulerReport) -> Summary {
    let rows = workload::scheduler_rows(report);
    let parameters = [
        ("rate", json!(args.rate)),
        ("sources", json!(args.sources)),
        ("events", json!(args.events)),
        ("scheduler", scheduler),
    ];
    let point = PointSummary {
        id: "event".to_owned(),
        step: "event".to_owned(),
        case: None,
        parameters: parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        trials: 1,
        valid_trials: 1,
        metrics: weir_net::adhoc::metrics(&rows, metrics::METRICS),
        limiting_factor: limiting_factor(&Around::default(), &Load::default(), &[]),
        matrix: None,
    };
    Summary {
        schema: SUMMARY_SCHEMA.to_owned(),
        scenario: "event".to_owned(),
        origin: None,
        scale: Default::default(),
        verdict: if report.totals.is_closed() { Verdict::Pass } else { Verdict::Inconclusive },
        criteria: Vec::new(),
        points: vec![point],
        warnings: Vec::new(),
        results: None,
    }
}

/// The ledger for people.
fn table(report: &SchedulerReport) -> String {
    let totals = &report.totals;
    let mut lines = vec![format!("{:<24}{:>14}", "generated", totals.generated)];
    for (name, count) in [("complete", totals.complete), ("partial", totals.partial)] {
        lines.push(format!("{name:<24}{count:>14}"));
    }
    for (reason, count) in totals.dropped.iter().filter(|(_, count)| **count > 0) {
        lines.push(format!("{:<24}{count:>14}", format!("dropped: {reason}")));
    }
    lines.push(format!("{:<24}{:>14}", "held", totals.held));
    for probe in &report.searched {
        let what = if probe.carried { "carried" } else { "not carried" };
        lines.push(format!(
            "{:>10.1} Hz  {what}: {} issued, {} lost, held grew by {}",
            probe.rate_hz, probe.issued, probe.lost, probe.held_growth
        ));
    }
    for failure in &report.failures {
        let what = if failure.is_builder { "builder" } else { "source" };
        let recovered = failure
            .recover_ns
            .map_or("not recovered".to_owned(), |ns| format!("recovered after {:.0} ms", ns as f64 / 1e6));
        lines.push(format!(
            "{what} {} gone: told after {:.0} ms, {} events in flight, {recovered}",
            failure.name,
            failure.detect_ns as f64 / 1e6,
            failure.events_affected
        ));
    }
    lines.join("\n")
}

fn source(args: &SourceArgs) -> anyhow::Result<i32> {
    check_name("--name", &args.name)?;
    let plan = plan(
        &[
            ("fragment_size", args.fragment_size.as_ref()),
            ("fragment_sizes", args.fragment_sizes.as_ref()),
            ("buffer", args.buffer.as_ref()),
            ("recover", args.recover.as_ref()),
        ],
        &[("events", Value::Count(1))],
    )?;
    let scheduler = resolve(&args.scheduler, DEFAULT_PORT)?;
    weir_sys::signal::count_interrupts();
    weir_sys::socket::raise_open_files().context("cannot raise the limit of open files")?;
    let key = key(args.key_file.as_deref())?;
    let membership = args.members.open(MembersOf::Sources)?;
    let role = SourceRole { name: args.name.clone(), host: host_name(), scheduler, key, plan, membership };
    let report = role.run(&Signals::default())?;
    let did = format!(
        "{} fragments made, {} sent ({}), {} of them again, {} lost",
        report.made,
        report.sent,
        human(report.sent_bytes as f64, "B"),
        report.again,
        report.lost
    );
    end("source", &args.name, &report.why, &did, args.json, json!(report))
}

fn builder(args: &BuilderArgs) -> anyhow::Result<i32> {
    check_name("--name", &args.name)?;
    let plan = plan(
        &[("memory", args.memory.as_ref()), ("work", args.work.as_ref())],
        &[("events", Value::Count(1))],
    )?;
    let scheduler = resolve(&args.scheduler, DEFAULT_PORT)?;
    let address = match &args.listen {
        Some(text) => resolve(text, 0)?,
        None => SocketAddr::new(address_towards(scheduler)?, 0),
    };
    let key = key(args.key_file.as_deref())?;
    needs_key(&address, key.as_ref())?;
    weir_sys::signal::count_interrupts();
    weir_sys::socket::raise_open_files().context("cannot raise the limit of open files")?;
    let listener = tcp::listen(address, Some(&plan.tcp))?;
    let bound = listener.local_addr()?;
    // Sources are told an address that they can reach.
    let reached = if bound.ip().is_unspecified() { address_towards(scheduler)? } else { bound.ip() };
    let data = SocketAddr::new(reached, bound.port());
    let role = BuilderRole {
        name: args.name.clone(),
        host: host_name(),
        scheduler,
        listener,
        data,
        key,
        plan,
        membership: args.members.open(MembersOf::Builders)?,
    };
    let report = role.run(&Signals::default())?;
    let (why, figures) = (report.why.clone(), &report.figures);
    let did = format!(
        "{} events complete, {} partial, {} dropped; {} fragments received ({})",
        figures.complete,
        figures.partial,
        figures.dropped,
        figures.received,
        human(figures.received_bytes as f64, "B")
    );
    let report = json!({"why": report.why, "figures": report.figures});
    end("builder", &args.name, &why, &did, args.json, report)
}

/// Says why a role ended and what it did; its exit status.
fn end(role: &str, name: &str, why: &str, did: &str, json: bool, report: Json) -> anyhow::Result<i32> {
    if json {
        say_json(json!({"role": role, "name": name, "report": report}))?;
    } else {
        tell(format_args!("weir: {role} {name}: {why}"));
        say(did)?;
    }
    Ok(0)
}

fn needs_key(address: &SocketAddr, key: Option<&Key>) -> anyhow::Result<()> {
    if key.is_none() && !exposure::is_closed(address) {
        bail!(
            "{address} can be reached from other machines, so a key is needed\n  \
             head -c 32 /dev/urandom > key     and give every role --key-file key"
        );
    }
    Ok(())
}

/// The address of this machine from which `there` is reached. Nothing is sent.
fn address_towards(there: SocketAddr) -> anyhow::Result<IpAddr> {
    let any: IpAddr = match there {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).context("cannot open a socket")?;
    socket.connect(there).with_context(|| format!("there is no way to {there}"))?;
    Ok(socket.local_addr()?.ip())
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}
