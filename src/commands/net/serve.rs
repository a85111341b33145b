//! `weir net serve`: waits for measurements, of weir's own clients or of iperf3's.

use super::{Protocol, key, resolve};
use crate::output::{self, say_json, tell};
use anyhow::bail;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use weir_net::adhoc::{Server, ServerLimits};
use weir_net::iperf3;
use weir_transport::address::Shown;
use weir_transport::exposure;

/// Wait for measurements until SIGINT or SIGTERM.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir net serve                                 for this machine alone
  weir net serve --listen 0.0.0.0:5301 --key-file key
  weir net serve --protocol iperf3 --listen 0.0.0.0:5201 --open

Beyond loopback and labs a key is asked for: 16 to 4096 bytes of anything, proven by both ends, never sent.")]
pub struct ServeArgs {
    /// Address and port to listen at; port 0 takes a free one [default: 127.0.0.1:5301, with iperf3 127.0.0.1:5201]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// Whose clients to serve; stock clients of iperf3 one at a time, and they know no keys
    #[arg(long, value_name = "weir|iperf3", value_enum, default_value_t, hide_possible_values = true)]
    protocol: Protocol,
    /// Only clients that know this key may measure
    #[arg(long, value_name = "FILE", conflicts_with = "open")]
    key_file: Option<PathBuf>,
    /// Let anyone who reaches the port measure
    #[arg(long)]
    open: bool,
    /// Print one JSON line when listening, and one for each session
    #[arg(long)]
    json: bool,
}

pub fn run(args: &ServeArgs) -> anyhow::Result<i32> {
    let address = match &args.listen {
        Some(text) => resolve(text, args.protocol.port())?,
        None => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), args.protocol.port()),
    };
    if args.protocol == Protocol::Iperf3 {
        return serve_iperf3(args, address);
    }
    let key = key(args.key_file.as_deref())?;
    if key.is_none() && !args.open && !exposure::is_closed(&address) {
        bail!(
            "{} can be reached from other machines, so a key is needed\n  \
             head -c 32 /dev/urandom > key     and give both ends --key-file key\n  \
             or say --open to let anyone measure who reaches the port",
            Shown(address)
        );
    }
    weir_sys::signal::count_interrupts();
    let with_key = if key.is_some() { "with a key" } else { "without a key" };
    let server = Server::listen(address, key, ServerLimits::default())?;
    tell_listening(args.json, server.address()?, with_key)?;
    server.serve(&asked_to_end, tell_session(args.json))?;
    Ok(0)
}

fn serve_iperf3(args: &ServeArgs, address: SocketAddr) -> anyhow::Result<i32> {
    if args.key_file.is_some() {
        bail!(
            "iperf3 has no keys; leave --key-file out, and say --open to let anyone measure who reaches the port"
        );
    }
    if !args.open && !exposure::is_closed(&address) {
        bail!(
            "{} can be reached from other machines, and iperf3 has no keys\n  \
             say --open to let anyone measure who reaches the port",
            Shown(address)
        );
    }
    weir_sys::signal::count_interrupts();
    let server = iperf3::Server::listen(address)?;
    tell_listening(args.json, server.address()?, "for iperf3 clients")?;
    server.serve(&asked_to_end, tell_session(args.json))?;
    Ok(0)
}

/// How often it was; a server whose sessions nobody can hear of any more is.
fn asked_to_end() -> u32 {
    weir_sys::signal::interrupts().max(u32::from(output::has_failed()))
}

fn tell_listening(json: bool, address: SocketAddr, how: &str) -> anyhow::Result<()> {
    let address = Shown(address);
    if json {
        say_json(serde_json::json!({"event": "listening", "address": address.to_string()}))?;
    } else {
        tell(format_args!("weir: listening at {address} {how}; Ctrl-C ends it"));
    }
    Ok(())
}

/// What hears a line for each session.
fn tell_session(json: bool) -> impl Fn(String) + Send + Sync + 'static {
    move |text| {
        if json {
            // One that fails ends the server: see `asked_to_end`.
            let _ = say_json(serde_json::json!({"event": "session", "text": text}));
        } else {
            tell(format_args!("weir: {text}"));
        }
    }
}
