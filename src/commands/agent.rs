//! `weir agent`: the remote end, spoken to over its standard streams.

use crate::output::Output;
use crate::run::environment;
use std::io::stdin;
use std::net::IpAddr;
use weir_agent::message::HostReport;
use weir_agent::serve::{Host, serve};
use weir_transport::address::at_and_on;

/// Status of an agent whose coordinator fell silent.
const ABANDONED: i32 = 3;

/// Be the agent of a host, as `weir run` starts it.
///
/// Started by `weir run` through a launcher (in a lab, by ssh on real hosts); of no use by hand. It ends with its input, and
/// when a coordinator on another machine has fallen silent.
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: &Args) -> anyhow::Result<i32> {
    weir_sys::signal::ignore_interrupt();
    let host = Host { report: report(), abandon: || std::process::exit(ABANDONED) };
    Ok(serve(stdin().lock(), Output, crate::registry::workloads(), host))
}

/// What this host is like, and where it was reached.
fn report() -> HostReport {
    // "CLIENT PORT SERVER PORT", set by sshd.
    let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let reached = connection.split_ascii_whitespace().nth(2).unwrap_or_default();
    let (reached_at, reached_on) = at_and_on(reached);
    let of_interface = |interface: weir_sys::interface::Interface| -> Vec<IpAddr> {
        let v4 = interface.ipv4.into_iter().filter(|it| !it.is_loopback() && !it.is_link_local());
        let v6 = interface.ipv6.into_iter().filter(|it| !it.is_loopback() && !it.is_unicast_link_local());
        v4.map(IpAddr::from).chain(v6.map(IpAddr::from)).collect()
    };
    let interfaces = weir_sys::interface::interfaces().unwrap_or_default();
    // The hello must not wait: what else runs is not watched.
    let mut environment = environment::read(std::time::Duration::ZERO);
    environment.remove("clock"); // the coordinator's to say
    HostReport {
        reached_at,
        reached_on,
        interfaces: interfaces.into_iter().map(|(name, interface)| (name, of_interface(interface))).collect(),
        environment,
    }
}
