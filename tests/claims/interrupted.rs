//! Whoever ends a measurement, at either end: what was measured until then is reported at the other one, and status, table and
//! document agree. One table of all workloads, directions and ends; its rows run at the same time, since none asks for much.

use crate::support;
use crate::support::{free_port, start, turn, weir};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Far more than any end takes: what hangs, or waits for an end that is gone, takes longer.
const LIMIT: Duration = Duration::from_secs(20);
/// How long each is let measure.
const MEASURED: Duration = Duration::from_millis(1500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Ctrl-C at the client.
    Client,
    ClientKilled,
    /// SIGTERM at the server.
    Server,
    ServerKilled,
}
use Ended::{Client, ClientKilled, Server, ServerKilled};

impl Ended {
    fn signal(self) -> &'static str {
        match self {
            Client => "-INT",
            Server => "-TERM",
            ClientKilled | ServerKilled => "-KILL",
        }
    }

    /// What the client says of who ended it.
    fn said(self) -> &'static str {
        match self {
            Client | ClientKilled => "cut short by the user",
            Server => "the server ended the measurement",
            ServerKilled => "was lost",
        }
    }
}

const ALL: &[Ended] = &[Client, ClientKilled, Server, ServerKilled];

/// A load that lasts, what it measures when both ends are there, and what is left of it without the server's end.
struct Load {
    arguments: &'static [&'static str],
    figure: &'static str,
    alone: &'static str,
}

const GOODPUT: &str = "stream.total_goodput_bits_per_second";
const TRIPS: &str = "latency.round_trip_seconds";
const BURST: &str = "burst.completion_seconds";

#[rustfmt::skip]
const LOADS: &[Load] = &[
    Load { arguments: &["stream", "--pacing", "8Mbit/s", "--duration", "60s"], figure: GOODPUT, alone: "stream.acknowledged_bits_per_second" },
    Load { arguments: &["stream", "--pacing", "8Mbit/s", "--bytes", "1GB", "--streams", "3"], figure: GOODPUT, alone: "stream.acknowledged_bits_per_second" },
    Load { arguments: &["stream", "--pacing", "8Mbit/s", "--duration", "60s", "--direction", "down"], figure: GOODPUT, alone: GOODPUT },
    Load { arguments: &["stream", "--pacing", "8Mbit/s", "--duration", "60s", "--direction", "both"], figure: GOODPUT, alone: GOODPUT },
    Load { arguments: &["udp", "--rate", "2Mbit/s", "--duration", "60s"], figure: "udp.total_goodput_bits_per_second", alone: "udp.arrived_bits_per_second" },
    Load { arguments: &["udp", "--rate", "2Mbit/s", "--duration", "60s", "--direction", "down"], figure: "udp.total_goodput_bits_per_second", alone: "udp.total_goodput_bits_per_second" },
    Load { arguments: &["latency", "--rate", "200Hz", "--duration", "60s"], figure: TRIPS, alone: TRIPS },
    Load { arguments: &["latency", "--rate", "200Hz", "--duration", "60s", "--transport", "udp"], figure: TRIPS, alone: TRIPS },
    Load { arguments: &["latency", "--count", "1000000000"], figure: TRIPS, alone: TRIPS },
    Load { arguments: &["burst", "--sizes", "10kB", "--every", "20ms", "--repetitions", "10000"], figure: BURST, alone: "burst.arrived_bits_per_second" },
    Load { arguments: &["burst", "--sizes", "2MB", "--repetitions", "10000", "--streams", "2"], figure: BURST, alone: "burst.arrived_bits_per_second" },
    Load { arguments: &["burst", "--sizes", "10kB", "--every", "20ms", "--repetitions", "10000", "--reply", "ack"], figure: BURST, alone: BURST },
    Load { arguments: &["burst", "--sizes", "10kB", "--every", "20ms", "--repetitions", "10000", "--connection", "per-burst"], figure: BURST, alone: "burst.arrived_bits_per_second" },
    Load { arguments: &["burst", "--sizes", "10kB", "--every", "20ms", "--repetitions", "10000", "--connection", "timed"], figure: BURST, alone: "burst.arrived_bits_per_second" },
    Load { arguments: &["connect", "--duration", "60s"], figure: "connect.per_second", alone: "connect.per_second" },
    Load { arguments: &["path", "--train", "100000"], figure: "path.round_trip_seconds", alone: "path.round_trip_seconds" },
    Load { arguments: &["watch", "--pacing", "8Mbit/s", "--duration", "60s"], figure: GOODPUT, alone: "stream.acknowledged_bits_per_second" },
];

/// A program whose lines are heard as they come, ended when the test is over.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn new(command: &mut Command) -> Running {
        let mut child = start(command);
        let out: ChildStdout = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Running { child, lines }
    }

    fn serve(more: &[&str]) -> (Running, String) {
        let server =
            Running::new(weir().args(["net", "serve", "--json", "--listen", "127.0.0.1:0"]).args(more));
        let line = server.line("listening");
        let said: Value = serde_json::from_str(&line).unwrap();
        (server, said["address"].as_str().unwrap().to_owned())
    }

    fn line(&self, what: &str) -> String {
        self.lines.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"))
    }

    fn tell(&self, signal: &str) {
        let told = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(told.success());
    }

    /// Its load has begun, since it has more than so many threads; and is let go on for a while.
    fn loads(&self, what: &str, idle_threads: usize) {
        let tasks = format!("/proc/{}/task", self.child.id());
        support::eventually(&format!("{what} begins"), LIMIT, || {
            fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() > idle_threads)
        });
        std::thread::sleep(MEASURED);
    }

    /// Its status, and what it said in the end.
    fn end(mut self, what: &str) -> (i32, String, String) {
        let mut status = None;
        support::eventually(&format!("{what} ends"), LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let out: Vec<String> = self.lines.iter().collect();
        let mut err = String::new();
        let _ = std::io::Read::read_to_string(self.child.stderr.as_mut().unwrap(), &mut err);
        (status.and_then(|status| status.code()).unwrap_or(-1), out.join("\n"), err)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The document, whose only point has the figure and says why it does not count.
fn document(what: &str, out: &str, figure: &str, says: &str) {
    let summary = support::summary_in(out);
    let metric = &summary["points"][0]["metrics"][figure];
    assert!(metric["max"].as_f64().is_some_and(|most| most > 0.0), "{what}: {figure} of {summary:#}");
    assert!(summary["warnings"].to_string().contains(says), "{what}: {summary:#}");
}

/// Likewise the table: some cell of its only line, or what is said below it, is a figure.
fn table(what: &str, out: &str, says: &str) {
    let one_line: String = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(one_line.contains(says), "{what}: {out}");
    // A path has no line of cells but one of words for each thing, behind a column of names.
    let lines = if out.starts_with("client to") { 5 } else { 1 };
    let cells: String = out.lines().skip(1).take(lines).flat_map(|line| line.chars().skip(20)).collect();
    let alone = ["had been acknowledged", "had arrived"].iter().any(|words| one_line.contains(words));
    assert!(alone || cells.contains(|letter: char| letter.is_ascii_digit()), "{what}: {out}");
}

/// One row: a server, a client, one of the two is ended, and the other one says what was measured until then.
fn row(load: &Load, ended: Ended, json: bool) {
    let what = format!("{} ended by {ended:?}, JSON {json}", load.arguments.join(" "));
    let (server, at) = Running::serve(&[]);
    let (workload, more) = load.arguments.split_first().unwrap();
    let mut client = weir();
    client.args(["net", workload, &at]).args(more).args(json.then_some("--json"));
    let client = Running::new(&mut client);
    client.loads(&what, 1);
    match ended {
        Client | ClientKilled => client.tell(ended.signal()),
        Server | ServerKilled => server.tell(ended.signal()),
    }
    let (status, out, err) = client.end(&what);
    if ended == ClientKilled {
        let session = server.line(&what);
        let words = [*workload, "cut short", "after the start: the client"];
        assert!(words.iter().all(|word| session.contains(word)), "{what}: {session}");
        assert!(!session.contains(" 0 bytes"), "{what}: {session}");
    } else {
        // A watch lasts until somebody has seen enough.
        let enough = *workload == "watch" && ended != ServerKilled;
        assert_eq!(status, if enough { 0 } else { 3 }, "{what}: {out}{err}");
        let says = if enough { "ended by the" } else { ended.said() };
        let figure = if ended == ServerKilled { load.alone } else { load.figure };
        if json {
            document(&what, &out, figure, says);
        } else {
            table(&what, &out, says);
        }
    }
    if ended != ServerKilled {
        if ended != Server {
            server.tell("-TERM");
        }
        assert_eq!(server.end(&what).0, 0, "{what}: the server");
    }
}

/// A stock server and our client, or a stock client and our server: what our end says.
fn row_of_iperf3(ours: Ended, arguments: &[&str], figure: &str, ended: Ended) {
    let what = format!("iperf3, our {ours:?}: {} ended by {ended:?}", arguments.join(" "));
    if ours == Server {
        let (server, at) = Running::serve(&["--protocol", "iperf3"]);
        let port = at.rsplit_once(':').unwrap().1;
        let mut client = Command::new("iperf3");
        let client = Running::new(client.args(["-c", "127.0.0.1", "-t", "60", "-p", port]).args(arguments));
        server.loads(&what, 2);
        let killed = if ended == Server { &server } else { &client };
        killed.tell(ended.signal());
        let session = server.line(&what);
        let words = ["iperf3", "cut short", "after the start"];
        assert!(words.iter().all(|word| session.contains(word)), "{what}: {session}");
        assert!(!session.contains(" 0 bytes"), "{what}: {session}");
        if ended != Server {
            server.tell("-TERM");
        }
        assert_eq!(server.end(&what).0, 0, "{what}");
        client.end(&what);
        return;
    }
    let port = free_port();
    let (at, listening) = (format!("127.0.0.1:{port}"), format!(":{port:04X} 00000000:0000 0A"));
    let server = Running::new(Command::new("iperf3").args(["-s", "-p", &port.to_string()]));
    support::eventually("iperf3 listens", LIMIT, || {
        ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|all| {
            let all = fs::read_to_string(all).unwrap_or_default();
            all.contains(&listening)
                || all.contains(&format!(":{port:04X} 00000000000000000000000000000000:0000 0A"))
        })
    });
    let (workload, more) = arguments.split_first().unwrap();
    let mut client = weir();
    client.args(["net", workload, &at, "--protocol", "iperf3", "--json", "--duration", "60s"]).args(more);
    let client = Running::new(&mut client);
    client.loads(&what, 1);
    let killed = if ended == Client { &client } else { &server };
    killed.tell(ended.signal());
    let (status, out, err) = client.end(&what);
    assert_eq!(status, 3, "{what}: {out}{err}");
    let says = match ended {
        Client | ClientKilled => "cut short by the user",
        Server => "it ended the test",
        ServerKilled => "it closed the connection",
    };
    document(&what, &out, figure, says);
}

type Row<'a> = Box<dyn Fn() + Send + 'a>;

/// Rows at the same time, each on a thread of its own; those that fail have said why.
fn together<'a>(rows: impl Iterator<Item = Row<'a>>) {
    let failed = std::thread::scope(|scope| {
        let running: Vec<_> = rows.map(|row| scope.spawn(row)).collect();
        running.into_iter().map(std::thread::ScopedJoinHandle::join).filter(Result::is_err).count()
    });
    assert_eq!(failed, 0, "so many rows failed");
}

// Spec: commands.md#ends-1
// Spec: commands.md#ends-2
#[test]
fn whoever_is_ended_the_other_end_reports_what_was_measured_until_then() {
    let _turn = turn();
    let rows = LOADS.iter().flat_map(|load| {
        ALL.iter().flat_map(move |ended| {
            // The table is made of the same figures; it is looked at where they come from one end, and from both.
            let tables = matches!(ended, Client | ServerKilled);
            [true, false]
                .into_iter()
                .filter(move |json| *json || tables)
                .map(move |json| -> Row<'_> { Box::new(move || row(load, *ended, json)) })
        })
    });
    together(rows);
}

// Spec: net-protocol.md#iperf3-11
#[test]
fn a_test_of_iperf3s_that_is_ended_at_either_end_leaves_the_figures_of_ours() {
    const LOST: &str = "stream.acknowledged_bits_per_second";
    const UDP: &str = "udp.total_goodput_bits_per_second";
    let _turn = turn();
    let (tcp, udp) = (["stream", "--source-rate", "8Mbit/s"], ["udp", "--rate", "2Mbit/s"]);
    let down = ["--direction", "down"];
    let ways = [
        (tcp.to_vec(), GOODPUT, LOST),
        ([&tcp[..], &down].concat(), GOODPUT, GOODPUT),
        (udp.to_vec(), UDP, "udp.sent_per_second"),
        ([&udp[..], &down].concat(), UDP, UDP),
    ];
    let theirs: [&[&str]; 4] =
        [&["-b", "8M"], &["-b", "8M", "-R"], &["-u", "-b", "2M"], &["-u", "-b", "2M", "-R"]];
    let ours = ways.iter().flat_map(|(arguments, figure, alone)| {
        [(Client, *figure), (Server, *alone), (ServerKilled, *alone)].map(|(ended, figure)| -> Row<'_> {
            Box::new(move || row_of_iperf3(Client, arguments, figure, ended))
        })
    });
    let stock = theirs.iter().flat_map(|arguments| {
        [Client, ClientKilled, Server]
            .map(|ended| -> Row<'_> { Box::new(move || row_of_iperf3(Server, arguments, "", ended)) })
    });
    together(ours.chain(stock));
}

/// A scheduler, a source and a builder, of which one is ended.
fn row_of_events(role: usize, signal: &str) {
    let what = format!("role {role} of events ended by {signal}");
    let port = free_port();
    let at = format!("127.0.0.1:{port}");
    let run = |arguments: &[&str]| Running::new(weir().arg("event").args(arguments).arg("--json"));
    let mut all = vec![
        run(&["scheduler", "--listen", &at, "--rate", "50Hz", "--drain", "1s", "--source-deadline", "1s"]),
        run(&["source", "--scheduler", &at, "--name", "s0"]),
        run(&["builder", "--scheduler", &at, "--name", "b0"]),
    ];
    std::thread::sleep(2 * MEASURED);
    all[role].tell(signal);
    let first = all.remove(role).end(&what);
    let figure = |out: &str, path: &str| -> u64 {
        let document: Value = serde_json::from_str(out).unwrap_or_else(|_| panic!("{what}: {out}"));
        document.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{what}: {document:#}"))
    };
    const FIGURES: [&str; 3] = ["/ledger/generated", "/report/sent", "/report/figures/complete"];
    if signal != "-KILL" {
        assert!(figure(&first.1, FIGURES[role]) > 0, "{what}: {}", first.1);
    }
    // Those that are left go on until they are told, and have seen what became of it.
    std::thread::sleep(MEASURED);
    for (at, left) in all.into_iter().enumerate() {
        let of = if at >= role { at + 1 } else { at };
        if role > 0 || signal == "-KILL" {
            left.tell("-TERM");
        }
        let (_, out, err) = left.end(&what);
        assert!(figure(&out, FIGURES[of]) > 0, "{what}: {out}");
        if role == 0 && signal == "-KILL" {
            assert!(err.contains("the scheduler at"), "{what}: {err}");
        }
        if of == 0 {
            let document: Value = serde_json::from_str(&out).unwrap();
            let (gone, name) = [("", ""), ("source s0 is gone", "s0"), ("builder b0 is gone", "b0")][role];
            let failures = document["failures"].as_array().unwrap();
            assert!(failures.iter().any(|failure| failure["name"] == name), "{what}: {document:#}");
            assert!(err.contains(gone), "{what}: {err}");
        }
    }
}

// Spec: commands.md#ends-4
#[test]
fn a_role_of_events_ends_with_its_figures_and_of_one_that_is_killed_the_others_tell() {
    let _turn = turn();
    together((0..3).flat_map(|role| {
        ["-INT", "-TERM", "-KILL"].map(|signal| -> Row<'_> { Box::new(move || row_of_events(role, signal)) })
    }));
}

// Spec: commands.md#ends-3
#[test]
fn of_a_list_of_points_those_before_the_one_that_fails_are_reported() {
    let _turn = turn();
    let (_server, at) = Running::serve(&[]);
    let load = ["net", "stream", &at, "--pacing", "8Mbit/s", "--duration", "300ms", "--json"];
    let list = Running::new(weir().args(load).args(["--congestion", "cubic,nosuch,reno"]));
    let (status, out, err) = list.end("a list");
    assert_eq!(status, 3, "{out}{err}");
    let summary = support::summary_in(&out);
    let points = summary["points"].as_array().unwrap();
    assert_eq!(points.len(), 2, "{summary:#}");
    assert!(points[0]["metrics"][GOODPUT]["mean"].as_f64().is_some_and(|rate| rate > 0.0), "{summary:#}");
    assert_eq!((&points[1]["valid_trials"], &points[1]["metrics"]), (&0.into(), &serde_json::json!({})));
    assert!(summary["warnings"].to_string().contains("nosuch"), "{summary:#}");
    // Alone it is nothing but an error.
    let alone = Running::new(weir().args(load).args(["--congestion", "nosuch"]));
    assert_eq!(alone.end("one").0, 2);
}
