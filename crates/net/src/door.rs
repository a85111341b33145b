//! Connections made within a measurement. What their making costs is TCP's own handshake and nothing else: the flow has proven
//! itself before, over the connection that every flow has, and was told there a port of its own and a token, which are the
//! first bytes of each such connection.

use crate::rendezvous::{self, Body, Flow, Side};
use crate::threads::Guard;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use weir_core::hosts::PortRange;
use weir_seams::workload::{Assignment, Control, WorkloadError};
use weir_sys::poll::{self, Interest};
use weir_sys::socket;
use weir_transport::address::at_port;
use weir_transport::tcp_options::TcpOptions;
use weir_transport::{key, tcp};

pub const TOKEN_BYTES: usize = 16;
/// Port and token.
pub const GREETING_BYTES: usize = 2 + TOKEN_BYTES;
/// Longest wait before the orders and the flow are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long a connection may take to show its token; all but a stranger's bring it with their first segment.
const TOKEN_LIMIT: Duration = Duration::from_secs(1);
/// How long a connection may take to be made, or the word about a door to come.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// What an end has for the connections of one flow.
#[derive(Debug)]
pub enum Link {
    Way(Way),
    Door(Door),
}

/// Both ends of flows that make connections while they run: the accepting one opens a door for each flow and tells it where,
/// the connecting one hears of it. Links are by the index of the flow.
pub fn prepare(
    assignment: &Assignment,
    options: &TcpOptions,
) -> Result<(Side, BTreeMap<u32, Link>), WorkloadError> {
    if assignment.role == rendezvous::ACCEPT {
        let doors = Door::open_all(assignment, options)?;
        let greetings: BTreeMap<u32, _> =
            doors.iter().map(|(index, door)| (*index, door.greeting())).collect();
        let side = Side::prepare_greeting(assignment, options, move |index, mut stream: &TcpStream| {
            greetings.get(&index).map_or(Ok(()), |greeting| stream.write_all(greeting))
        })?;
        return Ok((side, doors.into_iter().map(|(index, door)| (index, Link::Door(door))).collect()));
    }
    let side = Side::prepare(assignment, options)?;
    let links = if let Side::Connect(flows) = &side { hear_all(flows)? } else { BTreeMap::new() };
    Ok((side, links))
}

/// The ways of flows that are told of them.
pub fn hear_all(flows: &[Flow]) -> Result<BTreeMap<u32, Link>, WorkloadError> {
    let heard = flows.iter().map(|flow| {
        let way = Way::hear(&flow.stream).map_err(|error| {
            let entity = &flow.spec.entity;
            WorkloadError::new(format!("{entity}: where its connections go was not told: {error}"))
        })?;
        Ok((flow.spec.index, Link::Way(way)))
    });
    heard.collect()
}

/// Opens a door for each flow, at the address that the flow has come to, and tells it.
pub fn open_and_greet(flows: &[Flow], options: &TcpOptions) -> io::Result<BTreeMap<u32, Link>> {
    let opened = flows.iter().map(|flow| {
        let door = Door::open(flow.stream.local_addr()?, None, options)?;
        (&flow.stream).write_all(&door.greeting())?;
        Ok((flow.spec.index, Link::Door(door)))
    });
    opened.collect()
}

/// A port for the connections of one flow.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    port: u16,
    token: [u8; TOKEN_BYTES],
}

impl Door {
    /// Listens at a free port beside `address`, within `ports` if there are some.
    pub fn open(address: SocketAddr, ports: Option<PortRange>, options: &TcpOptions) -> io::Result<Door> {
        let listener = PortRange::bind(ports, |port| tcp::listen(at_port(address, port), Some(options)))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        Ok(Door { listener, port, token: key::random()? })
    }

    /// One for each flow of the assignment, by the flow's index.
    fn open_all(assignment: &Assignment, options: &TcpOptions) -> Result<BTreeMap<u32, Door>, WorkloadError> {
        let body = Body::of(assignment)?;
        let host = &assignment.host;
        let stop = |error: io::Error| WorkloadError::new(format!("host {host}: {error}"));
        body.flows
            .iter()
            .map(|flow| {
                let address = SocketAddr::new(body.address, 0);
                let door = Door::open(address, assignment.data_ports, options).map_err(stop)?;
                Ok((flow.index, door))
            })
            .collect()
    }

    /// What the flow is told.
    pub fn greeting(&self) -> [u8; GREETING_BYTES] {
        let mut greeting = [0; GREETING_BYTES];
        greeting[..2].copy_from_slice(&self.port.to_le_bytes());
        greeting[2..].copy_from_slice(&self.token);
        greeting
    }

    /// A listener that waits, to be looked after by the guard: shut down, it wakes who waits.
    pub fn into_waiting(self) -> io::Result<(TcpListener, [u8; TOKEN_BYTES])> {
        self.listener.set_nonblocking(false)?;
        Ok((self.listener, self.token))
    }

    /// The next connection of the flow. `None`: none will come, since `flow` has been ended or the load called off.
    pub fn accept(
        &self,
        flow: &TcpStream,
        control: &Control,
        guard: &Guard,
    ) -> io::Result<Option<TcpStream>> {
        self.accept_until(|| {
            // Nothing is said on the flow meanwhile; if it can be read, it has ended.
            let ended = poll::wait(flow.as_fd(), Interest::Readable, Duration::ZERO)?;
            Ok(ended || control.is_cut() || guard.silenced())
        })
    }

    /// Likewise; `None` once `over` says so, which is asked when nobody comes for a moment.
    pub fn accept_until(&self, over: impl Fn() -> io::Result<bool>) -> io::Result<Option<TcpStream>> {
        loop {
            if !poll::wait(self.listener.as_fd(), Interest::Readable, LOOK)? {
                if over()? {
                    return Ok(None);
                }
                continue;
            }
            match self.listener.accept() {
                Ok((stream, _)) if self.knows(&stream) => return Ok(Some(stream)),
                Ok(_) => {}
                Err(error) if passes(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn knows(&self, mut stream: &TcpStream) -> bool {
        let until = Instant::now() + TOKEN_LIMIT;
        let (mut token, mut filled) = ([0; TOKEN_BYTES], 0);
        while filled < TOKEN_BYTES {
            let left = until.saturating_duration_since(Instant::now());
            if !matches!(poll::wait(stream.as_fd(), Interest::Readable, left), Ok(true)) {
                return false;
            }
            match stream.read(&mut token[filled..]) {
                Ok(count) if count > 0 => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return false,
            }
        }
        token == self.token
    }
}

/// Errors of one connection that say nothing of the door.
fn passes(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted)
}

/// Where a flow's connections go.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    address: SocketAddr,
    pub token: [u8; TOKEN_BYTES],
}

impl Way {
    /// Hears of the door, which is at the address that `flow` is connected to.
    pub fn hear(mut flow: &TcpStream) -> io::Result<Way> {
        let mut greeting = [0; GREETING_BYTES];
        flow.set_nonblocking(false)?;
        flow.set_read_timeout(Some(CONNECT_LIMIT))?;
        flow.read_exact(&mut greeting)?;
        flow.set_read_timeout(None)?;
        let port = u16::from_le_bytes([greeting[0], greeting[1]]);
        let mut token = [0; TOKEN_BYTES];
        token.copy_from_slice(&greeting[2..]);
        Ok(Way { address: at_port(flow.peer_addr()?, port), token })
    }

    /// As `connect`, for who makes many: the socket's own time-outs bound this and every later call on it.
    pub fn connect_quickly(&self, options: &TcpOptions) -> io::Result<TcpStream> {
        let socket = socket::tcp_socket(&self.address)?;
        options.apply(socket.as_fd()).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let stream = TcpStream::from(socket);
        stream.set_write_timeout(Some(CONNECT_LIMIT))?;
        stream.set_read_timeout(Some(CONNECT_LIMIT))?;
        socket::connect_waiting(stream.as_fd(), &self.address)?;
        Ok(stream)
    }

    /// Connects; the token is the caller's to send, with the first bytes it has.
    pub fn connect(&self, options: &TcpOptions) -> io::Result<TcpStream> {
        tcp::connect(self.address, Some(options), CONNECT_LIMIT)
    }
}
