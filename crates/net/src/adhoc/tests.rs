//! A server and its clients, good and bad, in one process.

use super::relay::Relay;
use super::*;
use crate::latency::LatencyPlan;
use crate::stream::plan::StreamPlan;
use crate::udp::plan::UdpPlan;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use weir_core::param::Value;
use weir_core::units::Hertz;
use weir_core::{Bytes, Values};
use weir_seams::workload::{Control, Outcome};
use weir_transport::Key;
use weir_transport::datagram::Opening;
use weir_transport::handshake::{self, Mode};

struct Running {
    address: SocketAddr,
    interrupts: Arc<AtomicU32>,
    thread: Option<std::thread::JoinHandle<Result<(), AdhocError>>>,
}

impl Running {
    fn begin(key: Option<Key>) -> Running {
        let server = Server::listen("127.0.0.1:0".parse().unwrap(), key, ServerLimits::default()).unwrap();
        let address = server.address().unwrap();
        let interrupts = Arc::new(AtomicU32::new(0));
        let thread = std::thread::spawn({
            let interrupts = Arc::clone(&interrupts);
            move || server.serve(&|| interrupts.load(Ordering::Relaxed), |_| {})
        });
        Running { address, interrupts, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.interrupts.store(1, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

fn stream(pairs: &[(&str, Value)]) -> (Job, Values) {
    let mut values = Values::default();
    for (key, value) in pairs {
        values.set(key, value.clone());
    }
    (Job::Stream(StreamPlan::from_values(&values).unwrap()), values)
}

fn milliseconds(count: u64) -> Value {
    Value::Duration(Duration::from_millis(count))
}

fn measure(address: SocketAddr, key: Option<Key>, job: &(Job, Values)) -> Result<Measurement, AdhocError> {
    Client::new(address, key).measure(&job.0, &job.1, &|| 0, &mut |_| {})
}

#[test]
fn a_client_with_the_key_measures_and_one_with_another_does_not() {
    let key = |byte| Some(Key::from_bytes(&[byte; 16]).unwrap());
    let server = Running::begin(key(1));
    let job =
        stream(&[("bytes", Value::Size(Bytes(500_000))), ("direction", Value::Text("both".to_owned()))]);
    let measured = measure(server.address, key(1), &job).unwrap();
    assert_eq!((measured.invalid, measured.failures), (None, Vec::new()));
    assert!(measured.rows.iter().any(|row| row.entity == "flow.server.client.0"));
    let error = measure(server.address, key(2), &job).unwrap_err();
    assert!(error.0.contains("keys at the two ends differ"), "{error}");
    let error = measure(server.address, None, &job).unwrap_err();
    assert!(error.0.contains("--key-file"), "{error}");
}

// Spec: net-protocol.md#sessions-4
#[test]
fn a_measurement_goes_on_while_garbage_and_scanners_come() {
    let server = Running::begin(None);
    let address = server.address;
    let (measured, tried) = std::thread::scope(|scope| {
        let job = stream(&[("duration", milliseconds(600)), ("streams", Value::Count(2))]);
        let measuring = scope.spawn(move || measure(address, None, &job));
        let mut tried = 0;
        while !measuring.is_finished() {
            let mut stream = TcpStream::connect(address).unwrap();
            let _ = stream.write_all(&[0xa5; 100]);
            if tried % 3 == 0 {
                // Far enough to be let in, then a frame of 2^31 bytes.
                if handshake::open(&stream, Mode::Control, [0; 16], 0, None, Duration::from_secs(1)).is_ok() {
                    let _ = stream.write_all(&0x8000_0000u32.to_le_bytes());
                }
            }
            tried += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
        (measuring.join().unwrap(), tried)
    });
    let measured = measured.unwrap();
    assert!(tried > 10);
    assert_eq!((measured.invalid, measured.failures), (None, Vec::new()));
}

#[test]
fn a_frame_of_2_gib_or_of_nonsense_ends_its_session_and_no_other() {
    let server = Running::begin(None);
    for frame in [&0x8000_0000u32.to_le_bytes()[..], b"\x05\0\0\0hello", b"\x02\0\0\0{}"] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        handshake::open(&stream, Mode::Control, [0; 16], 0, None, Duration::from_secs(5)).unwrap();
        stream.write_all(frame).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut rest = Vec::new();
        // The server closes; a reset is a close too.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 1000);
    }
    let job = stream(&[("bytes", Value::Size(Bytes(1000)))]);
    assert_eq!(measure(server.address, None, &job).unwrap().invalid, None);
}

// Spec: net-protocol.md#sessions-2
#[test]
fn a_job_beyond_the_servers_bounds_is_refused_in_words_even_if_the_client_asks() {
    let (mut job, _) = stream(&[("duration", milliseconds(100))]);
    if let Job::Stream(plan) = &mut job {
        plan.streams = 5000;
    }
    assert!(job.check().unwrap_err().text.contains("5000 flows"));
    if let Job::Stream(plan) = &mut job {
        plan.streams = 1;
        plan.block_bytes = 1 << 40;
    }
    assert!(job.check().unwrap_err().text.contains("`block`"));
    if let Job::Stream(plan) = &mut job {
        plan.block_bytes = 1000;
        plan.tcp.receive_buffer = Some(u64::MAX / 2);
    }
    assert!(job.check().unwrap_err().text.contains("4 GiB"));
}

fn figure(measured: &Measurement, metric: &str) -> f64 {
    let row = measured.rows.iter().find(|row| row.metric == metric);
    match row.map(|row| &row.value) {
        Some(weir_core::record::Observed::Value(value)) => *value,
        _ => panic!("no {metric} in {measured:?}"),
    }
}

// Spec: net-protocol.md#sessions-3
// Spec: commands.md#ends-3
#[test]
fn a_client_that_vanishes_leaves_the_server_free() {
    let server = Running::begin(None);
    let job = stream(&[("duration", milliseconds(30_000))]);
    let began = Instant::now();
    let measured = Client::new(server.address, None)
        .measure(
            &job.0,
            &job.1,
            &|| if began.elapsed() > Duration::from_millis(300) { 2 } else { 0 },
            &mut |_| {},
        )
        .unwrap();
    // It did not wait for what the server had received, and has its own.
    assert!(measured.stopped);
    assert!(figure(&measured, "stream.acknowledged_bits_per_second") > 0.0, "{measured:?}");
    assert!(!measured.rows.iter().any(|row| row.metric == "stream.total_goodput_bits_per_second"));
    // Ends only when the session's thread has: bounded by the server's drain.
    drop(server);
    assert!(began.elapsed() < Duration::from_secs(8), "the session outlived its client");
}

#[test]
fn one_interrupt_keeps_what_was_measured_and_says_that_it_was_cut() {
    let server = Running::begin(None);
    let job = stream(&[("duration", milliseconds(30_000))]);
    let began = Instant::now();
    let measured = Client::new(server.address, None)
        .measure(&job.0, &job.1, &|| u32::from(began.elapsed() > Duration::from_millis(400)), &mut |_| {})
        .unwrap();
    assert!(measured.stopped);
    assert!(measured.invalid.is_some());
    assert!(measured.rows.iter().any(|row| row.metric == "stream.total_goodput_bits_per_second"));
}

// Spec: net-protocol.md#burst-5
#[test]
fn of_bursts_one_way_those_that_arrived_before_a_stop_are_reported_also_where_one_is_long_under_way() {
    let server = Running::begin(None);
    let bursts = |size, every: &str, connection: &str, ended: Duration| {
        let mut values = Values::default();
        values.set("size", Value::Size(Bytes(size)));
        values.set("repetitions", Value::Count(10_000));
        values.set("connection", Value::Text(connection.to_owned()));
        if let Ok(every) = every.parse() {
            values.set("every", milliseconds(every));
        }
        let job = Job::Burst(crate::burst::plan::BurstPlan::from_values(&values).unwrap());
        let began = Instant::now();
        let client = Client::new(server.address, None);
        let measured = client.measure(&job, &values, &|| u32::from(began.elapsed() > ended), &mut |_| {});
        let measured = measured.unwrap();
        let took = began.elapsed();
        let count =
            measured.rows.iter().filter(|row| row.metric == crate::burst::metrics::COMPLETION).count();
        let invalid = measured.invalid.clone().unwrap();
        assert!(invalid.starts_with("cut short by the user; "), "{invalid}");
        assert!(invalid.ends_with(" of 10000 bursts were measured"), "{invalid}");
        assert_eq!(measured.failures, Vec::<String>::new());
        (count, took)
    };
    let soon = Duration::from_millis(500);
    for (size, every, connection) in [
        (1_000, "10", "outside-timing"),
        (10_000_000, "", "outside-timing"),
        (1_000, "10", "timed"),
        (1_000, "10", "per-burst"),
    ] {
        let (count, _) = bursts(size, every, connection, soon);
        assert!((5..10_000).contains(&count), "{every} {connection}: {count}");
    }
    // The first one would take minutes: it is cut, and is none.
    for connection in ["outside-timing", "timed", "per-burst"] {
        let (count, took) = bursts(1 << 40, "", connection, soon);
        assert_eq!(count, 0, "{connection}");
        assert!(took < Duration::from_secs(20), "{connection}: {took:?}");
    }
}

// Spec: commands.md#ends-2
#[test]
fn a_server_that_breaks_in_mid_measurement_leaves_what_the_client_itself_measured() {
    let server = Running::begin(None);
    // The relay carries the bytes; when it is gone, so are the connections of both ends.
    let cut = |job: &(Job, Values)| {
        let relay = Relay::begin(server.address, |_, _| false);
        let (address, broken) = (relay.address, relay.breaker());
        let breaking = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(800));
            broken.break_all();
        });
        let measured = measure(address, None, job);
        breaking.join().unwrap();
        measured.unwrap()
    };
    let long = ("duration", milliseconds(60_000));
    let down = ("direction", Value::Text("down".to_owned()));
    let up = cut(&stream(std::slice::from_ref(&long)));
    assert!(figure(&up, "stream.acknowledged_bits_per_second") > 0.0);
    let down = cut(&stream(&[long.clone(), down]));
    assert!(figure(&down, "stream.total_goodput_bits_per_second") > 0.0);
    let trips = cut(&latency(&[long, ("rate", Value::Frequency(weir_core::units::Hertz(100.0)))]));
    assert!(trips.rows.iter().any(|row| row.metric == "latency.round_trip_seconds"), "{trips:?}");
    for measured in [up, down, trips] {
        let invalid = measured.invalid.unwrap();
        assert!(invalid.contains("was lost") && invalid.contains("after the start"), "{invalid}");
        assert!(measured.candidates.is_empty() && !measured.load.fills_path);
    }
}

// Spec: net-protocol.md#sessions-1
#[test]
fn round_trips_between_two_ends_are_counted() {
    let server = Running::begin(None);
    let mut values = Values::default();
    values.set("count", Value::Count(50));
    let job = (Job::Latency(LatencyPlan::from_values(&values).unwrap()), values);
    let measured = measure(server.address, None, &job).unwrap();
    assert_eq!(measured.invalid, None);
    assert_eq!(measured.rows.len(), 1);
}

// Spec: net-protocol.md#stream-6
#[test]
fn a_segment_size_asked_for_holds_both_ways() {
    let server = Running::begin(None);
    let tcp = std::collections::BTreeMap::from([("mss".to_owned(), Value::Size(Bytes(1000)))]);
    let job = stream(&[
        ("bytes", Value::Size(Bytes(100_000))),
        ("direction", Value::Text("both".to_owned())),
        ("tcp", Value::Table(tcp)),
    ]);
    let measured = measure(server.address, None, &job).unwrap();
    for flow in ["flow.client.server.0", "flow.server.client.0"] {
        let bytes = measured.granted[&format!("{flow}.sender")]["mss_bytes"].as_u64().unwrap();
        assert!(bytes <= 1000, "{flow}: {bytes}");
    }
}

fn latency(pairs: &[(&str, Value)]) -> (Job, Values) {
    let mut values = Values::default();
    for (key, value) in pairs {
        values.set(key, value.clone());
    }
    (Job::Latency(LatencyPlan::from_values(&values).unwrap()), values)
}

fn udp() -> (&'static str, Value) {
    ("transport", Value::Text("udp".to_owned()))
}

// Spec: net-protocol.md#datagrams-5
#[test]
fn round_trips_over_udp_need_the_key_and_are_all_counted() {
    let key = |byte| Some(Key::from_bytes(&[byte; 16]).unwrap());
    let server = Running::begin(key(1));
    for rate in [None, Some(Value::Frequency(weir_core::units::Hertz(1000.0)))] {
        let mut pairs = vec![udp(), ("count", Value::Count(100))];
        pairs.extend(rate.map(|rate| ("rate", rate)));
        let job = latency(&pairs);
        let measured = measure(server.address, key(1), &job).unwrap();
        assert_eq!((measured.invalid, measured.failures), (None, Vec::new()));
        let lost = measured.rows.iter().find(|row| row.metric == "latency.lost_ratio").unwrap();
        assert_eq!(lost.value, weir_core::record::Observed::Value(0.0));
        assert!(measure(server.address, key(2), &job).is_err());
    }
}

// Spec: net-protocol.md#datagrams-3
#[test]
fn datagrams_of_strangers_get_nothing_from_a_server_and_disturb_no_measurement() {
    let server = Running::begin(None);
    let address = server.address;
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.set_nonblocking(true).unwrap();
    let measured = std::thread::scope(|scope| {
        let job = latency(&[udp(), ("duration", milliseconds(500))]);
        let measuring = scope.spawn(move || measure(address, None, &job));
        let hello = weir_transport::datagram::Opening::hello([9; 16], 0, [7; 32]).encode();
        while !measuring.is_finished() {
            for bytes in [&hello[..], &[0xa5; 1400], b"x"] {
                stranger.send_to(bytes, address).unwrap();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        measuring.join().unwrap().unwrap()
    });
    assert_eq!((measured.invalid, measured.failures), (None, Vec::new()));
    assert_eq!(stranger.recv(&mut [0; 10]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_hundred_flows_to_a_server_are_connected_at_once_over_either_family() {
    let server = Server::listen("[::1]:0".parse().unwrap(), None, ServerLimits::default());
    // A machine may have no IPv6.
    let Ok(server) = server else { return };
    let address = server.address().unwrap();
    let interrupts = Arc::new(AtomicU32::new(0));
    let thread = std::thread::spawn({
        let interrupts = Arc::clone(&interrupts);
        move || server.serve(&|| interrupts.load(Ordering::Relaxed), |_| {})
    });
    let job = stream(&[("bytes", Value::Size(Bytes(10_000))), ("streams", Value::Count(100))]);
    let measured = measure(address, None, &job).unwrap();
    assert_eq!((measured.invalid, measured.failures), (None, Vec::new()));
    let job = latency(&[udp(), ("count", Value::Count(10))]);
    assert_eq!(measure(address, None, &job).unwrap().invalid, None);
    interrupts.store(1, Ordering::Relaxed);
    thread.join().unwrap().unwrap();
}

// Spec: net-protocol.md#sessions-6
#[test]
fn a_server_that_hangs_in_mid_measurement_ends_every_workload_with_that_reason() {
    use message::{FromClient, FromServer, token_text};
    use weir_transport::gate::{Gate, GateLimits};
    use weir_transport::{read_frame, write_frame};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut gate = Gate::new(listener, None, GateLimits::default()).unwrap();
    let mut admit = move || {
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            if let Some(client) = gate.next(Duration::from_millis(100)).unwrap().pop() {
                let stream = client.welcome().unwrap();
                stream.set_nonblocking(false).unwrap();
                return stream;
            }
        }
        panic!("nobody came");
    };
    let values = |pairs: &[(&str, Value)]| {
        let mut values = Values::default();
        pairs.iter().for_each(|(key, value)| values.set(key, value.clone()));
        values
    };
    let long = values(&[("duration", milliseconds(60_000))]);
    let bursts = values(&[("size", Value::Size(Bytes(1_000_000))), ("repetitions", Value::Count(1_000))]);
    let jobs = [
        (Job::Stream(StreamPlan::from_values(&long).unwrap()), long.clone()),
        (Job::Latency(LatencyPlan::from_values(&long).unwrap()), long.clone()),
        (Job::Burst(crate::burst::plan::BurstPlan::from_values(&bursts).unwrap()), bursts),
    ];
    for (job, values) in jobs {
        let name = job.name();
        let (said, held) = std::thread::scope(|scope| {
            let hung = scope.spawn(|| {
                // As a server up to the start, and then not a word.
                let control = admit();
                let _: Option<FromClient> = read_frame(&mut &control, 1 << 20).unwrap();
                let ready = FromServer::Ready { token: token_text(&[0; 16]) };
                write_frame(&mut &control, &ready).unwrap();
                let flow = admit();
                write_frame(&mut &control, &FromServer::Connected).unwrap();
                (control, flow)
            });
            let client = Client::new(address, None).with_silence(Duration::from_millis(500));
            let said = client.measure(&job, &values, &|| 0, &mut |_| {});
            (said, hung.join().unwrap())
        });
        // A stream knows what that machine's kernel has acknowledged, the others have nothing to report.
        let said = match said {
            Ok(measured) if name == "stream" => {
                assert!(figure(&measured, "stream.acknowledged_bits_per_second") > 0.0, "{measured:?}");
                measured.invalid.unwrap()
            }
            Ok(measured) => panic!("{name}: {measured:?}"),
            Err(error) => error.0,
        };
        assert!(said.contains("has said nothing for 500ms"), "{name}: {said}");
        drop(held);
    }
}

// Spec: net-protocol.md#datagrams-6
#[test]
fn flows_over_udp_open_all_at_once_and_each_survives_the_loss_of_any_of_its_words() {
    const FLOWS: u64 = 6;
    let server = Running::begin(None);
    let (mut asked, mut lost) = (BTreeSet::new(), BTreeSet::new());
    let relay = Relay::begin(server.address, move |way, bytes| {
        let Some(opening) = Opening::decode(bytes) else { return false };
        asked.insert(opening.flow);
        // Nobody is answered before all have asked, and of each word of each flow the first is lost.
        asked.len() < FLOWS as usize || lost.insert((way, opening.kind as u8, opening.flow))
    });
    let mut values = Values::default();
    for (key, value) in [
        ("count", Value::Count(20)),
        ("packet_rate", Value::Frequency(weir_core::units::Hertz(1_000.0))),
        ("streams", Value::Count(FLOWS / 2)),
        ("direction", Value::Text("both".to_owned())),
    ] {
        values.set(key, value);
    }
    let job = Job::Udp(crate::udp::plan::UdpPlan::from_values(&values).unwrap());
    let measurement = measure(relay.address, None, &(job, values)).unwrap();
    assert_eq!(measurement.invalid, None, "{measurement:?}");
    let flows = measurement.rows.iter().filter(|row| row.metric == crate::udp::outcome::LOSS);
    assert_eq!(flows.count(), FLOWS as usize);
}

/// Sums of what both ends count are of payload that arrived, whoever sends.
#[test]
fn payload_is_counted_where_it_arrives_and_the_server_says_what_it_sent() {
    let plan = |pairs: &[(&str, Value)]| {
        let mut values = Values::default();
        pairs.iter().for_each(|(key, value)| values.set(key, value.clone()));
        values
    };
    for (direction, received, sent) in [("up", 70_000, 0), ("down", 0, 70_000), ("both", 70_000, 70_000)] {
        let values = plan(&[
            ("count", Value::Count(50)),
            ("packet_rate", Value::Frequency(Hertz(1_000.0))),
            ("direction", Value::Text(direction.to_owned())),
        ]);
        let job = Job::Udp(UdpPlan::from_values(&values).unwrap());
        let control = Control::default();
        control.advance(received);
        control.send(sent);
        let said = super::session::account(&job, &control, &Outcome::default());
        let flows = if direction == "both" { "2 flows" } else { "1 flow" };
        let bytes = match direction {
            "up" => "70000 bytes received",
            "down" => "70000 bytes sent",
            _ => "70000 bytes received, 70000 sent",
        };
        assert_eq!(said, format!("udp, {flows}, {bytes}"));
    }
}
