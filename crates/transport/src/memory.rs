//! A transport inside one process: what weir itself costs, and a peer for tests.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use weir_seams::transport::{Connection, Counters, Listener, Transport};

/// Bytes one direction holds before the sender waits.
const PIPE_BYTES: usize = 256 * 1024;
/// Connections that wait to be accepted.
const BACKLOG: usize = 128;

pub struct Memory;

#[derive(Default)]
struct PipeState {
    bytes: VecDeque<u8>,
    ended: bool,
}

/// One direction.
#[derive(Default)]
struct Pipe {
    state: Mutex<PipeState>,
    changed: Condvar,
}

/// A panic of one end must not become a panic of the other: the bytes are whole after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pipe {
    /// Waits until `ready` or the deadline.
    fn wait_until<'a>(
        &'a self,
        deadline: Option<Instant>,
        ready: impl Fn(&PipeState) -> bool,
    ) -> io::Result<MutexGuard<'a, PipeState>> {
        let mut state = lock(&self.state);
        while !ready(&state) {
            state = match deadline {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        Ok(state)
    }

    fn end(&self) {
        lock(&self.state).ended = true;
        self.changed.notify_all();
    }
}

struct MemoryConnection {
    outgoing: Arc<Pipe>,
    incoming: Arc<Pipe>,
    limit: Option<Duration>,
    counters: Counters,
}

impl MemoryConnection {
    fn deadline(&self) -> Option<Instant> {
        self.limit.and_then(|limit| Instant::now().checked_add(limit))
    }
}

impl Connection for MemoryConnection {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let deadline = self.deadline();
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut state =
                self.outgoing.wait_until(deadline, |state| state.ended || state.bytes.len() < PIPE_BYTES)?;
            if state.ended {
                return Err(ErrorKind::BrokenPipe.into());
            }
            let count = rest.len().min(PIPE_BYTES - state.bytes.len());
            state.bytes.extend(&rest[..count]);
            drop(state);
            self.outgoing.changed.notify_all();
            self.counters.sent_bytes += count as u64;
            rest = &rest[count..];
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let deadline = self.deadline();
        let mut filled = 0;
        while filled < bytes.len() {
            let mut state =
                self.incoming.wait_until(deadline, |state| state.ended || !state.bytes.is_empty())?;
            if state.bytes.is_empty() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let count = (bytes.len() - filled).min(state.bytes.len());
            for (slot, byte) in bytes[filled..filled + count].iter_mut().zip(state.bytes.drain(..count)) {
                *slot = byte;
            }
            drop(state);
            self.incoming.changed.notify_all();
            self.counters.received_bytes += count as u64;
            filled += count;
        }
        Ok(())
    }

    fn set_timeout(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.limit = limit;
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        self.outgoing.end();
        self.incoming.end();
    }
}

/// Connections waiting at one address.
#[derive(Default)]
struct Waiting {
    queue: Mutex<VecDeque<MemoryConnection>>,
    arrived: Condvar,
}

/// The last number given, and who listens.
type Listeners = (u64, BTreeMap<u64, Arc<Waiting>>);

/// Listeners of this process by number; the address is `memory:NUMBER`.
fn listeners() -> &'static Mutex<Listeners> {
    static LISTENERS: OnceLock<Mutex<Listeners>> = OnceLock::new();
    LISTENERS.get_or_init(Mutex::default)
}

struct MemoryListener {
    number: u64,
    waiting: Arc<Waiting>,
}

impl Listener for MemoryListener {
    fn address(&self) -> String {
        format!("memory:{}", self.number)
    }

    fn accept(&mut self, limit: Duration) -> io::Result<Box<dyn Connection>> {
        let queue = lock(&self.waiting.queue);
        let (mut queue, _) = self
            .waiting
            .arrived
            .wait_timeout_while(queue, limit, |queue| queue.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        match queue.pop_front() {
            Some(connection) => Ok(Box::new(connection)),
            None => Err(ErrorKind::TimedOut.into()),
        }
    }
}

impl Drop for MemoryListener {
    fn drop(&mut self) {
        lock(listeners()).1.remove(&self.number);
        lock(&self.waiting.queue).clear();
    }
}

impl Transport for Memory {
    /// Any address gives a fresh `memory:NUMBER`.
    fn listen(&self, _address: &str) -> io::Result<Box<dyn Listener>> {
        let mut all = lock(listeners());
        all.0 += 1;
        let number = all.0;
        let waiting = Arc::new(Waiting::default());
        all.1.insert(number, Arc::clone(&waiting));
        Ok(Box::new(MemoryListener { number, waiting }))
    }

    fn connect(&self, address: &str, _limit: Duration) -> io::Result<Box<dyn Connection>> {
        let number = address.strip_prefix("memory:").and_then(|number| number.parse::<u64>().ok());
        let all = lock(listeners());
        let waiting = number.and_then(|number| all.1.get(&number)).ok_or_else(|| {
            io::Error::new(ErrorKind::ConnectionRefused, format!("nobody listens at {address:?}"))
        })?;
        let (there, back) = (Arc::new(Pipe::default()), Arc::new(Pipe::default()));
        let near = MemoryConnection {
            outgoing: Arc::clone(&there),
            incoming: Arc::clone(&back),
            limit: None,
            counters: Counters::default(),
        };
        let far =
            MemoryConnection { outgoing: back, incoming: there, limit: None, counters: Counters::default() };
        let mut queue = lock(&waiting.queue);
        if queue.len() >= BACKLOG {
            return Err(io::Error::new(ErrorKind::ConnectionRefused, "too many connections wait"));
        }
        queue.push_back(far);
        drop(queue);
        waiting.arrived.notify_one();
        Ok(Box::new(near))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_whose_listener_is_gone_refuses() {
        let listener = Memory.listen("").unwrap();
        let address = listener.address();
        drop(listener);
        let error = Memory.connect(&address, Duration::from_secs(1)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
}
