//! The two ends of a ping-pong, a thread for each connection, with nothing between the calls but a clock and a count.

use super::LatencyPlan;
use crate::rendezvous::{self, Flow};
use crate::stream::engine::wait_for_start;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use weir_core::record::{self, Observed, Row};
use weir_seams::workload::{Control, Outcome, WorkloadError};
use weir_sys::{clock, socket};

/// How often a waiting end looks at its orders.
const LOOK: Duration = Duration::from_millis(50);
/// Longest round trip the histogram tells apart from longer ones; extremes and sum are exact beyond.
const HISTOGRAM_NS_MAX: u64 = 1 << 40;
/// Round trips between two additions to the live progress.
const REPORT_COUNT: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// Round trips of each connection, those before not counted.
    Count(u64),
    Duration(Duration),
}

/// How long an end waits for a silent peer.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub reply: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        // Long enough for TCP to mend an outage of several seconds (its time-outs double), short enough to end a run.
        Limits { reply: Duration::from_secs(30) }
    }
}

pub struct Load {
    pub plan: LatencyPlan,
    pub host: String,
    pub role: String,
    pub limits: Limits,
}

/// What one connection came to.
struct Report {
    entity: String,
    histogram: Option<record::Histogram>,
    failure: Option<String>,
}

/// Runs one end from the agreed start until every connection is done. Errors: aborted, or the machine refused a thread.
pub fn run(load: &Load, flows: Vec<Flow>, control: &Control) -> Result<Outcome, WorkloadError> {
    let mut outcome = Outcome {
        host: load.host.clone(),
        role: load.role.clone(),
        started_ns: control.start_at().as_ns(),
        granted: rendezvous::granted(&flows, &load.plan.tcp),
        ..Outcome::default()
    };
    let mut reports = Vec::with_capacity(flows.len());
    std::thread::scope(|scope| {
        let mut running = Vec::with_capacity(flows.len());
        for flow in flows {
            let thread = std::thread::Builder::new()
                .name("weir-ping".to_owned())
                .spawn_scoped(scope, move || one(load, flow, control));
            match thread {
                Ok(thread) => running.push(thread),
                Err(error) => {
                    control.abort();
                    return Err(WorkloadError::retry(format!("a thread could not be started: {error}")));
                }
            }
        }
        for thread in running {
            match thread.join() {
                Ok(report) => reports.push(report),
                Err(_) => {
                    return Err(WorkloadError::retry("a latency thread panicked: this is a bug of weir"));
                }
            }
        }
        Ok(())
    })?;
    if control.aborted() {
        return Err(WorkloadError::stop("the load was aborted"));
    }
    for Report { entity, histogram, failure } in reports {
        if let Some(text) = failure {
            outcome.failures.push(format!("{entity}: {text}"));
        }
        if let Some(histogram) = histogram {
            outcome.rows.push(Row {
                entity,
                metric: "latency.round_trip_seconds".to_owned(),
                value: Observed::Histogram(histogram),
            });
        }
    }
    outcome.ended_ns = clock::monotonic().as_ns();
    Ok(outcome)
}

fn one(load: &Load, flow: Flow, control: &Control) -> Report {
    let Flow { spec, stream } = flow;
    let mut report = Report { entity: spec.entity, histogram: None, failure: None };
    let result = prepare(&stream).and_then(|()| {
        if spec.sends { ask(load, &stream, control, &mut report) } else { reply(load, &stream, control) }
    });
    if let Err(error) = result {
        report.failure = Some(error.to_string());
    }
    if control.aborted() || report.failure.is_some() {
        // The peer must not wait for what will not come.
        let _ = socket::reset_on_close(stream.as_fd());
    }
    report
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(LOOK))
}

/// The requesting end.
fn ask(load: &Load, stream: &TcpStream, control: &Control, report: &mut Report) -> io::Result<()> {
    let plan = &load.plan;
    let mut request = vec![0x57; plan.size_bytes as usize];
    let mut answer = vec![0; plan.size_bytes as usize];
    let mut histogram = Histogram::<u64>::new_with_bounds(1, HISTOGRAM_NS_MAX, 3)
        .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error.to_string()))?;
    // Touches every bucket's page before the load, so that no first count pays for it.
    histogram.reset();
    let start = control.start_at();
    if !wait_for_start(control, start) {
        return Ok(());
    }
    let (count_max, end_ns) = match plan.until {
        Until::Count(count) => (plan.warm_up_count.saturating_add(count), u64::MAX),
        Until::Duration(duration) => (u64::MAX, (start + duration).as_ns()),
    };
    let counted_from_ns = (start + plan.warm_up).as_ns();
    let (mut min_ns, mut max_ns, mut sum_ns, mut counted) = (u64::MAX, 0, 0u128, 0u64);
    let mut done = 0;
    let mut before_ns = clock::monotonic().as_ns();
    let mut failed = None;
    while done < count_max && before_ns < end_ns && !control.stopping() {
        // A reply must belong to its request: the number comes back with it.
        stamp(&mut request, done);
        if let Err(error) = round(load, stream, &request, &mut answer, control) {
            if !control.stopping() {
                let text = format!("after {done} round trips: {error}");
                failed = Some(io::Error::new(error.kind(), text));
            }
            break;
        }
        let now_ns = clock::monotonic().as_ns();
        if stamped(&answer) != stamped(&request) {
            failed =
                Some(io::Error::new(ErrorKind::InvalidData, format!("reply {done} is not to its request")));
            break;
        }
        done += 1;
        if done > plan.warm_up_count && before_ns >= counted_from_ns {
            let round_trip_ns = now_ns - before_ns;
            histogram.saturating_record(round_trip_ns);
            min_ns = min_ns.min(round_trip_ns);
            max_ns = max_ns.max(round_trip_ns);
            sum_ns += u128::from(round_trip_ns);
            counted += 1;
        }
        if done.is_multiple_of(REPORT_COUNT) {
            control.advance(REPORT_COUNT);
        }
        before_ns = now_ns;
    }
    control.advance(done % REPORT_COUNT);
    let _ = stream.shutdown(Shutdown::Write);
    if counted > 0 {
        let (value_ns, count) = histogram
            .iter_recorded()
            .map(|bucket| (bucket.value_iterated_to(), bucket.count_since_last_iteration()))
            .unzip();
        report.histogram = Some(record::Histogram { value_ns, count, min_ns, max_ns, sum_ns: sum_ns as f64 });
    } else if failed.is_none() && !control.stopping() {
        failed =
            Some(io::Error::new(ErrorKind::InvalidData, "no round trip was left to count after the warm-up"));
    }
    failed.map_or(Ok(()), Err)
}

/// The first bytes of a message carry its number.
fn stamp(message: &mut [u8], number: u64) {
    let bytes = number.to_le_bytes();
    let length = message.len().min(8);
    message[..length].copy_from_slice(&bytes[..length]);
}

fn stamped(message: &[u8]) -> &[u8] {
    &message[..message.len().min(8)]
}

fn round(
    load: &Load,
    stream: &TcpStream,
    request: &[u8],
    answer: &mut [u8],
    control: &Control,
) -> io::Result<()> {
    send(load, stream, request, control)?;
    match receive(stream, answer, control, Some(load.limits.reply))? {
        Received::Whole => Ok(()),
        Received::End => Err(io::Error::new(ErrorKind::UnexpectedEof, "the peer ended the connection")),
    }
}

/// The answering end: gives every message back until the asking end is done.
fn reply(load: &Load, stream: &TcpStream, control: &Control) -> io::Result<()> {
    let mut message = vec![0; load.plan.size_bytes as usize];
    if !wait_for_start(control, control.start_at()) {
        return Ok(());
    }
    loop {
        match receive(stream, &mut message, control, Some(2 * load.limits.reply))? {
            Received::Whole => send(load, stream, &message, control)?,
            Received::End => return Ok(()),
        }
    }
}

enum Received {
    Whole,
    /// The peer ended before the first byte.
    End,
}

fn cancelled() -> io::Error {
    io::Error::other("aborted")
}

/// Fills `message`. One call when all is well; the clock is looked at only after a time-out of the call.
fn receive(
    mut stream: &TcpStream,
    message: &mut [u8],
    control: &Control,
    limit: Option<Duration>,
) -> io::Result<Received> {
    let mut filled = 0;
    let mut waited = 0;
    while filled < message.len() {
        match stream.read(&mut message[filled..]) {
            Ok(0) if filled == 0 => return Ok(Received::End),
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the peer ended inside a message")),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                waited += 1;
                if control.aborted() {
                    return Err(cancelled());
                }
                if limit.is_some_and(|limit| LOOK * waited > limit) {
                    return Err(io::Error::new(
                        ErrorKind::TimedOut,
                        format!("the peer was silent for {:?}", LOOK * waited),
                    ));
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Received::Whole)
}

fn send(load: &Load, mut stream: &TcpStream, message: &[u8], control: &Control) -> io::Result<()> {
    let mut rest = message;
    let mut waited = 0;
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                waited += 1;
                if control.aborted() {
                    return Err(cancelled());
                }
                if LOOK * waited > load.limits.reply {
                    return Err(io::Error::new(
                        ErrorKind::TimedOut,
                        format!("the peer took nothing for {:?}", LOOK * waited),
                    ));
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
