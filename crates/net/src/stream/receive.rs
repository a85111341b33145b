//! The receiving end of a flow: counts what comes, and when.

use super::clock::{Ending, Schedule};
use super::pace::Pace;
use super::samples::Samples;
use crate::rendezvous::FlowSpec;
use crate::watch::tape::ReceiverTape;
use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use weir_core::failure::Failure;
use weir_sys::errno;
use weir_sys::socket;
use weir_sys::tcp_info::TcpInfo;

/// What waits unread is asked of the kernel no more often than this, so that asking costs nothing to speak of.
const QUEUE_LOOK_NS: u64 = 10_000_000;

/// Without a byte for so long, a flow that was told to stop has all that had come; so long it goes on at most.
const CUT_QUIET_NS: u64 = 20_000_000;
const CUT_NS_MAX: u64 = 1_000_000_000;

/// A counter read at a true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    pub at_ns: u64,
    /// What the kernel had for the program by then, read or not.
    pub bytes: u64,
    /// How long the receiving program had waited for its own ticks by then.
    pub waited_ns: u64,
}

/// What lay unread in the kernel just after the program had read, over the steady state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Unread {
    pub looks: u64,
    pub bytes_sum: f64,
    /// Of unread / (unread + window still advertised), over the looks at which the kernel told the window.
    pub ratio_sum: f64,
    pub ratio_looks: u64,
    next_ns: u64,
}

pub struct Receiver {
    pub spec: FlowSpec,
    pub stream: TcpStream,
    pub bytes: u64,
    /// When its sender begins.
    begin_ns: u64,
    pub first_ns: Option<u64>,
    /// The last receive with data, the start before the first.
    pub last_ns: u64,
    /// The last time the clock was looked at for this flow, data or not.
    pub looked_ns: u64,
    gap_max_ns: u64,
    /// The reader's own clock, where it has one; not heeded once the load has ended, so that the drain is short.
    pub reader: Option<Pace>,
    released: bool,
    /// The kernel counts and frees what comes; nothing is copied.
    discard: bool,
    pub unread: Unread,
    /// Cap on the window, where one was asked for.
    window: Option<u64>,
    /// Receives after which the cap is looked at each time; later with the samples.
    window_looks: u32,
    pub steady_start: Option<Edge>,
    pub steady_end: Option<Edge>,
    pub samples: Samples<u64>,
    /// Takes every sample, where the flow is watched.
    pub tape: Option<ReceiverTape>,
    pub failure: Option<Failure>,
    /// Bytes not yet added to the live progress.
    unreported: u64,
    pub done: bool,
}

/// What a call on a flow came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Moved a full block; there may be more.
    Moved,
    /// Moved less than a block: no more for now.
    Short,
    /// Nothing could be moved.
    Blocked,
    /// The program itself waits for its next tick.
    Waiting,
    Done,
}

impl Receiver {
    pub fn new(
        spec: FlowSpec,
        stream: TcpStream,
        schedule: &Schedule,
        reader: Option<Pace>,
        capacity: usize,
        interval_ns: u64,
    ) -> Self {
        // Nothing can have come before the start, so that without a warm-up the first edge is known exactly.
        let start = Edge { at_ns: schedule.start_ns, bytes: 0, waited_ns: 0 };
        let mut samples = Samples::new(capacity, schedule.start_ns, interval_ns);
        samples.push(schedule.start_ns, 0);
        Receiver {
            spec,
            stream,
            bytes: 0,
            begin_ns: schedule.start_ns,
            first_ns: None,
            last_ns: schedule.start_ns,
            looked_ns: schedule.start_ns,
            gap_max_ns: 0,
            reader,
            released: false,
            discard: false,
            unread: Unread { next_ns: schedule.warm_ns, ..Unread::default() },
            window: None,
            window_looks: 256,
            steady_start: (schedule.warm_ns == schedule.start_ns).then_some(start),
            steady_end: None,
            samples,
            tape: None,
            failure: None,
            unreported: 0,
            done: false,
        }
    }

    /// Nothing is expected before `begin_ns`, if that is after the start.
    pub fn begin_at(&mut self, begin_ns: u64) {
        self.begin_ns = self.begin_ns.max(begin_ns);
    }

    /// Holds the window down to `window`. Since Linux 6.9 the kernel replaces a clamp by what the receive buffer allows whenever
    /// it learns of larger segments, so it is set again as long as that may happen.
    pub fn hold_window(&mut self, window: Option<u64>) {
        self.window = window;
    }

    /// Lets the kernel throw the payload away instead of copying it.
    pub fn discard_payload(&mut self, discard: bool) {
        self.discard = discard;
    }

    fn enforce_window(&mut self, due: bool) {
        let Some(window) = self.window else { return };
        if !due && self.window_looks == 0 {
            return;
        }
        self.window_looks = self.window_looks.saturating_sub(1);
        if socket::window_clamp(self.stream.as_fd()).is_ok_and(|clamp| clamp != window) {
            // If it is refused now, the window seen by the sender is in the series all the same.
            let _ = socket::set_window_clamp(self.stream.as_fd(), window);
        }
    }

    /// Receives once into `block`.
    pub fn turn(&mut self, schedule: &Schedule, block: &mut [u8], now: impl Fn() -> u64) -> Turn {
        let mut block = block;
        if let Some(reader) = self.reader.as_mut().filter(|_| !self.released) {
            let allowance = usize::try_from(reader.allowance(now())).unwrap_or(usize::MAX);
            if allowance == 0 {
                return Turn::Waiting;
            }
            let wanted = allowance.min(block.len());
            block = &mut block[..wanted];
        }
        let received = if self.discard {
            socket::discard(self.stream.as_fd(), block.len())
        } else {
            self.stream.read(block)
        };
        match received {
            Ok(0) => {
                self.on_end(schedule, now());
                Turn::Done
            }
            Ok(count) => {
                self.on_received(schedule, now(), count as u64);
                if count == block.len() { Turn::Moved } else { Turn::Short }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Turn::Blocked,
            Err(error) if error.kind() == ErrorKind::Interrupted => Turn::Moved,
            Err(error) => {
                self.on_failure(schedule, now(), &error);
                Turn::Done
            }
        }
    }

    fn on_received(&mut self, schedule: &Schedule, now_ns: u64, count: u64) {
        let gap_end = now_ns.min(schedule.end_ns);
        if self.first_ns.is_none() {
            self.first_ns = Some(now_ns);
            if self.samples.last_ns() < Some(self.begin_ns) && self.begin_ns < now_ns {
                // Until then there was nothing to come.
                self.samples.push(self.begin_ns, 0);
            }
        } else {
            self.gap_max_ns = self.gap_max_ns.max(gap_end.saturating_sub(self.last_ns));
        }
        let due = now_ns >= self.samples.next_due_ns();
        if due
            && now_ns.saturating_sub(self.last_ns) > self.samples.interval_ns()
            && self.samples.last_ns() < Some(self.last_ns)
        {
            // Nothing came for longer than an interval: without this the pause would look like a slow slope.
            self.sample(self.last_ns);
        }
        self.bytes += count;
        self.unreported += count;
        self.last_ns = now_ns;
        if let Some(reader) = &mut self.reader {
            reader.moved(count, now_ns);
        }
        self.look_at_queue(schedule, now_ns);
        if due {
            self.sample(now_ns);
        }
        self.enforce_window(due);
        self.look(schedule, now_ns);
    }

    fn sample(&mut self, at_ns: u64) {
        self.samples.push(at_ns, self.bytes);
        if let Some(tape) = &mut self.tape {
            tape.push(at_ns, self.bytes);
        }
    }

    /// Records on `tape` from here on; the series beside it gets coarser with time.
    pub fn watch(&mut self, capacity: usize, start_ns: u64, interval_ns: u64, tape: ReceiverTape) {
        self.samples = Samples::beside(capacity, start_ns, interval_ns);
        self.tape = Some(tape);
        self.sample(start_ns);
    }

    fn look_at_queue(&mut self, schedule: &Schedule, now_ns: u64) {
        if now_ns < self.unread.next_ns || now_ns >= schedule.end_ns {
            return;
        }
        self.unread.next_ns = now_ns + QUEUE_LOOK_NS.max(self.samples.interval_ns());
        let Ok(bytes) = socket::unread_bytes(self.stream.as_fd()) else { return };
        self.unread.looks += 1;
        self.unread.bytes_sum += bytes as f64;
        let window = TcpInfo::read(self.stream.as_fd()).ok().and_then(|info| info.rcv_wnd_bytes);
        if let Some(window) = window.filter(|window| u64::from(*window) + bytes > 0) {
            self.unread.ratio_sum += bytes as f64 / (bytes as f64 + f64::from(window));
            self.unread.ratio_looks += 1;
        }
    }

    /// When the reader takes something again, if it waits for that.
    pub fn waits_until_ns(&self) -> Option<u64> {
        let reader = self.reader.as_ref().filter(|reader| reader.waiting())?;
        (!self.done && !self.released).then(|| reader.due_ns())
    }

    /// Reads the counter at an edge of the steady state that has just been passed.
    pub fn look(&mut self, schedule: &Schedule, now_ns: u64) {
        self.looked_ns = now_ns;
        let waited_ns = self.reader.as_ref().map_or(0, |reader| reader.waited_ns(now_ns));
        let begins = now_ns >= schedule.warm_ns && self.steady_start.is_none();
        let ends = now_ns >= schedule.end_ns && self.steady_end.is_none();
        if !(begins || ends) {
            return;
        }
        let here = Some(Edge { at_ns: now_ns, bytes: self.arrived(), waited_ns });
        if begins {
            self.steady_start = here;
        }
        if ends {
            self.steady_end = here;
        }
    }

    /// What has come by now, whether the program had a core to read it or not. What a reader with a clock of its own leaves unread,
    /// it leaves on purpose.
    fn arrived(&self) -> u64 {
        let unread = match self.reader {
            Some(_) => 0,
            None => socket::unread_bytes(self.stream.as_fd()).unwrap_or(0),
        };
        self.bytes + unread
    }

    /// To be called when nothing can be received: notes edges, and gives up on a flow that is dead. `end_ns` is when the
    /// load ended or will end.
    pub fn on_idle(&mut self, schedule: &Schedule, now_ns: u64, end_ns: u64) {
        self.look(schedule, now_ns);
        self.released |= now_ns >= end_ns;
        if schedule.ending == Ending::Cut && now_ns >= end_ns {
            let quiet_ns = now_ns - end_ns.max(self.last_ns).min(now_ns);
            // A planned end is where it is; of an order to stop it is not known how much had come before it and is still unread.
            if schedule.duration_bounded() || quiet_ns >= CUT_QUIET_NS || now_ns - end_ns >= CUT_NS_MAX {
                self.finish(schedule, now_ns);
            }
            return;
        }
        let quiet_ns = now_ns.saturating_sub(self.last_ns.max(end_ns));
        let patience = schedule.patience;
        let text = if now_ns > end_ns && quiet_ns > weir_core::time::nanoseconds(patience.drain_idle) {
            format!(
                "its end never came; nothing was received for {:?} after the load's end",
                patience.drain_idle
            )
        } else if end_ns == u64::MAX
            && now_ns.saturating_sub(self.last_ns) > weir_core::time::nanoseconds(patience.stall)
        {
            format!("nothing was received for {:?}", patience.stall)
        } else {
            return;
        };
        self.give_up(schedule, now_ns, text);
    }

    /// When data still comes long after the end.
    pub fn on_overdue(&mut self, schedule: &Schedule, now_ns: u64) {
        let text = format!("still not drained {:?} after the load's end", schedule.patience.drain);
        self.give_up(schedule, now_ns, text);
    }

    fn give_up(&mut self, schedule: &Schedule, now_ns: u64, text: String) {
        self.failure = Some(self.spec.gave_up(self.spec.operation(), now_ns, text));
        self.finish(schedule, now_ns);
        // What a live but slow peer still has is of no use any more; it hears so at once.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn on_end(&mut self, schedule: &Schedule, now_ns: u64) {
        self.finish(schedule, now_ns);
        // The sender waits for it: everything has been received.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    fn on_failure(&mut self, schedule: &Schedule, now_ns: u64, error: &io::Error) {
        let text = format!("receive failed after {} bytes: {error}", self.bytes);
        let failure = self.spec.gave_up(self.spec.operation(), now_ns, text);
        self.failure = Some(Failure { code: errno::name(error).map(str::to_owned), ..failure });
        self.finish(schedule, now_ns);
    }

    /// Ends the flow as it is. What came until its last byte counts over the time until then: how long nobody noticed that no more
    /// would come says nothing of the path.
    pub fn cut(&mut self, schedule: &Schedule, now_ns: u64) {
        let waited_ns = self.reader.as_ref().map_or(0, |reader| reader.waited_ns(self.last_ns));
        if self.steady_end.is_none() && self.last_ns < schedule.end_ns {
            self.steady_end = Some(Edge { at_ns: self.last_ns, bytes: self.bytes, waited_ns });
        }
        self.finish(schedule, now_ns);
    }

    fn finish(&mut self, schedule: &Schedule, now_ns: u64) {
        // A flow bounded by bytes is over with its last byte, any other when its end is seen.
        let over_ns = if schedule.duration_bounded() { now_ns } else { self.last_ns };
        self.look(schedule, now_ns);
        if self.steady_end.is_none() {
            let waited_ns = self.reader.as_ref().map_or(0, |reader| reader.waited_ns(over_ns));
            self.steady_end = Some(Edge { at_ns: over_ns, bytes: self.bytes, waited_ns });
        }
        if schedule.duration_bounded() || self.failure.is_some() {
            let until = now_ns.min(schedule.end_ns);
            let since_ns = if self.first_ns.is_some() { self.last_ns } else { self.begin_ns };
            self.gap_max_ns = self.gap_max_ns.max(until.saturating_sub(since_ns));
        }
        if self.samples.last_ns() < Some(self.last_ns) {
            self.sample(self.last_ns);
        }
        if let Some(edge) =
            self.steady_end.filter(|edge| schedule.ending == Ending::Cut && edge.bytes > self.bytes)
        {
            // Nobody will read what had arrived before the cut, and it counts all the same.
            self.unreported += edge.bytes - self.bytes;
            self.bytes = edge.bytes;
            self.sample(edge.at_ns.max(self.samples.last_ns().map_or(0, |at_ns| at_ns + 1)));
        }
        self.done = true;
    }

    /// Longest time between two receives with data, from the first byte to the planned end (or the last byte of a flow
    /// bounded by bytes).
    pub fn stalled_ns(&self) -> u64 {
        self.gap_max_ns
    }

    /// Bytes since it was last asked, for the live progress.
    pub fn take_unreported(&mut self) -> u64 {
        std::mem::take(&mut self.unreported)
    }
    pub fn unreported(&self) -> u64 {
        self.unreported
    }
}
