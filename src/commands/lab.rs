//! `weir lab`: emulated networks for any program.

use super::capture;
use super::scenario_file;
use crate::output::{say, say_json, tell};
use crate::registry;
use crate::run::services;
use anyhow::bail;
use clap::Subcommand;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use weir_core::nearest::nearest;
use weir_core::scenario::{Configuration, Overrides, Service};
use weir_core::text::{SHOWN_BYTES_MAX, shown};
use weir_lab::named::{self, Entry, LabName, Place, ServiceState, State};
use weir_lab::{Lab, LabError, Options};
use weir_service::Running;

/// Use an emulated network with any program.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir lab up scenarios/quickstart.toml --name a
  weir lab exec a left-0 -- ping -c3 right-0
  weir lab exec a right-0 -- iperf3 -s -D
  weir lab capture a link.wan --out wan.pcapng --duration 10s
  weir lab list
  weir lab down a

Labs are kept in /run/weir, or in the folder that the environment variable WEIR_STATE_DIR names; labs of another folder are
neither listed nor taken down.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(Up),
    Exec(Exec),
    Capture(capture::Args),
    Down(Down),
    List(List),
}

/// Build the network that a scenario's [lab] describes and start its services; all stays until `lab down`.
#[derive(clap::Args)]
struct Up {
    /// Scenario; [lab] alone will do
    file: PathBuf,
    /// What to call it: small letters, digits and hyphens
    #[arg(long)]
    name: String,
    /// The case whose lab and services these are; the first unless given
    #[arg(long)]
    case: Option<String>,
    /// Change a value, as in link.wan.rtt=\"50ms\"
    #[arg(long = "set", value_name = "PATH=VALUE")]
    sets: Vec<String>,
    /// Seed of the random losses
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print what was built as JSON
    #[arg(long)]
    json: bool,
}

/// Run a program on a host of a lab, as the user who invoked weir; its exit status is the program's.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir lab exec a left-0 -- ping -c3 right-0
  weir lab exec a left-0 --root -- tcpdump -ni eth0

Exit status: the program's own; 127 if it is not there, 126 if it cannot be run, 2 if the lab is not.")]
struct Exec {
    name: String,
    host: String,
    /// Stay root
    #[arg(long)]
    root: bool,
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// End every program in a lab and take it away.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Down {
    name: Option<String>,
    /// What is left of labs whose fabric, or whose `lab up`, is gone
    #[arg(long)]
    dead: bool,
    /// All labs of this user
    #[arg(long)]
    all: bool,
}

/// Show the labs of this machine.
#[derive(clap::Args)]
struct List {
    /// Print an array of {name, state, owner_uid, fabric_pid, file, hosts}
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<i32> {
    match &args.command {
        Command::Up(args) => up(args),
        Command::Exec(args) => exec(args),
        Command::Capture(args) => capture::run(args),
        Command::Down(args) => down(args),
        Command::List(args) => list(args),
    }
}

fn up(args: &Up) -> anyhow::Result<i32> {
    let name = LabName::new(&Place::chosen()?, &args.name)?;
    let overrides = Overrides { sets: args.sets.clone(), ..Overrides::default() };
    let first = match chosen(&args.file, &overrides, args.case.as_deref())? {
        Ok(first) => first,
        Err(status) => return Ok(status),
    };
    weir_sys::signal::count_interrupts();
    let library = registry::library(&args.file);
    services::check_installed(&library, [&first])?;
    let furnish = &mut |lab: &mut Lab, folder: &Path| {
        let up = services::start(lab, &first.topology, &first.services, &library, folder);
        let up = up.map_err(|error| LabError::Furnish(format!("{error:#}")))?;
        let states = first.services.iter().map(|service| service_state(service, &up.running)).collect();
        up.release();
        Ok(states)
    };
    let options = Options { seed: args.seed, exe: PathBuf::from("/proc/self/exe") };
    let up = named::up(&name, &first.topology, &options, &args.file.display().to_string(), furnish)?;
    for note in &up.notes {
        tell(format_args!("weir: note: {note}"));
    }
    if args.json {
        let mut document = state_json(&up.state);
        document["notes"] = json!(up.notes);
        say_json(serde_json::to_string_pretty(&document)?)?;
        return Ok(0);
    }
    say(format_args!("lab {} is up: {} hosts", args.name, up.state.hosts.len()))?;
    for host in up.state.hosts.iter().take(40) {
        say(format_args!("  {:<24} {:<15} {}", host.name, host.address, host.address6))?;
    }
    if up.state.hosts.len() > 40 {
        say(format_args!("  … ({} more; `weir lab list --json` has all)", up.state.hosts.len() - 40))?;
    }
    for service in &up.state.services {
        say(format_args!("  service {:<16} {:<15} {}", service.name, service.system, service.at))?;
    }
    Ok(0)
}

fn service_state(service: &Service, running: &[Running]) -> ServiceState {
    let running = running.iter().find(|running| running.name == service.name);
    let folders = running.map(|running| &running.folders).into_iter().flatten();
    ServiceState {
        name: service.name.clone(),
        system: service.system.clone(),
        at: service.at.clone(),
        logs: folders
            .map(|(place, folder)| (place.clone(), folder.join("log").display().to_string()))
            .collect(),
    }
}

/// The first configuration of a scenario, or of one of its cases, whose lab is built. `Err` is the exit status after the problems were printed.
fn chosen(
    path: &Path,
    overrides: &Overrides,
    case: Option<&str>,
) -> anyhow::Result<Result<Configuration, i32>> {
    let Ok(plan) = scenario_file::load(path, overrides)? else { return Ok(Err(2)) };
    let file = path.display();
    let of_case = |other: &&Configuration| case.is_none() || other.case.as_deref() == case;
    let Some(first) = plan.configurations.iter().find(of_case) else {
        let Some(case) = case else { bail!("{file}: there is no lab to build") };
        let names = plan.configurations.iter().filter_map(|other| other.case.as_deref());
        let help = nearest(case, names).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        bail!("{file} has no case {case:?}{help}");
    };
    if first.hosts.is_some() {
        bail!("{file} names real hosts; a lab is built of [lab]");
    }
    let varies = |other: &Configuration| other.topology != first.topology || other.services != first.services;
    if case.is_none() && plan.configurations.iter().any(varies) {
        tell(format_args!(
            "weir: note: {file} varies its lab or its services; these are of {:?}. --case and --set change them",
            first.id
        ));
    }
    Ok(Ok(first.clone()))
}

fn exec(args: &Exec) -> anyhow::Result<i32> {
    let name = LabName::new(&Place::chosen()?, &args.name)?;
    let Some((program, arguments)) = args.command.split_first() else { bail!("no command to run") };
    let (status, error) =
        named::exec(&name, &Entry { host: &args.host, program, arguments, root: args.root })?;
    tell(format_args!("weir: {}: {error}", program.display()));
    Ok(status)
}

fn down(args: &Down) -> anyhow::Result<i32> {
    let place = Place::chosen()?;
    let down = if args.dead {
        named::down_dead(&place)?
    } else if args.all {
        named::down_all(&place)?
    } else {
        named::down(&LabName::new(&place, args.name.as_deref().unwrap_or_default())?)?
    };
    for name in &down.names {
        say(format_args!("lab {name} is down"))?;
    }
    if down.folders > 0 {
        say(format_args!("removed what {} killed runs left on disk", down.folders))?;
    }
    Ok(problems_told(&down.problems))
}

/// The exit status after these problems, if any.
fn problems_told(problems: &[LabError]) -> i32 {
    for problem in problems {
        tell(format_args!("weir: {problem}"));
    }
    if problems.is_empty() { 0 } else { 2 }
}

fn list(args: &List) -> anyhow::Result<i32> {
    let listed = named::list(&Place::chosen()?)?;
    let labs = &listed.states;
    if args.json {
        let all: Vec<Value> = labs.iter().map(state_json).collect();
        say_json(serde_json::to_string_pretty(&all)?)?;
        return Ok(problems_told(&listed.problems));
    }
    for lab in labs {
        say(format_args!(
            "{:<24} {:<9} {:>4} hosts  {}",
            lab.name,
            state_word(lab),
            lab.hosts.len(),
            shown(&lab.file, SHOWN_BYTES_MAX)
        ))?;
    }
    Ok(problems_told(&listed.problems))
}

fn state_word(state: &State) -> &'static str {
    match (state.is_dead(), state.is_up()) {
        (true, _) => "dead",
        (_, true) => "up",
        _ => "starting",
    }
}

fn state_json(state: &State) -> Value {
    let hosts: Vec<Value> = state
        .hosts
        .iter()
        .map(|host| {
            let mut value = json!({"name": host.name, "address": host.address, "address6": host.address6});
            if let Some(auxiliary) = &host.auxiliary {
                value["auxiliary"] = json!({"address": auxiliary.address, "address6": auxiliary.address6});
            }
            value
        })
        .collect();
    json!({
        "name": state.name,
        "state": state_word(state),
        "owner_uid": state.owner_uid,
        "fabric_pid": state.fabric.map(|fabric| fabric.pid),
        "file": state.file,
        "hosts": hosts,
        "services": state.services,
    })
}
