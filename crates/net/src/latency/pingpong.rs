//! The two ends of a ping-pong, a thread for each connection, with nothing between the calls but a clock and a count.

use super::trips;
use super::trips::{Report, Trips, assemble};
use super::{LatencyPlan, open};
use crate::rendezvous::{self, Flow};
use crate::stream::engine::wait_for_start;
use crate::threads::{self, Guard};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use weir_core::Values;
use weir_seams::workload::{Control, Outcome, WorkloadError};
use weir_sys::{clock, socket};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// Operations of each flow (round trips, connections, datagrams); those that do not count come before, if there are some.
    Count(u64),
    Duration(Duration),
}

impl Until {
    /// From the keys `count` and `duration`. Errors: both, or neither, which `needed` is said of.
    pub fn from_values(values: &Values, needed: &str) -> Result<Until, WorkloadError> {
        match (values.count("count"), values.duration("duration")) {
            (Some(count), None) => Ok(Until::Count(count)),
            (None, Some(duration)) => Ok(Until::Duration(duration)),
            (None, None) => Err(WorkloadError::new(needed)),
            (Some(_), Some(_)) => Err(WorkloadError::new(
                "`count` and `duration` both say when the step ends; give one of them",
            )),
        }
    }
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

/// Runs one end from the agreed start until every connection is done. Errors: aborted, or the machine refused a thread.
pub fn run(load: &Load, flows: Vec<Flow>, control: &Control) -> Result<Outcome, WorkloadError> {
    let mut outcome = Outcome {
        granted: rendezvous::granted(&flows, &load.plan.tcp),
        ..rendezvous::outcome(&load.host, &load.role, control)
    };
    // The answering end waits longer: the asking one knows better what went wrong.
    let limit = |flow: &Flow| if flow.spec.sends { load.limits.reply } else { 2 * load.limits.reply };
    let reports =
        threads::each("weir-ping", flows, control, limit, |flow, guard| one(load, flow, control, guard))?;
    assemble(&mut outcome, &load.plan, reports);
    outcome.ended_ns = clock::monotonic().as_ns();
    Ok(outcome)
}

fn one(load: &Load, flow: Flow, control: &Control, guard: &Guard) -> Report {
    let Flow { spec, stream } = flow;
    let mut report = Report { entity: spec.entity.clone(), ..Report::default() };
    let result = threads::prepare(&stream).and_then(|()| match load.plan.rate_hertz {
        Some(rate) if spec.sends => ask_open(load, rate, &stream, control, guard, &mut report),
        None if spec.sends => ask(load, &stream, control, guard, &mut report),
        _ => reply(load, &stream, control, guard),
    });
    // How a connection broke that was cut from here tells nothing.
    if let (Err(error), false) = (result, control.is_cut()) {
        report.failure = Some(spec.failure(trips::operation(&spec), &error));
    }
    if control.aborted() || report.failure.is_some() {
        // The peer must not wait for what will not come.
        let _ = socket::reset_on_close(stream.as_fd());
    }
    report
}

/// The requesting end of an open loop.
fn ask_open(
    load: &Load,
    rate_hertz: f64,
    stream: &TcpStream,
    control: &Control,
    guard: &Guard,
    report: &mut Report,
) -> io::Result<()> {
    let heard = |count| guard.moved(count);
    let mut wire = open::TcpWire::new(stream, load.plan.size_bytes, heard)?;
    let result = open::ask(&load.plan, rate_hertz, &mut wire, control, load.limits.reply, report);
    let _ = stream.shutdown(Shutdown::Write);
    result.map_err(|error| guard.explain(error))
}

/// The requesting end.
fn ask(
    load: &Load,
    stream: &TcpStream,
    control: &Control,
    guard: &Guard,
    report: &mut Report,
) -> io::Result<()> {
    let plan = &load.plan;
    let mut request = vec![0x57; plan.size_bytes as usize];
    let mut answer = vec![0; plan.size_bytes as usize];
    let mut trips = Trips::new()?;
    let start = control.start_at();
    if !wait_for_start(control, start) {
        return Ok(());
    }
    let (count_max, end_ns) = match plan.until {
        Until::Count(count) => (plan.warm_up_count.saturating_add(count), u64::MAX),
        Until::Duration(duration) => (u64::MAX, (start + duration).as_ns()),
    };
    let counted_from_ns = (start + plan.warm_up).as_ns();
    let mut done = 0;
    let mut before_ns = clock::monotonic().as_ns();
    let mut failed = None;
    while done < count_max && before_ns < end_ns && !control.stopping() {
        // A reply must belong to its request: the number comes back with it.
        stamp(&mut request, done);
        if let Err(error) = round(stream, &request, &mut answer) {
            if !control.stopping() {
                let error = guard.explain(error);
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
        guard.moved(done);
        if done > plan.warm_up_count && before_ns >= counted_from_ns {
            trips.record(now_ns - before_ns);
        }
        control.advance(1);
        before_ns = now_ns;
    }
    let _ = stream.shutdown(Shutdown::Write);
    if trips.counted() == 0 && failed.is_none() && !control.stopping() {
        failed = Some(plan.nothing_counted(done));
    }
    report.trips = Some(trips);
    failed.map_or(Ok(()), Err)
}

/// The first bytes of a message carry its number.
pub(super) fn stamp(message: &mut [u8], number: u64) {
    let bytes = number.to_le_bytes();
    let length = message.len().min(8);
    message[..length].copy_from_slice(&bytes[..length]);
}

pub(super) fn stamped(message: &[u8]) -> &[u8] {
    &message[..message.len().min(8)]
}

fn round(mut stream: &TcpStream, request: &[u8], answer: &mut [u8]) -> io::Result<()> {
    stream.write_all(request)?;
    if receive(stream, answer)? {
        Ok(())
    } else {
        Err(io::Error::new(ErrorKind::UnexpectedEof, "the peer ended the connection"))
    }
}

/// The answering end: gives every message back until the asking end is done.
fn reply(load: &Load, mut stream: &TcpStream, control: &Control, guard: &Guard) -> io::Result<()> {
    let mut message = vec![0; load.plan.size_bytes as usize];
    if !wait_for_start(control, control.start_at()) {
        return Ok(());
    }
    let mut done = 0;
    let result = loop {
        match receive(stream, &mut message).and_then(|whole| {
            if whole {
                stream.write_all(&message)?;
            }
            Ok(whole)
        }) {
            Ok(true) => {
                done += 1;
                guard.moved(done);
            }
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    // Shut down by its guard, a connection looks like one that its peer ended.
    if guard.silenced() {
        return Err(guard.explain(io::Error::other("ended")));
    }
    result
}

/// Fills `message`; false when the peer ended before its first byte.
fn receive(mut stream: &TcpStream, message: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < message.len() {
        match stream.read(&mut message[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the peer ended inside a message")),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
