//! `weir net`: measure between any two machines.

mod flags;
mod measure;
mod search;
mod serve;
mod watch;

use super::address::{key, resolve};
use anyhow::{anyhow, bail};
use clap::Subcommand;
use flags::{Flag, Flags};
use search::{Sought, SoughtOverUdp};
use std::path::PathBuf;
use weir_core::param::{Kind, parse_default};
use weir_core::range;
use weir_core::{Value, Values};
use weir_net::adhoc::{DEFAULT_PORT, Job};
use weir_net::burst::plan::BurstPlan;
use weir_net::connect::plan::ConnectPlan;
use weir_net::iperf3;
use weir_net::latency::LatencyPlan;
use weir_net::path::plan::PathPlan;
use weir_net::stream::plan::StreamPlan;
use weir_net::udp::plan::UdpPlan;

/// Measure between any two machines: serve here, stream there.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  head -c 32 /dev/urandom > key                 the same file at both ends
  there$ weir net serve --listen 0.0.0.0:5301 --key-file key
  here$  weir net stream there --streams 1,4,16 --duration 10s --key-file key
  here$  weir net latency there --size 64B --count 10000 --key-file key --json
  here$  weir net burst there --sizes 1B..1GB --repetitions 10 --key-file key
  here$  weir net udp there --rate 200Mbit/s --size 1400B --key-file key
  here$  weir net path there --key-file key
  here$  weir net watch there --duration 1h --out watched --key-file key
  here$  weir net stream there --protocol iperf3   where `iperf3 -s` runs

The port is 5301 unless given (5201 with iperf3). A flag with a list measures one point a value.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    Stream(StreamArgs),
    Latency(LatencyArgs),
    Burst(BurstArgs),
    Connect(ConnectArgs),
    Udp(UdpArgs),
    Path(PathArgs),
    Watch(watch::WatchArgs),
}

/// What the two ends say to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    #[default]
    Weir,
    Iperf3,
}

impl Protocol {
    fn port(self) -> u16 {
        match self {
            Protocol::Weir => DEFAULT_PORT,
            Protocol::Iperf3 => iperf3::DEFAULT_PORT,
        }
    }
}

#[derive(clap::Args)]
struct Common {
    /// Where `weir net serve` listens
    #[arg(value_name = "HOST[:PORT]")]
    host: String,
    /// What is spoken there: stream and udp may ask a stock iperf3 server
    #[arg(long, value_name = "weir|iperf3", value_enum, default_value_t, hide_possible_values = true)]
    protocol: Protocol,
    /// The key the server was started with
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Print the summary document on standard output and nothing else
    #[arg(long)]
    json: bool,
    /// Part of the duration, at its beginning, that is not measured
    #[arg(long, value_name = "TIME")]
    warm_up: Option<String>,
    /// Congestion control, set at both ends; of streams also a mix, cubic+bbr [default: cubic]
    #[arg(long, value_name = "NAME[,…]", value_delimiter = ',')]
    congestion: Vec<String>,
}

/// Bulk TCP: goodput, fairness, stalls, retransmissions, CPU cost.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir net stream 127.0.0.1 --streams 1,4,16
  weir net stream there:5301 --direction down --duration 30s --warm-up 5s --key-file key --json
  weir net stream there --search streams --duration 5s --warm-up 1s --key-file key
  weir net stream there --streams 4 --ramp 2s --congestion cubic+bbr
  weir net stream there --protocol iperf3 --direction both --streams 4")]
struct StreamArgs {
    #[command(flatten)]
    common: Common,
    /// Connections
    #[arg(long, value_name = "N[,…]", value_delimiter = ',', default_value = "1")]
    streams: Vec<String>,
    /// From the start of one stream to that of the next; the warm-up counts from the last
    #[arg(long, value_name = "TIME", conflicts_with_all = ["bytes", "search"])]
    ramp: Option<String>,
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
    /// What receivers do with the payload; discard lets the kernel free it uncopied [default: copy]
    #[arg(long, value_name = "copy|discard[,…]", value_delimiter = ',')]
    receive: Vec<String>,
    /// Find the smallest number of streams, or window of one, that fills the path
    #[arg(long, value_name = "streams|window")]
    search: Option<Sought>,
    /// What --search calls filled: a share of the most that was carried
    #[arg(long, value_name = "SHARE", default_value = "95%", requires = "search")]
    target: String,
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

/// Single transfers of given sizes: how long each takes, and how far flows are apart.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir net burst 127.0.0.1 --sizes 1B,64KiB,30MB --repetitions 10
  weir net burst there --sizes 1B..2GB --reply ack --key-file key --json
  weir net burst there --sizes 1kB..1GB*2 --streams 4 --every 200ms --key-file key")]
struct BurstArgs {
    #[command(flatten)]
    common: Common,
    /// Payload of one burst: sizes, and ranges A..B or A..B*FACTOR (tens unless given)
    #[arg(long, value_name = "SIZE[,…]", value_delimiter = ',', default_value = "1MB")]
    sizes: Vec<String>,
    /// Bursts of each flow that count
    #[arg(long, value_name = "N", default_value = "10")]
    repetitions: String,
    /// Bursts of each flow at the beginning that do not count
    #[arg(long, value_name = "N", default_value = "0")]
    warm_up_count: String,
    /// What comes back: nothing (one-way times), one byte, or as many bytes
    #[arg(long, value_name = "none|ack|echo", value_delimiter = ',', default_value = "none")]
    reply: Vec<String>,
    /// From the beginning of one burst to the next [default: when the last is complete]
    #[arg(long, value_name = "TIME")]
    every: Option<String>,
    /// When connections are made: before, within the time of the first burst, or one within the time of each
    #[arg(
        long,
        value_name = "outside-timing|timed|per-burst",
        value_delimiter = ',',
        default_value = "outside-timing"
    )]
    connection: Vec<String>,
    /// Whether the end of a burst's own connection counts
    #[arg(long, value_name = "outside-timing|timed", default_value = "outside-timing")]
    disconnect: String,
    /// Flows, each with its connection
    #[arg(long, value_name = "N[,…]", value_delimiter = ',', default_value = "1")]
    streams: Vec<String>,
    /// Cap on what one connection has in flight
    #[arg(long, value_name = "SIZE[,…]", value_delimiter = ',')]
    window: Vec<String>,
    /// Asked of the kernel for sending sockets
    #[arg(long, value_name = "SIZE[,…]", value_delimiter = ',')]
    send_buffer: Vec<String>,
    /// Asked of the kernel for receiving sockets
    #[arg(long, value_name = "SIZE[,…]", value_delimiter = ',')]
    receive_buffer: Vec<String>,
}

/// Connections made, used once and closed: how many a second, and the time of each phase.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir net connect 127.0.0.1 --streams 1,4 --duration 5s
  weir net connect there --request 200B --response 10kB --close client --key-file key --json")]
struct ConnectArgs {
    #[command(flatten)]
    common: Common,
    /// Flows, each of which makes one connection after the other
    #[arg(long, value_name = "N[,…]", value_delimiter = ',', default_value = "1")]
    streams: Vec<String>,
    /// How long to load, warm-up included [default: 10s]
    #[arg(long, value_name = "TIME", conflicts_with = "count")]
    duration: Option<String>,
    /// Connections of each flow, instead of a duration
    #[arg(long, value_name = "N")]
    count: Option<String>,
    /// Bytes sent on each connection
    #[arg(long, value_name = "SIZE[,…]", value_delimiter = ',', default_value = "1B")]
    request: Vec<String>,
    /// Bytes that come back
    #[arg(long, value_name = "SIZE[,…]", value_delimiter = ',', default_value = "1B")]
    response: Vec<String>,
    /// Who closes first, and keeps the connection in TIME-WAIT; reset keeps it nowhere
    #[arg(long, value_name = "server|client|reset", value_delimiter = ',', default_value = "server")]
    close: Vec<String>,
}

/// Paced datagrams one way: loss, repetition, reordering, jitter.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir net udp 127.0.0.1 --rate 200Mbit/s --size 1400B
  weir net udp there --rate 100Mbit/s,200Mbit/s,400Mbit/s --direction down --key-file key --json
  weir net udp there --packet-rate 50kHz --size 64B --duration 1min --key-file key
  weir net udp there --search rate --loss 0.1% --duration 5s --key-file key
  weir net udp there --protocol iperf3 --rate 200Mbit/s")]
struct UdpArgs {
    #[command(flatten)]
    common: Common,
    /// What each flow sends, in bytes above the UDP header [default: 10Mbit/s]
    #[arg(long, value_name = "RATE[,…]", value_delimiter = ',', conflicts_with = "packet_rate")]
    rate: Vec<String>,
    /// What each flow sends, in datagrams a second
    #[arg(long, value_name = "RATE[,…]", value_delimiter = ',')]
    packet_rate: Vec<String>,
    /// Bytes of a datagram, above its UDP header
    #[arg(long, value_name = "SIZE[,…]", value_delimiter = ',', default_value = "1400B")]
    size: Vec<String>,
    /// How long to send, warm-up included [default: 10s]
    #[arg(long, value_name = "TIME", conflicts_with = "count")]
    duration: Option<String>,
    /// Datagrams of each flow, instead of a duration
    #[arg(long, value_name = "N")]
    count: Option<String>,
    /// Flows
    #[arg(long, value_name = "N[,…]", value_delimiter = ',', default_value = "1")]
    streams: Vec<String>,
    /// up: from here to there; down: from there to here; both: a flow for each
    #[arg(long, value_name = "up|down|both", value_delimiter = ',', default_value = "up")]
    direction: Vec<String>,
    /// Datagrams handed to the kernel at one tick; 0 keeps ticks 100 us apart
    #[arg(long, value_name = "N[,…]", value_delimiter = ',', default_value = "0")]
    batch: Vec<String>,
    /// Asked of the kernel for receiving sockets
    #[arg(long, value_name = "SIZE", default_value = "4MiB")]
    receive_buffer: String,
    /// Find the highest rate of a flow that the path carries
    #[arg(long, value_name = "rate")]
    search: Option<SoughtOverUdp>,
    /// What --search allows each flow to lose
    #[arg(long, value_name = "SHARE", default_value = "0%", requires = "search")]
    loss: String,
}

/// The way there and back: hops, path MTU and black holes, round trips, reordering, TCP's segments.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir net path 127.0.0.1
  weir net path there:5301 --key-file key
  weir net path there --probes 10 --train 10000 --key-file key --json")]
struct PathArgs {
    #[command(flatten)]
    common: Common,
    /// Small packets sent to each hop, and as many as large as the path takes
    #[arg(long, value_name = "N", default_value = "3")]
    probes: String,
    /// Hops looked at before the list is given up
    #[arg(long, value_name = "N", default_value = "30")]
    hops_max: String,
    /// The longest a single probe is waited for
    #[arg(long, value_name = "TIME", default_value = "1s")]
    timeout: String,
    /// Datagrams sent one after the other to see what is lost, doubled or overtaken
    #[arg(long, value_name = "N", default_value = "200")]
    train: String,
    /// Sent over TCP, to see its segments and what it counts
    #[arg(long, value_name = "SIZE", default_value = "1MB")]
    transfer: String,
}

pub fn run(args: &Args) -> anyhow::Result<i32> {
    match &args.command {
        Command::Serve(args) => serve::run(args),
        Command::Stream(args) => stream(args),
        Command::Latency(args) => latency(args),
        Command::Burst(args) => burst(args),
        Command::Connect(args) => connect(args),
        Command::Udp(args) => udp(args),
        Command::Path(args) => path(args),
        Command::Watch(args) => watch::run(args),
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
    flags.add("ramp", Kind::Duration, &args.ramp)?;
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
    flags.add("receive", Kind::Choice(&["copy", "discard"]), &args.receive)?;
    if args.search.is_some() && args.common.protocol == Protocol::Iperf3 {
        bail!(
            "--search goes beyond the streams and windows that an iperf3 server can be asked for; leave one of the two out"
        );
    }
    match args.search {
        Some(sought) => search::streams(args, sought, ratio("target", &args.target)?, &flags),
        None => measure::sweep(&args.common, "stream", &flags, stream_job),
    }
}

fn stream_job(values: &Values) -> anyhow::Result<Job> {
    Ok(Job::Stream(StreamPlan::from_values(values)?))
}

fn ratio(flag: &str, text: &str) -> anyhow::Result<f64> {
    match parse_default(Kind::Ratio, text) {
        Ok(Value::Ratio(share)) => Ok(share),
        Ok(_) => bail!("--{flag}: {text:?} is no share"),
        Err(error) => bail!("--{flag}: {}", error.problem),
    }
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
    measure::sweep(&args.common, "latency", &flags, |values| {
        Ok(Job::Latency(LatencyPlan::from_values(values)?))
    })
}

fn burst(args: &BurstArgs) -> anyhow::Result<i32> {
    if args.common.warm_up.is_some() {
        bail!("--warm-up is a time, and bursts have none before them; give --warm-up-count");
    }
    let mut flags = Flags::default();
    common(&mut flags, &args.common)?;
    let mut sizes = Vec::new();
    for text in &args.sizes {
        let range = range::values(Kind::Size, text.trim());
        sizes.extend(range.map_err(|error| anyhow!("--sizes: {}", error.problem))?);
    }
    flags.0.push(Flag { name: "size", in_tcp: false, values: sizes });
    flags.add("repetitions", Kind::Count, [&args.repetitions])?;
    flags.add("warm_up_count", Kind::Count, [&args.warm_up_count])?;
    flags.add("reply", Kind::Choice(&["none", "ack", "echo"]), &args.reply)?;
    flags.add("every", Kind::Duration, &args.every)?;
    let connections = Kind::Choice(&["outside-timing", "timed", "per-burst"]);
    flags.add("connection", connections, &args.connection)?;
    flags.add("disconnect", Kind::Choice(&["outside-timing", "timed"]), [&args.disconnect])?;
    flags.add("streams", Kind::Count, &args.streams)?;
    flags.tcp("window", Kind::Size, &args.window)?;
    flags.tcp("send_buffer", Kind::Size, &args.send_buffer)?;
    flags.tcp("receive_buffer", Kind::Size, &args.receive_buffer)?;
    measure::sweep(&args.common, "burst", &flags, |values| Ok(Job::Burst(BurstPlan::from_values(values)?)))
}

fn connect(args: &ConnectArgs) -> anyhow::Result<i32> {
    let mut flags = Flags::default();
    common(&mut flags, &args.common)?;
    flags.add("streams", Kind::Count, &args.streams)?;
    if args.count.is_none() {
        flags.add("duration", Kind::Duration, [args.duration.as_deref().unwrap_or("10s")])?;
    }
    flags.add("count", Kind::Count, &args.count)?;
    flags.add("request", Kind::Size, &args.request)?;
    flags.add("response", Kind::Size, &args.response)?;
    flags.add("close", Kind::Choice(&["server", "client", "reset"]), &args.close)?;
    measure::sweep(&args.common, "connect", &flags, |values| {
        Ok(Job::Connect(ConnectPlan::from_values(values)?))
    })
}

fn udp(args: &UdpArgs) -> anyhow::Result<i32> {
    if !args.common.congestion.is_empty() {
        bail!("--congestion is of TCP; datagrams have none");
    }
    let mut flags = Flags::default();
    common(&mut flags, &args.common)?;
    flags.add("rate", Kind::Rate, &args.rate)?;
    flags.add("packet_rate", Kind::Frequency, &args.packet_rate)?;
    flags.add("size", Kind::Size, &args.size)?;
    if args.count.is_none() {
        flags.add("duration", Kind::Duration, [args.duration.as_deref().unwrap_or("10s")])?;
    }
    flags.add("count", Kind::Count, &args.count)?;
    flags.add("streams", Kind::Count, &args.streams)?;
    flags.add("direction", Kind::Choice(&["up", "down", "both"]), &args.direction)?;
    flags.add("batch", Kind::Count, &args.batch)?;
    flags.add("receive_buffer", Kind::Size, [&args.receive_buffer])?;
    match args.search {
        Some(SoughtOverUdp::Rate) => search::datagrams(args, ratio("loss", &args.loss)?, &flags),
        None => measure::sweep(&args.common, "udp", &flags, udp_job),
    }
}

fn path(args: &PathArgs) -> anyhow::Result<i32> {
    let mut flags = Flags::default();
    common(&mut flags, &args.common)?;
    flags.add("probes", Kind::Count, [&args.probes])?;
    flags.add("hops_max", Kind::Count, [&args.hops_max])?;
    flags.add("timeout", Kind::Duration, [&args.timeout])?;
    flags.add("train", Kind::Count, [&args.train])?;
    flags.add("transfer", Kind::Size, [&args.transfer])?;
    measure::sweep(&args.common, "path", &flags, |values| Ok(Job::Path(PathPlan::from_values(values)?)))
}

fn udp_job(values: &Values) -> anyhow::Result<Job> {
    Ok(Job::Udp(UdpPlan::from_values(values)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_be_written_with_or_without_its_port() {
        assert_eq!(resolve("127.0.0.1", DEFAULT_PORT).unwrap().to_string(), "127.0.0.1:5301");
        assert_eq!(resolve("127.0.0.1:7", DEFAULT_PORT).unwrap().to_string(), "127.0.0.1:7");
        assert_eq!(resolve("::1", DEFAULT_PORT).unwrap().to_string(), "[::1]:5301");
        assert_eq!(resolve("[::1]:7", DEFAULT_PORT).unwrap().to_string(), "[::1]:7");
        assert!(resolve("127.0.0.1:http", DEFAULT_PORT).is_err());
    }
}
