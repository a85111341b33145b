//! The transport over kernel TCP, blocking, every call bounded by a time-out.

use crate::address::Shown;
use crate::tcp_options::TcpOptions;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use weir_seams::transport::{Connection, Counters, Listener, Transport};
use weir_sys::poll::{self, Interest};
use weir_sys::socket;
use weir_sys::tcp_info::TcpInfo;

/// Connections the kernel holds until they are accepted.
pub const BACKLOG: i32 = 1024;

pub struct Tcp;

/// Opens a listener; `options` are set first, since some are told to the peer in the handshake.
/// Errors name the address and what to do.
pub fn listen(address: SocketAddr, options: Option<&TcpOptions>) -> io::Result<TcpListener> {
    let shown = Shown(address);
    let named = |error: io::Error| match error.kind() {
        ErrorKind::AddrInUse => io::Error::new(
            ErrorKind::AddrInUse,
            format!("{shown} is in use; stop what listens there (ss -ltnp shows it) or choose another port"),
        ),
        ErrorKind::AddrNotAvailable => {
            io::Error::new(ErrorKind::AddrNotAvailable, format!("{shown} is no address of this machine"))
        }
        kind => io::Error::new(kind, format!("cannot listen at {shown}: {error}")),
    };
    let socket = socket::tcp_socket(&address).map_err(named)?;
    if let Some(options) = options {
        options.apply(socket.as_fd()).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
    }
    socket::bind(socket.as_fd(), &address, socket::Sharing::OldConnections).map_err(named)?;
    socket::listen(socket.as_fd(), BACKLOG).map_err(named)?;
    Ok(TcpListener::from(socket))
}

/// Connects within `limit`, with `options` set before the handshake.
pub fn connect(address: SocketAddr, options: Option<&TcpOptions>, limit: Duration) -> io::Result<TcpStream> {
    let socket = socket::tcp_socket(&address)?;
    if let Some(options) = options {
        options.apply(socket.as_fd()).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
    }
    socket::connect(socket.as_fd(), &address, limit)?;
    Ok(TcpStream::from(socket))
}

fn resolve(address: &str) -> io::Result<SocketAddr> {
    address
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(ErrorKind::AddrNotAvailable, format!("{address:?} names no address")))
}

/// A connected socket with its counters.
pub struct TcpConnection {
    stream: TcpStream,
    limit: Option<Duration>,
    counters: Counters,
}

impl TcpConnection {
    pub fn new(stream: TcpStream) -> io::Result<TcpConnection> {
        // Requests and replies are smaller than a segment; Nagle would hold the second until the first is acknowledged.
        stream.set_nodelay(true)?;
        Ok(TcpConnection { stream, limit: None, counters: Counters::default() })
    }

    /// Bounds the whole call, not each piece: a peer that sends one byte a second must not hold it for ever.
    fn wait(&self, interest: Interest, started: Instant) -> io::Result<()> {
        let Some(limit) = self.limit else { return Ok(()) };
        loop {
            let left = limit.saturating_sub(started.elapsed());
            if poll::wait(self.stream.as_fd(), interest, left)? {
                return Ok(());
            }
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }
}

impl Connection for TcpConnection {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let started = Instant::now();
        let mut rest = bytes;
        while !rest.is_empty() {
            self.wait(Interest::Writable, started)?;
            match self.stream.write(rest) {
                Ok(count) => {
                    self.counters.sent_bytes += count as u64;
                    rest = &rest[count..];
                }
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let started = Instant::now();
        let mut filled = 0;
        while filled < bytes.len() {
            self.wait(Interest::Readable, started)?;
            match self.stream.read(&mut bytes[filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.counters.received_bytes += count as u64;
                    filled += count;
                }
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn set_timeout(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.limit = limit;
        // A send of more than the buffer holds would block beyond what `wait` saw.
        self.stream.set_write_timeout(limit.filter(|limit| !limit.is_zero()))
    }

    fn counters(&self) -> Counters {
        let retransmitted =
            TcpInfo::read(self.stream.as_fd()).ok().map(|info| u64::from(info.total_retrans_segments));
        Counters { retransmitted_segments: retransmitted, ..self.counters }
    }
}

struct TcpSeamListener(TcpListener);

impl Listener for TcpSeamListener {
    fn address(&self) -> String {
        self.0.local_addr().map_or_else(|error| error.to_string(), |address| address.to_string())
    }

    fn accept(&mut self, limit: Duration) -> io::Result<Box<dyn Connection>> {
        let started = Instant::now();
        loop {
            let left = limit.saturating_sub(started.elapsed());
            if poll::wait(self.0.as_fd(), Interest::Readable, left)? {
                let (stream, _) = self.0.accept()?;
                return Ok(Box::new(TcpConnection::new(stream)?));
            }
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }
}

impl Transport for Tcp {
    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(TcpSeamListener(listen(resolve(address)?, None)?)))
    }

    fn connect(&self, address: &str, limit: Duration) -> io::Result<Box<dyn Connection>> {
        Ok(Box::new(TcpConnection::new(connect(resolve(address)?, None, limit)?)?))
    }
}
