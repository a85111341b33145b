//! `weir net`: measure between any two machines. The flags are the parameters of the workloads, those of every step, and those of
//! TCP's sockets.

mod measure;
mod search;
mod serve;
mod watch;

use super::address::{key, resolve};
use super::flags::{Flag, Flags, flag, texts};
use anyhow::{anyhow, bail};
use clap::builder::EnumValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use search::Sought;
use std::path::PathBuf;
use weir_core::param::{Kind, Param, parse_default};
use weir_core::range;
use weir_core::scenario::{step_key, tcp_key};
use weir_core::{Value, Values};
use weir_net::adhoc::{DEFAULT_PORT, Job};
use weir_net::iperf3;
use weir_seams::workload::WorkloadEntry;

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

/// What a command takes beside the parameters of its workload.
struct Shape {
    workload: &'static str,
    /// Keys of every step.
    of_steps: &'static [&'static str],
    /// Keys of TCP's sockets.
    of_tcp: &'static [&'static str],
    /// What bounds it where nothing else does.
    bound: Option<(&'static str, &'static str)>,
    /// What can be looked for with `--search`, and the flag that says what counts as found.
    search: Option<(&'static str, Goal)>,
    /// A folder can keep what it records.
    keeps: bool,
    examples: &'static str,
}

/// The flag that says what a search calls found: name, default and help.
type Goal = (&'static str, &'static str, &'static str);

/// Of these one bounds a measurement.
const BOUNDS: [&str; 3] = ["duration", "count", "bytes"];
/// Flags that have another name than their parameter: of `size` since it takes ranges, of `long_flow` since it says what is left.
const RENAMED: [(&str, &str, &str); 2] = [("burst", "size", "sizes"), ("watch", "long_flow", "probes-alone")];

const SHAPES: [Shape; 7] = [
    Shape {
        workload: "stream",
        of_steps: &["streams", "duration", "bytes", "warm_up", "interval"],
        of_tcp: &["congestion", "window", "send_buffer", "receive_buffer", "mss", "pacing"],
        bound: Some(("duration", "10s")),
        search: Some((
            "streams|window",
            ("target", "95%", "What --search calls filled: a share of the most that was carried"),
        )),
        keeps: false,
        examples: "\
Examples:
  weir net stream 127.0.0.1 --streams 1,4,16
  weir net stream there:5301 --direction down --duration 30s --warm-up 5s --key-file key --json
  weir net stream there --search streams --duration 5s --warm-up 1s --key-file key
  weir net stream there --streams 4 --ramp 2s --congestion cubic+bbr
  weir net stream there --protocol iperf3 --direction both --streams 4",
    },
    Shape {
        workload: "latency",
        of_steps: &["count", "duration", "warm_up"],
        of_tcp: &["congestion"],
        bound: Some(("count", "1000")),
        search: None,
        keeps: false,
        examples: "\
Examples:
  weir net latency 127.0.0.1 --count 100000
  weir net latency there:5301 --size 64B,1KiB --duration 10s --key-file key --json
  weir net latency there --transport udp --rate 1kHz --duration 1min --key-file key",
    },
    Shape {
        workload: "burst",
        of_steps: &["streams"],
        of_tcp: &["congestion", "window", "send_buffer", "receive_buffer"],
        bound: None,
        search: None,
        keeps: false,
        examples: "\
Examples:
  weir net burst 127.0.0.1 --sizes 1B,64KiB,30MB --repetitions 10
  weir net burst there --sizes 1B..2GB --reply ack --key-file key --json
  weir net burst there --sizes 1kB..1GB*2 --streams 4 --every 200ms --key-file key

Sizes are lists of sizes and of ranges A..B or A..B*FACTOR (tens unless given).",
    },
    Shape {
        workload: "connect",
        of_steps: &["streams", "duration", "count", "warm_up"],
        of_tcp: &["congestion"],
        bound: Some(("duration", "10s")),
        search: None,
        keeps: false,
        examples: "\
Examples:
  weir net connect 127.0.0.1 --streams 1,4 --duration 5s
  weir net connect there --request 200B --response 10kB --close client --key-file key --json",
    },
    Shape {
        workload: "udp",
        of_steps: &["streams", "duration", "count", "warm_up"],
        of_tcp: &[],
        bound: Some(("duration", "10s")),
        search: Some(("rate", ("loss", "0%", "What --search allows each flow to lose"))),
        keeps: false,
        examples: "\
Examples:
  weir net udp 127.0.0.1 --rate 200Mbit/s --size 1400B
  weir net udp there --rate 100Mbit/s,200Mbit/s,400Mbit/s --direction down --key-file key --json
  weir net udp there --packet-rate 50kHz --size 64B --duration 1min --key-file key
  weir net udp there --search rate --loss 0.1% --duration 5s --key-file key
  weir net udp there --protocol iperf3 --rate 200Mbit/s",
    },
    Shape {
        workload: "path",
        of_steps: &[],
        of_tcp: &["congestion"],
        bound: None,
        search: None,
        keeps: false,
        examples: "\
Examples:
  weir net path 127.0.0.1
  weir net path there:5301 --key-file key
  weir net path there --probes 10 --train 10000 --key-file key --json",
    },
    Shape {
        workload: "watch",
        of_steps: &["streams", "duration", "warm_up", "interval"],
        of_tcp: &["congestion", "pacing", "window"],
        bound: Some(("duration", "10min")),
        search: None,
        keeps: true,
        examples: "\
Examples:
  weir net watch there --duration 1h --out watched --key-file key
  weir net watch there --duration 1h --pacing 50Mbit/s --probe-every 73s
  weir net watch there --duration 24h --probes-alone --probe-every 1h --json

With --out every sample of both ends is on disk within some seconds; `weir report DIR` draws them, also of a
watch that was killed. Ctrl-C ends the watch and gives its summary.",
    },
];

impl Shape {
    fn entry(&self) -> Option<&'static WorkloadEntry> {
        weir_net::WORKLOADS.iter().find(|entry| entry.name == self.workload)
    }

    /// Each with whether it belongs in the table `tcp`; a workload's own key goes before one of the same name.
    fn params(&self) -> Vec<(&'static Param, bool)> {
        let own = self.entry().map_or(&[][..], |entry| entry.params);
        let mut all: Vec<(&Param, bool)> = own.iter().map(|param| (param, false)).collect();
        all.extend(self.of_steps.iter().filter_map(|name| step_key(name)).map(|param| (param, false)));
        all.extend(self.of_tcp.iter().filter_map(|name| tcp_key(name)).map(|param| (param, true)));
        all
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.workload).after_help(self.examples);
        command = command.about(self.entry().map_or("", |entry| entry.about.trim_end_matches('.')));
        command = command
            .arg(
                Arg::new("host")
                    .value_name("HOST[:PORT]")
                    .required(true)
                    .help("Where `weir net serve` listens"),
            )
            .arg(
                Arg::new("protocol")
                    .long("protocol")
                    .value_name("weir|iperf3")
                    .value_parser(EnumValueParser::<Protocol>::new())
                    .default_value("weir")
                    .hide_possible_values(true)
                    .help("What is spoken there: stream and udp may ask a stock iperf3 server"),
            )
            .arg(
                Arg::new("key_file")
                    .long("key-file")
                    .value_name("FILE")
                    .value_parser(clap::value_parser!(PathBuf))
                    .help("The key the server was started with"),
            )
            .arg(
                Arg::new("json")
                    .long("json")
                    .action(ArgAction::SetTrue)
                    .help("Print the summary document on standard output and nothing else"),
            );
        let offered = |name: &str| self.of_steps.contains(&name);
        for (param, _) in self.params() {
            let mut arg = flag(param);
            if let Some((_, _, name)) = RENAMED.iter().find(|it| (it.0, it.1) == (self.workload, param.name))
            {
                arg = arg.long(*name);
            }
            if BOUNDS.contains(&param.name) {
                arg =
                    arg.conflicts_with_all(BOUNDS.into_iter().filter(|it| *it != param.name && offered(it)));
            }
            if let Some((_, bound)) = self.bound.filter(|(name, _)| *name == param.name) {
                arg = arg.help(format!("{} [default: {bound}]", param.about.trim_end_matches('.')));
            }
            command = command.arg(arg);
        }
        if let Some((what, (goal, default, help))) = self.search {
            let search = Arg::new("search").long("search").value_name(what);
            let search = search.value_parser(what.split('|').collect::<Vec<_>>()).hide_possible_values(true);
            let goal = Arg::new(goal).long(goal).value_name("SHARE").default_value(default);
            command = command
                .arg(
                    search
                        .help("Find the least of it that fills the path, or the most that the path carries"),
                )
                .arg(goal.requires("search").help(help));
        }
        if self.keeps {
            let out =
                Arg::new("out").long("out").value_name("DIR").value_parser(clap::value_parser!(PathBuf));
            command = command.arg(out.help("A new folder for the series, the summary and a report"));
        }
        command
    }
}

/// Where the other end is, and how it is spoken to.
pub struct Common {
    host: String,
    protocol: Protocol,
    key_file: Option<PathBuf>,
    json: bool,
}

/// One measurement, or a sweep of them.
pub struct Measure {
    shape: &'static Shape,
    common: Common,
    /// What was given of each parameter, as it was written, and whether it belongs in the table `tcp`.
    given: Vec<(&'static Param, bool, Vec<String>)>,
    search: Option<String>,
    goal: Option<String>,
    out: Option<PathBuf>,
}

/// Measure between any two machines: serve here, stream there.
pub enum Args {
    Serve(serve::ServeArgs),
    Measure(Box<Measure>),
}

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        command
            .about("Measure between any two machines: serve here, stream there")
            .subcommand_required(true)
            .arg_required_else_help(true)
            .subcommand(<serve::ServeArgs as clap::Args>::augment_args(Command::new("serve")))
            .subcommands(SHAPES.iter().map(Shape::command))
            .after_help(
                "\
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

The port is 5301 unless given (5201 with iperf3). A flag with a list measures one point a value.",
            )
    }
    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Args, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        if name == "serve" {
            return serve::ServeArgs::from_arg_matches(matches).map(Args::Serve);
        }
        let shape = SHAPES.iter().find(|shape| shape.workload == name).ok_or_else(missing)?;
        let text = |name: &str| matches.get_one::<String>(name).cloned();
        let given = shape.params().into_iter().map(|(param, in_tcp)| (param, in_tcp, texts(matches, param)));
        Ok(Args::Measure(Box::new(Measure {
            shape,
            common: Common {
                host: text("host").unwrap_or_default(),
                protocol: matches.get_one::<Protocol>("protocol").copied().unwrap_or_default(),
                key_file: matches.get_one::<PathBuf>("key_file").cloned(),
                json: matches.get_flag("json"),
            },
            given: given.collect(),
            search: shape.search.and_then(|_| text("search")),
            goal: shape.search.and_then(|(_, (goal, _, _))| text(goal)),
            out: shape.keeps.then(|| matches.get_one::<PathBuf>("out").cloned()).flatten(),
        })))
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Args::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Measure {
    fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(param, _, texts)| param.name == name && !texts.is_empty())
    }

    /// What was given, and of what was not the defaults.
    fn flags(&self) -> anyhow::Result<Flags> {
        let mut flags = Flags::default();
        let bounded = BOUNDS.iter().any(|name| self.has(name));
        for (param, in_tcp, texts) in &self.given {
            let bound = self.shape.bound.filter(|(name, _)| *name == param.name && !bounded);
            let default = bound.map(|(_, value)| value).or(param.default);
            let renamed = RENAMED.iter().find(|it| (it.0, it.1) == (self.shape.workload, param.name));
            if renamed.is_some() && param.kind == Kind::Size {
                let mut values = Vec::new();
                for text in texts.iter().map(String::as_str).chain(default.filter(|_| texts.is_empty())) {
                    let range = range::values(param.kind, text);
                    values.extend(range.map_err(|error| anyhow!("--sizes: {}", error.problem))?);
                }
                flags.0.push(Flag { name: param.name, in_tcp: *in_tcp, values });
            } else if texts.is_empty() {
                flags.put(param.name, *in_tcp, param.kind, default)?;
            } else {
                flags.put(param.name, *in_tcp, param.kind, texts)?;
            }
        }
        Ok(flags)
    }

    fn job(&self, values: &Values) -> anyhow::Result<Job> {
        Ok(Job::of(self.shape.workload, values)?)
    }

    fn run(&self) -> anyhow::Result<i32> {
        let flags = self.flags()?;
        if self.shape.keeps {
            return watch::run(self, &flags);
        }
        let Some(sought) = &self.search else {
            return measure::sweep(&self.common, self.shape.workload, &flags, |values| self.job(values));
        };
        let goal = ratio(self.shape, self.goal.as_deref().unwrap_or_default())?;
        match sought.as_str() {
            "rate" => search::datagrams(self, goal, &flags),
            _ if self.common.protocol == Protocol::Iperf3 => bail!(
                "--search goes beyond the streams and windows that an iperf3 server can be asked for; leave one of the two out"
            ),
            _ if self.has("bytes") || self.has("ramp") => {
                bail!(
                    "--search measures for a time, all streams from its beginning; leave --bytes and --ramp out"
                )
            }
            "window" => search::streams(self, Sought::Window, goal, &flags),
            _ => search::streams(self, Sought::Streams, goal, &flags),
        }
    }
}

fn ratio(shape: &Shape, text: &str) -> anyhow::Result<f64> {
    let flag = shape.search.map_or("", |(_, (goal, _, _))| goal);
    match parse_default(Kind::Ratio, text) {
        Ok(Value::Ratio(share)) => Ok(share),
        Ok(_) => bail!("--{flag}: {text:?} is no share"),
        Err(error) => bail!("--{flag}: {}", error.problem),
    }
}

pub fn run(args: &Args) -> anyhow::Result<i32> {
    match args {
        Args::Serve(args) => serve::run(args),
        Args::Measure(measure) => measure.run(),
    }
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
