//! One test of a client's on the server: what it asks, its streams, what came of them.

use super::datagrams::{self, HELLO, REPLY};
use super::outcome::{Ran, results};
use super::parameters::{Parameters, Refused};
use super::results::Results;
use super::server::Hall;
use super::wire::{State, Wire, WireError};
use super::{LOOK, PATIENCE};
use crate::adhoc::{AdhocError, SERVER};
use crate::rendezvous::{self, Flow, FlowSpec};
use crate::stream::clock::{Ending, Patience};
use crate::stream::engine;
use crate::stream::plan::{BLOCK_BYTES_MAX, INTERVAL_DEFAULT, StreamPlan, Until};
use crate::threads;
use crate::udp::plan::BATCH_MAX;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use weir_seams::workload::{Control, WorkloadError};
use weir_sys::clock;
use weir_sys::poll::{self, Interest};
use weir_sys::socket::{self, Buffer};
use weir_transport::tcp_options::TcpOptions;
use weir_transport::udp;

/// Time for the client to act on the last that it hears.
const LAST_WORD: Duration = Duration::from_secs(1);
/// Time for all streams to come.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);
/// What a test may take beyond its planned time: a stock server waits as long.
const GRACE: Duration = Duration::from_secs(40);
/// Longest that a stream may stand still.
const STALL: Duration = Duration::from_secs(120);
/// iperf3's numbers of errors.
const NO_STREAMS: u32 = 200;
const SOCKET_OPTION: u32 = 124;
const TOOK_TOO_LONG: u32 = 160;
/// Least that a receiver asks of the kernel at once.
const READ_BYTES_MIN: u64 = 128 << 10;
/// Of a receiving socket for datagrams whose client asked for none.
const DATAGRAM_BUFFER_BYTES: u64 = 4 << 20;
/// How often a slow sending program has a block, at least.
const BLOCKS_PER_SECOND: u64 = 10;
/// Most bytes of datagrams that go to the kernel at once, and how often at most.
const BATCH_BYTES_MAX: usize = 65_000;
const BATCHES_PER_SECOND: f64 = 10_000.0;
/// Hellos that are read before the clock is again.
const BURST: usize = 64;

/// A data connection that has come, and the how-manieth of all.
pub(super) type Arrived = (u64, TcpStream);

pub(super) struct Test<'a> {
    pub wire: Wire,
    pub peer: SocketAddr,
    /// Which of all connections it began with.
    pub order: u64,
    pub hall: &'a Hall,
    pub arrivals: Receiver<Arrived>,
    /// Where clients say hello over UDP.
    pub hellos: &'a UdpSocket,
}

/// The streams of the server's end.
enum Flows {
    Streams(Vec<Flow>, TcpOptions),
    Datagrams(Vec<Flow<UdpSocket>>),
}

fn broken(error: &WireError) -> AdhocError {
    AdhocError::new(match error {
        WireError::Left => "the client left".to_owned(),
        error => format!("the client: {error}"),
    })
}

impl Test<'_> {
    fn heard<T>(&self, result: Result<T, WireError>) -> Result<T, AdhocError> {
        result.map_err(|error| broken(&error))
    }

    /// Tells the client in iperf3's own numbers, and the log in words.
    fn refuse<T>(&self, refused: &Refused) -> Result<T, AdhocError> {
        // It may have left; the log has the reason.
        let _ = self.wire.send_error(refused.code);
        Err(AdhocError::new(format!("refused: {}", refused.text)))
    }

    /// Serves the client to its end; the text is for the server's log.
    pub fn serve(self) -> Result<String, AdhocError> {
        self.heard(self.wire.send_state(State::ParameterExchange))?;
        let asked: Value = match self.wire.json() {
            Ok(asked) => asked,
            Err(error) => {
                let _ = self.wire.send_error(114);
                return Err(broken(&error));
            }
        };
        let asked = match Parameters::from_json(&asked) {
            Ok(asked) => asked,
            Err(refused) => return self.refuse(&refused),
        };
        if asked.udp {
            self.forget_hellos();
        } else {
            self.hall.expect(streams(&asked) as usize);
        }
        self.heard(self.wire.send_state(State::CreateStreams))?;
        let flows = if asked.udp { self.associate(&asked)? } else { self.connect(&asked)? };
        let specs: Vec<FlowSpec> = specs(&asked);
        let congestion = match &flows {
            Flows::Streams(flows, _) => {
                flows.first().and_then(|flow| socket::congestion(flow.stream.as_fd()).ok())
            }
            Flows::Datagrams(_) => None,
        };
        self.heard(self.wire.send_state(State::TestStart))?;
        let control = Control::new(clock::monotonic());
        let cpu_before = clock::process_cpu_time();
        self.heard(self.wire.send_state(State::TestRunning))?;
        let (ran, watched) = std::thread::scope(|scope| {
            let running = scope.spawn(|| run(&asked, flows, &control));
            let watched = self.watch(&asked, &control, || running.is_finished());
            (running.join(), watched)
        });
        let (ended_ns, lost) = watched;
        let cpu = clock::process_cpu_time().since(cpu_before);
        let ran = match ran {
            Ok(Ok(ran)) => ran,
            Ok(Err(error)) => return self.refuse(&Refused { code: NO_STREAMS, text: error.text }),
            Err(_) => {
                return self.refuse(&Refused {
                    code: NO_STREAMS,
                    text: "the load panicked: this is a bug of weir".to_owned(),
                });
            }
        };
        let name = if asked.udp { "udp" } else { "stream" };
        let warm_ns = (control.start_at() + Duration::from_secs(asked.omit_seconds)).as_ns();
        let seconds = ended_ns.saturating_sub(control.start_at().as_ns()) as f64 / 1e9;
        let results = Results {
            congestion_used: congestion,
            ..results(&specs, &ran, warm_ns, ended_ns).with_cost(cpu, seconds)
        };
        let done = told(name, &results);
        if let Some(lost) = lost {
            return Ok(format!("{done}, cut short {seconds:.1} s after the start: {lost}"));
        }
        self.heard(self.wire.send_state(State::ExchangeResults))?;
        // What the client counted is its own affair.
        let _: Value = self.heard(self.wire.json())?;
        self.heard(self.wire.send_json(&results))?;
        // The next one need not wait for this one's last word.
        self.hall.leave(self.order);
        self.heard(self.wire.send_state(State::DisplayResults))?;
        // A client that closes without a word has its figures, too.
        let _ = self.wire.speaks(LAST_WORD);
        Ok(done)
    }

    /// Words of clients that are gone.
    fn forget_hellos(&self) {
        for _ in 0..BURST * 64 {
            if self.hellos.recv_from(&mut [0; 1]).is_err() {
                break;
            }
        }
    }

    /// The connections, in the order in which they were made.
    fn connect(&self, asked: &Parameters) -> Result<Flows, AdhocError> {
        let until = Instant::now() + CONNECT_LIMIT;
        let wanted = streams(asked) as usize;
        let mut arrived = BTreeMap::new();
        while arrived.len() < wanted {
            match self.arrivals.recv_timeout(LOOK) {
                Ok((order, stream)) => {
                    arrived.insert(order, stream);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => self.patient(until)?,
            }
        }
        let mut options = TcpOptions {
            send_buffer: asked.buffer_bytes,
            receive_buffer: asked.buffer_bytes,
            pacing: asked.pacing_bits_per_second,
            nodelay: asked.nodelay,
            ..TcpOptions::default()
        };
        let mut flows = Vec::new();
        for (spec, stream) in specs(asked).into_iter().zip(arrived.into_values()) {
            let socket = stream.as_fd();
            if let Some(name) = &asked.congestion {
                // One that is not there leaves the kernel's own, as a stock server does; the results say which it was.
                let _ = socket::set_congestion(socket, name);
            }
            if let Some(bytes) = asked.mss_bytes {
                // Of what is sent from here; the client has told its own in its handshake.
                let _ = socket::set_mss(socket, bytes);
            }
            options.congestion = socket::congestion(socket).unwrap_or(options.congestion);
            if let Err(error) = options.apply_connected(socket) {
                return self.refuse(&Refused { code: SOCKET_OPTION, text: error.to_string() });
            }
            flows.push(Flow { spec, stream });
        }
        Ok(Flows::Streams(flows, options))
    }

    /// A client that waits says nothing; if its connection can be read, it has left.
    fn patient(&self, until: Instant) -> Result<(), AdhocError> {
        if self.heard(self.wire.speaks(Duration::ZERO))? {
            return Err(AdhocError::new("the client left before all its streams had come"));
        }
        if self.hall.closing.load(Ordering::Relaxed) || self.hall.closed.load(Ordering::Relaxed) {
            let _ = self.wire.send_state(State::ServerTerminate);
            return Err(AdhocError::new("the server ends"));
        }
        if Instant::now() >= until {
            let text = format!("not all streams came within {CONNECT_LIMIT:?}");
            return self.refuse(&Refused { code: NO_STREAMS, text });
        }
        Ok(())
    }

    /// Hears hellos of the client's own address; each gets a socket of its own at the same port.
    fn associate(&self, asked: &Parameters) -> Result<Flows, AdhocError> {
        let until = Instant::now() + CONNECT_LIMIT;
        let mut flows: Vec<Flow<UdpSocket>> = Vec::new();
        let mut peers = Vec::new();
        let specs = specs(asked);
        let failed = |error: io::Error| AdhocError::new(format!("the UDP socket broke: {error}"));
        while flows.len() < specs.len() {
            if !poll::wait(self.hellos.as_fd(), Interest::Readable, LOOK).map_err(failed)? {
                self.patient(until)?;
                continue;
            }
            for _ in 0..BURST {
                let mut bytes = [0; 8];
                let (count, peer) = match self.hellos.recv_from(&mut bytes) {
                    Ok(received) => received,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if udp::is_peers(&error) => continue,
                    Err(error) => return Err(failed(error)),
                };
                let Some(kind) = HELLO.iter().position(|hello| bytes[..count] == *hello) else { continue };
                if peer.ip() != self.peer.ip() || peers.contains(&peer) {
                    continue;
                }
                let Some(spec) = specs.get(flows.len()) else { break };
                let stream = self.admit(peer, &REPLY[kind], asked).map_err(failed)?;
                peers.push(peer);
                flows.push(Flow { spec: spec.clone(), stream });
            }
            self.patient(until)?;
        }
        Ok(Flows::Datagrams(flows))
    }

    fn admit(&self, peer: SocketAddr, reply: &[u8; 4], asked: &Parameters) -> io::Result<UdpSocket> {
        let socket = udp::shared_socket(self.hellos.local_addr()?)?;
        socket.connect(peer)?;
        socket.set_nonblocking(true)?;
        // Between being bound and being connected it may have got what others sent.
        for _ in 0..BURST {
            if socket.recv(&mut [0; 1]).is_err() {
                break;
            }
        }
        if let Some(bytes) = asked.buffer_bytes {
            socket::set_buffer(socket.as_fd(), Buffer::Send, bytes)?;
        }
        if let Some(bits) = asked.pacing_bits_per_second {
            // Without it the sending program paces itself all the same.
            let _ = socket::set_max_pacing(socket.as_fd(), (bits / 8).max(1));
        }
        socket.send(reply)?;
        Ok(socket)
    }

    /// While the load runs: waits for the client's word that the test is over. Returns when it came, ns, or when and why it will
    /// not: then what was measured by then stands.
    fn watch(
        &self,
        asked: &Parameters,
        control: &Control,
        finished: impl Fn() -> bool,
    ) -> (u64, Option<String>) {
        let until = Instant::now() + asked.duration_max() + GRACE;
        let mut over: Option<Instant> = None;
        let give_up = |text: String| {
            control.cut();
            (clock::monotonic().as_ns(), Some(text))
        };
        loop {
            match self.wire.speaks(LOOK) {
                Ok(false) => {}
                Ok(true) => match self.wire.expect(State::TestEnd) {
                    Ok(()) => {
                        control.stop();
                        return (clock::monotonic().as_ns(), None);
                    }
                    Err(error) => return give_up(broken(&error).0),
                },
                Err(error) => return give_up(broken(&error).0),
            }
            if self.hall.closing.load(Ordering::Relaxed) || self.hall.closed.load(Ordering::Relaxed) {
                let _ = self.wire.send_state(State::ServerTerminate);
                // It is to hear why before its streams break.
                let _ = self.wire.speaks(LAST_WORD);
                return give_up("the server ends".to_owned());
            }
            // Connections that broke or stood still: the client has so long to say that this was the end.
            let quiet = finished() && over.get_or_insert_with(Instant::now).elapsed() > PATIENCE;
            if quiet || Instant::now() >= until {
                let _ = self.wire.send_error(TOOK_TOO_LONG);
                return give_up("the client did not end its test".to_owned());
            }
        }
    }
}

/// What this end counted, for its log.
fn told(name: &str, results: &Results) -> String {
    let bytes: i64 = results.streams.iter().map(|stream| stream.bytes).sum();
    format!("iperf3 {name}, {} flows, {bytes} bytes", results.streams.len())
}

fn streams(asked: &Parameters) -> u64 {
    asked.parallel * asked.direction.connector_sends().len() as u64
}

/// The streams as the server sees them, in the order in which they are made.
fn specs(asked: &Parameters) -> Vec<FlowSpec> {
    let mut specs = Vec::new();
    for client_sends in asked.direction.connector_sends() {
        for number in 0..asked.parallel {
            let way = if *client_sends { "client.server" } else { "server.client" };
            specs.push(FlowSpec {
                index: specs.len() as u32,
                entity: format!("flow.{way}.{number}"),
                peer: crate::adhoc::CLIENT.to_owned(),
                sends: !client_sends,
            });
        }
    }
    specs
}

fn run(asked: &Parameters, flows: Flows, control: &Control) -> Result<Ran, WorkloadError> {
    let sends = asked.direction.connector_sends().contains(&false);
    let warm_up = Duration::from_secs(asked.omit_seconds);
    match flows {
        Flows::Streams(flows, tcp) => {
            let block = if sends { asked.block_bytes } else { asked.block_bytes.max(READ_BYTES_MIN) };
            let block = match asked.rate_bits_per_second.filter(|_| sends) {
                Some(rate) => block.min((rate / 8 / BLOCKS_PER_SECOND).max(1)),
                None => block,
            };
            let plan = StreamPlan {
                // The client ends the test.
                until: Until::Bytes(u64::MAX),
                warm_up,
                ramp: Duration::ZERO,
                streams: asked.parallel,
                direction: asked.direction,
                block_bytes: block.min(BLOCK_BYTES_MAX),
                threads: 0,
                interval: INTERVAL_DEFAULT,
                source_bits_per_second: asked.rate_bits_per_second,
                read_bits_per_second: None,
                discard: asked.discard,
                tcp,
            };
            let load = engine::Load {
                flow_total: plan.flows_per_pair(),
                plan,
                host: SERVER.to_owned(),
                role: rendezvous::ACCEPT.to_owned(),
                patience: Patience { stall: STALL, ..Patience::default() },
                ending: Ending::Cut,
            };
            Ok(Ran::Streams(Box::new(engine::run(&load, flows, control)?)))
        }
        Flows::Datagrams(flows) => {
            let size = asked.block_bytes as usize;
            let rate = asked.rate_bits_per_second.map(|rate| rate as f64 / 8.0 / size as f64);
            let most = ((BATCH_BYTES_MAX / size) as u64).clamp(1, BATCH_MAX);
            let load = datagrams::Load {
                size_bytes: size,
                packets_per_second: rate,
                batch: rate.map_or(most, |rate| ((rate / BATCHES_PER_SECOND).ceil() as u64).clamp(1, most)),
                wide: asked.wide_numbers,
                receive_buffer_bytes: asked.buffer_bytes.unwrap_or(DATAGRAM_BUFFER_BYTES),
                warm_up,
                duration: None,
            };
            let end = datagrams::End { load: &load, control };
            Ok(Ran::Datagrams(threads::each_alone("weir-udp", flows, control, |flow| end.run(flow))?))
        }
    }
}
