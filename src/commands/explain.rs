//! `weir explain`: what a key of the scenario language means.

use crate::output;
use crate::registry;
use anyhow::anyhow;
use weir_core::scenario::{self, NoSystems};

/// Explain a key of the scenario language: meaning, values, range.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir explain                  all tables and their keys
  weir explain step             one table
  weir explain lab.link.rtt     one key
  weir explain rtt              every place that has a key of this name")]
pub struct Args {
    /// A table (step), a key in its place (lab.link.rtt, step.tcp.window) or a bare key (rtt)
    key: Option<String>,
}

pub fn run(args: &Args) -> anyhow::Result<i32> {
    let text = scenario::explain(args.key.as_deref(), &registry::language(&NoSystems))
        .map_err(|why| anyhow!(why))?;
    output::print(&text)?;
    Ok(0)
}
