//! `weir net`: measure between any two machines.

use anyhow::{Context, bail};
use clap::Subcommand;
use std::io::{IsTerminal, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use weir_core::metric::Metric;
use weir_core::param::{Kind, parse_default};
use weir_core::record::Verdict;
use weir_core::units::human;
use weir_core::{Value, Values};
use weir_net::adhoc::summary::{Point, point_id, summarise};
use weir_net::adhoc::table::table;
use weir_net::adhoc::{Client, DEFAULT_PORT, Job, Progress, Server, ServerLimits, exposure};
use weir_net::latency::LatencyPlan;
use weir_net::stream::plan::StreamPlan;
use weir_transport::Key;

/// The values of one measurement, and the swept ones among them by name.
type Combination = (Values, Vec<(String, Value)>);

/// Measure between any two machines: serve here, stream there.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  head -c 32 /dev/urandom > key                 the same file at both ends
  there$ weir net serve --listen 0.0.0.0:5301 --key-file key
  here$  weir net stream there --streams 1,4,16 --duration 10s --key-file key
  here$  weir net latency there --size 64B --count 10000 --key-file key --json

The port is 5301 unless given. A flag with a list measures one point a value.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(ServeArgs),
    Stream(StreamArgs),
    Latency(LatencyArgs),
}

/// Wait for measurements until SIGINT or SIGTERM.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir net serve                                 for this machine alone
  weir net serve --listen 0.0.0.0:5301 --key-file key

Beyond loopback and labs a key is asked for: 16 to 4096 bytes of anything, proven by both ends, never sent.")]
struct ServeArgs {
    /// Address and port to listen at; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:5301")]
    listen: String,
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

#[derive(clap::Args)]
struct Common {
    /// Where `weir net serve` listens
    #[arg(value_name = "HOST[:PORT]")]
    host: String,
    /// The key the server was started with
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Print the summary document on standard output and nothing else
    #[arg(long)]
    json: bool,
    /// Part of the duration, at its beginning, that is not measured
    #[arg(long, value_name = "TIME")]
    warm_up: Option<String>,
    /// Congestion control, set at both ends [default: cubic]
    #[arg(long, value_name = "NAME[,…]", value_delimiter = ',')]
    congestion: Vec<String>,
}

/// Bulk TCP: goodput, fairness, stalls, retransmissions, CPU cost.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir net stream 127.0.0.1 --streams 1,4,16
  weir net stream there:5301 --direction down --duration 30s --warm-up 5s --key-file key --json")]
struct StreamArgs {
    #[command(flatten)]
    common: Common,
    /// Connections
    #[arg(long, value_name = "N[,…]", value_delimiter = ',', default_value = "1")]
    streams: Vec<String>,
    /// How long to load, warm-up included [default: 10s]
    #[arg(long, value_name = "TIME", conflicts_with = "bytes")]
    duration: Option<String>,
    /// Payload of each flow, instead of a duration
    #[arg(long, value_name = "SIZE")]
    bytes: Option<String>,
    /// up: from here to there; down: from there to here; both: a connection for each
    #[arg(long, value_name = "up|down|both", value_delimiter = ',', default_value = "up")]
    direction: Vec<String>,
    /// Bytes of one send or receive call
    #[arg(long, value_name = "SIZE[,…]", value_delimiter = ',', default_value = "128KiB")]
    block: Vec<String>,
    /// Data threads at each end; 0 is one a flow, up to one a core
    #[arg(long, value_name = "N", default_value = "0")]
    threads: String,
    /// Resolution of the series, from 1ms
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    interval: String,
    /// Cap on what one connection has in flight
    #[arg(long, value_name = "SIZE[,…]", value_delimiter = ',')]
    window: Vec<String>,
    /// Asked of the kernel for sending sockets
    #[arg(long, value_name = "SIZE")]
    send_buffer: Option<String>,
    /// Asked of the kernel for receiving sockets
    #[arg(long, value_name = "SIZE")]
    receive_buffer: Option<String>,
    /// Largest segment
    #[arg(long, value_name = "SIZE")]
    mss: Option<String>,
    /// Cap on the rate at which one connection sends payload
    #[arg(long, value_name = "RATE[,…]", value_delimiter = ',')]
    pacing: Vec<String>,
    /// What the sending program of each flow makes a second (a slow source)
    #[arg(long, value_name = "RATE[,…]", value_delimiter = ',')]
    source_rate: Vec<String>,
    /// What the receiving program of each flow reads a second (a slow reader)
    #[arg(long, value_name = "RATE[,…]", value_delimiter = ',')]
    read_rate: Vec<String>,
}

/// Requests and replies: the distribution of round trips, and what is lost.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir net latency 127.0.0.1 --count 100000
  weir net latency there:5301 --size 64B,1KiB --duration 10s --key-file key --json
  weir net latency there --transport udp --rate 1kHz --duration 1min --key-file key")]
struct LatencyArgs {
    #[command(flatten)]
    common: Common,
    /// Bytes of the request and of the reply
    #[arg(long, value_name = "SIZE[,…]", value_delimiter = ',', default_value = "64B")]
    size: Vec<String>,
    /// Round trips counted [default: 1000]
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    count: Option<String>,
    /// How long to measure, instead of a count
    #[arg(long, value_name = "TIME")]
    duration: Option<String>,
    /// Round trips at the beginning that are not counted
    #[arg(long, value_name = "N", default_value = "10")]
    warm_up_count: String,
    /// How the messages travel
    #[arg(long, value_name = "tcp|udp", value_delimiter = ',', default_value = "tcp")]
    transport: Vec<String>,
    /// Requests a second, whatever became of those before [default: the next leaves with the reply]
    #[arg(long, value_name = "RATE[,…]", value_delimiter = ',')]
    rate: Vec<String>,
    /// How long a reply over UDP is waited for before its request counts as lost
    #[arg(long, value_name = "TIME", default_value = "1s")]
    timeout: String,
}

pub fn run(args: &Args) -> anyhow::Result<i32> {
    match &args.command {
        Command::Serve(args) => serve(args),
        Command::Stream(args) => stream(args),
        Command::Latency(args) => latency(args),
    }
}

fn key(path: Option<&Path>) -> anyhow::Result<Option<Key>> {
    Ok(path.map(Key::from_file).transpose()?)
}

/// Standard output that is closed is the reader's choice, not an error of the measurement.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn serve(args: &ServeArgs) -> anyhow::Result<i32> {
    let address = resolve(&args.listen)?;
    let key = key(args.key_file.as_deref())?;
    if key.is_none() && !args.open && !exposure::is_closed(&address) {
        bail!(
            "{address} can be reached from other machines, so a key is needed\n  \
             head -c 32 /dev/urandom > key     and give both ends --key-file key\n  \
             or say --open to let anyone measure who reaches the port"
        );
    }
    weir_sys::signal::count_interrupts();
    let with_key = if key.is_some() { "with a key" } else { "without a key" };
    let server = Server::listen(address, key, ServerLimits::default())?;
    let address = server.address()?;
    let json = args.json;
    if json {
        say(&serde_json::json!({"event": "listening", "address": address.to_string()}).to_string());
    } else {
        eprintln!("weir: listening at {address} {with_key}; Ctrl-C ends it");
    }
    server.serve(&weir_sys::signal::interrupts, move |text| {
        if json {
            say(&serde_json::json!({"event": "session", "text": text}).to_string());
        } else {
            eprintln!("weir: {text}");
        }
    })?;
    Ok(0)
}

/// `HOST`, `HOST:PORT`, an address of either family, `[ADDRESS]:PORT`.
fn resolve(text: &str) -> anyhow::Result<SocketAddr> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, DEFAULT_PORT));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => {
            let port = port.parse().with_context(|| format!("{text:?}: {port:?} is not a port"))?;
            (host, port)
        }
        None => (text, DEFAULT_PORT),
    };
    let mut all = (host, port).to_socket_addrs().with_context(|| format!("{host:?} names no host"))?;
    all.next().with_context(|| format!("{host:?} has no address"))
}

/// Values of one flag, parsed; a list is a dimension of the sweep.
struct Flag {
    name: &'static str,
    /// Its key in the table `tcp`, where it belongs there.
    in_tcp: bool,
    values: Vec<Value>,
}

#[derive(Default)]
struct Flags(Vec<Flag>);

impl Flags {
    fn add(
        &mut self,
        name: &'static str,
        kind: Kind,
        texts: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> anyhow::Result<()> {
        self.put(name, false, kind, texts)
    }

    fn tcp(
        &mut self,
        name: &'static str,
        kind: Kind,
        texts: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> anyhow::Result<()> {
        self.put(name, true, kind, texts)
    }

    fn put(
        &mut self,
        name: &'static str,
        in_tcp: bool,
        kind: Kind,
        texts: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> anyhow::Result<()> {
        let mut values = Vec::new();
        for text in texts {
            let flag = name.replace('_', "-");
            let value = parse_default(kind, text.as_ref().trim())
                .map_err(|error| anyhow::anyhow!("--{flag}: {}", error.problem))?;
            values.push(value);
        }
        if !values.is_empty() {
            self.0.push(Flag { name, in_tcp, values });
        }
        Ok(())
    }

    /// Every combination: the values of the measurement, and the swept ones among them.
    fn points(&self) -> anyhow::Result<Vec<Combination>> {
        const POINTS_MAX: usize = 10_000;
        let mut points = vec![(Values::default(), Vec::new())];
        for flag in &self.0 {
            if points.len() * flag.values.len() > POINTS_MAX {
                bail!("the lists make more than {POINTS_MAX} points");
            }
            let mut more = Vec::with_capacity(points.len() * flag.values.len());
            for (values, swept) in points {
                for value in &flag.values {
                    let (mut values, mut swept) = (values.clone(), swept.clone());
                    if flag.in_tcp {
                        let mut tcp = values.table("tcp").unwrap_or_default();
                        tcp.set(flag.name, value.clone());
                        values.set("tcp", Value::Table(tcp.0));
                    } else {
                        values.set(flag.name, value.clone());
                    }
                    if flag.values.len() > 1 {
                        swept.push((flag.name.to_owned(), value.clone()));
                    }
                    more.push((values, swept));
                }
            }
            points = more;
        }
        Ok(points)
    }
}

fn common(flags: &mut Flags, common: &Common) -> anyhow::Result<()> {
    flags.add("warm_up", Kind::Duration, &common.warm_up)?;
    flags.tcp("congestion", Kind::Text, &common.congestion)
}

fn stream(args: &StreamArgs) -> anyhow::Result<i32> {
    let mut flags = Flags::default();
    common(&mut flags, &args.common)?;
    flags.add("streams", Kind::Count, &args.streams)?;
    if args.bytes.is_none() {
        flags.add("duration", Kind::Duration, [args.duration.as_deref().unwrap_or("10s")])?;
    }
    flags.add("bytes", Kind::Size, &args.bytes)?;
    flags.add("direction", Kind::Choice(&["up", "down", "both"]), &args.direction)?;
    flags.add("block", Kind::Size, &args.block)?;
    flags.add("threads", Kind::Count, [&args.threads])?;
    flags.add("interval", Kind::Duration, [&args.interval])?;
    flags.tcp("window", Kind::Size, &args.window)?;
    flags.tcp("send_buffer", Kind::Size, &args.send_buffer)?;
    flags.tcp("receive_buffer", Kind::Size, &args.receive_buffer)?;
    flags.tcp("mss", Kind::Size, &args.mss)?;
    flags.tcp("pacing", Kind::Rate, &args.pacing)?;
    flags.add("source_rate", Kind::Rate, &args.source_rate)?;
    flags.add("read_rate", Kind::Rate, &args.read_rate)?;
    measure(&args.common, "stream", &flags, |values| Ok(Job::Stream(StreamPlan::from_values(values)?)))
}

fn latency(args: &LatencyArgs) -> anyhow::Result<i32> {
    let mut flags = Flags::default();
    common(&mut flags, &args.common)?;
    flags.add("size", Kind::Size, &args.size)?;
    if args.duration.is_none() {
        flags.add("count", Kind::Count, [args.count.as_deref().unwrap_or("1000")])?;
    }
    flags.add("duration", Kind::Duration, &args.duration)?;
    flags.add("warm_up_count", Kind::Count, [&args.warm_up_count])?;
    flags.add("transport", Kind::Choice(&["tcp", "udp"]), &args.transport)?;
    flags.add("rate", Kind::Frequency, &args.rate)?;
    flags.add("timeout", Kind::Duration, [&args.timeout])?;
    measure(&args.common, "latency", &flags, |values| Ok(Job::Latency(LatencyPlan::from_values(values)?)))
}

fn measure(
    common: &Common,
    workload: &str,
    flags: &Flags,
    job: impl Fn(&Values) -> anyhow::Result<Job>,
) -> anyhow::Result<i32> {
    let client = Client { address: resolve(&common.host)?, key: key(common.key_file.as_deref())? };
    // Everything is checked before the first byte is sent.
    let points = flags.points()?;
    let jobs: Vec<Job> = points.iter().map(|(values, _)| job(values)).collect::<anyhow::Result<_>>()?;
    weir_sys::signal::count_interrupts();
    let live = !common.json && std::io::stderr().is_terminal();
    let mut measured = Vec::new();
    for ((values, swept), job) in points.into_iter().zip(&jobs) {
        let id = point_id(workload, &swept);
        let mut last = Progress { elapsed: std::time::Duration::ZERO, count: 0 };
        let mut tell = |progress: Progress| {
            if live {
                eprintln!("{}", progress_line(&id, workload, last, progress));
            }
            last = progress;
        };
        let measurement = client.measure(job, &values, &weir_sys::signal::interrupts, &mut tell)?;
        let stopped = measurement.stopped;
        measured.push(Point { parameters: swept, measurement });
        if stopped {
            break;
        }
    }
    let definitions = definitions(workload);
    let summary = summarise(workload, definitions, &measured);
    if common.json {
        say(&weir_report::json(&summary));
    } else {
        say(table(workload, definitions, &measured).trim_end());
    }
    Ok(if summary.verdict == Verdict::Pass { 0 } else { 3 })
}

fn definitions(workload: &str) -> &'static [Metric] {
    let entry = weir_net::WORKLOADS.iter().find(|entry| entry.name == workload);
    entry.map_or(&[], |entry| entry.build.metrics())
}

fn progress_line(id: &str, workload: &str, last: Progress, now: Progress) -> String {
    let seconds = (now.elapsed.saturating_sub(last.elapsed)).as_secs_f64();
    let more = now.count.saturating_sub(last.count) as f64;
    let rate = if workload == "stream" {
        human(more * 8.0 / seconds, "bit/s")
    } else {
        format!("{:.0} round trips/s", more / seconds)
    };
    format!("{id}  {:>4.0} s  {rate}", now.elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_be_written_with_or_without_its_port() {
        assert_eq!(resolve("127.0.0.1").unwrap().to_string(), "127.0.0.1:5301");
        assert_eq!(resolve("127.0.0.1:7").unwrap().to_string(), "127.0.0.1:7");
        assert_eq!(resolve("::1").unwrap().to_string(), "[::1]:5301");
        assert_eq!(resolve("[::1]:7").unwrap().to_string(), "[::1]:7");
        assert!(resolve("127.0.0.1:http").is_err());
    }

    #[test]
    fn lists_are_multiplied_and_single_values_name_no_point() {
        let mut flags = Flags::default();
        flags.add("streams", Kind::Count, ["1", "4"]).unwrap();
        flags.add("duration", Kind::Duration, ["1s"]).unwrap();
        flags.tcp("window", Kind::Size, ["64KiB", "1MiB"]).unwrap();
        let ids: Vec<String> =
            flags.points().unwrap().iter().map(|(_, swept)| point_id("stream", swept)).collect();
        assert_eq!(
            ids,
            [
                "stream/streams=1,window=64KiB",
                "stream/streams=1,window=1MiB",
                "stream/streams=4,window=64KiB",
                "stream/streams=4,window=1MiB"
            ]
        );
    }
}
