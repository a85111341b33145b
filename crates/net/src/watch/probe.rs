//! Short tests within a watch: each makes a connection, sends as fast as that takes it for its time, and ends it. The receiver's
//! count is the figure, as it is of any scheduled test.

use super::plan::WatchPlan;
use crate::door::{CONNECT_LIMIT, Door, Way};
use crate::stream::engine::payload;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use weir_core::Instant;
use weir_core::time::nanoseconds;
use weir_seams::workload::Control;
use weir_sys::poll::{self, Interest};
use weir_sys::{clock, socket};
use weir_transport::tcp_options::TcpOptions;

/// Longest wait before the orders are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// What a probe may take to end once it has sent for its time.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
const BLOCK_BYTES: usize = 128 << 10;
/// Shorter than asked for by more than this and a probe gives no figure.
const LENGTH_TOLERANCE: f64 = 0.01;

/// One probe as one of its ends saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// From 0, by its place in the plan.
    pub number: u32,
    /// When it began, ns from the step's start by this end's clock.
    pub began_ns: i64,
    /// The receiver's: payload and the time it came in.
    #[serde(default)]
    pub bytes: u64,
    #[serde(default)]
    pub length_ns: u64,
    /// Why it gave no figure.
    #[serde(default)]
    pub failure: Option<String>,
}

impl Probe {
    pub fn goodput(&self) -> Option<f64> {
        (self.failure.is_none() && self.length_ns > 0)
            .then(|| self.bytes as f64 * 8.0 / (self.length_ns as f64 / 1e9))
    }
}

/// One end of a pair's probes.
pub struct Probing<'a> {
    pub plan: &'a WatchPlan,
    pub control: &'a Control,
}

fn due(start: Instant, every: Duration, number: u64) -> Instant {
    start + Duration::from_nanos(nanoseconds(every).saturating_mul(number))
}

impl Probing<'_> {
    fn over(&self) -> bool {
        self.control.stopping()
    }

    fn since_start(&self, at: Instant) -> i64 {
        let (at, start) = (at.as_ns(), self.control.start_at().as_ns());
        i64::try_from(at.saturating_sub(start)).unwrap_or(i64::MAX)
    }

    /// False where the load is over before.
    fn sleep_until(&self, at: Instant) -> bool {
        loop {
            if self.over() {
                return false;
            }
            let now = clock::monotonic();
            if now >= at {
                return true;
            }
            clock::sleep_until(at.min(now + LOOK));
        }
    }

    /// The sending end: every probe on its time, one that could not be made with its reason.
    pub fn send_all(&self, way: &Way) -> Vec<Probe> {
        let count = self.plan.probe_count();
        let mut probes = Vec::with_capacity(count as usize);
        let Some(every) = self.plan.probe_every else { return probes };
        let block = payload(BLOCK_BYTES);
        for number in 0..count {
            if !self.sleep_until(due(self.control.start_at(), every, number)) {
                break;
            }
            let began_ns = self.since_start(clock::monotonic());
            let number = number as u32;
            let sent = self.send(way, number, &block);
            if self.over() {
                break;
            }
            let failure = sent.err().map(|error| error.to_string());
            probes.push(Probe { number, began_ns, bytes: 0, length_ns: 0, failure });
        }
        probes
    }

    fn send(&self, way: &Way, number: u32, block: &[u8]) -> io::Result<()> {
        // As fast as it can, whatever holds the long flow back.
        let options = TcpOptions { pacing: None, ..self.plan.stream.tcp.clone() };
        let mut stream = way.connect(&options)?;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(LOOK))?;
        let end = clock::monotonic() + self.plan.probe_duration;
        let mut greeting = way.token.to_vec();
        greeting.extend_from_slice(&number.to_le_bytes());
        stream.write_all(&greeting)?;
        while clock::monotonic() < end && !self.over() {
            match stream.write(block) {
                Ok(_) => {}
                Err(error) if passes(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if self.control.is_cut() {
            let _ = socket::reset_on_close(stream.as_fd());
            return Ok(());
        }
        stream.shutdown(Shutdown::Write)?;
        // The receiver closes when it has had all.
        stream.set_read_timeout(Some(LOOK))?;
        let until = clock::monotonic() + DRAIN_LIMIT;
        loop {
            match stream.read(&mut [0; 16]) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if passes(&error) => {}
                Err(error) => return Err(error),
            }
            if clock::monotonic() >= until || self.control.is_cut() {
                let _ = socket::reset_on_close(stream.as_fd());
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    format!("not drained {DRAIN_LIMIT:?} after its end"),
                ));
            }
        }
    }

    /// The receiving end: what came of each probe that connected.
    pub fn receive_all(&self, door: &Door) -> io::Result<Vec<Probe>> {
        let count = self.plan.probe_count();
        let mut probes = Vec::with_capacity(count as usize);
        let Some(every) = self.plan.probe_every else { return Ok(probes) };
        let last = due(self.control.start_at(), every, count.saturating_sub(1));
        let over = last + self.plan.probe_duration.min(Duration::from_secs(1)) + CONNECT_LIMIT;
        let mut block = vec![0; BLOCK_BYTES];
        while let Some(stream) = door.accept_until(|| Ok(self.over() || clock::monotonic() > over))? {
            let Ok(probe) = self.receive(stream, &mut block) else { continue };
            let number = u64::from(probe.number);
            if number < count && !self.over() {
                probes.push(probe);
            }
            if number + 1 == count || probes.len() as u64 >= count {
                break;
            }
        }
        Ok(probes)
    }

    /// Errors: the connection is of no probe.
    fn receive(&self, mut stream: TcpStream, block: &mut [u8]) -> io::Result<Probe> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        let mut number = [0; 4];
        stream.read_exact(&mut number)?;
        let began = clock::monotonic();
        let mut probe = Probe {
            number: u32::from_le_bytes(number),
            began_ns: self.since_start(began),
            bytes: 0,
            length_ns: 0,
            failure: None,
        };
        let end = began + self.plan.probe_duration;
        let drained = end + DRAIN_LIMIT;
        let (mut bytes, mut counted) = (0_u64, None);
        probe.failure = loop {
            let now = clock::monotonic();
            if now >= end && counted.is_none() {
                counted = Some((now, bytes));
            }
            if now >= drained {
                break Some(format!("its end never came, {DRAIN_LIMIT:?} after its time"));
            }
            if self.control.is_cut() {
                break Some("called off".to_owned());
            }
            let wait = if now < end { end.since(now).min(LOOK) } else { LOOK };
            if !poll::wait(stream.as_fd(), Interest::Readable, wait)? {
                continue;
            }
            match stream.read(block) {
                Ok(0) => break None,
                Ok(count) => {
                    bytes += count as u64;
                    self.control.advance(count as u64);
                }
                Err(error) if passes(&error) => {}
                Err(error) => break Some(format!("receive failed after {bytes} bytes: {error}")),
            }
        };
        let (at, bytes) = counted.unwrap_or_else(|| (clock::monotonic(), bytes));
        (probe.bytes, probe.length_ns) = (bytes, at.as_ns() - began.as_ns());
        let planned = nanoseconds(self.plan.probe_duration) as f64;
        if probe.failure.is_none() && (probe.length_ns as f64) < planned * (1.0 - LENGTH_TOLERANCE) {
            probe.failure = Some(format!("ended after {:.3} s", probe.length_ns as f64 / 1e9));
        }
        Ok(probe)
    }
}

fn passes(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
