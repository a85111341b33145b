//! One file a command.

mod address;
mod agent;
#[cfg(feature = "lab")]
mod capture;
#[cfg(feature = "lab")]
mod check;
mod doctor;
#[cfg(feature = "event")]
mod event;
mod explain;
pub mod export;
mod flags;
#[cfg(feature = "generate")]
mod generate;
#[cfg(feature = "lab")]
mod io;
#[cfg(feature = "lab")]
mod lab;
mod list;
mod net;
mod new;
mod report;
#[cfg(feature = "lab")]
mod run;
#[cfg(feature = "lab")]
mod scenario_file;
#[cfg(feature = "lab")]
mod single;
mod text;

use clap::{Parser, Subcommand};

/// Builds, loads and proves a scientific data path: in an emulated lab on this machine, or between real hosts.
#[derive(Parser)]
#[command(name = "weir", version, max_term_width = 80, disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  weir run scenarios/quickstart.toml            run, judge, report
  weir lab up scenarios/quickstart.toml --name a
  weir lab exec a left-0 -- ping -c3 right-0    any program inside the lab
  weir net serve --listen 127.0.0.1:5301        then: weir net stream 127.0.0.1:5301

Exit status: 0 every criterion passed, 1 one failed, 2 usage or tool error, 3 inconclusive.")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant)] // there is one, made once
pub enum Command {
    #[cfg(feature = "lab")]
    Run(run::Args),
    #[cfg(feature = "lab")]
    Check(check::Args),
    New(new::Args),
    Explain(explain::Args),
    List(list::Args),
    #[cfg(feature = "lab")]
    Lab(lab::Args),
    Net(net::Args),
    #[cfg(feature = "lab")]
    Io(io::Args),
    #[cfg(feature = "event")]
    Event(event::Args),
    Report(report::Args),
    Export(export::Args),
    Doctor(doctor::Args),
    Agent(agent::Args),
    #[cfg(feature = "generate")]
    Generate(generate::Args),
}

impl Command {
    /// The exit status, or the error that ends the program with status 2.
    pub fn run(self) -> anyhow::Result<i32> {
        match self {
            #[cfg(feature = "lab")]
            Command::Run(args) => run::run(&args),
            #[cfg(feature = "lab")]
            Command::Check(args) => check::run(&args),
            Command::New(args) => new::run(&args),
            Command::Explain(args) => explain::run(&args),
            Command::List(args) => list::run(&args),
            #[cfg(feature = "lab")]
            Command::Lab(args) => lab::run(&args),
            Command::Net(args) => net::run(&args),
            #[cfg(feature = "lab")]
            Command::Io(args) => io::run(&args),
            #[cfg(feature = "event")]
            Command::Event(args) => event::run(&args),
            Command::Report(args) => report::run(&args),
            Command::Export(args) => export::run(&args),
            Command::Doctor(args) => doctor::run(&args),
            Command::Agent(args) => agent::run(&args),
            #[cfg(feature = "generate")]
            Command::Generate(args) => generate::run(&args),
        }
    }
}
