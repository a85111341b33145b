//! The asking side of an ad-hoc measurement.

use super::AdhocError;
use super::message::{Flows, FromClient, FromServer, Job, OUTCOME_BYTES_MAX, token_of};
use crate::WORKLOADS;
use crate::burst::{self, plan::Reply};
use crate::door;
use crate::path::meeting;
use crate::rendezvous::Flow;
use crate::stream::derive::TRIAL;
use crate::udp;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use weir_core::Values;
use weir_core::chunk::Chunk;
use weir_core::evidence::Around;
use weir_core::evidence::{Candidate, Load};
use weir_core::failure::Failure;
use weir_core::record::{Observed, Row, Series};
use weir_seams::workload::{Control, DeriveContext, Outcome, Workload};
use weir_sys::clock;
use weir_sys::poll::{self, Interest};
use weir_transport::address::Shown;
use weir_transport::associate::open_all;
use weir_transport::deadline::Deadline;
use weir_transport::dial::{Call, DialError, dial};
use weir_transport::handshake::{self, HandshakeError, Mode, Token};
use weir_transport::tcp_options::TcpOptions;
use weir_transport::{Key, read_frame, tcp, write_frame};

/// Time to connect, and for each answer of the server.
const PATIENCE: Duration = Duration::from_secs(10);
/// From the start message to the start: time for it to arrive and for the threads to be there.
const START_IN: Duration = Duration::from_millis(100);
/// What the server may need to send its outcome after our own end.
const OUTCOME_LIMIT: Duration = Duration::from_secs(70);
/// Segments of the control connection pass where full ones vanish: whatever becomes of the load, its account comes back.
pub(crate) const CONTROL_SEGMENT_BYTES: u64 = 536;
/// A path that was cut for half a minute is bridged: TCP asks less and less often.
const SILENCE: Duration = Duration::from_secs(60);
/// What was told to stop may drain for so long; then it is cut, so that it is reported within a second.
pub(crate) const DRAIN: Duration = Duration::from_millis(500);
/// What the server may need for its outcome after a stop.
const STOP_LIMIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);
const TELL_EVERY: Duration = Duration::from_secs(1);

pub struct Client {
    address: SocketAddr,
    key: Option<Key>,
    /// The longest that the server, which says how far it is each second, may say nothing while the load runs.
    silence: Duration,
}

/// What one end has counted, and when, from the start by its own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub at: Duration,
    /// Payload bytes received, or round trips done.
    pub count: u64,
}

/// How far a measurement is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub elapsed: Duration,
    /// Of each end that counts. What the far end says takes as long as the path holds it up, so its time comes with its count.
    pub ends: Vec<Counted>,
}

impl Progress {
    /// What both ends have counted.
    pub fn count(&self) -> u64 {
        self.ends.iter().map(|end| end.count).sum()
    }

    /// Counts a second since `before`, each end's over the time between its own counts. `None`: an end has said nothing since.
    pub fn rate_since(&self, before: &Progress) -> Option<f64> {
        let rates = self.ends.iter().enumerate().map(|(index, now)| {
            let then = before.ends.get(index).copied().unwrap_or_default();
            let seconds = now.at.saturating_sub(then.at).as_secs_f64();
            (seconds > 0.0).then(|| now.count.saturating_sub(then.count) as f64 / seconds)
        });
        rates.sum()
    }
}

/// Who ended a measurement before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ender {
    User,
    Server,
    /// The other end is gone, and with it what it measured; who, when and how.
    Lost(String),
}

/// How the load went as seen from the control connection.
struct Course {
    /// `None`: the server's end is lost.
    far: Option<Outcome>,
    ender: Option<Ender>,
    /// The server's last word of what it had received.
    far_count: Counted,
}

/// What one point came to.
#[derive(Clone, Debug, Default)]
pub struct Measurement {
    pub rows: Vec<Row>,
    /// Why it must not count, if so.
    pub invalid: Option<String>,
    /// What bounded it is seen from both ends or not at all.
    pub load: Load,
    pub candidates: Vec<Candidate>,
    pub warnings: Vec<String>,
    /// Length of the measurement, drain included, ns.
    pub length_ns: u64,
    pub granted: serde_json::Map<String, serde_json::Value>,
    pub failures: Vec<String>,
    /// Cut short, by whomever.
    pub stopped: bool,
    /// Of a job that records: what came at its end, counted from the start by each end's own clock.
    pub series: Vec<Series>,
}

/// Takes fine series as they come, counted from the start by the clock of the end they are of. Errors end the measurement.
pub type Keep<'a> = &'a mut dyn FnMut(Chunk) -> Result<(), AdhocError>;

impl Client {
    pub fn new(address: SocketAddr, key: Option<Key>) -> Client {
        Client { address, key, silence: SILENCE }
    }

    #[cfg(test)]
    pub(super) fn with_silence(self, silence: Duration) -> Client {
        Client { silence, ..self }
    }

    /// Carries out one job. `values` are what it was made of, for the derived metrics. `interrupts` counts what the user
    /// has asked: one drains and keeps what was measured, two do not wait for the server. `tell` hears a progress once a second.
    /// Errors: nothing was measured.
    pub fn measure(
        &self,
        job: &Job,
        values: &Values,
        interrupts: &dyn Fn() -> u32,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Measurement, AdhocError> {
        self.measure_keeping(job, values, interrupts, tell, &mut |_| Ok(()))
    }

    /// Likewise, of a job that may record.
    pub fn measure_keeping(
        &self,
        job: &Job,
        values: &Values,
        interrupts: &dyn Fn() -> u32,
        tell: &mut dyn FnMut(Progress),
        keep: Keep<'_>,
    ) -> Result<Measurement, AdhocError> {
        job.check().map_err(|error| AdhocError::new(error.text))?;
        let stream = self.open()?;
        let server = ServerConnection { stream, address: self.address };
        server.stream.set_nonblocking(true).map_err(|error| server.broken(&error.to_string()))?;
        server.stream.set_nodelay(true).map_err(|error| server.broken(&error.to_string()))?;
        server.send(&FromClient::Request(Box::new(job.clone())))?;
        let FromServer::Ready { token } = server.receive(PATIENCE)? else {
            return Err(server.broken("it answers a request with something else"));
        };
        let token = token_of(&token).ok_or_else(|| server.broken("its token is malformed"))?;
        let flows =
            if job.over_datagrams() { self.associate(job, token)? } else { self.connect(job, token)? };
        let FromServer::Connected = server.receive(PATIENCE)? else {
            return Err(server.broken("it does not confirm the flows"));
        };
        let in_ns = START_IN.as_nanos() as u64;
        server.send(&FromClient::Start { in_ns })?;
        let control = Control::new(clock::monotonic() + START_IN);
        if job.records() {
            control.record();
        }
        let (near, course) = std::thread::scope(|scope| {
            let running = scope.spawn(|| job.run(false, flows, &control));
            let watched =
                watch(&server, self.silence, &control, interrupts, tell, keep, || running.is_finished());
            let near = running.join();
            let watched = watched.and_then(|seen| carry(&control, keep).map(|()| seen));
            watched.map(|course| (near, course))
        })?;
        let near = near
            .map_err(|_| AdhocError::new("the load panicked: this is a bug of weir"))?
            .map_err(|error| AdhocError::new(error.text))?;
        let alone = course.far.is_none();
        let outcomes = [near].into_iter().chain(course.far).collect();
        let mut measurement = judge(job, values, outcomes, course.ender);
        if alone {
            measurement.rows.extend(arrived(job, course.far_count));
        }
        match measurement.invalid {
            Some(text) if alone && measurement.rows.is_empty() => Err(AdhocError(text)),
            _ => Ok(measurement),
        }
    }

    /// The control connection.
    fn open(&self) -> Result<TcpStream, AdhocError> {
        let address = self.address;
        let options = TcpOptions { mss: Some(CONTROL_SEGMENT_BYTES), ..TcpOptions::unasked() };
        let shown = Shown(address);
        let stream = tcp::connect(address, Some(&options), PATIENCE).map_err(|error| {
            AdhocError::new(format!(
                "cannot connect to {shown}: {error}\n  is `weir net serve --listen {shown}` running there, and does a \
                 firewall let it through?"
            ))
        })?;
        handshake::open(&stream, Mode::Control, [0; 16], 0, self.key.as_ref(), PATIENCE)
            .map_err(|error| AdhocError::new(format!("{shown}: {error}")))?;
        Ok(stream)
    }

    /// The flows, many at once.
    fn connect(&self, job: &Job, token: Token) -> Result<Flows, AdhocError> {
        let address = self.address;
        let specs = job.flows(false);
        // Where it cannot be raised, opening the sockets will tell.
        let _ = weir_sys::socket::raise_open_files();
        let calls: Vec<Call> =
            specs.iter().map(|spec| Call { address, mode: Mode::Data, token, flow: spec.index }).collect();
        let streams = dial(&calls, self.key.as_ref(), job.tcp(), PATIENCE).map_err(|failed| {
            AdhocError::new(match failed.error {
                // This machine's own socket refused it; the server has nothing to do with it.
                DialError::Option(error) => error.to_string(),
                DialError::Connect(error) => format!("cannot connect to {}: {error}", Shown(address)),
                DialError::Handshake(error) => format!("{}: {error}", Shown(address)),
            })
        })?;
        let flows = specs.into_iter().zip(streams).map(|(spec, stream)| Flow { spec, stream });
        let flows: Vec<Flow> = flows.collect();
        if let Job::Path(_) = job {
            let meetings = meeting::hear_all(&flows).map_err(|error| AdhocError::new(error.text))?;
            return Ok(Flows::Paths(flows, meetings));
        }
        let links = if job.makes_connections() {
            door::hear_all(&flows).map_err(|error| AdhocError::new(error.text))?
        } else {
            BTreeMap::new()
        };
        Ok(Flows::Streams(flows, links))
    }

    /// The flows over UDP.
    fn associate(&self, job: &Job, token: Token) -> Result<Flows, AdhocError> {
        let address = self.address;
        let specs = job.flows(false);
        // Where it cannot be raised, opening the sockets will tell.
        let _ = weir_sys::socket::raise_open_files();
        let calls: Vec<(SocketAddr, u32)> = specs.iter().map(|spec| (address, spec.index)).collect();
        let streams = open_all(&calls, token, self.key.as_ref(), PATIENCE).map_err(|failed| {
            let entity = &specs[failed.index].entity;
            if let HandshakeError::Io(error) = &failed.error
                && error.kind() == ErrorKind::AddrNotAvailable
            {
                return AdhocError::new(format!("{entity}: {error}"));
            }
            AdhocError::new(format!(
                "{} does not answer over UDP: {entity}: {}\n  does a firewall let UDP through?",
                Shown(address),
                failed.error
            ))
        })?;
        let flows = specs.into_iter().zip(streams).map(|(spec, stream)| Flow { spec, stream });
        Ok(Flows::Datagrams(flows.collect()))
    }
}

struct ServerConnection {
    stream: TcpStream,
    address: SocketAddr,
}

impl ServerConnection {
    fn broken(&self, text: &str) -> AdhocError {
        AdhocError::new(format!("the server at {}: {text}", Shown(self.address)))
    }

    fn send(&self, message: &FromClient) -> Result<(), AdhocError> {
        write_frame(&mut Deadline::after(&self.stream, PATIENCE), message)
            .map_err(|error| self.broken(&error.to_string()))
    }

    fn receive(&self, limit: Duration) -> Result<FromServer, AdhocError> {
        self.hear(limit).map_err(|text| self.broken(&text))
    }

    /// Likewise; errors as what is said of the server.
    fn hear(&self, limit: Duration) -> Result<FromServer, String> {
        match read_frame(&mut Deadline::after(&self.stream, limit), OUTCOME_BYTES_MAX) {
            Ok(Some(FromServer::Failed { text })) => Err(text),
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err("it left in the middle of the session".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Hands over what fine series of the own end wait.
fn carry(control: &Control, keep: Keep<'_>) -> Result<(), AdhocError> {
    let Some(queue) = control.chunks() else { return Ok(()) };
    let start_ns = i64::try_from(control.start_at().as_ns()).unwrap_or(i64::MAX);
    while let Some(mut chunk) = queue.next() {
        chunk.start_ns = chunk.start_ns.saturating_sub(start_ns);
        keep(chunk)?;
    }
    Ok(())
}

/// What had arrived at a server that is gone, of a load whose own end cannot know: by its last word.
fn arrived(job: &Job, told: Counted) -> Option<Row> {
    let metric = match job {
        Job::Udp(_) => udp::outcome::ARRIVED,
        Job::Burst(plan) if plan.reply == Reply::None => burst::metrics::ARRIVED,
        _ => return None,
    };
    // A server that sends too counts both.
    let receives_all = job.flows(true).iter().all(|flow| !flow.sends);
    (receives_all && told.count > 0 && !told.at.is_zero()).then(|| Row {
        entity: TRIAL.to_owned(),
        metric: metric.to_owned(),
        value: Observed::Value(told.count as f64 * 8.0 / told.at.as_secs_f64()),
    })
}

/// While the load runs: hears the server, tells the user, passes a stop on. A server that is lost ends the load: what was measured
/// here stands. Errors: what was measured could not be kept.
fn watch(
    server: &ServerConnection,
    silence: Duration,
    control: &Control,
    interrupts: &dyn Fn() -> u32,
    tell: &mut dyn FnMut(Progress),
    keep: Keep<'_>,
    finished: impl Fn() -> bool,
) -> Result<Course, AdhocError> {
    let start = Instant::now() + control.start_at().since(clock::monotonic());
    let mut course = Course { far: None, ender: None, far_count: Counted::default() };
    let mut told = start;
    let mut heard = start;
    let (mut ended, mut stopped): (Option<Instant>, Option<Instant>) = (None, None);
    let mut waits = true;
    let give_up = |error: AdhocError| {
        control.abort();
        Err(error)
    };
    loop {
        let mut lost = None;
        if finished() {
            if course.far.is_some() || !waits {
                return Ok(course);
            }
            if ended.get_or_insert_with(Instant::now).elapsed() > OUTCOME_LIMIT {
                lost = Some("it never sent its outcome".to_owned());
            }
        }
        if course.far.is_some() || !waits {
            std::thread::sleep(LOOK.min(Duration::from_millis(5)));
        } else if heard.elapsed() > silence {
            lost = Some(format!(
                "it has said nothing for {silence:?}: it hangs, its host is down or the path is cut"
            ));
        } else if stopped.is_some_and(|since| since.elapsed() > STOP_LIMIT) {
            lost = Some(format!("it did not say what it had measured within {STOP_LIMIT:?} of the stop"));
        } else {
            match poll::wait(server.stream.as_fd(), Interest::Readable, LOOK) {
                Ok(false) => {}
                Ok(true) => match server.hear(OUTCOME_LIMIT) {
                    Ok(FromServer::Progress { count, at_ns }) => {
                        heard = Instant::now();
                        course.far_count = Counted { at: Duration::from_nanos(at_ns), count };
                    }
                    Ok(FromServer::Stopping) => {
                        heard = Instant::now();
                        course.ender.get_or_insert(Ender::Server);
                        stopped.get_or_insert(heard);
                        control.stop();
                    }
                    Ok(FromServer::Chunk(chunk)) => {
                        heard = Instant::now();
                        if let Err(error) = keep(*chunk) {
                            return give_up(error);
                        }
                    }
                    Ok(FromServer::Done(outcome)) => course.far = Some(*outcome),
                    Ok(_) => lost = Some("it says something out of turn".to_owned()),
                    Err(text) => lost = Some(text),
                },
                Err(error) => lost = Some(error.to_string()),
            }
        }
        match interrupts() {
            0 => {}
            1 if stopped.is_some() || course.far.is_some() && finished() => {}
            1 => {
                course.ender = Some(Ender::User);
                stopped = Some(Instant::now());
                control.stop();
                if course.far.is_none()
                    && waits
                    && let Err(error) = server.send(&FromClient::Stop)
                {
                    lost.get_or_insert(error.0);
                }
            }
            _ => {
                // Who asks twice does not want to wait for the server.
                course.ender = Some(Ender::User);
                waits = false;
                control.cut();
            }
        }
        if stopped.is_some_and(|since| since.elapsed() >= DRAIN) {
            control.cut();
        }
        if let Some(text) = lost.filter(|_| waits) {
            waits = false;
            control.cut();
            let (at, after) = (Shown(server.address), start.elapsed().as_secs_f64());
            course.ender = Some(Ender::Lost(format!(
                "the server at {at} was lost {after:.1} s after the start: {text}"
            )));
        }
        if told.elapsed() >= TELL_EVERY {
            if let Err(error) = carry(control, keep) {
                return give_up(error);
            }
            told += TELL_EVERY;
            let elapsed = start.elapsed();
            let near = Counted { at: elapsed, count: control.progress() };
            tell(Progress { elapsed, ends: vec![near, course.far_count] });
        }
    }
}

/// What both ends came to, together; where the other end is lost, what this one did.
pub(crate) fn judge(job: &Job, values: &Values, outcomes: Vec<Outcome>, ender: Option<Ender>) -> Measurement {
    let workload: &dyn Workload =
        WORKLOADS.iter().find(|entry| entry.name == job.name()).expect("a job is one of the workloads").build;
    // Each end's clock is its own and there are no faults, so no times of one end are compared with the other's.
    let context = DeriveContext { values, start_ns: 0, faults: &[], around: &Around::default() };
    let derived = workload.derive(&context, &outcomes);
    let both = outcomes.len() > 1;
    let mut measurement = Measurement {
        invalid: derived.invalid,
        load: if both { derived.load } else { Load::default() },
        candidates: if both { derived.candidates } else { Vec::new() },
        warnings: derived.warnings,
        length_ns: outcomes.first().map_or(0, |near| near.ended_ns.saturating_sub(near.started_ns)),
        stopped: ender.is_some(),
        ..Measurement::default()
    };
    if job.records() {
        measurement.series = derived.series;
    }
    for outcome in outcomes {
        if job.records() {
            let start_ns = i64::try_from(outcome.started_ns).unwrap_or(i64::MAX);
            measurement.series.extend(outcome.series.into_iter().map(|mut series| {
                series.t_ns.iter_mut().for_each(|at| *at = at.saturating_sub(start_ns));
                series
            }));
        }
        measurement.rows.extend(outcome.rows);
        for text in outcome.failures.iter().map(Failure::to_string) {
            // Both ends may say the same of a flow.
            if !measurement.failures.contains(&text) {
                measurement.failures.push(text);
            }
        }
        measurement.granted.extend(outcome.granted);
    }
    measurement.rows.extend(derived.rows);
    let why = measurement.invalid.take().or_else(|| measurement.failures.first().cloned());
    let seconds = measurement.length_ns as f64 / 1e9;
    let said = match ender {
        None => None,
        // A watch lasts until somebody has seen enough; anything else was to be compared with its like.
        Some(by @ (Ender::User | Ender::Server)) if matches!(job, Job::Watch(_)) && why.is_none() => {
            let who = if by == Ender::User { "user" } else { "server" };
            measurement.warnings.push(format!("ended by the {who} after {seconds:.0} s"));
            None
        }
        Some(Ender::User) => Some("cut short by the user".to_owned()),
        Some(Ender::Server) => Some(format!("the server ended the measurement after {seconds:.1} s")),
        Some(Ender::Lost(text)) => Some(text),
    };
    // Who ended it comes first; how far it had come is told once, and not what is missing of an end that is lost.
    let more = why.clone().filter(|why| both && !measurement.failures.contains(why));
    measurement.invalid = match (said, more) {
        (Some(said), Some(more)) => Some(format!("{said}; {more}")),
        (Some(said), None) => Some(said),
        (None, _) => why,
    };
    measurement
}
