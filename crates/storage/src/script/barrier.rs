//! A barrier for all jobs of a step, on all its hosts: the first host hears from the others when their jobs are there, and lets all go.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_core::hosts::PortRange;
use weir_sys::clock;
use weir_transport::dial::{Call, dial};
use weir_transport::gate::{Gate, GateLimits};
use weir_transport::handshake::{Mode, Status};
use weir_transport::{Key, tcp};

/// Between the word that all are there and the moment at which they go: who waits looks for the word this often, and none is late.
const AHEAD_NS: u64 = 2_000_000;
/// How often whoever waits looks for the word.
pub const LOOK: Duration = Duration::from_micros(300);
const OPEN_WITHIN: Duration = Duration::from_secs(10);
const NOTICE: Duration = Duration::from_millis(50);

/// How many of this host's jobs are there, and the last word.
struct Local {
    jobs: u64,
    arrived: AtomicU64,
    /// Barriers that were passed.
    passed: AtomicU64,
    go_ns: AtomicU64,
}

impl Local {
    fn let_go(&self) {
        self.go_ns.store(clock::monotonic().as_ns() + AHEAD_NS, Ordering::Relaxed);
        self.passed.fetch_add(1, Ordering::Release);
    }
}

/// How many hosts are there, at the first of them.
struct Hub {
    arrived: Mutex<usize>,
    others: Mutex<Vec<TcpStream>>,
    changed: Condvar,
    hosts: usize,
    local: Arc<Local>,
}

impl Hub {
    /// One more host is there; the last lets all go.
    fn arrive(&self) {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        *arrived += 1;
        if *arrived < self.hosts {
            return;
        }
        *arrived = 0;
        drop(arrived);
        for other in self.others.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            // Whoever is gone is noticed by the coordinator.
            let _ = other.write_all(&[1]);
        }
        self.local.let_go();
    }

    /// Hears one other host until it is gone.
    fn hear(&self, mut stream: TcpStream) {
        let mut word = [0; 1];
        while matches!(stream.read(&mut word), Ok(1)) {
            self.arrive();
        }
    }
}

/// One host's part in the barrier.
pub struct Barrier {
    local: Arc<Local>,
    hub: Option<Arc<Hub>>,
    to_hub: Mutex<Option<TcpStream>>,
    address: Option<SocketAddr>,
    unwanted: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Barrier {
    fn new(jobs: usize) -> Barrier {
        let local = Local {
            jobs: jobs as u64,
            arrived: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            go_ns: AtomicU64::new(0),
        };
        Barrier {
            local: Arc::new(local),
            hub: None,
            to_hub: Mutex::new(None),
            address: None,
            unwanted: Arc::default(),
            threads: Vec::new(),
        }
    }

    /// Of a host that is alone.
    pub fn alone(jobs: usize) -> Barrier {
        Barrier::new(jobs)
    }

    /// Of the first of several hosts: `others` come and say who they are.
    ///
    /// Errors: no port can be had.
    pub fn first(
        jobs: usize,
        others: usize,
        address: IpAddr,
        ports: Option<PortRange>,
        key: Key,
    ) -> io::Result<Barrier> {
        let mut barrier = Barrier::new(jobs);
        let listener = PortRange::bind(ports, |port| tcp::listen(SocketAddr::new(address, port), None))?;
        barrier.address = Some(listener.local_addr()?);
        let hub = Arc::new(Hub {
            arrived: Mutex::new(0),
            others: Mutex::new(Vec::new()),
            changed: Condvar::new(),
            hosts: others + 1,
            local: Arc::clone(&barrier.local),
        });
        barrier.hub = Some(Arc::clone(&hub));
        let unwanted = Arc::clone(&barrier.unwanted);
        let mut gate = Gate::new(listener, Some(key), GateLimits::default())?;
        barrier.threads.push(std::thread::Builder::new().name("weir-barrier".to_owned()).spawn(
            move || {
                let mut hearing = Vec::new();
                while hearing.len() < others && !unwanted.load(Ordering::Relaxed) {
                    let Ok(admitted) = gate.next(NOTICE) else { return };
                    for client in admitted {
                        if client.hello.mode != Mode::Data || hearing.len() >= others {
                            client.refuse(Status::UnknownFlow);
                            continue;
                        }
                        let Ok(stream) = client.welcome() else { continue };
                        let _ = stream.set_nodelay(true);
                        let Ok(own) = stream.try_clone() else { continue };
                        hub.others.lock().unwrap_or_else(PoisonError::into_inner).push(own);
                        hub.changed.notify_all();
                        let hub = Arc::clone(&hub);
                        hearing.push(std::thread::spawn(move || hub.hear(stream)));
                    }
                }
                drop(gate);
                for thread in hearing {
                    // It ends with its connection.
                    let _ = thread.join();
                }
            },
        )?);
        Ok(barrier)
    }

    /// Of another host than the first, which is at `hub`.
    ///
    /// Errors: it cannot be reached.
    pub fn other(jobs: usize, number: u32, hub: SocketAddr, key: &Key) -> io::Result<Barrier> {
        let mut barrier = Barrier::new(jobs);
        let call = Call { address: hub, mode: Mode::Data, token: [0; 16], flow: number };
        let made = dial(&[call], Some(key), None, OPEN_WITHIN);
        let mut made = made.map_err(|failed| io::Error::other(failed.error.to_string()))?;
        let mut stream = made.pop().ok_or(io::ErrorKind::NotConnected)?;
        stream.set_nodelay(true)?;
        barrier.to_hub = Mutex::new(Some(stream.try_clone()?));
        let local = Arc::clone(&barrier.local);
        barrier.threads.push(std::thread::Builder::new().name("weir-barrier".to_owned()).spawn(
            move || {
                let mut word = [0; 1];
                while matches!(stream.read(&mut word), Ok(1)) {
                    local.let_go();
                }
            },
        )?);
        Ok(barrier)
    }

    /// Where the others reach the first host.
    pub fn address(&self) -> Option<String> {
        self.address.map(|address| address.to_string())
    }

    /// Waits until all hosts have come to the first, at most for `limit`. Errors: one has not.
    pub fn complete(&self, limit: Duration) -> io::Result<()> {
        let Some(hub) = &self.hub else { return Ok(()) };
        let until = Instant::now() + limit;
        let mut others = hub.others.lock().unwrap_or_else(PoisonError::into_inner);
        while others.len() + 1 < hub.hosts {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = format!("{} of {} other hosts came to the barrier", others.len(), hub.hosts - 1);
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            others = hub.changed.wait_timeout(others, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// A job is there. Returns which barrier it waits at: the number for `gone`.
    pub fn arrive(&self) -> u64 {
        let waits_for = self.local.passed.load(Ordering::Acquire) + 1;
        if self.local.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.local.jobs {
            self.local.arrived.store(0, Ordering::Release);
            match (&self.hub, self.to_hub.lock().unwrap_or_else(PoisonError::into_inner).as_mut()) {
                (Some(hub), _) => hub.arrive(),
                // Where the first host is gone nobody goes on; the coordinator notices.
                (None, Some(stream)) => drop(stream.write_all(&[1])),
                (None, None) => self.local.let_go(),
            }
        }
        waits_for
    }

    /// When whoever waits at that barrier goes on; `None` as long as some are not there.
    pub fn gone_ns(&self, number: u64) -> Option<u64> {
        (self.local.passed.load(Ordering::Acquire) >= number)
            .then(|| self.local.go_ns.load(Ordering::Relaxed))
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        self.unwanted.store(true, Ordering::Relaxed);
        let own = self.to_hub.lock().unwrap_or_else(PoisonError::into_inner).take();
        let of_hub = self
            .hub
            .as_ref()
            .map(|hub| std::mem::take(&mut *hub.others.lock().unwrap_or_else(PoisonError::into_inner)));
        for stream in own.into_iter().chain(of_hub.into_iter().flatten()) {
            // The other end may have closed it.
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: storage.md#script-2
    #[test]
    fn nobody_passes_before_all_are_there_on_all_hosts_and_then_all_do() {
        let key = Key::from_hexadecimal(&"5a".repeat(32)).unwrap();
        let first = Barrier::first(2, 2, "127.0.0.1".parse().unwrap(), None, key.clone()).unwrap();
        let hub: SocketAddr = first.address().unwrap().parse().unwrap();
        let others = [1, 2].map(|number| Barrier::other(1, number, hub, &key).unwrap());
        first.complete(Duration::from_secs(5)).unwrap();
        for round in 1..=100 {
            assert_eq!(first.arrive(), round);
            assert_eq!(others[0].arrive(), round);
            assert_eq!(first.arrive(), round);
            std::thread::sleep(Duration::from_micros(200));
            assert!([&first, &others[0], &others[1]].iter().all(|it| it.gone_ns(round).is_none()), "{round}");
            assert_eq!(others[1].arrive(), round);
            let until = Instant::now() + Duration::from_secs(5);
            for barrier in [&first, &others[0], &others[1]] {
                while barrier.gone_ns(round).is_none() {
                    assert!(Instant::now() < until, "round {round}: one is not let go");
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        }
    }

    #[test]
    fn a_host_without_the_key_is_not_let_in_and_one_that_lacks_is_told() {
        let key = Key::from_hexadecimal(&"5a".repeat(32)).unwrap();
        let first = Barrier::first(1, 1, "127.0.0.1".parse().unwrap(), None, key).unwrap();
        let hub: SocketAddr = first.address().unwrap().parse().unwrap();
        let wrong = Key::from_hexadecimal(&"a5".repeat(32)).unwrap();
        assert!(Barrier::other(1, 1, hub, &wrong).is_err());
        let missing = first.complete(Duration::from_millis(100)).unwrap_err();
        assert!(missing.to_string().contains("0 of 1 other hosts"), "{missing}");
    }
}
