//! The asking side: a test of a stock server, told in weir's own words.

use super::datagrams::{self, HELLO, REPLY};
use super::outcome::{self, Ran, Told, results};
use super::parameters::Parameters;
use super::results::Results;
use super::wire::{Cookie, State, Wire, WireError, make_cookie};
use super::{LOOK, PATIENCE};
use crate::adhoc::client::{CONTROL_SEGMENT_BYTES, Ender, judge};
use crate::adhoc::{AdhocError, CLIENT, Counted, Job, Measurement, Progress};
use crate::rendezvous::{self, Flow, FlowSpec};
use crate::stream::clock::{Ending, Patience};
use crate::stream::engine;
use crate::threads;
use crate::udp::plan::UdpPlan;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use weir_core::Values;
use weir_seams::workload::{Control, WorkloadError};
use weir_sys::tcp_info::TcpInfo;
use weir_sys::{clock, socket};
use weir_transport::address::Shown;
use weir_transport::deadline::Deadline;
use weir_transport::tcp;
use weir_transport::tcp_options::TcpOptions;

const TELL_EVERY: Duration = Duration::from_secs(1);
/// The last datagrams are on their way when the server is told of the end: it hears of it so much later.
const LINGER: Duration = Duration::from_millis(100);
/// How soon the end of the load is noticed once it is due.
const SOON: Duration = Duration::from_millis(1);
const COST: &str = "cost.cpu_seconds_per_gigabyte";

pub struct Client {
    pub address: SocketAddr,
}

/// The flows of this end.
enum Flows {
    /// With copies of their connections, which stay open until the server has ended the test.
    Streams(Vec<Flow>, Vec<TcpStream>),
    Datagrams(Vec<Flow<UdpSocket>>),
}

/// How the load went, from outside.
struct Course {
    ender: Option<Ender>,
    /// Whether the server is still there to tell what it counted.
    tells: bool,
    /// From the word that ended the test to the server's answer.
    answered: Duration,
    length: Duration,
}

impl Client {
    /// What can be said of a job before anything is connected. Errors: what iperf3 cannot be asked.
    pub fn check(job: &Job) -> Result<(), AdhocError> {
        job.check().map_err(|error| AdhocError::new(error.text))?;
        Parameters::of(job).map(drop).map_err(|text| AdhocError::new(format!("--protocol iperf3: {text}")))
    }

    fn broken(&self, error: &WireError) -> AdhocError {
        let hint = match error {
            WireError::Silent(_) | WireError::Foreign(_) | WireError::Left => {
                "\n  is `iperf3 -s` running there? `weir net serve` needs --protocol iperf3 to be one"
                    .to_owned()
            }
            WireError::Denied => {
                "\n  it serves one test at a time: try again when the other one is over".to_owned()
            }
            _ => String::new(),
        };
        AdhocError::new(format!("the iperf3 server at {}: {error}{hint}", Shown(self.address)))
    }

    /// Carries out one job, as `adhoc::Client::measure` does with a server of weir's.
    pub fn measure(
        &self,
        job: &Job,
        values: &Values,
        interrupts: &dyn Fn() -> u32,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Measurement, AdhocError> {
        Client::check(job)?;
        let asked = Parameters::of(job).map_err(AdhocError::new)?;
        let cookie =
            make_cookie().map_err(|error| AdhocError::new(format!("no randomness to be had: {error}")))?;
        let wire = self.open(&cookie)?;
        let heard = |result: Result<(), WireError>| result.map_err(|error| self.broken(&error));
        heard(wire.expect(State::ParameterExchange))?;
        heard(wire.send_json(&asked.to_json()))?;
        heard(wire.expect(State::CreateStreams))?;
        let specs = job.flows(false);
        let flows = match job {
            Job::Udp(plan) => self.associate(specs.clone(), plan)?,
            _ => self.connect(specs.clone(), job.tcp().unwrap_or(&TcpOptions::default()), &cookie)?,
        };
        let kept: Vec<TcpStream> = match &flows {
            Flows::Streams(_, copies) => copies
                .iter()
                .zip(&specs)
                .filter(|(_, spec)| spec.sends)
                .filter_map(|(copy, _)| copy.try_clone().ok())
                .collect(),
            Flows::Datagrams(_) => Vec::new(),
        };
        let connected = Instant::now();
        heard(wire.expect(State::TestStart))?;
        heard(wire.expect(State::TestRunning))?;
        // The server's clock began at most so long before ours.
        let began = connected.elapsed();
        let control = Control::new(clock::monotonic());
        let cpu_before = clock::process_cpu_time();
        let acknowledged = || {
            let infos = kept.iter().filter_map(|stream| TcpInfo::read(stream.as_fd()).ok());
            infos.filter_map(|info| info.bytes_acked).sum::<u64>()
        };
        let (near, course) = std::thread::scope(|scope| {
            let running = scope.spawn(|| run(job, flows, &control));
            let watched = self.watch(
                job,
                &wire,
                &control,
                interrupts,
                &mut |elapsed| {
                    // The server says nothing of what has arrived.
                    let count = control.progress() + control.sent() + acknowledged();
                    tell(Progress { elapsed, ends: vec![Counted { at: elapsed, count }] });
                },
                || running.is_finished(),
            );
            (running.join(), watched)
        });
        let (near, copies) = near
            .map_err(|_| AdhocError::new("the load panicked: this is a bug of weir"))?
            .map_err(|error| AdhocError::new(error.text))?;
        drop((copies, kept));
        let ended_ns = (control.start_at() + course.length).as_ns();
        let warm_ns = (control.start_at() + Duration::from_secs(asked.omit_seconds)).as_ns();
        let own = results(&specs, &near, warm_ns, ended_ns)
            .with_cost(clock::process_cpu_time().since(cpu_before), course.length.as_secs_f64());
        let (mut ender, mut far) = (course.ender, None);
        if course.tells {
            match self.exchange(&wire, &own) {
                Ok(results) => far = Some(results),
                Err(error) => ender = Some(self.lost(&error, course.length)),
            }
        }
        let told = Told { specs: &specs, slack: began + course.answered };
        let (outcomes, more) = match (job, near, far) {
            (Job::Stream(plan), Ran::Streams(near), Some(far)) => {
                let (both, more) = told.streams(plan, *near, &far)?;
                (both.to_vec(), more)
            }
            (Job::Udp(plan), Ran::Datagrams(reports), Some(far)) => {
                let (both, more) = told.datagrams(plan, reports, &far, &control)?;
                (both.to_vec(), more)
            }
            (Job::Stream(_), Ran::Streams(near), None) => (vec![*near], Vec::new()),
            (Job::Udp(_), Ran::Datagrams(reports), None) => {
                (vec![outcome::datagrams_alone(reports, &control)], Vec::new())
            }
            _ => return Err(AdhocError::new("flows of another kind than the job's: this is a bug of weir")),
        };
        let alone = outcomes.len() == 1;
        let mut measurement = judge(job, values, outcomes, ender);
        // The server tells the time of its whole process, which is not what this metric is.
        measurement.rows.retain(|row| row.metric != COST);
        measurement.warnings.extend(more);
        match measurement.invalid {
            Some(text) if alone && measurement.rows.is_empty() => Err(AdhocError(text)),
            _ => Ok(measurement),
        }
    }

    /// Both ends tell what they counted.
    fn exchange(&self, wire: &Wire, own: &Results) -> Result<Results, WireError> {
        wire.send_json(own)?;
        let far = wire.json()?;
        wire.expect(State::DisplayResults)?;
        // The figures are here: a server that has gone meanwhile changes none.
        let _ = wire.send_state(State::Done);
        Ok(far)
    }

    /// The server left `after` the start.
    fn lost(&self, error: &WireError, after: Duration) -> Ender {
        let (at, after) = (Shown(self.address), after.as_secs_f64());
        Ender::Lost(format!("the iperf3 server at {at}: {error}, {after:.1} s after the start"))
    }

    fn open(&self, cookie: &Cookie) -> Result<Wire, AdhocError> {
        let address = self.address;
        let shown = Shown(address);
        let options = TcpOptions { mss: Some(CONTROL_SEGMENT_BYTES), ..TcpOptions::unasked() };
        let stream = tcp::connect(address, Some(&options), PATIENCE).map_err(|error| {
            AdhocError::new(format!(
                "cannot connect to {shown}: {error}\n  is `iperf3 -s` running there, and does a firewall let it through?"
            ))
        })?;
        let wire = Wire::new(stream).map_err(|error| AdhocError::new(format!("{shown}: {error}")))?;
        wire.send_cookie(cookie).map_err(|error| self.broken(&error))?;
        Ok(wire)
    }

    /// One connection after the other: the server numbers them as they come.
    fn connect(
        &self,
        specs: Vec<FlowSpec>,
        options: &TcpOptions,
        cookie: &Cookie,
    ) -> Result<Flows, AdhocError> {
        let address = self.address;
        let shown = Shown(address);
        let failed = |text: String| AdhocError::new(format!("{shown}: {text}"));
        let (mut flows, mut copies) = (Vec::new(), Vec::new());
        for spec in specs {
            let stream = tcp::connect(address, Some(options), PATIENCE).map_err(|error| {
                // What this machine's own socket refused says so at length.
                AdhocError::new(match error.kind() {
                    ErrorKind::InvalidInput => error.to_string(),
                    _ => format!("cannot connect stream {} to {shown}: {error}", spec.index),
                })
            })?;
            let connected = stream
                .set_nonblocking(true)
                .and_then(|()| Deadline::after(&stream, PATIENCE).write_all(cookie))
                .and_then(|()| stream.try_clone());
            copies.push(connected.map_err(|error| failed(format!("stream {}: {error}", spec.index)))?);
            flows.push(Flow { spec, stream });
        }
        Ok(Flows::Streams(flows, copies))
    }

    fn associate(&self, specs: Vec<FlowSpec>, plan: &UdpPlan) -> Result<Flows, AdhocError> {
        let address = self.address;
        let mut flows = Vec::new();
        for spec in specs {
            let stream = greet(address, plan).map_err(|error| {
                AdhocError::new(format!(
                    "{} does not answer over UDP: {error}\n  does a firewall let UDP through?",
                    Shown(address)
                ))
            })?;
            flows.push(Flow { spec, stream });
        }
        Ok(Flows::Datagrams(flows))
    }

    /// While the load runs: hears the server, tells the user, and ends the test. Returns when the server has answered that, or is
    /// lost: what was measured here stands.
    fn watch(
        &self,
        job: &Job,
        wire: &Wire,
        control: &Control,
        interrupts: &dyn Fn() -> u32,
        tell: &mut dyn FnMut(Duration),
        finished: impl Fn() -> bool,
    ) -> Course {
        let start = Instant::now();
        let lost = |error: &WireError| {
            control.cut();
            let length = start.elapsed();
            Course { ender: Some(self.lost(error, length)), tells: false, answered: Duration::ZERO, length }
        };
        // Connections stop by themselves; of datagrams only the sending ends do.
        let (over, at) = match job {
            Job::Udp(plan) => (true, plan.planned()),
            _ => (false, job.duration().unwrap_or_default()),
        };
        let (mut ender, mut told) = (None, start);
        while !(finished() || over && (ender.is_some() || start.elapsed() >= at)) {
            match wire.speaks(at.saturating_sub(start.elapsed()).clamp(SOON, LOOK)) {
                Ok(false) => {}
                Ok(true) => {
                    let error = match wire.state() {
                        Ok(said) => WireError::OutOfTurn { said, expected: "nothing".to_owned() },
                        Err(error) => error,
                    };
                    return lost(&error);
                }
                Err(error) => return lost(&error),
            }
            match interrupts() {
                0 => {}
                1 => {
                    ender = Some(Ender::User);
                    control.stop();
                }
                _ => {
                    // Who asks twice does not want to wait for the server.
                    let _ = wire.send_state(State::ClientTerminate);
                    control.cut();
                    let length = start.elapsed();
                    return Course {
                        ender: Some(Ender::User),
                        tells: false,
                        answered: Duration::ZERO,
                        length,
                    };
                }
            }
            if told.elapsed() >= TELL_EVERY {
                told += TELL_EVERY;
                tell(start.elapsed());
            }
        }
        if over && job.flows(false).iter().any(|flow| flow.sends) {
            std::thread::sleep(LINGER);
        }
        let length = start.elapsed();
        let ended = Instant::now();
        let answer = wire.send_state(State::TestEnd).and_then(|()| wire.expect(State::ExchangeResults));
        control.stop();
        match answer {
            Ok(()) => Course { ender, tells: true, answered: ended.elapsed(), length },
            Err(error) => lost(&error),
        }
    }
}

/// Says hello and waits for the answer. It is said once: a server would take a second one for payload.
fn greet(address: SocketAddr, plan: &UdpPlan) -> std::io::Result<UdpSocket> {
    let any: SocketAddr = if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket::set_buffer(socket.as_fd(), socket::Buffer::Receive, plan.receive_buffer_bytes)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(&HELLO[0])?;
    let mut bytes = [0; 8];
    // Payload of a reversed test may overtake the answer.
    for _ in 0..64 {
        let count = socket.recv(&mut bytes).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                std::io::Error::new(ErrorKind::TimedOut, format!("no answer to a hello within {PATIENCE:?}"))
            }
            _ => error,
        })?;
        if REPLY.iter().any(|reply| bytes[..count] == *reply) {
            return Ok(socket);
        }
    }
    Err(std::io::Error::new(ErrorKind::InvalidData, "it says something else than iperf3 does"))
}

/// Carries out this end. Copies of the connections come back with it.
fn run(job: &Job, flows: Flows, control: &Control) -> Result<(Ran, Vec<TcpStream>), WorkloadError> {
    match (job, flows) {
        (Job::Stream(plan), Flows::Streams(flows, copies)) => {
            let load = engine::Load {
                plan: plan.clone(),
                host: CLIENT.to_owned(),
                role: rendezvous::CONNECT.to_owned(),
                flow_total: plan.flows_per_pair(),
                patience: Patience::default(),
                ending: Ending::Cut,
            };
            Ok((Ran::Streams(Box::new(engine::run(&load, flows, control)?)), copies))
        }
        (Job::Udp(plan), Flows::Datagrams(flows)) => {
            let load = datagrams::Load {
                size_bytes: plan.size_bytes as usize,
                packets_per_second: Some(plan.packets_per_second),
                batch: plan.batch(),
                wide: true,
                receive_buffer_bytes: plan.receive_buffer_bytes,
                warm_up: plan.warm_up,
                duration: Some(plan.planned()),
            };
            let end = datagrams::End { load: &load, control };
            let reports = threads::each_alone("weir-udp", flows, control, |flow| end.run(flow))?;
            Ok((Ran::Datagrams(reports), Vec::new()))
        }
        (job, _) => Err(WorkloadError::new(format!("a {} step does not travel so", job.name()))),
    }
}
