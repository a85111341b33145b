//! `weir net serve --protocol iperf3`: one thread at the door, one for the test. One test at a time, as a stock server has it:
//! two at once would measure each other. Whoever else comes is told so.

use super::session::{Arrived, Test};
use super::wire::{COOKIE_BYTES, Cookie, Wire, may_be_cookie};
use crate::adhoc::AdhocError;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_sys::epoll::Epoll;
use weir_transport::{tcp, udp};

/// How soon the door notices that it is to close.
const LOOK: Duration = Duration::from_millis(100);
/// Time for a cookie to come.
const COOKIE_LIMIT: Duration = Duration::from_secs(5);
/// Connections that have not shown their cookie yet; beyond that the oldest goes.
const OPENING_MAX: usize = 256;
/// Connections accepted before those that wait are looked at again.
const BURST: usize = 64;
/// What the test under way may take to end when the server is told to.
const DRAIN: Duration = Duration::from_secs(10);
const FREE_PORT_TRIES: u32 = 8;
const ACCESS_DENIED: [u8; 1] = [0xff];
const LISTENER: u64 = 0;

/// The test under way.
struct Active {
    /// Which of all connections it began with.
    order: u64,
    cookie: Cookie,
    /// Connections that may still come.
    missing: usize,
    arrived: SyncSender<Arrived>,
}

/// What the door and the test share.
#[derive(Default)]
pub(super) struct Hall {
    active: Mutex<Option<Active>>,
    /// No more tests; the one under way is told to end.
    pub closing: AtomicBool,
    pub closed: AtomicBool,
}

impl Hall {
    fn active(&self) -> MutexGuard<'_, Option<Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The test wants so many connections now.
    pub fn expect(&self, count: usize) {
        if let Some(active) = self.active().as_mut() {
            active.missing = count;
        }
    }

    /// Lets the next test in, if this one is still the one under way.
    pub fn leave(&self, order: u64) {
        let mut active = self.active();
        if active.as_ref().is_some_and(|active| active.order == order) {
            *active = None;
        }
    }
}

/// Lets the next test in however this one ends.
struct Leave {
    hall: Arc<Hall>,
    order: u64,
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.hall.leave(self.order);
    }
}

/// A connection that has not shown all of its cookie.
struct Opening {
    stream: TcpStream,
    peer: SocketAddr,
    since: Instant,
    cookie: Cookie,
    filled: usize,
}

enum Shown {
    Waiting,
    /// All of it.
    Cookie,
    /// No client of iperf3's, or gone.
    Nothing,
}

impl Opening {
    fn read(&mut self) -> Shown {
        loop {
            match self.stream.read(&mut self.cookie[self.filled..]) {
                Ok(0) => return Shown::Nothing,
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Shown::Waiting,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Shown::Nothing,
            }
            if !may_be_cookie(&self.cookie[..self.filled]) {
                return Shown::Nothing;
            }
            if self.filled == COOKIE_BYTES {
                return Shown::Cookie;
            }
        }
    }
}

type Note = Arc<dyn Fn(String) + Send + Sync>;

pub struct Server {
    listener: TcpListener,
    hellos: Arc<UdpSocket>,
    hall: Arc<Hall>,
    epoll: Epoll,
    openings: BTreeMap<u64, Opening>,
    /// Connections so far: they are told apart, and put in order, by it.
    count: u64,
    test: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens over TCP and UDP at one port. Errors: it is taken, or the address is not this machine's.
    pub fn listen(address: SocketAddr) -> Result<Server, AdhocError> {
        let failed = |error: std::io::Error| AdhocError(error.to_string());
        let mut tries_left = if address.port() == 0 { FREE_PORT_TRIES } else { 1 };
        let (listener, hellos) = loop {
            tries_left -= 1;
            let listener = tcp::listen(address, None).map_err(failed)?;
            match udp::bind(listener.local_addr().map_err(failed)?) {
                Ok(hellos) => break (listener, hellos),
                Err(error) if tries_left == 0 => return Err(failed(error)),
                // A port that is free over TCP may be taken over UDP.
                Err(_) => {}
            }
        };
        listener.set_nonblocking(true).map_err(failed)?;
        hellos.set_nonblocking(true).map_err(failed)?;
        let epoll = Epoll::new(OPENING_MAX + 1).map_err(failed)?;
        epoll.add(listener.as_fd(), LISTENER).map_err(failed)?;
        // Where it cannot be raised, too many streams are refused one by one.
        let _ = weir_sys::socket::raise_open_files();
        Ok(Server {
            listener,
            hellos: Arc::new(hellos),
            hall: Arc::default(),
            epoll,
            openings: BTreeMap::new(),
            count: 0,
            test: None,
        })
    }

    pub fn address(&self) -> Result<SocketAddr, AdhocError> {
        self.listener.local_addr().map_err(|error| AdhocError(error.to_string()))
    }

    /// Serves until `interrupts` is above 0, then ends the test under way. `note` hears a line for each test.
    pub fn serve(
        mut self,
        interrupts: &dyn Fn() -> u32,
        note: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<(), AdhocError> {
        let note: Note = Arc::new(note);
        let mut served = Ok(());
        while interrupts() == 0 && served.is_ok() {
            served = self.turn(&note);
        }
        self.hall.closing.store(true, Ordering::Relaxed);
        let until = Instant::now() + DRAIN;
        while self.test.as_ref().is_some_and(|test| !test.is_finished())
            && interrupts() < 2
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.hall.closed.store(true, Ordering::Relaxed);
        if let Some(test) = self.test {
            // A test has noted its own end; a panic there is no reason to leave in disorder here.
            let _ = test.join();
        }
        served
    }

    fn turn(&mut self, note: &Note) -> Result<(), AdhocError> {
        let broke = |error: std::io::Error| AdhocError(format!("the listening socket broke: {error}"));
        let ready = self.epoll.wait(Some(LOOK)).map_err(broke)?.to_vec();
        for token in ready {
            if token == LISTENER {
                self.accept(note).map_err(broke)?;
            } else {
                self.look(token, note);
            }
        }
        let now = Instant::now();
        self.openings.retain(|_, opening| now.duration_since(opening.since) < COOKIE_LIMIT);
        Ok(())
    }

    fn accept(&mut self, note: &Note) -> std::io::Result<()> {
        for _ in 0..BURST {
            let (stream, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Gone before it was accepted, or out of descriptors: neither is the listener's end.
                Err(_) => {
                    self.openings.pop_first();
                    break;
                }
            };
            self.count += 1;
            if stream.set_nonblocking(true).is_err() || self.epoll.add(stream.as_fd(), self.count).is_err() {
                continue;
            }
            if self.openings.len() >= OPENING_MAX {
                self.openings.pop_first();
            }
            let opening =
                Opening { stream, peer, since: Instant::now(), cookie: [0; COOKIE_BYTES], filled: 0 };
            self.openings.insert(self.count, opening);
            self.look(self.count, note);
        }
        Ok(())
    }

    /// Reads what a connection shows, and lets it in when that is all.
    fn look(&mut self, token: u64, note: &Note) {
        let Some(opening) = self.openings.get_mut(&token) else { return };
        let shown = opening.read();
        if matches!(shown, Shown::Waiting) {
            return;
        }
        let Some(opening) = self.openings.remove(&token) else { return };
        // A copy of it in a test would keep waking this thread.
        let _ = self.epoll.remove(opening.stream.as_fd());
        if matches!(shown, Shown::Cookie) {
            self.admit(token, opening, note);
        }
    }

    fn admit(&mut self, order: u64, opening: Opening, note: &Note) {
        let Opening { mut stream, peer, cookie, .. } = opening;
        let mut active = self.hall.active();
        match active.as_mut() {
            Some(test) if test.cookie == cookie && test.missing > 0 => {
                test.missing -= 1;
                // The channel has room for every stream of the test; a test that is gone needs none.
                let _ = test.arrived.try_send((order, stream));
            }
            Some(_) => {
                drop(active);
                // It has said all that it says, so that this is not lost in a reset.
                let _ = stream.write(&ACCESS_DENIED);
            }
            None => {
                let (arrived, arrivals) = sync_channel(2 * super::STREAMS_MAX as usize);
                *active = Some(Active { order, cookie, missing: 0, arrived });
                drop(active);
                let leave = Leave { hall: Arc::clone(&self.hall), order };
                let (hellos, note) = (Arc::clone(&self.hellos), Arc::clone(note));
                let test = std::thread::Builder::new().name("weir-session".to_owned()).spawn(move || {
                    let leave = leave;
                    let hall = &leave.hall;
                    let served = Wire::new(stream)
                        .map_err(|error| AdhocError(error.to_string()))
                        .and_then(|wire| Test { wire, peer, order, hall, arrivals, hellos: &hellos }.serve());
                    let text = match served {
                        Ok(what) => format!("{peer}: {what}"),
                        Err(error) => format!("{peer}: {error}"),
                    };
                    drop(leave);
                    note(text);
                });
                // Without a thread the client sees its connection closed.
                self.test = test.ok();
            }
        }
    }
}
