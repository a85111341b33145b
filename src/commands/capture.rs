//! `weir lab capture`: pcapng of any port of a lab.

use crate::output::{self, Output, tell};
use anyhow::{Context, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use weir_core::units::{Bytes, parse_duration};
use weir_lab::capture::{Epoch, Request, Stop};
use weir_lab::named::{self, LabName, Place};
use weir_sys::directory::create_named;

/// How often an interrupt is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Write what passes a port of a lab to a pcapng file.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir lab capture a left-0 --out left.pcapng --duration 10s
  weir lab capture a link.wan.forward --snap 96B --count 1000 | tcpdump -nr -
  weir lab capture a 'host.*.access' wan --out all.pcapng

PORT is a link as the results name it, with its direction (link.wan.forward) or without it for both
(link.wan); the first word may be left out (wan), and a host's name is its access link. * stands
for anything. Each direction is an interface of the file. Packets are in it as they begin to be
sent on the link, dropped ones with a comment that says why. Time 0 is the start of the lab.
It ends by itself with --count or --duration, else when interrupted.")]
pub struct Args {
    name: String,
    #[arg(required = true, value_name = "PORT")]
    ports: Vec<String>,
    /// Where to; - is standard output, which also serves unless it is a terminal
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Keep so much of each packet, as in 96B; all of it unless given
    #[arg(long, value_name = "BYTES")]
    snap: Option<String>,
    /// End after so many packets
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after this time, as in 10s
    #[arg(long, value_name = "TIME")]
    duration: Option<String>,
    /// Time stamps in real time instead of time since the lab's start
    #[arg(long)]
    real_time: bool,
}

pub fn run(args: &Args) -> anyhow::Result<i32> {
    let name = LabName::new(&Place::chosen()?, &args.name)?;
    let request = request(args)?;
    // Opened first: a file that cannot be written is said before anything starts.
    let mut out = output(args.out.as_deref())?;
    let capturing = named::capture(&name, &request)?;
    tell(format_args!("capturing {}", ports(&capturing.ports)));
    weir_sys::signal::count_interrupts();
    end_when_interrupted(capturing.stop().context("watching for an interrupt")?);
    let outcome = capturing.copy_to(&mut out)?;
    let lost = match outcome.lost {
        0 => String::new(),
        lost => format!(", {lost} lost: the file could not be written as fast as they came"),
    };
    tell(format_args!("{} packets{lost}", outcome.packets));
    if let Some(error) = outcome.error {
        bail!("the capture broke off: {error}");
    }
    Ok(0)
}

fn request(args: &Args) -> anyhow::Result<Request> {
    let snap_bytes = match args.snap.as_deref() {
        None => None,
        Some(text) => {
            // A plain number as well, as tcpdump has it.
            let bytes = match text.parse::<u64>() {
                Ok(bytes) => bytes,
                Err(_) => Bytes::parse(text).with_context(|| format!("--snap {text}"))?.0,
            };
            match u32::try_from(bytes) {
                Ok(bytes) if bytes > 0 => Some(bytes),
                _ => bail!("--snap {text}: a packet has 1 to 65535 bytes"),
            }
        }
    };
    let duration_ns = match args.duration.as_deref() {
        None => None,
        Some(text) => {
            let duration = parse_duration(text).with_context(|| format!("--duration {text}"))?;
            Some(u64::try_from(duration.as_nanos()).with_context(|| format!("--duration {text}: too long"))?)
        }
    };
    if args.count == Some(0) {
        bail!("--count 0: that is no capture");
    }
    Ok(Request {
        ports: args.ports.clone(),
        snap_bytes,
        count: args.count,
        duration_ns,
        epoch: if args.real_time { Epoch::Real } else { Epoch::Lab },
    })
}

fn output(path: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    match path {
        Some(path) if path != Path::new("-") => {
            Ok(Box::new(create_named(path).with_context(|| format!("making {}", path.display()))?))
        }
        _ if output::is_terminal() => {
            bail!(
                "a capture is no text for a terminal: name a file with --out FILE, or pipe it, as to `tcpdump -nr -`"
            )
        }
        _ => Ok(Box::new(Output)),
    }
}

fn ports(names: &[String]) -> String {
    match names {
        [first, second, third, _, ..] => {
            format!("{first}, {second}, {third}, … ({} ports)", names.len())
        }
        few => few.join(", "),
    }
}

/// The thread ends with the process.
fn end_when_interrupted(stop: Stop) {
    thread::spawn(move || {
        while weir_sys::signal::interrupts() == 0 {
            thread::sleep(LOOK);
        }
        stop.stop();
    });
}
