//! The two ends of bursts, a thread for each flow. Between two calls on the socket there is a clock and a count, nothing else;
//! no burst needs more memory than a block.

use super::outcome::{ReceivedFlow, Report, SentFlow};
use super::plan::{BLOCK_BYTES, BurstPlan, Connection, Reply};
use crate::door::{Link, TOKEN_BYTES};
use crate::generator::{Lateness, Ticks};
use crate::offset;
use crate::rendezvous::Flow;
use crate::stream::engine::{payload, wait_for_start};
use crate::threads::{self, Guard};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use weir_core::Instant;
use weir_core::time::nanoseconds;
use weir_seams::workload::Control;
use weir_sys::{clock, socket};

/// Longest wait before the orders are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// The last moments before a tick are spent awake, since a timer may be so late; but never more than a tenth of the time.
const AWAKE: Duration = Duration::from_micros(50);

/// One flow at one end.
pub struct End<'a> {
    pub plan: &'a BurstPlan,
    pub control: &'a Control,
    pub guard: &'a Guard,
}

/// Payload that has moved, told to the guard and to the live progress, piece by piece.
struct Moved<'a> {
    guard: &'a Guard,
    control: &'a Control,
    steps: u64,
}

impl Moved<'_> {
    fn step(&mut self, bytes: usize) {
        self.steps += 1;
        self.guard.moved(self.steps);
        // A burst may take minutes, and is under way all the while.
        self.control.advance(bytes as u64);
    }

    fn sent(&mut self, bytes: usize) {
        self.step(0);
        self.control.send(bytes as u64);
    }
}

fn now_ns() -> u64 {
    clock::monotonic().as_ns()
}

impl End<'_> {
    /// Without a link the bursts go on the flow's own connection.
    pub fn run(&self, flow: Flow, link: Option<&Link>) -> Report {
        let Flow { spec, stream } = flow;
        let own = spec.clone();
        let start_ns = self.control.start_at().as_ns();
        let mut report = Report { entity: spec.entity.clone(), ..Report::default() };
        let result = threads::prepare(&stream).and_then(|()| {
            if spec.sends {
                let mut sent = SentFlow::new(spec.entity, start_ns, self.plan);
                let result = self.send(&stream, link, &mut sent, &mut report.lateness);
                report.sent = Some(sent);
                result
            } else {
                let mut received = ReceivedFlow::new(spec.entity, start_ns, self.plan);
                let result = self.receive(&stream, link, &mut received);
                report.received = Some(received);
                result
            }
        });
        if self.control.is_cut() {
            // How it broke tells nothing: it was broken from here.
        } else if let Err(error) = result {
            report.failure = Some(own.failure(own.operation(), &self.guard.explain(error)));
        } else if self.guard.silenced() {
            let silent = self.guard.explain(io::Error::other("ended"));
            report.failure = Some(own.failure(own.operation(), &silent));
        }
        if self.control.aborted() || report.failure.is_some() {
            // The peer must not wait for what will not come.
            let _ = socket::reset_on_close(stream.as_fd());
        }
        report
    }

    fn send(
        &self,
        flow: &TcpStream,
        link: Option<&Link>,
        sent: &mut SentFlow,
        lateness: &mut Option<(Lateness, Ticks)>,
    ) -> io::Result<()> {
        let plan = self.plan;
        clock::set_timer_slack_least();
        let block = payload(usize::try_from(plan.size_bytes).unwrap_or(BLOCK_BYTES).min(BLOCK_BYTES));
        let opening = match link {
            Some(Link::Way(way)) => [&way.token, block.as_slice()].concat(),
            _ => Vec::new(),
        };
        let mut answer = vec![0; if plan.reply == Reply::Echo { block.len() } else { 1 }];
        let start = self.control.start_at();
        let ticks = plan.every.map(|every| Ticks::new(start.as_ns(), 1e9 / nanoseconds(every) as f64));
        let mut late = Lateness::default();
        let mut moved = Moved { guard: self.guard, control: self.control, steps: 0 };
        let mut made: Option<TcpStream> = None;
        if plan.reply == Reply::None {
            self.guard.end_sending_when_stopped();
        }
        if !wait_for_start(self.control, start) {
            return Ok(());
        }
        let relative = |at_ns: u64| at_ns as i64 - start.as_ns() as i64;
        let mut burst = |number: u64, began_ns: u64, moved: &mut Moved<'_>| {
            let fresh = plan.connection == Connection::PerBurst || number == 0;
            if let (Some(Link::Way(way)), true) = (link, fresh) {
                let before_ns = now_ns();
                let stream = way.connect(&plan.tcp).map_err(|error| at(number, "connecting", &error))?;
                sent.connect_ns.push((now_ns() - before_ns) as i64);
                self.guard.attend(stream.as_fd());
                made = Some(stream);
            }
            let stream = made.as_ref().unwrap_or(flow);
            let before: &[u8] = if made.is_some() && fresh { &opening } else { &[] };
            write(stream, before, &block, plan.size_bytes, moved)
                .map_err(|error| at(number, "sending", &error))?;
            if plan.waits_for_sign() {
                hear_sign(stream, moved).map_err(|error| at(number, "waiting for its arrival", &error))?;
            } else if let Some(size) = plan.answer_bytes() {
                let times = read(stream, &mut answer, size, moved)
                    .map_err(|error| at(number, "waiting for the reply", &error))?;
                let Some((first_ns, last_ns)) = times else {
                    return Err(at(number, "waiting for the reply", &ended_early()));
                };
                sent.first_ns.push(relative(first_ns));
                sent.done_ns.push(relative(last_ns));
            }
            if plan.connection == Connection::PerBurst
                && let Some(stream) = made.take()
            {
                let before_ns = now_ns();
                close(&stream).map_err(|error| at(number, "closing", &error))?;
                let closed_ns = now_ns();
                sent.disconnect_ns.push((closed_ns - before_ns) as i64);
                sent.closed_ns.push(relative(closed_ns));
                self.guard.leave();
            }
            sent.began_ns.push(relative(began_ns));
            Ok(())
        };
        for number in 0..plan.bursts() {
            let mut began_ns = now_ns();
            if let Some(ticks) = &ticks {
                let at_ns = ticks.at_ns(number);
                if began_ns < at_ns {
                    if !self.wait_until(at_ns, ticks.period_ns()) {
                        break;
                    }
                    late.meet(now_ns().saturating_sub(at_ns));
                }
                began_ns = at_ns;
            }
            if self.control.stopping() {
                break;
            }
            match burst(number, began_ns, &mut moved) {
                Ok(()) => {}
                // It was cut, and does not count.
                Err(_) if self.control.stopping() => break,
                Err(error) => return Err(error),
            }
        }
        if let Some(ticks) = ticks {
            sent.account = late.account(&ticks);
            *lateness = Some((late, ticks));
        }
        let whole = sent.began_ns.len() as u64 == plan.bursts();
        if let Some(stream) = made {
            let closed = close(&stream);
            self.guard.leave();
            if whole {
                closed?;
            }
        }
        if plan.reply == Reply::None {
            let ended_ns = self.guard.ended_sending_ns();
            if whole && ended_ns.is_none() {
                sent.clock = Some(offset::ask(flow, || moved.step(0))?);
            } else {
                // Without an answer it is not known when the bursts arrived, and the rest of the outcome stands.
                sent.clock = offset::ask_by_end(flow, ended_ns).ok();
            }
        }
        let _ = flow.shutdown(Shutdown::Write);
        Ok(())
    }

    /// False when the load was called off before `at_ns`.
    fn wait_until(&self, at_ns: u64, period_ns: f64) -> bool {
        let awake_ns = nanoseconds(AWAKE).min((period_ns / 10.0) as u64);
        let wake = Instant::from_ns(at_ns.saturating_sub(awake_ns));
        loop {
            if self.control.stopping() {
                return false;
            }
            let now = clock::monotonic();
            if now >= wake {
                break;
            }
            clock::sleep_until(wake.min(now + LOOK));
        }
        while now_ns() < at_ns {
            std::hint::spin_loop();
        }
        true
    }

    fn receive(&self, flow: &TcpStream, link: Option<&Link>, received: &mut ReceivedFlow) -> io::Result<()> {
        let plan = self.plan;
        let room = usize::try_from(plan.size_bytes).unwrap_or(BLOCK_BYTES).min(BLOCK_BYTES);
        let mut block = vec![0; room];
        let answer = payload(if plan.reply == Reply::Echo { room } else { 1 });
        let start = self.control.start_at();
        let mut moved = Moved { guard: self.guard, control: self.control, steps: 0 };
        let mut made: Option<TcpStream> = None;
        if !wait_for_start(self.control, start) {
            return Ok(());
        }
        let relative = |at_ns: u64| at_ns as i64 - start.as_ns() as i64;
        let mut whole = true;
        for number in 0..plan.bursts() {
            if let (Some(Link::Door(door)), true) =
                (link, plan.connection == Connection::PerBurst || number == 0)
            {
                let Some(stream) = door.accept(flow, self.control, self.guard)? else {
                    whole = false;
                    break;
                };
                threads::prepare(&stream)?;
                stream.set_nodelay(plan.tcp.nodelay)?;
                self.guard.attend(stream.as_fd());
                made = Some(stream);
            }
            let stream = made.as_ref().unwrap_or(flow);
            let times = match read(stream, &mut block, plan.size_bytes, &mut moved) {
                Ok(Some(times)) => times,
                Err(error) if !self.control.stopping() => return Err(at(number, "receiving", &error)),
                // The sender has been told to stop, and may not have ended what was under way.
                _ => {
                    whole = false;
                    break;
                }
            };
            received.first_ns.push(relative(times.0));
            received.last_ns.push(relative(times.1));
            if plan.waits_for_sign() {
                say_sign(stream, &mut moved).map_err(|error| at(number, "replying", &error))?;
            } else if let Some(size) = plan.answer_bytes() {
                write(stream, &[], &answer, size, &mut moved)
                    .map_err(|error| at(number, "replying", &error))?;
            }
            if plan.connection == Connection::PerBurst
                && let Some(stream) = made.take()
            {
                ended(&stream).map_err(|error| at(number, "closing", &error))?;
                self.guard.leave();
            }
        }
        if let Some(stream) = made {
            if whole {
                ended(&stream)?;
            }
            self.guard.leave();
        }
        if whole {
            // Until the sender has nothing left to ask.
            return offset::answer(flow, || moved.step(0));
        }
        if plan.reply == Reply::None {
            // What arrived is worth something only with the offset of the clocks. A sender that is gone asks nothing.
            let _ = offset::answer_end(flow);
        }
        Ok(())
    }
}

fn ended_early() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the peer ended the connection")
}

/// The byte by which the sender knows that a burst without reply is complete: it is no payload.
fn hear_sign(mut stream: &TcpStream, moved: &mut Moved<'_>) -> io::Result<()> {
    stream.read_exact(&mut [0]).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => ended_early(),
        _ => error,
    })?;
    moved.step(0);
    Ok(())
}

fn say_sign(mut stream: &TcpStream, moved: &mut Moved<'_>) -> io::Result<()> {
    stream.write_all(&[1])?;
    moved.step(0);
    Ok(())
}

fn at(number: u64, doing: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("burst {number}, {doing}: {error}"))
}

/// Sends a burst of `size` bytes. `opening` is a token with the first bytes of the burst, or nothing.
fn write(
    mut stream: &TcpStream,
    opening: &[u8],
    block: &[u8],
    size: u64,
    moved: &mut Moved<'_>,
) -> io::Result<()> {
    let mut left = size;
    if !opening.is_empty() {
        stream.write_all(opening)?;
        left -= (opening.len() - TOKEN_BYTES) as u64;
        moved.sent(opening.len() - TOKEN_BYTES);
    }
    while left > 0 {
        let count = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        stream.write_all(&block[..count])?;
        left -= count as u64;
        moved.sent(count);
    }
    Ok(())
}

/// Receives `size` bytes: when the first and the last of them were there. `None`: the peer ended before the first.
fn read(
    mut stream: &TcpStream,
    block: &mut [u8],
    size: u64,
    moved: &mut Moved<'_>,
) -> io::Result<Option<(u64, u64)>> {
    let (mut left, mut first_ns, mut last_ns) = (size, None, 0);
    while left > 0 {
        let room = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match stream.read(&mut block[..room]) {
            Ok(0) if first_ns.is_none() => return Ok(None),
            Ok(0) => {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "the peer ended inside a burst"));
            }
            Ok(count) => {
                left -= count as u64;
                moved.step(count);
                if first_ns.is_none() || left == 0 {
                    last_ns = now_ns();
                    first_ns.get_or_insert(last_ns);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(first_ns.map(|first_ns| (first_ns, last_ns)))
}

/// Closes our side and waits until the other is closed.
fn close(stream: &TcpStream) -> io::Result<()> {
    match stream.shutdown(Shutdown::Write) {
        Err(error) if error.kind() != ErrorKind::NotConnected => Err(error),
        _ => ended(stream),
    }
}

/// Waits until the other side is closed.
fn ended(mut stream: &TcpStream) -> io::Result<()> {
    match stream.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::Error::new(ErrorKind::InvalidData, "the peer sent more than it should have")),
    }
}
