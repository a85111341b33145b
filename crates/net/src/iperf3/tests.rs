//! Strangers at either end, over loopback in this process: whatever they say, the other end comes to its end with a reason.

use super::parameters::Parameters;
use super::results::{Results, StreamResults};
use super::wire::{COOKIE_BYTES, State, Wire, make_cookie};
use super::{Client, Server};
use crate::adhoc::Job;
use crate::stream::plan::{PARAMS, StreamPlan};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_core::{BitsPerSecond, Value, Values};

const SOON: Duration = Duration::from_secs(20);

/// A server on a thread, its log, and how it is ended.
struct Running {
    address: SocketAddr,
    interrupts: Arc<AtomicU32>,
    log: Receiver<String>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn begin() -> Running {
        let server = Server::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.address().unwrap();
        let interrupts = Arc::new(AtomicU32::new(0));
        let (told, log) = channel();
        let told = Mutex::new(told);
        let asked = Arc::clone(&interrupts);
        let thread = std::thread::spawn(move || {
            let note = move |text| drop(told.lock().unwrap().send(text));
            server.serve(&|| asked.load(Ordering::Relaxed), note).unwrap();
        });
        Running { address, interrupts, log, thread: Some(thread) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.interrupts.store(1, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// The client's side of a control connection up to the wish for parameters.
fn opened(server: &Running) -> (Wire, [u8; COOKIE_BYTES]) {
    let cookie = make_cookie().unwrap();
    let wire = Wire::new(server.connect()).unwrap();
    wire.send_cookie(&cookie).unwrap();
    wire.expect(State::ParameterExchange).unwrap();
    (wire, cookie)
}

fn values() -> Values {
    let mut values = Values::defaults(PARAMS);
    values.set("duration", Value::Duration(Duration::from_millis(300)));
    // Other tests share the machine.
    values.set("source_rate", Value::Rate(BitsPerSecond(80_000_000)));
    values
}

fn job() -> Job {
    Job::Stream(StreamPlan::from_values(&values()).unwrap())
}

fn asked() -> serde_json::Value {
    Parameters::of(&job()).unwrap().to_json()
}

/// How a client of ours fares with a server that is `act`.
fn fares(act: impl FnOnce(TcpStream, &TcpListener) + Send) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client { address: listener.local_addr().unwrap() };
    let started = Instant::now();
    let result = std::thread::scope(|scope| {
        scope.spawn(|| act(listener.accept().unwrap().0, &listener));
        client.measure(&job(), &values(), &|| 0, &mut |_| ())
    });
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    match result {
        Ok(measurement) => measurement.invalid.expect("it lied"),
        Err(error) => error.to_string(),
    }
}

/// A server that does everything right up to its results, which are `results`.
fn with_results(results: &serde_json::Value) -> String {
    fares(|stream, listener| {
        let mut cookie = [0; COOKIE_BYTES];
        (&stream).read_exact(&mut cookie).unwrap();
        let wire = Wire::new(stream).unwrap();
        wire.send_state(State::ParameterExchange).unwrap();
        let asked: serde_json::Value = wire.json().unwrap();
        assert_eq!(asked["tcp"], true);
        wire.send_state(State::CreateStreams).unwrap();
        let (mut payload, _) = listener.accept().unwrap();
        let mut shown = [0; COOKIE_BYTES];
        payload.read_exact(&mut shown).unwrap();
        assert_eq!(shown, cookie);
        wire.send_state(State::TestStart).unwrap();
        wire.send_state(State::TestRunning).unwrap();
        let mut room = vec![0; 1 << 20];
        payload.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        while !wire.speaks(Duration::ZERO).unwrap() {
            // Nothing more comes once the load has ended.
            let _ = payload.read(&mut room);
        }
        wire.expect(State::TestEnd).unwrap();
        wire.send_state(State::ExchangeResults).unwrap();
        let told: Results = wire.json().unwrap();
        assert_eq!((told.streams[0].id, told.sender_has_retransmits), (1, 1));
        wire.send_json(results).unwrap();
        // A client that has had enough is gone.
        let _ = wire.send_state(State::DisplayResults);
    })
}

// Spec: net-protocol.md#iperf3-2 net-protocol.md#iperf3-8
#[test]
fn a_server_that_lies_about_what_it_received_makes_the_point_invalid() {
    let stream = StreamResults { id: 1, end_time: Some(0.3), ..StreamResults::default() };
    let results = |stream: StreamResults| {
        serde_json::to_value(Results { streams: vec![stream], ..Results::default() }).unwrap()
    };
    let more = with_results(&results(StreamResults { bytes: 1 << 50, ..stream.clone() }));
    assert!(more.contains("where") && more.contains("were sent"), "{more}");
    let longer = with_results(&results(StreamResults { bytes: 1, end_time: Some(100.0), ..stream.clone() }));
    assert!(longer.contains("measured over 100.000 s"), "{longer}");
    let without = with_results(&results(StreamResults { end_time: None, ..stream.clone() }));
    assert!(without.contains("does not tell how long"), "{without}");
    let other = with_results(&results(StreamResults { id: 7, ..stream }));
    assert!(other.contains("no stream 1"), "{other}");
    let nonsense = with_results(&json!({"streams": 3}));
    assert!(nonsense.contains("is not what iperf3 says"), "{nonsense}");
}

// Spec: net-protocol.md#stream-11
#[test]
fn a_server_that_received_nothing_makes_no_figure_of_zero_and_blames_no_buffer() {
    let stream = StreamResults { id: 1, bytes: 0, end_time: Some(0.3), ..StreamResults::default() };
    let results = Results { streams: vec![stream], ..Results::default() };
    let why = with_results(&serde_json::to_value(results).unwrap());
    assert!(why.contains("nothing was acknowledged") && why.contains("weir net path"), "{why}");
}

// Spec: net-protocol.md#iperf3-2
#[test]
fn servers_of_other_kinds_busy_ones_and_those_that_leave_are_told_from_each_other() {
    let after_cookie = |bytes: &'static [u8]| {
        fares(move |mut stream, _| {
            stream.read_exact(&mut [0; COOKIE_BYTES]).unwrap();
            stream.write_all(bytes).unwrap();
            // What is written must be read before the end is seen, and a client that has read enough may be gone.
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read(&mut [0; 1]);
        })
    };
    for (said, reason) in [
        (&b""[..], "it closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n", "it says 72, which is nothing of iperf3's"),
        (&[0xff], "it is busy with another test"),
        (&[0xfe, 0, 0, 0, 142, 0, 0, 0, 0], "it wants a user name and password"),
        (&[9, 11], "it ended the test"),
        (&[1], "it says TestStart where ParameterExchange was expected"),
    ] {
        let text = after_cookie(said);
        assert!(text.contains(reason), "{text}");
        assert!(text.contains("127.0.0.1"), "{text}");
    }
}

// Spec: net-protocol.md#iperf3-1 net-protocol.md#iperf3-3
#[test]
fn a_second_client_is_told_that_it_is_busy_and_strangers_are_told_nothing() {
    let server = Running::begin();
    let (first, cookie) = opened(&server);
    let mut second = server.connect();
    second.write_all(&make_cookie().unwrap()).unwrap();
    let mut said = Vec::new();
    second.read_to_end(&mut said).unwrap();
    assert_eq!(said, [0xff]);
    // Even the test's own cookie opens no connection before they are wanted.
    let mut early = server.connect();
    early.write_all(&cookie).unwrap();
    said.clear();
    early.read_to_end(&mut said).unwrap();
    assert_eq!(said, [0xff]);
    for strange in
        [&b"GET / HTTP/1.1\r\nHost: there\r\n\r\n"[..], b"weirnet\n", &[0; COOKIE_BYTES], b"abc\xff"]
    {
        let mut stranger = server.connect();
        stranger.write_all(strange).unwrap();
        said.clear();
        // Closed with its words unread, which may look like a reset.
        let _ = stranger.read_to_end(&mut said);
        assert_eq!(said, [0u8; 0]);
    }
    drop(first);
    assert!(server.log.recv_timeout(SOON).unwrap().contains("the client left"));
    // The next one finds it free.
    opened(&server);
}

// Spec: net-protocol.md#iperf3-2 net-protocol.md#iperf3-4
#[test]
fn parameters_that_cannot_be_are_refused_with_iperf3s_number_and_the_server_goes_on() {
    let server = Running::begin();
    let refusal = |parameters: serde_json::Value| {
        let (wire, _) = opened(&server);
        wire.send_json(&parameters).unwrap();
        let error = wire.state().unwrap_err().to_string();
        server.log.recv_timeout(SOON).unwrap();
        error
    };
    let with = |name: &str, value: serde_json::Value| {
        let mut parameters = asked();
        parameters[name] = value;
        parameters
    };
    assert!(refusal(with("parallel", json!(1_000_000))).contains("error 6: too many streams"));
    assert!(refusal(with("len", json!(1u64 << 40))).contains("error 8"));
    assert!(refusal(with("sctp", json!(true))).contains("error 13"));
    assert!(refusal(json!([1, 2])).contains("error 114"));
    // A length of 4 GB costs nothing.
    let (_wire, cookie) = opened(&server);
    drop(_wire);
    server.log.recv_timeout(SOON).unwrap();
    let mut raw = server.connect();
    raw.write_all(&cookie).unwrap();
    raw.read_exact(&mut [0; 1]).unwrap();
    raw.write_all(&[0xff; 4]).unwrap();
    let mut said = Vec::new();
    raw.read_to_end(&mut said).unwrap();
    assert_eq!(said, [0xfe, 0, 0, 0, 114, 0, 0, 0, 0]);
    assert!(server.log.recv_timeout(SOON).unwrap().contains("announces 4294967295 bytes"));
    opened(&server);
}

// Spec: net-protocol.md#iperf3-2
#[test]
fn a_client_that_leaves_in_the_middle_frees_the_server_at_once() {
    let server = Running::begin();
    let (wire, cookie) = opened(&server);
    wire.send_json(&asked()).unwrap();
    wire.expect(State::CreateStreams).unwrap();
    let mut payload = server.connect();
    payload.write_all(&cookie).unwrap();
    wire.expect(State::TestStart).unwrap();
    wire.expect(State::TestRunning).unwrap();
    payload.write_all(&[1; 100_000]).unwrap();
    drop(wire);
    assert!(server.log.recv_timeout(SOON).unwrap().contains("the client left"));
    // One that says nonsense while the load runs is no better.
    let (wire, cookie) = opened(&server);
    wire.send_json(&asked()).unwrap();
    wire.expect(State::CreateStreams).unwrap();
    server.connect().write_all(&cookie).unwrap();
    wire.expect(State::TestStart).unwrap();
    wire.expect(State::TestRunning).unwrap();
    wire.send_state(State::CreateStreams).unwrap();
    assert!(server.log.recv_timeout(SOON).unwrap().contains("TestEnd was expected"));
    // The end of the server ends a test that has not begun.
    let (wire, _) = opened(&server);
    wire.send_json(&asked()).unwrap();
    wire.expect(State::CreateStreams).unwrap();
    server.interrupts.store(1, Ordering::Relaxed);
    assert_eq!(wire.state().unwrap_err().to_string(), "it ended the test");
}

// Spec: net-protocol.md#iperf3-6
#[test]
fn our_client_and_our_server_understand_each_other_in_both_directions() {
    let server = Running::begin();
    let mut values = values();
    values.set("direction", Value::Text("both".to_owned()));
    values.set("streams", Value::Count(2));
    let job = Job::Stream(StreamPlan::from_values(&values).unwrap());
    let measurement = Client { address: server.address }.measure(&job, &values, &|| 0, &mut |_| ()).unwrap();
    let of = |metric: &str| measurement.rows.iter().filter(|row| row.metric == metric).count();
    assert_eq!(of("stream.flow_goodput_bits_per_second"), 4);
    assert_eq!(of("stream.retransmitted_segments"), 4);
    assert_eq!(of("stream.total_goodput_bits_per_second"), 1);
    // Of what the server received it does not tell how long it stood still, nor what it cost.
    assert_eq!(of("stream.stalled_seconds"), 2);
    assert_eq!(of("cost.cpu_seconds_per_gigabyte"), 0);
    assert!(server.log.recv_timeout(SOON).unwrap().contains("iperf3 stream, 4 flows"));
}

// Spec: net-protocol.md#iperf3-10
#[test]
fn what_iperf3_cannot_be_asked_is_refused_before_anything_is_sent() {
    let refused = |key: &str, value: Value| {
        let mut values = values();
        if key == "bytes" {
            values = Values::defaults(PARAMS);
        }
        if key == "window" {
            values.set("tcp", Value::Table([(key.to_owned(), value)].into_iter().collect()));
        } else {
            values.set(key, value);
        }
        Client::check(&Job::Stream(StreamPlan::from_values(&values).unwrap())).unwrap_err().to_string()
    };
    assert!(refused("bytes", Value::Size(weir_core::Bytes(1))).contains("--duration"));
    assert!(refused("warm_up", Value::Duration(Duration::from_millis(100))).contains("whole seconds"));
    assert!(refused("window", Value::Size(weir_core::Bytes(65_536))).contains("--send-buffer"));
    assert!(refused("streams", Value::Count(129)).contains("1 to 128"));
}
