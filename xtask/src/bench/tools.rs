//! The programs compared: how each is called, and where its figures stand in what it prints.

use super::Settings;
use super::process::Line;
use serde_json::Value;

/// Written in the way of each tool below; the same for all.
pub const BLOCK: (&str, &str) = ("128K", "128KiB");
/// For figures of what carries the load: on two cores a tool that takes more than the one that the fabric leaves would measure
/// itself.
pub const LARGE_BLOCK: (&str, &str) = ("1M", "1MiB");
pub const CONGESTION: &str = "cubic";

fn line(words: &[&str]) -> Line {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A part of this program that is measured as a process of its own.
pub fn own(command: &str, words: &[&str]) -> Result<Line, String> {
    let program = std::env::current_exe().map_err(|problem| problem.to_string())?;
    Ok([line(&[&program.to_string_lossy(), command]), line(words)].concat())
}

/// What all tools take: iperf3 knows no parts of a second.
fn whole_seconds(settings: &Settings) -> String {
    settings.duration.as_secs().max(1).to_string()
}

pub fn iperf3_serve(settings: &Settings, port: u16, once: bool) -> Line {
    let mut words = line(&[&settings.iperf3.to_string_lossy(), "-s", "-p", &port.to_string()]);
    words.extend(once.then(|| "-1".to_owned()));
    words
}

pub fn iperf3_stream(settings: &Settings, host: &str, port: u16, flows: usize, block: (&str, &str)) -> Line {
    let duration = whole_seconds(settings);
    let (port, flows) = (port.to_string(), flows.to_string());
    let program = settings.iperf3.to_string_lossy();
    line(&[
        &program, "-c", host, "-p", &port, "-t", &duration, "-P", &flows, "-l", block.0, "-C", CONGESTION,
        "-J",
    ])
}

pub fn weir_serve(settings: &Settings, listen: &str, port: u16) -> Line {
    line(&[
        &settings.weir.to_string_lossy(),
        "net",
        "serve",
        "--listen",
        &format!("{listen}:{port}"),
        "--open",
    ])
}

/// No warm-up: iperf3 leaves one out only in whole seconds, and its CPU time counts all the same.
pub fn weir_stream(
    settings: &Settings,
    host: &str,
    port: u16,
    flows: usize,
    block: (&str, &str),
    interval: Option<&str>,
) -> Line {
    let duration = format!("{}s", whole_seconds(settings));
    let mut words = line(&[
        &settings.weir.to_string_lossy(),
        "net",
        "stream",
        &format!("{host}:{port}"),
        "--streams",
        &flows.to_string(),
        "--duration",
        &duration,
        "--warm-up",
        "0s",
        "--congestion",
        CONGESTION,
        "--block",
        block.1,
        "--json",
    ]);
    words.extend(interval.into_iter().flat_map(|interval| ["--interval".to_owned(), interval.to_owned()]));
    words
}

/// One flow of 50 Mbit/s, its samples in `out`.
pub fn weir_watch(
    settings: &Settings,
    host: &str,
    port: u16,
    seconds: u64,
    interval: &str,
    out: &std::path::Path,
) -> Line {
    line(&[
        &settings.weir.to_string_lossy(),
        "net",
        "watch",
        &format!("{host}:{port}"),
        "--duration",
        &format!("{seconds}s"),
        "--pacing",
        "50Mbit/s",
        "--interval",
        interval,
        "--out",
        &out.to_string_lossy(),
        "--json",
    ])
}

/// Both ends of a ping-pong share this CPU.
pub const PINNED_CPU: &str = "0";

pub fn pinned(inner: Line) -> Line {
    let mut words = line(&["taskset", "-c", PINNED_CPU]);
    words.extend(inner);
    words
}

pub fn sockperf_serve(port: u16) -> Line {
    line(&["sockperf", "server", "--tcp", "-i", "127.0.0.1", "-p", &port.to_string()])
}

pub fn sockperf_latency(settings: &Settings, port: u16) -> Line {
    let (port, duration) = (port.to_string(), whole_seconds(settings));
    line(&[
        "sockperf",
        "ping-pong",
        "--tcp",
        "-i",
        "127.0.0.1",
        "-p",
        &port,
        "-m",
        "64",
        "-t",
        &duration,
        "--full-rtt",
    ])
}

pub fn weir_latency(settings: &Settings, port: u16, count: u64) -> Line {
    let peer = format!("127.0.0.1:{port}");
    line(&[
        &settings.weir.to_string_lossy(),
        "net",
        "latency",
        &peer,
        "--size",
        "64B",
        "--count",
        &count.to_string(),
        "--json",
    ])
}

/// Closed by reset, as neper does: neither end keeps ports in TIME-WAIT.
pub fn weir_connect(settings: &Settings, port: u16, flows: usize) -> Line {
    let (peer, duration) = (format!("127.0.0.1:{port}"), format!("{}s", whole_seconds(settings)));
    let program = settings.weir.to_string_lossy();
    line(&[
        &program,
        "net",
        "connect",
        &peer,
        "--streams",
        &flows.to_string(),
        "--duration",
        &duration,
        "--warm-up",
        "0s",
        "--close",
        "reset",
        "--json",
    ])
}

pub fn weir_udp(settings: &Settings, port: u16, size: u32, packet_rate: &str) -> Line {
    let (peer, duration) = (format!("127.0.0.1:{port}"), format!("{}s", whole_seconds(settings)));
    let (program, size) = (settings.weir.to_string_lossy(), format!("{size}B"));
    line(&[
        &program,
        "net",
        "udp",
        &peer,
        "--packet-rate",
        packet_rate,
        "--size",
        &size,
        "--duration",
        &duration,
        "--warm-up",
        "0s",
        "--json",
    ])
}

pub fn weir_burst(settings: &Settings, port: u16, count: u32) -> Line {
    let (peer, count) = (format!("127.0.0.1:{port}"), count.to_string());
    let program = settings.weir.to_string_lossy();
    line(&[
        &program,
        "net",
        "burst",
        &peer,
        "--sizes",
        "1B",
        "--repetitions",
        &count,
        "--warm-up-count",
        "1000",
        "--reply",
        "ack",
        "--json",
    ])
}

pub fn iperf3_udp(settings: &Settings, port: u16, size: u32) -> Line {
    let (program, port, size) = (settings.iperf3.to_string_lossy(), port.to_string(), size.to_string());
    let duration = whole_seconds(settings);
    line(&[&program, "-c", "127.0.0.1", "-p", &port, "-u", "-b", "0", "-l", &size, "-t", &duration, "-J"])
}

pub fn sockperf_serve_udp(port: u16) -> Line {
    line(&["sockperf", "server", "-i", "127.0.0.1", "-p", &port.to_string()])
}

pub fn sockperf_udp(settings: &Settings, port: u16, size: u32) -> Line {
    let (port, size, duration) = (port.to_string(), size.to_string(), whole_seconds(settings));
    line(&[
        "sockperf",
        "throughput",
        "-i",
        "127.0.0.1",
        "-p",
        &port,
        "-m",
        &size,
        "-t",
        &duration,
        "--mps=max",
    ])
}

/// Both of its ports are its own: the one that is waited for is of its control connection.
pub const NEPER_DATA_PORTS: u16 = 4000;

/// Its server where there is no `host`.
pub fn neper(
    settings: &Settings,
    program: &str,
    host: Option<&str>,
    port: u16,
    flows: usize,
    threads: usize,
    more: &[&str],
) -> Line {
    let folder = settings.neper.as_deref().unwrap_or_else(|| std::path::Path::new(""));
    let program = folder.join(program).to_string_lossy().into_owned();
    let (control, data) = (port.to_string(), (port + NEPER_DATA_PORTS).to_string());
    let (flows, threads) = (flows.to_string(), threads.to_string());
    // It leaves a log where it is started, `--nolog` or not.
    let mut words = line(&[
        "env",
        "-C",
        &settings.scratch.to_string_lossy(),
        &program,
        "-T",
        &threads,
        "-F",
        &flows,
        "-l",
        &whole_seconds(settings),
        "-C",
        &control,
        "-P",
        &data,
        "--nolog",
        "--congestion-control",
        CONGESTION,
    ]);
    words.extend(line(more));
    if let Some(host) = host {
        words.extend(line(&["-c", "-H", host]));
    }
    words
}

/// A line `NAME=VALUE` of what neper prints.
pub fn neper_number(stdout: &str, name: &str) -> Result<f64, String> {
    let value = stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let value = value.and_then(|text| text.trim().parse().ok()).filter(|value: &f64| *value > 0.0);
    value.ok_or_else(|| format!("neper printed no {name}: {stdout}"))
}

/// Datagrams that came, a second.
pub fn iperf3_datagrams(stdout: &str) -> Result<f64, String> {
    let document = json("iperf3", stdout)?;
    let of = |name: &str| positive("iperf3", &document, &format!("/end/sum_received/{name}"));
    let lost = document.pointer("/end/sum_received/lost_packets").and_then(Value::as_f64).unwrap_or_default();
    Ok((of("packets")? - lost) / of("seconds")?)
}

/// Datagrams that came: `Total 123456 messages received and handled`.
pub fn sockperf_received(stdout: &str) -> Result<f64, String> {
    let line = stdout.lines().find(|line| line.contains("messages received and handled"));
    let count = line.and_then(|line| line.split("Total ").nth(1)?.split(' ').next()?.parse::<f64>().ok());
    count.ok_or_else(|| format!("sockperf's server did not say what it received: {stdout}"))
}

pub fn flows(count: usize) -> String {
    if count == 1 { "1 flow".to_owned() } else { format!("{count} flows") }
}

/// Receiver's payload in bit/s.
pub fn iperf3_goodput(stdout: &str) -> Result<f64, String> {
    let document = json("iperf3", stdout)?;
    if let Some(problem) = document.get("error").and_then(Value::as_str) {
        return Err(format!("iperf3: {problem}"));
    }
    positive("iperf3", &document, "/end/sum_received/bits_per_second")
}

pub fn weir_goodput(stdout: &str) -> Result<f64, String> {
    let metrics = weir_metrics(stdout)?;
    positive("weir", &metrics, "/stream.total_goodput_bits_per_second/mean")
}

/// How many trials of the first point count.
pub fn weir_valid_trials(stdout: &str) -> Result<u64, String> {
    let document = json("weir", stdout)?;
    let count = document.pointer("/points/0/valid_trials").and_then(Value::as_u64);
    count.ok_or_else(|| "weir: no number at points[0].valid_trials".to_owned())
}

/// A statistic of a metric of the first point.
pub fn weir_metric(stdout: &str, metric: &str, statistic: &str) -> Result<f64, String> {
    positive("weir", &weir_metrics(stdout)?, &format!("/{metric}/{statistic}"))
}

/// Median and 99 % of the round trip, in seconds.
pub fn weir_round_trip(stdout: &str) -> Result<(f64, f64), String> {
    let metrics = weir_metrics(stdout)?;
    let of = |statistic| positive("weir", &metrics, &format!("/latency.round_trip_seconds/{statistic}"));
    Ok((of("median")?, of("p99")?))
}

/// sockperf prints microseconds: `sockperf: ---> percentile 99.000 =   11.237`.
pub fn sockperf_round_trip(stdout: &str) -> Result<(f64, f64), String> {
    let percentile = |wanted: &str| -> Result<f64, String> {
        let line = stdout.lines().find(|line| line.contains(&format!("percentile {wanted}")));
        let value = line
            .and_then(|line| line.rsplit_once('=')?.1.trim().parse::<f64>().ok())
            .filter(|value| *value > 0.0);
        value.map(|us| us / 1e6).ok_or_else(|| format!("sockperf printed no percentile {wanted}: {stdout}"))
    };
    if !stdout.contains("full-rtt") && !stdout.contains("RTT") && !stdout.contains("Round trip") {
        // Half of the round trip is its usual figure; to mistake one for the other is a factor of two.
        return Err(format!("sockperf does not say that it gives round trips: {stdout}"));
    }
    Ok((percentile("50.000")?, percentile("99.000")?))
}

fn json(tool: &str, stdout: &str) -> Result<Value, String> {
    serde_json::from_str(stdout).map_err(|problem| {
        let start: String = stdout.chars().take(300).collect();
        format!("{tool} did not print one JSON document ({problem}): {start:?}")
    })
}

fn weir_metrics(stdout: &str) -> Result<Value, String> {
    let document = json("weir", stdout)?;
    let schema = document.get("schema").and_then(Value::as_str).unwrap_or_default();
    if schema != "weir.summary/1" {
        return Err(format!("weir's document has the schema {schema:?}, expected \"weir.summary/1\""));
    }
    document
        .pointer("/points/0/metrics")
        .cloned()
        .ok_or_else(|| format!("weir's document has no points[0].metrics: {document}"))
}

fn positive(tool: &str, document: &Value, pointer: &str) -> Result<f64, String> {
    let value =
        document.pointer(pointer).and_then(Value::as_f64).filter(|value| value.is_finite() && *value > 0.0);
    value.ok_or_else(|| format!("{tool}: no positive number at {pointer}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tools_figure_is_found_in_its_base_unit() {
        assert_eq!(iperf3_goodput(r#"{"end":{"sum_received":{"bits_per_second":9.5e9}}}"#), Ok(9.5e9));
        let weir = r#"{"schema":"weir.summary/1","points":[{"metrics":{
            "stream.total_goodput_bits_per_second":{"mean":9.4e9},
            "latency.round_trip_seconds":{"median":1.1e-5,"p99":2e-5}}}]}"#;
        assert_eq!(weir_goodput(weir), Ok(9.4e9));
        assert_eq!(weir_round_trip(weir), Ok((1.1e-5, 2e-5)));
        let sockperf = "sockperf: Summary: Round trip is 11.2 usec\nsockperf: ---> percentile 99.000 =   20.500\nsockperf: ---> percentile 50.000 =   10.250\n";
        let (median, p99) = sockperf_round_trip(sockperf).unwrap();
        assert!((median - 10.25e-6).abs() < 1e-12 && (p99 - 20.5e-6).abs() < 1e-12);
    }

    #[test]
    fn a_missing_zero_or_foreign_figure_is_an_error_and_never_a_number() {
        for bad in [
            "",
            "{}",
            r#"{"error":"unable to connect"}"#,
            r#"{"end":{"sum_received":{"bits_per_second":0}}}"#,
        ] {
            assert!(iperf3_goodput(bad).is_err(), "{bad}");
        }
        for bad in [
            "{}",
            r#"{"schema":"weir.summary/2","points":[{"metrics":{"stream.total_goodput_bits_per_second":{"mean":1}}}]}"#,
        ] {
            assert!(weir_goodput(bad).is_err(), "{bad}");
        }
        assert!(
            sockperf_round_trip(
                "sockperf: ---> percentile 99.000 = 3\nsockperf: ---> percentile 50.000 = 2\n"
            )
            .is_err()
        );
    }
}
