//! The two ends of a latency step over UDP. What is lost is counted as lost and never as a latency.

use super::open::{self, Wire};
use super::pingpong::Load;
use super::trips;
use super::trips::{Report, Trips, assemble};
use super::{LatencyPlan, Until};
use crate::farewell;
use crate::rendezvous::{self, Flow};
use crate::stream::engine::wait_for_start;
use crate::threads;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use weir_core::time::nanoseconds;
use weir_seams::workload::{Control, Outcome, WorkloadError};
use weir_sys::clock;
use weir_transport::datagram::{HEADER_BYTES, Header, Kind};
use weir_transport::udp::{Association, DATAGRAM_BYTES_MAX, is_peers};

/// Longest a call blocks before the orders are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Datagrams that are no reply looked at in a row.
const NOISE_MAX: usize = 64;

/// Runs one end from the agreed start until every flow is done. Errors: aborted, or the machine refused a thread.
pub fn run(load: &Load, flows: Vec<Flow<Association>>, control: &Control) -> Result<Outcome, WorkloadError> {
    let mut outcome = rendezvous::outcome(&load.host, &load.role, control);
    let reports = threads::each_alone("weir-ping", flows, control, |flow| one(load, flow, control))?;
    assemble(&mut outcome, &load.plan, reports);
    outcome.ended_ns = clock::monotonic().as_ns();
    Ok(outcome)
}

fn one(load: &Load, flow: Flow<Association>, control: &Control) -> Report {
    let Flow { spec, stream: association } = flow;
    let mut report = Report { entity: spec.entity.clone(), ..Report::default() };
    let result = if spec.sends {
        ask(load, &association, control, &mut report)
    } else {
        reply(load, &association, control)
    };
    if let Err(error) = result {
        report.failure = Some(spec.failure(trips::operation(&spec), &error));
    }
    report
}

fn ask(load: &Load, association: &Association, control: &Control, report: &mut Report) -> io::Result<()> {
    let plan = &load.plan;
    let result = match plan.rate_hertz {
        Some(rate) => {
            let mut wire = UdpWire::new(association, plan)?;
            open::ask(plan, rate, &mut wire, control, load.limits.reply, report)
        }
        None => one_at_a_time(load, association, control, report),
    };
    // However it went, the other end need not wait for more.
    let ended = farewell::say(association, 0, control);
    result.and(ended)
}

fn too_big(error: io::Error, plan: &LatencyPlan) -> io::Error {
    // EMSGSIZE has no kind of its own.
    if error.raw_os_error() == Some(EMSGSIZE) {
        let text = format!("a message of {} bytes is more than the way takes: {error}", plan.size_bytes);
        return io::Error::new(ErrorKind::InvalidInput, text);
    }
    error
}

/// Linux number, the same on every architecture but a few that weir does not run on.
const EMSGSIZE: i32 = 90;

/// Closed loop: the next request leaves when the reply has come or is given up.
fn one_at_a_time(
    load: &Load,
    association: &Association,
    control: &Control,
    report: &mut Report,
) -> io::Result<()> {
    let plan = &load.plan;
    let socket = &association.socket;
    let mut trips = Trips::new()?;
    let mut request = vec![0x57; plan.size_bytes as usize];
    let mut answer = vec![0; DATAGRAM_BYTES_MAX + 1];
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(plan.timeout.min(LOOK)))?;
    let start = control.start_at();
    if !wait_for_start(control, start) {
        return Ok(());
    }
    let (count_max, end_ns) = match plan.until {
        Until::Count(count) => (plan.warm_up_count.saturating_add(count), u64::MAX),
        Until::Duration(duration) => (u64::MAX, (start + duration).as_ns()),
    };
    let warm_ns = (start + plan.warm_up).as_ns();
    let (timeout_ns, silence_ns) = (nanoseconds(plan.timeout), nanoseconds(load.limits.reply));
    let mut result = Ok(());
    let mut number = 0;
    let mut before_ns = clock::monotonic().as_ns();
    let mut heard_ns = before_ns;
    while number < count_max && before_ns < end_ns && !control.stopping() {
        Header { tag: association.tag, kind: Kind::Request, number }.write(&mut request);
        match socket.send(&request) {
            Ok(_) => {}
            // No buffer, or word of an earlier one that nobody took: this one is lost like any other.
            Err(error) if is_peers(&error) || error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => {
                result = Err(too_big(error, plan));
                break;
            }
        }
        let answered =
            await_reply(association, number, request.len(), &mut answer, before_ns + timeout_ns, control)?;
        let now_ns = clock::monotonic().as_ns();
        let counts = number >= plan.warm_up_count && before_ns >= warm_ns;
        match answered {
            Some(true) => {
                heard_ns = now_ns;
                if counts {
                    trips.record(now_ns - before_ns);
                }
            }
            Some(false) if counts => trips.lose(),
            Some(false) => {}
            // Stopped in the middle: this one is not counted.
            None => break,
        }
        if now_ns - heard_ns > silence_ns {
            let text = format!("after {number} requests: the peer was silent for {:?}", load.limits.reply);
            result = Err(io::Error::new(ErrorKind::TimedOut, text));
            break;
        }
        number += 1;
        control.advance(1);
        before_ns = now_ns;
    }
    if result.is_ok() && trips.counted() == 0 && !control.stopping() {
        result = Err(load.plan.nothing_counted(number));
    }
    report.trips = Some(trips);
    result
}

/// Whether the reply to `number` came before `until_ns`; `None` when it is of no use any more.
fn await_reply(
    association: &Association,
    number: u64,
    length: usize,
    answer: &mut [u8],
    until_ns: u64,
    control: &Control,
) -> io::Result<Option<bool>> {
    loop {
        match association.socket.recv(answer) {
            Ok(count) => {
                let header = association.header(&answer[..count]);
                let ours = |header: &Header| header.kind == Kind::Reply && header.number == number;
                // Anything else is an earlier request's reply that came too late, a second one, or a stranger's.
                if count == length && header.as_ref().is_some_and(ours) {
                    return Ok(Some(true));
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if is_peers(&error) => {}
            Err(error) => return Err(error),
        }
        if clock::monotonic().as_ns() >= until_ns {
            return Ok(Some(false));
        }
        if control.stopping() {
            return Ok(None);
        }
    }
}

/// The answering end: gives every request back until the asking end is done.
fn reply(load: &Load, association: &Association, control: &Control) -> io::Result<()> {
    let socket = &association.socket;
    let mut message = vec![0; DATAGRAM_BYTES_MAX + 1];
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(LOOK))?;
    if !wait_for_start(control, control.start_at()) {
        return Ok(());
    }
    let planned =
        load.plan.planned().map(|planned| control.start_at() + planned + load.plan.timeout + farewell::GRACE);
    // The asking end knows better what went wrong, so it gives up first.
    let silence = 2 * load.limits.reply;
    let mut heard = clock::monotonic();
    let mut ended = None;
    loop {
        match socket.recv(&mut message) {
            Ok(count) => match association.header(&message[..count]) {
                Some(Header { kind: Kind::Request, tag, number }) if count as u64 == load.plan.size_bytes => {
                    Header { kind: Kind::Reply, tag, number }.write(&mut message);
                    // What cannot be sent is lost, like what is lost on its way.
                    let _ = socket.send(&message[..count]);
                    heard = clock::monotonic();
                }
                Some(Header { kind: Kind::End, number, .. }) => {
                    let _ = association.send_bare(Kind::Ended, number);
                    ended.get_or_insert_with(clock::monotonic);
                }
                _ => {
                    // A client that did not hear that it was let in, or nothing of ours.
                    association.reopened(&message[..count]);
                }
            },
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let now = clock::monotonic();
                if ended.is_some_and(|since| now.since(since) >= farewell::LINGER)
                    || planned.is_some_and(|end| now >= end)
                {
                    return Ok(());
                }
                if now.since(heard) > silence {
                    let text = format!("the peer was silent for {silence:?}");
                    return Err(io::Error::new(ErrorKind::TimedOut, text));
                }
            }
            Err(error) if is_peers(&error) => {}
            Err(error) => return Err(error),
        }
        if control.is_cut() {
            return Ok(());
        }
    }
}

/// Requests and replies as messages of an association.
struct UdpWire<'a> {
    association: &'a Association,
    request: Vec<u8>,
    answer: Vec<u8>,
    plan: &'a LatencyPlan,
}

impl<'a> UdpWire<'a> {
    fn new(association: &'a Association, plan: &'a LatencyPlan) -> io::Result<Self> {
        association.socket.set_nonblocking(true)?;
        let request = vec![0x57; plan.size_bytes as usize];
        Ok(UdpWire { association, request, answer: vec![0; DATAGRAM_BYTES_MAX + 1], plan })
    }
}

impl Wire for UdpWire<'_> {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.association.socket.as_fd()
    }

    fn send(&mut self, number: u64) -> io::Result<bool> {
        Header { tag: self.association.tag, kind: Kind::Request, number }.write(&mut self.request);
        match self.association.socket.send(&self.request) {
            Ok(_) => Ok(true),
            // No buffer, or word of an earlier one that nobody took: lost, like what is lost on its way.
            Err(error) if is_peers(&error) || error.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(too_big(error, self.plan)),
        }
    }

    fn receive(&mut self, _expected: Option<u64>) -> io::Result<Option<u64>> {
        // A flood of what is no reply must not keep the clock waiting.
        for _ in 0..NOISE_MAX {
            match self.association.socket.recv(&mut self.answer) {
                Ok(count) => {
                    let header = self.association.header(&self.answer[..count]);
                    if let Some(Header { kind: Kind::Reply, number, .. }) = header
                        && count == self.request.len()
                    {
                        return Ok(Some(number));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if is_peers(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn lost_after_ns(&self) -> Option<u64> {
        Some(nanoseconds(self.plan.timeout))
    }
    fn heard(&self, _count: u64) {}
}

const _: () = assert!(HEADER_BYTES as u64 == super::UDP_SIZE_BYTES_MIN, "the smallest message is a header");
