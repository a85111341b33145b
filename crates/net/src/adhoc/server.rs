//! `weir net serve`: one thread at the door, one for each session. Everything a stranger can make it do is bounded.

use super::AdhocError;
use super::session::{self, Session};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_transport::address::Shown;
use weir_transport::gate::{Admitted, Gate, GateLimits};
use weir_transport::handshake::{Mode, Status, Token};
use weir_transport::udp::{Arrival, Association, UdpGate};
use weir_transport::{Key, tcp};

/// How soon the doors notice that they are to close.
const LOOK: Duration = Duration::from_millis(100);
const FREE_PORT_TRIES: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Sessions at once.
    pub sessions: usize,
    /// Sessions begun in any second.
    pub sessions_per_second: usize,
    /// What sessions under way may take to drain when the server is told to end.
    pub drain: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits { sessions: 16, sessions_per_second: 20, drain: Duration::from_secs(10) }
    }
}

/// A flow's connection that has come.
pub(super) enum Arrived {
    Stream(TcpStream),
    Association(Association),
}

/// A session that waits for its data connections.
pub(super) struct Expecting {
    /// Flows that have not come yet.
    pub missing: Vec<u32>,
    /// Whether they come over UDP.
    pub datagrams: bool,
    pub arrived: SyncSender<(u32, Arrived)>,
}

/// What the door and the sessions share.
pub(super) struct Hall {
    expecting: Mutex<BTreeMap<Token, Expecting>>,
    /// Sessions end their load, drain and report.
    pub closing: AtomicBool,
    /// Sessions give up.
    pub closed: AtomicBool,
}

impl Hall {
    pub fn expecting(&self) -> MutexGuard<'_, BTreeMap<Token, Expecting>> {
        self.expecting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expects_datagrams(&self, token: &Token, flow: u32) -> bool {
        let expecting = self.expecting();
        expecting.get(token).is_some_and(|session| session.datagrams && session.missing.contains(&flow))
    }
}

/// The door for datagrams, on a thread of its own until `closed`. Only flows of sessions that have been asked for over the
/// control connection are answered.
fn hear(mut gate: UdpGate, hall: &Hall) -> std::io::Result<()> {
    while !hall.closed.load(Ordering::Relaxed) {
        let expects = |token: &Token, flow| hall.expects_datagrams(token, flow);
        let Some(Arrival { association, token, flow, .. }) = gate.next(LOOK, expects)? else { continue };
        if let Some(session) = hall.expecting().get_mut(&token)
            && let Some(place) = session.missing.iter().position(|missing| *missing == flow)
        {
            session.missing.swap_remove(place);
            // The channel has room for every flow of the session; a session that is gone needs none.
            let _ = session.arrived.try_send((flow, Arrived::Association(association)));
        }
    }
    Ok(())
}

/// TCP and UDP at the same port; a free one of TCP may be taken for UDP, then another is tried.
fn doors(address: SocketAddr, key: Option<&Key>) -> std::io::Result<(TcpListener, UdpGate)> {
    let mut tries_left = if address.port() == 0 { FREE_PORT_TRIES } else { 1 };
    loop {
        tries_left -= 1;
        let listener = tcp::listen(address, None)?;
        match UdpGate::bind(listener.local_addr()?, key.cloned()) {
            Ok(gate) => return Ok((listener, gate)),
            Err(error) if tries_left == 0 => return Err(error),
            Err(_) => {}
        }
    }
}

pub struct Server {
    gate: Gate,
    datagrams: Option<UdpGate>,
    limits: ServerLimits,
    hall: Arc<Hall>,
    sessions: Vec<JoinHandle<()>>,
    begun: Vec<Instant>,
}

impl Server {
    /// Listens. `key` is `None` where anyone may come. Errors: the port is taken, the address is not this machine's.
    pub fn listen(address: SocketAddr, key: Option<Key>, limits: ServerLimits) -> Result<Server, AdhocError> {
        let (listener, datagrams) =
            doors(address, key.as_ref()).map_err(|error| AdhocError::new(error.to_string()))?;
        let gate = Gate::new(listener, key, GateLimits::default()).map_err(|error| {
            AdhocError::new(format!("cannot wait for connections at {}: {error}", Shown(address)))
        })?;
        let hall = Hall {
            expecting: Mutex::default(),
            closing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        };
        // Where it cannot be raised, too many flows are refused one by one.
        let _ = weir_sys::socket::raise_open_files();
        Ok(Server {
            gate,
            datagrams: Some(datagrams),
            limits,
            hall: Arc::new(hall),
            sessions: Vec::new(),
            begun: Vec::new(),
        })
    }

    pub fn address(&self) -> Result<SocketAddr, AdhocError> {
        self.gate.address().map_err(|error| AdhocError::new(error.to_string()))
    }

    /// Serves until `interrupts` is above 0, then lets sessions drain, but not once it is above 1.
    /// `note` hears a line for each session.
    pub fn serve(
        mut self,
        interrupts: &dyn Fn() -> u32,
        note: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<(), AdhocError> {
        let note: Arc<dyn Fn(String) + Send + Sync> = Arc::new(note);
        let hearing = self.datagrams.take().map(|gate| {
            let (hall, note) = (Arc::clone(&self.hall), Arc::clone(&note));
            std::thread::Builder::new().name("weir-datagrams".to_owned()).spawn(move || {
                if let Err(error) = hear(gate, &hall) {
                    note(format!("the UDP socket broke, measurements over UDP end: {error}"));
                }
            })
        });
        let hearing = hearing
            .transpose()
            .map_err(|error| AdhocError::new(format!("a thread could not be started: {error}")))?;
        let served = self.doors_open(interrupts, &note);
        self.hall.closed.store(true, Ordering::Relaxed);
        for thread in self.sessions.into_iter().chain(hearing) {
            // A session has noted its own end; a panic there is no reason to leave in disorder here.
            let _ = thread.join();
        }
        served
    }

    fn doors_open(
        &mut self,
        interrupts: &dyn Fn() -> u32,
        note: &Arc<dyn Fn(String) + Send + Sync>,
    ) -> Result<(), AdhocError> {
        while interrupts() == 0 {
            self.turn(note, true)?;
        }
        self.hall.closing.store(true, Ordering::Relaxed);
        let until = Instant::now() + self.limits.drain;
        while !self.sessions.is_empty() && interrupts() < 2 && Instant::now() < until {
            // Sessions that are still connecting must come to their end too.
            self.turn(note, false)?;
        }
        Ok(())
    }

    fn turn(&mut self, note: &Arc<dyn Fn(String) + Send + Sync>, open: bool) -> Result<(), AdhocError> {
        let admitted = self
            .gate
            .next(LOOK)
            .map_err(|error| AdhocError::new(format!("the listening socket broke: {error}")))?;
        self.sessions.retain(|session| !session.is_finished());
        for client in admitted {
            match client.hello.mode {
                Mode::Control if open => self.begin(client, note),
                Mode::Control => client.refuse(Status::Busy),
                Mode::Data => self.route(client),
            }
        }
        Ok(())
    }

    fn begin(&mut self, client: Admitted, note: &Arc<dyn Fn(String) + Send + Sync>) {
        let now = Instant::now();
        self.begun.retain(|begun| now.duration_since(*begun) < Duration::from_secs(1));
        if self.sessions.len() >= self.limits.sessions || self.begun.len() >= self.limits.sessions_per_second
        {
            client.refuse(Status::Busy);
            return;
        }
        self.begun.push(now);
        let peer = client.peer;
        // A client that is gone before it was welcomed needs no session.
        let Ok(stream) = client.welcome() else { return };
        let (hall, note) = (Arc::clone(&self.hall), Arc::clone(note));
        let session = std::thread::Builder::new().name("weir-session".to_owned()).spawn(move || {
            let text = match session::serve(Session { stream, hall: &hall }) {
                Ok(what) => format!("{peer}: {what}"),
                Err(error) => format!("{peer}: {error}"),
            };
            note(text);
        });
        // Without a thread the client sees its connection closed.
        if let Ok(session) = session {
            self.sessions.push(session);
        }
    }

    fn route(&self, client: Admitted) {
        let flow = client.hello.flow;
        let mut expecting = self.hall.expecting();
        let Some(session) = expecting.get_mut(&client.hello.token).filter(|session| !session.datagrams)
        else {
            drop(expecting);
            client.refuse(Status::UnknownSession);
            return;
        };
        let Some(place) = session.missing.iter().position(|missing| *missing == flow) else {
            drop(expecting);
            client.refuse(Status::UnknownFlow);
            return;
        };
        if let Ok(stream) = client.welcome() {
            session.missing.swap_remove(place);
            // The channel has room for every flow of the session; a session that is gone needs none.
            let _ = session.arrived.try_send((flow, Arrived::Stream(stream)));
        }
    }
}
