//! The sending end of a flow.

use super::clock::{Ending, Schedule};
use super::pace::Pace;
use super::receive::Turn;
use super::samples::Samples;
use crate::rendezvous::FlowSpec;
use crate::watch::tape::SenderTape;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use weir_core::failure::Failure;
use weir_core::time::nanoseconds;
use weir_sys::errno;
use weir_sys::socket;
use weir_sys::tcp_info::TcpInfo;

/// How much later than its tick the sample of a flow is that does not move by itself.
const QUIET_NS: u64 = 10_000_000;

/// What of `TCP_INFO` goes into the series.
#[derive(Clone, Copy, Debug)]
pub struct TcpSample {
    pub congestion_window_segments: u32,
    pub in_flight_segments: u32,
    pub rtt_us: u32,
    pub retransmitted_segments: u32,
    pub peer_window_bytes: Option<u32>,
    pub application_limited: bool,
}

impl From<&TcpInfo> for TcpSample {
    fn from(info: &TcpInfo) -> Self {
        TcpSample {
            congestion_window_segments: info.snd_cwnd_segments,
            in_flight_segments: info.unacked_segments,
            rtt_us: info.rtt_us,
            retransmitted_segments: info.total_retrans_segments,
            peer_window_bytes: info.snd_wnd_bytes,
            application_limited: info.application_limited,
        }
    }
}

/// Counters of the kernel at a true time.
#[derive(Clone, Copy, Debug)]
pub struct InfoAt {
    pub at_ns: u64,
    pub info: TcpInfo,
    /// What the kernel had taken by then.
    pub sent_bytes: u64,
    /// How long the sending program had waited for its own ticks by then.
    pub waited_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Sending,
    /// All is written; the peer's end says that all was received.
    Draining {
        unacknowledged: u64,
        progress_ns: u64,
        since_ns: u64,
    },
    Done,
}

pub struct Sender {
    pub spec: FlowSpec,
    pub stream: TcpStream,
    pub sent_bytes: u64,
    /// Left to send; `u64::MAX` for a flow bounded by time.
    remaining: u64,
    /// When it sends its first byte, and whether it has got there.
    begin_ns: u64,
    begun: bool,
    /// The last send.
    last_ns: u64,
    /// The source's own clock, where it has one.
    pub source: Option<Pace>,
    pub at_start: Option<InfoAt>,
    pub at_warm: Option<InfoAt>,
    pub at_end: Option<InfoAt>,
    pub at_last: Option<InfoAt>,
    pub samples: Samples<TcpSample>,
    /// Takes every sample in full, where the flow is watched.
    pub tape: Option<SenderTape>,
    pub failure: Option<Failure>,
    phase: Phase,
}

impl Sender {
    pub fn new(
        spec: FlowSpec,
        stream: TcpStream,
        schedule: &Schedule,
        bytes: Option<u64>,
        source: Option<Pace>,
        capacity: usize,
        interval_ns: u64,
    ) -> Self {
        Sender {
            spec,
            stream,
            sent_bytes: 0,
            remaining: bytes.unwrap_or(u64::MAX),
            begin_ns: schedule.start_ns,
            begun: true,
            last_ns: schedule.start_ns,
            source,
            at_start: None,
            at_warm: None,
            at_end: None,
            at_last: None,
            samples: Samples::new(capacity, schedule.start_ns, interval_ns),
            tape: None,
            failure: None,
            phase: Phase::Sending,
        }
    }

    /// Nothing is sent before `begin_ns`, if that is after the start.
    pub fn begin_at(&mut self, begin_ns: u64) {
        self.begun = begin_ns <= self.begin_ns;
        self.begin_ns = self.begin_ns.max(begin_ns);
    }

    /// Records on `tape` from here on; the series beside it gets coarser with time.
    pub fn watch(&mut self, capacity: usize, start_ns: u64, interval_ns: u64, tape: SenderTape) {
        self.samples = Samples::beside(capacity, start_ns, interval_ns);
        self.tape = Some(tape);
    }

    pub fn done(&self) -> bool {
        self.phase == Phase::Done
    }
    pub fn draining(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. })
    }

    fn read_info(&self, at_ns: u64) -> Option<InfoAt> {
        let waited_ns = self.source.as_ref().map_or(0, |source| source.waited_ns(at_ns));
        let sent_bytes = self.sent_bytes;
        TcpInfo::read(self.stream.as_fd()).ok().map(|info| InfoAt { at_ns, info, sent_bytes, waited_ns })
    }

    pub fn seen_ns(&self) -> u64 {
        self.last_ns
    }

    /// When it has something to send again, if it waits for its own beginning or for its source.
    pub fn waits_until_ns(&self) -> Option<u64> {
        if !self.begun {
            return (self.phase == Phase::Sending).then_some(self.begin_ns);
        }
        let source = self.source.as_ref().filter(|source| source.waiting())?;
        (self.phase == Phase::Sending).then(|| source.due_ns())
    }

    /// When it must be looked at for its next sample. A flow that moves takes its samples itself, with its socket's state in
    /// the CPU's cache; waking its thread for them takes the core from whoever drains it. Only of one that stays quiet
    /// for a while longer a sample is taken from outside.
    pub fn sample_at_latest_ns(&self) -> u64 {
        // A watch wants all its samples in time, whatever that takes.
        let quiet_ns = if self.tape.is_some() { 0 } else { QUIET_NS };
        self.samples.next_due_ns().saturating_add(quiet_ns)
    }

    /// The first look, just before the first byte.
    pub fn on_start(&mut self, schedule: &Schedule, now_ns: u64) {
        self.at_start = self.read_info(now_ns);
        self.look(schedule, now_ns);
    }

    /// Sends one block, or looks for the peer's end.
    pub fn turn(&mut self, schedule: &Schedule, block: &[u8], now: impl Fn() -> u64, end_ns: u64) -> Turn {
        match self.phase {
            Phase::Sending => self.send(schedule, block, now, end_ns),
            Phase::Draining { .. } => self.drain(now, end_ns < schedule.end_ns),
            Phase::Done => Turn::Done,
        }
    }

    fn send(&mut self, schedule: &Schedule, block: &[u8], now: impl Fn() -> u64, end_ns: u64) -> Turn {
        if !self.begun {
            if now() < self.begin_ns {
                return Turn::Waiting;
            }
            self.begun = true;
        }
        let mut wanted = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(block.len());
        if let Some(source) = &mut self.source {
            wanted = wanted.min(usize::try_from(source.allowance(now())).unwrap_or(usize::MAX));
            if wanted == 0 {
                return Turn::Waiting;
            }
        }
        match self.stream.write(&block[..wanted]) {
            Ok(count) => {
                let now_ns = now();
                self.sent_bytes += count as u64;
                if self.remaining != u64::MAX {
                    self.remaining -= count as u64;
                }
                self.last_ns = now_ns;
                if let Some(source) = &mut self.source {
                    source.moved(count as u64, now_ns);
                }
                self.look(schedule, now_ns);
                if self.remaining == 0 || now_ns >= end_ns {
                    self.end(schedule, now_ns);
                    return Turn::Short;
                }
                if count == wanted { Turn::Moved } else { Turn::Short }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Turn::Blocked,
            Err(error) if error.kind() == ErrorKind::Interrupted => Turn::Moved,
            Err(error) => {
                let text = format!("send failed after {} bytes: {error}", self.sent_bytes);
                self.fail(now(), errno::name(&error), text);
                Turn::Done
            }
        }
    }

    /// Takes the samples and edges that are due.
    fn look(&mut self, schedule: &Schedule, now_ns: u64) {
        let warm = now_ns >= schedule.warm_ns && self.at_warm.is_none();
        let due = now_ns >= self.samples.next_due_ns();
        if !(warm || due) {
            return;
        }
        if let Some(at) = self.read_info(now_ns) {
            if warm {
                self.at_warm = Some(at);
            }
            self.sample(&at);
        }
    }

    fn sample(&mut self, at: &InfoAt) {
        // The end may fall together with a tick.
        if self.samples.last_ns() == Some(at.at_ns) {
            return;
        }
        self.samples.push(at.at_ns, TcpSample::from(&at.info));
        if let Some(tape) = &mut self.tape {
            tape.push(at.at_ns, &at.info);
        }
    }

    /// No more is written; the peer will see the end after the last byte, unless all is cut.
    fn end(&mut self, schedule: &Schedule, now_ns: u64) {
        self.at_end = self.read_info(now_ns);
        if let Some(at) = self.at_end {
            self.sample(&at);
        }
        if schedule.ending == Ending::Cut {
            self.finish(now_ns);
            return;
        }
        // A connection that is gone already says so at the next look.
        let _ = self.stream.shutdown(Shutdown::Write);
        self.phase = Phase::Draining { unacknowledged: u64::MAX, progress_ns: now_ns, since_ns: now_ns };
    }

    /// To be called when nothing can be written or read: samples, the end of the load, and dead peers.
    pub fn on_idle(&mut self, schedule: &Schedule, now_ns: u64, end_ns: u64) {
        match self.phase {
            Phase::Sending => {
                self.look(schedule, now_ns);
                if now_ns >= end_ns {
                    self.end(schedule, now_ns);
                } else if end_ns == u64::MAX
                    && now_ns.saturating_sub(self.last_ns) > nanoseconds(schedule.patience.stall)
                {
                    let limit = schedule.patience.stall;
                    self.fail(now_ns, None, format!("the peer took nothing for {limit:?}"));
                }
            }
            Phase::Draining { unacknowledged, progress_ns, since_ns } => {
                let left = socket::unacknowledged_bytes(self.stream.as_fd()).unwrap_or(0);
                let progress_ns = if left < unacknowledged { now_ns } else { progress_ns };
                self.phase = Phase::Draining { unacknowledged: left, progress_ns, since_ns };
                let patience = schedule.patience;
                if now_ns.saturating_sub(progress_ns) > nanoseconds(patience.drain_idle)
                    || now_ns.saturating_sub(since_ns) > nanoseconds(patience.drain)
                {
                    let text = format!(
                        "not drained: {left} bytes unacknowledged {:.1} s after the load's end",
                        now_ns.saturating_sub(since_ns) as f64 / 1e9
                    );
                    self.fail(now_ns, None, text);
                }
            }
            Phase::Done => {}
        }
    }

    /// `is_stopped`: the load ended by an order, before its time.
    fn drain(&mut self, now: impl Fn() -> u64, is_stopped: bool) -> Turn {
        let mut scrap = [0; 64];
        match self.stream.read(&mut scrap) {
            Ok(0) => {
                self.finish(now());
                Turn::Done
            }
            // A receiver has nothing to say; what it says all the same is not looked at.
            Ok(_) => Turn::Blocked,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Turn::Blocked
            }
            // After an order a receiver waits for what is on its way only so long, and what comes later is refused: nobody lost it.
            Err(error) if is_stopped && error.kind() == ErrorKind::ConnectionReset => {
                self.finish(now());
                Turn::Done
            }
            Err(error) => {
                let text = format!("the connection broke while it was drained: {error}");
                self.fail(now(), errno::name(&error), text);
                Turn::Done
            }
        }
    }

    fn fail(&mut self, now_ns: u64, code: Option<&str>, text: String) {
        let failure = self.spec.gave_up(self.spec.operation(), now_ns, text);
        self.failure = Some(Failure { code: code.map(str::to_owned), ..failure });
        self.finish(now_ns);
        let _ = socket::reset_on_close(self.stream.as_fd());
    }

    /// Ends the flow as it is: nobody is waited for.
    pub fn cut(&mut self, now_ns: u64) {
        self.finish(now_ns);
    }

    fn finish(&mut self, now_ns: u64) {
        self.at_last = self.read_info(now_ns).or(self.at_end);
        if self.at_end.is_none() {
            self.at_end = self.at_last;
        }
        self.phase = Phase::Done;
    }
}
