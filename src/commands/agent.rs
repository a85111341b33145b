//! `weir agent`: the remote end, spoken to over its standard streams.

use std::io::{stdin, stdout};

/// Be the agent of a host: takes orders on standard input, answers on standard output.
///
/// Started by `weir run` through a launcher; of no use by hand.
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: &Args) -> anyhow::Result<i32> {
    weir_sys::signal::ignore_interrupt();
    Ok(weir_agent::serve::serve(stdin().lock(), stdout(), crate::registry::workloads()))
}
