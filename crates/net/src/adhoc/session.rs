//! One client's session on the server: a job, its flows, its outcome.

use super::AdhocError;
use super::client::DRAIN;
use super::message::{DURATION_MAX, Flows, FromClient, FromServer, Job, REQUEST_BYTES_MAX, token_text};
use super::server::{Arrived, Expecting, Hall};
use crate::door;
use crate::path::meeting;
use crate::rendezvous::Flow;
use crate::stream::outcome::StreamBody;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use weir_seams::workload::{Control, Outcome};
use weir_sys::clock;
use weir_sys::poll::{self, Interest};
use weir_transport::deadline::Deadline;
use weir_transport::handshake::Token;
use weir_transport::udp::Association;
use weir_transport::{key, read_frame, write_frame};

/// Time a client has for each thing it has to say.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for all flows to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);
/// Longest from a start message to the start.
const START_MAX: Duration = Duration::from_secs(5);
/// A session ends so long after its planned end, drained or not.
const AFTER_MAX: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(50);
/// How soon a client over UDP that asks again is heard.
const AGAIN: Duration = Duration::from_millis(5);
/// How soon it is heard while others of its flows are still to come: well within the pause after which it asks once more.
const ANSWER_EVERY: Duration = Duration::from_millis(20);
/// What had arrived is known so closely where this end is lost.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

pub(super) struct Session<'a> {
    pub stream: TcpStream,
    pub hall: &'a Hall,
}

/// Forgets the session's token however it ends.
struct Registered<'a> {
    hall: &'a Hall,
    token: Token,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.hall.expecting().remove(&self.token);
    }
}

impl Session<'_> {
    fn send(&self, message: &FromServer, limit: Duration) -> Result<(), AdhocError> {
        write_frame(&mut Deadline::after(&self.stream, limit), message)
            .map_err(|error| AdhocError::new(format!("the client cannot be told: {error}")))
    }

    fn receive(&self) -> Result<FromClient, AdhocError> {
        match read_frame(&mut Deadline::after(&self.stream, PATIENCE), REQUEST_BYTES_MAX) {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(AdhocError::new("the client left")),
            Err(error) => Err(AdhocError::new(format!("the client cannot be understood: {error}"))),
        }
    }

    fn refuse<T>(&self, text: &str) -> Result<T, AdhocError> {
        self.send(&FromServer::Failed { text: text.to_owned() }, PATIENCE)?;
        Err(AdhocError::new(text))
    }
}

/// Serves one client from its request to its outcome; the text is for the server's log.
pub(super) fn serve(session: Session<'_>) -> Result<String, AdhocError> {
    let broken = |error: std::io::Error| AdhocError::new(format!("the session broke: {error}"));
    session.stream.set_nonblocking(true).map_err(broken)?;
    session.stream.set_nodelay(true).map_err(broken)?;
    let FromClient::Request(job) = session.receive()? else {
        return session.refuse("a session begins with a request");
    };
    if let Err(error) = job.check() {
        return session.refuse(&format!("refused by the server: {error}"));
    }
    let flows = connect(&session, &job)?;
    if let Flows::Datagrams(flows) = &flows {
        hear_again(&session, flows)?;
    }
    let in_ns = match session.receive()? {
        FromClient::Start { in_ns } => Duration::from_nanos(in_ns).min(START_MAX),
        _ => return session.refuse("the flows are connected; a start was expected"),
    };
    let control = Control::new(clock::monotonic() + in_ns);
    if job.records() {
        control.record();
    }
    let until = Instant::now() + in_ns + job.duration().unwrap_or(DURATION_MAX) + AFTER_MAX;
    let (result, lost) = std::thread::scope(|scope| {
        let running = scope.spawn(|| job.run(true, flows, &control));
        let lost = watch(&session, &control, until, || running.is_finished());
        (running.join(), lost.or_else(|| left_with_its_flows(&session, &job, &control)))
    });
    match (result, lost) {
        (Ok(Ok(outcome)), Some(lost)) => Ok(format!("{}, {lost}", account(&job, &control, &outcome))),
        (Ok(Ok(outcome)), None) => {
            let done = account(&job, &control, &outcome);
            let ran = clock::monotonic().since(control.start_at());
            let heard = carry(&session, &control)
                .and_then(|()| session.send(&FromServer::Done(Box::new(outcome)), CONNECT_LIMIT))
                .and_then(|()| heard(&session, &control));
            Ok(match heard {
                Ok(()) => done,
                Err(error) => format!("{done}, {}", cut_short(ran, &error)),
            })
        }
        (Ok(Err(error)), _) => session.refuse(&error.text),
        (Err(_), _) => session.refuse("the server's load panicked: this is a bug of weir"),
    }
}

/// Flows may end with their client before the control connection is seen to have: of a load that ended before its time, or has none,
/// it is asked once more. One that takes longer to go is found out by `heard`.
fn left_with_its_flows(session: &Session<'_>, job: &Job, control: &Control) -> Option<String> {
    let ran = clock::monotonic().since(control.start_at());
    let whole = job.duration().is_some_and(|planned| ran >= planned);
    if whole
        || control.stopping()
        || !poll::wait(session.stream.as_fd(), Interest::Readable, Duration::ZERO).ok()?
    {
        return None;
    }
    // A stop that comes too late is no end of the client.
    let error = session.receive().err()?;
    Some(cut_short(ran, &error))
}

/// Who is there reads what was measured, and closes; what is closed with that unread was ended, and its kernel says so by a reset.
/// Errors: the client was gone.
fn heard(session: &Session<'_>, control: &Control) -> Result<(), AdhocError> {
    let gone = |error: std::io::Error| AdhocError::new(format!("the client left: {error}"));
    let until = Instant::now() + PATIENCE;
    while !control.stopping() && !session.hall.closing.load(Ordering::Relaxed) && Instant::now() < until {
        if !poll::wait(session.stream.as_fd(), Interest::Readable, LOOK).map_err(gone)? {
            continue;
        }
        match (&session.stream).read(&mut [0; 64]) {
            Ok(0) => {
                return session.stream.take_error().map_err(gone)?.map_or(Ok(()), |error| Err(gone(error)));
            }
            // A stop that comes too late.
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(gone(error)),
        }
    }
    Ok(())
}

fn cut_short(after: Duration, error: &AdhocError) -> String {
    format!("cut short {:.1} s after the start: {error}", after.as_secs_f64())
}

/// What the server's end did, for its log.
pub(super) fn account(job: &Job, control: &Control, outcome: &Outcome) -> String {
    if let Job::Latency(_) | Job::Connect(_) | Job::Path(_) = job {
        return job.name().to_owned();
    }
    let count = job.flows(true).len();
    let mut sent = control.sent();
    if let Job::Stream(_) | Job::Watch(_) = job
        && let Ok(body) = serde_json::from_value::<StreamBody>(outcome.body.clone())
    {
        sent = body.sent.iter().map(|flow| flow.bytes).sum();
    }
    let moved = match (control.progress(), sent) {
        (received, 0) => format!("{received} bytes received"),
        (0, sent) => format!("{sent} bytes sent"),
        (received, sent) => format!("{received} bytes received, {sent} sent"),
    };
    format!("{}, {count} flow{}, {moved}", job.name(), if count == 1 { "" } else { "s" })
}

/// Registers the session, lets its flows in, and sets what the client asked of the sockets.
fn connect(session: &Session<'_>, job: &Job) -> Result<Flows, AdhocError> {
    let token: Token =
        key::random().map_err(|error| AdhocError::new(format!("no randomness to be had: {error}")))?;
    let specs = job.flows(true);
    let (arrived, arrivals) = sync_channel(specs.len().max(1));
    let missing = specs.iter().map(|spec| spec.index).collect();
    let datagrams = job.over_datagrams();
    session.hall.expecting().insert(token, Expecting { missing, datagrams, arrived });
    let registered = Registered { hall: session.hall, token };
    session.send(&FromServer::Ready { token: token_text(&token) }, PATIENCE)?;
    let mut all = collect(session, &arrivals, specs.len())?;
    drop(registered);
    let (mut streams, mut associations) = (Vec::new(), Vec::new());
    for spec in specs {
        match all.remove(&spec.index) {
            Some(Arrived::Stream(stream)) => {
                let applied = job.tcp().map_or(Ok(()), |tcp| tcp.apply_connected(stream.as_fd()));
                if let Err(error) = applied {
                    return session.refuse(&format!("on the server: {error}"));
                }
                streams.push(Flow { spec, stream });
            }
            Some(Arrived::Association(stream)) => associations.push(Flow { spec, stream }),
            None => return session.refuse(&format!("{} never connected", spec.entity)),
        }
    }
    if let Job::Path(_) = job {
        let meetings = match meeting::open_and_greet(&streams) {
            Ok(meetings) => meetings,
            Err(error) => return session.refuse(&format!("on the server: {error}")),
        };
        session.send(&FromServer::Connected, PATIENCE)?;
        return Ok(Flows::Paths(streams, meetings));
    }
    let links = match job.tcp().filter(|_| job.makes_connections()) {
        Some(tcp) => match door::open_and_greet(&streams, tcp) {
            Ok(links) => links,
            Err(error) => return session.refuse(&format!("on the server: {error}")),
        },
        None => BTreeMap::new(),
    };
    session.send(&FromServer::Connected, PATIENCE)?;
    Ok(if datagrams { Flows::Datagrams(associations) } else { Flows::Streams(streams, links) })
}

/// Until the client says its next word: it may not have heard over UDP that it was let in, and asks again.
fn hear_again(session: &Session<'_>, flows: &[Flow<Association>]) -> Result<(), AdhocError> {
    let broken = |error: std::io::Error| AdhocError::new(format!("the session broke: {error}"));
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if poll::wait(session.stream.as_fd(), Interest::Readable, AGAIN).map_err(broken)? {
            return Ok(());
        }
        for flow in flows {
            flow.stream.answer_again().map_err(broken)?;
        }
    }
    Ok(())
}

fn collect(
    session: &Session<'_>,
    arrivals: &Receiver<(u32, Arrived)>,
    count: usize,
) -> Result<BTreeMap<u32, Arrived>, AdhocError> {
    let until = Instant::now() + CONNECT_LIMIT;
    let mut streams = BTreeMap::new();
    let mut answered = Instant::now();
    while streams.len() < count {
        // A client that did not hear that one of its flows was let in asks again while others are still to come.
        if answered.elapsed() >= ANSWER_EVERY {
            answered = Instant::now();
            for arrived in streams.values() {
                if let Arrived::Association(association) = arrived {
                    let broken = |error| AdhocError::new(format!("the session broke: {error}"));
                    association.answer_again().map_err(broken)?;
                }
            }
        }
        match arrivals.recv_timeout(ANSWER_EVERY) {
            Ok((index, stream)) => {
                streams.insert(index, stream);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                // A client says nothing while it connects; if its connection can be read, it has left.
                let left =
                    poll::wait(session.stream.as_fd(), Interest::Readable, Duration::ZERO).unwrap_or(true);
                if left {
                    return Err(AdhocError::new("the client left while it connected"));
                }
                if session.hall.closing.load(Ordering::Relaxed) || Instant::now() >= until {
                    return session.refuse("not all flows connected in time, or the server ends");
                }
            }
        }
    }
    Ok(streams)
}

/// Passes on what fine series wait, counted from the start.
fn carry(session: &Session<'_>, control: &Control) -> Result<(), AdhocError> {
    let Some(queue) = control.chunks() else { return Ok(()) };
    let start_ns = i64::try_from(control.start_at().as_ns()).unwrap_or(i64::MAX);
    while let Some(mut chunk) = queue.next() {
        chunk.start_ns = chunk.start_ns.saturating_sub(start_ns);
        session.send(&FromServer::Chunk(Box::new(chunk)), PATIENCE)?;
    }
    Ok(())
}

/// While the load runs: tells the client how far it is and hears a stop. Returns when and how the client was lost, if it was: what
/// this end did by then stands.
fn watch(
    session: &Session<'_>,
    control: &Control,
    until: Instant,
    finished: impl Fn() -> bool,
) -> Option<String> {
    let start = Instant::now() + control.start_at().since(clock::monotonic());
    let mut told = Instant::now();
    let mut stopped: Option<Instant> = None;
    let (mut lost, mut stopping) = (None, false);
    while !finished() {
        if lost.is_some() {
            std::thread::sleep(LOOK);
        } else {
            match poll::wait(session.stream.as_fd(), Interest::Readable, LOOK) {
                Ok(false) => {}
                Ok(true) => match session.receive() {
                    Ok(FromClient::Stop) => {
                        stopped.get_or_insert_with(Instant::now);
                    }
                    Ok(_) => lost = Some(AdhocError::new("the client said something out of turn")),
                    Err(error) => lost = Some(error),
                },
                Err(error) => lost = Some(AdhocError::new(format!("the session broke: {error}"))),
            }
        }
        if session.hall.closing.load(Ordering::Relaxed) {
            stopped.get_or_insert_with(Instant::now);
            // Who receives here hears the end from the sender, which must be told.
            if lost.is_none() && !stopping {
                stopping = true;
                lost = session.send(&FromServer::Stopping, PATIENCE).err();
            }
        }
        if let Some(since) = stopped {
            control.stop();
            if since.elapsed() >= DRAIN {
                control.cut();
            }
        }
        if session.hall.closed.load(Ordering::Relaxed) || Instant::now() >= until {
            control.abort();
        }
        if lost.is_none() && told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            let at_ns = clock::monotonic().as_ns().saturating_sub(control.start_at().as_ns());
            let progress = FromServer::Progress { count: control.progress(), at_ns };
            lost = session.send(&progress, PATIENCE).and_then(|()| carry(session, control)).err();
        }
        if lost.is_some() {
            control.cut();
        }
    }
    lost.map(|error| cut_short(start.elapsed(), &error))
}
