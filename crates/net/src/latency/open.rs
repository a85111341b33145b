//! Open loop: requests leave at the ticks of a clock whatever became of those before, and a round trip counts from its tick.
//! One thread sends, hears and waits; nothing is allocated once it has begun.

use super::pingpong::{stamp, stamped};
use super::trips::{Report, Trips};
use super::{LatencyPlan, Until};
use crate::generator::{Lateness, Ticks};
use crate::stream::engine::wait_for_start;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use weir_core::time::nanoseconds;
use weir_seams::workload::Control;
use weir_sys::clock;
use weir_sys::poll::{self, Interest};

/// Longest wait before the orders are looked at.
const LOOK_NS: u64 = 20_000_000;
/// The last moments before a tick are spent awake, since a timer may be so late; but never more than a tenth of the time.
const AWAKE_NS: u64 = 50_000;
/// Replies taken in a row before the clock of the ticks is looked at again.
const BURST: usize = 64;
/// Requests that may be without reply at once.
pub const FLIGHT_MAX: u64 = 1 << 24;

/// How requests travel and replies come back; nothing here waits.
pub trait Wire {
    fn descriptor(&self) -> BorrowedFd<'_>;
    /// Sends request `number`; false when the connection takes no more of it now, and the same one must be offered again.
    fn send(&mut self, number: u64) -> io::Result<bool>;
    /// The number of the next reply that has come. `expected` is the oldest request without one.
    fn receive(&mut self, expected: Option<u64>) -> io::Result<Option<u64>>;
    /// After how long a request without a reply counts as lost; `None` where nothing is.
    fn lost_after_ns(&self) -> Option<u64>;
    /// A reply has come; so many by now.
    fn heard(&self, count: u64);
}

/// Requests between their tick and their reply, by number, in a ring of fixed size.
struct Flight {
    /// 0 not under way, 1 to be sent, 2 sent.
    states: Vec<u8>,
    oldest: u64,
    unsent: u64,
    next: u64,
}

impl Flight {
    fn new(room: u64) -> Flight {
        let room = room.clamp(64, FLIGHT_MAX).next_power_of_two();
        Flight { states: vec![0; room as usize], oldest: 0, unsent: 0, next: 0 }
    }
    fn state(&mut self, number: u64) -> &mut u8 {
        let mask = self.states.len() as u64 - 1;
        &mut self.states[(number & mask) as usize]
    }

    /// The tick `number` has come. Errors: more requests are without reply than there is room for.
    fn issue(&mut self, number: u64) -> io::Result<()> {
        if self.first().is_none() {
            // Nothing is under way, so ticks given up take no room.
            self.oldest = number;
        }
        if number + 1 - self.oldest > self.states.len() as u64 {
            let text = format!(
                "{} requests are without reply; the path does not carry this rate",
                self.states.len()
            );
            return Err(io::Error::new(ErrorKind::OutOfMemory, text));
        }
        *self.state(number) = 1;
        self.next = number + 1;
        Ok(())
    }
    /// The oldest that is still to be sent.
    fn unsent_first(&mut self) -> Option<u64> {
        self.unsent = self.unsent.max(self.oldest);
        while self.unsent < self.next && *self.state(self.unsent) != 1 {
            self.unsent += 1;
        }
        (self.unsent < self.next).then_some(self.unsent)
    }
    fn sent(&mut self, number: u64) {
        *self.state(number) = 2;
    }
    /// The oldest under way.
    fn first(&mut self) -> Option<u64> {
        while self.oldest < self.next && *self.state(self.oldest) == 0 {
            self.oldest += 1;
        }
        (self.oldest < self.next).then_some(self.oldest)
    }
    /// Takes one out; false when it was not under way: an answer to nothing, or a second one.
    fn settle(&mut self, number: u64) -> bool {
        let under_way = (self.oldest..self.next).contains(&number) && *self.state(number) == 2;
        if under_way {
            *self.state(number) = 0;
        }
        under_way
    }
}

/// The asking end.
pub fn ask(
    plan: &LatencyPlan,
    rate_hertz: f64,
    wire: &mut impl Wire,
    control: &Control,
    silence: Duration,
    report: &mut Report,
) -> io::Result<()> {
    let start = control.start_at();
    let warm_ns = (start + plan.warm_up).as_ns();
    let mut ticks = Ticks::new(start.as_ns(), rate_hertz).until(tick_count(plan, rate_hertz));
    let room_ns = wire.lost_after_ns().unwrap_or(nanoseconds(silence));
    let mut flight = Flight::new((room_ns as f64 / 1e9 * rate_hertz) as u64 + 64);
    let mut lateness = Lateness::default();
    let mut trips = Trips::new()?;
    clock::set_timer_slack_least();
    if !wait_for_start(control, start) {
        return Ok(());
    }
    let result = run(plan, warm_ns, &mut ticks, &mut flight, &mut lateness, &mut trips, wire, control);
    let counted = trips.counted();
    report.trips = Some(trips);
    report.clock = Some((lateness, ticks));
    if result.is_ok() && counted == 0 && !control.stopping() {
        return Err(plan.nothing_counted(tick_count(plan, rate_hertz)));
    }
    result
}

/// Requests in all.
pub(super) fn tick_count(plan: &LatencyPlan, rate_hertz: f64) -> u64 {
    match plan.until {
        Until::Count(count) => plan.warm_up_count.saturating_add(count),
        Until::Duration(duration) => (duration.as_secs_f64() * rate_hertz).ceil() as u64,
    }
}

#[allow(clippy::too_many_arguments)] // one caller, which made them all
fn run(
    plan: &LatencyPlan,
    warm_ns: u64,
    ticks: &mut Ticks,
    flight: &mut Flight,
    lateness: &mut Lateness,
    trips: &mut Trips,
    wire: &mut impl Wire,
    control: &Control,
) -> io::Result<()> {
    let awake_ns = AWAKE_NS.min((ticks.period_ns() / 10.0) as u64);
    let first_counted = plan.warm_up_count.max(ticks.first_from(warm_ns));
    let counts = |number: u64| number >= first_counted;
    let lost_after_ns = wire.lost_after_ns().unwrap_or(u64::MAX);
    let mut heard = 0;
    loop {
        if control.is_cut() {
            return Ok(());
        }
        if control.stopping() {
            ticks.stop();
        }
        let before = heard;
        for _ in 0..BURST {
            let Some(number) = wire.receive(flight.first())? else { break };
            let took_ns = clock::monotonic().as_ns().saturating_sub(ticks.at_ns(number));
            if flight.settle(number) {
                heard += 1;
                match counts(number) {
                    true if took_ns > lost_after_ns => trips.lose(),
                    true => trips.record(took_ns),
                    false => {}
                }
            }
        }
        if heard > before {
            wire.heard(heard);
            control.advance(heard - before);
        }
        let now_ns = clock::monotonic().as_ns();
        if let Some(due) = ticks.take(now_ns) {
            if let Some(due) = due.counted_from(first_counted) {
                lateness.note(ticks, due, now_ns);
            }
            flight.issue(due.number)?;
        }
        let mut held = false;
        while let Some(number) = flight.unsent_first() {
            held = !wire.send(number)?;
            if held {
                break;
            }
            flight.sent(number);
        }
        while let Some(number) = flight.first() {
            if now_ns.saturating_sub(ticks.at_ns(number)) <= lost_after_ns {
                break;
            }
            flight.settle(number);
            if counts(number) {
                trips.lose();
            }
        }
        let first = flight.first();
        if ticks.over() && first.is_none() {
            return Ok(());
        }
        let tick_ns = ticks.next_ns().saturating_sub(awake_ns);
        if now_ns >= tick_ns {
            std::thread::yield_now();
            continue;
        }
        let late_ns = first.map_or(u64::MAX, |number| ticks.at_ns(number).saturating_add(lost_after_ns));
        let until_ns = tick_ns.min(late_ns.saturating_add(1)).min(now_ns + LOOK_NS);
        let interest = if held { Interest::Either } else { Interest::Readable };
        poll::wait(wire.descriptor(), interest, Duration::from_nanos(until_ns.saturating_sub(now_ns)))?;
    }
}

/// Requests one after the other on a connection; replies come in the same order.
pub struct TcpWire<'a, H: Fn(u64)> {
    stream: &'a TcpStream,
    request: Vec<u8>,
    sent: usize,
    answer: Vec<u8>,
    filled: usize,
    heard: H,
}

impl<'a, H: Fn(u64)> TcpWire<'a, H> {
    pub fn new(stream: &'a TcpStream, size_bytes: u64, heard: H) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let size = size_bytes as usize;
        Ok(TcpWire { stream, request: vec![0x57; size], sent: 0, answer: vec![0; size], filled: 0, heard })
    }
}

impl<H: Fn(u64)> Wire for TcpWire<'_, H> {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn send(&mut self, number: u64) -> io::Result<bool> {
        if self.sent == 0 {
            stamp(&mut self.request, number);
        }
        while self.sent < self.request.len() {
            let mut stream = self.stream;
            match stream.write(&self.request[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.sent = 0;
        Ok(true)
    }

    fn receive(&mut self, expected: Option<u64>) -> io::Result<Option<u64>> {
        while self.filled < self.answer.len() {
            let mut stream = self.stream;
            match stream.read(&mut self.answer[self.filled..]) {
                Ok(0) => {
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, "the peer ended the connection"));
                }
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.filled = 0;
        let stamp_bytes = expected.map(u64::to_le_bytes);
        let said = stamped(&self.answer);
        if stamp_bytes.is_none_or(|bytes| bytes[..said.len()] != *said) {
            return Err(io::Error::new(ErrorKind::InvalidData, "a reply is not to its request"));
        }
        Ok(expected)
    }

    fn lost_after_ns(&self) -> Option<u64> {
        None
    }
    fn heard(&self, count: u64) {
        (self.heard)(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Spec: net-protocol.md#latency-5
        #[test]
        fn every_request_is_settled_once_whatever_is_missed_and_in_whatever_order_replies_come(
            missed in prop::collection::vec(0u64..3, 1..60),
            order in any::<prop::sample::Index>(),
        ) {
            let mut flight = Flight::new(64 * 4);
            let (mut number, mut issued) = (0, Vec::new());
            for gap in missed {
                number += gap;
                flight.issue(number).unwrap();
                issued.push(number);
                number += 1;
            }
            for number in &issued {
                prop_assert!(!flight.settle(*number), "settled before it was sent");
                prop_assert_eq!(flight.unsent_first(), Some(*number));
                flight.sent(*number);
            }
            prop_assert_eq!(flight.unsent_first(), None);
            let turn = order.index(issued.len());
            issued.rotate_left(turn);
            for number in &issued {
                prop_assert!(flight.settle(*number));
                prop_assert!(!flight.settle(*number), "settled twice");
            }
            prop_assert_eq!(flight.first(), None);
            prop_assert!(!flight.settle(number + 10), "settled before its tick");
        }
    }

    #[test]
    fn a_ring_that_is_full_is_an_error_and_no_panic() {
        let mut flight = Flight::new(64);
        for number in 0..64 {
            flight.issue(number).unwrap();
        }
        assert!(flight.issue(64).unwrap_err().to_string().contains("without reply"));
    }
}
