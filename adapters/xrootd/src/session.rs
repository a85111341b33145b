//! Sockets around the client: one for each server that operations lead to, all of them watched by the load's own thread.

use crate::client::{Action, Client, Place, Settings};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_seams::target::{Completion, Request, Session};
use weir_sys::epoll::Epoll;
use weir_sys::poll::Interest;
use weir_sys::{clock, socket};
use weir_transport::tcp;
use weir_transport::tcp_options::TcpOptions;
use weir_transport::tls::rustls::pki_types::ServerName;
use weir_transport::tls::rustls::{ClientConfig, ClientConnection};
use weir_transport::tls::trust;

/// What is read from a socket at once.
const READ_BYTES: usize = 1 << 20;
/// Reads of one socket in a row, so that a fast server does not keep the others waiting.
const READS_MAX: usize = 8;
/// What TLS holds of what is to be sent.
const TLS_HELD_BYTES: usize = 1 << 20;
/// Silence and lateness are looked for this often.
const LOOK_NS: u64 = 50_000_000;
/// Sockets that may be ready at once.
const READY_MAX: usize = 64;

/// One server's socket.
struct Link {
    stream: TcpStream,
    is_connected: bool,
    /// Further addresses of the same name.
    others: Vec<SocketAddr>,
    writes: bool,
    tls: Option<Box<ClientConnection>>,
}

impl Link {
    /// Takes what came into `memory`; 0: the server ended. Errors: as those of a socket that does not wait.
    fn take(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.stream.read(memory) };
        loop {
            match tls.reader().read(memory) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            if tls.read_tls(&mut self.stream)? == 0 {
                return Ok(0);
            }
            tls.process_new_packets().map_err(|error| io::Error::other(format!("TLS: {error}")))?;
        }
    }

    /// Gives what fits of `bytes`, and how much that was.
    fn give(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.stream.write(bytes) };
        let taken = tls.writer().write(bytes)?;
        while tls.wants_write() {
            match tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && taken > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    /// TLS has something to say of its own, or still what it was given.
    fn has_more(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }
}

pub struct XrootdSession {
    client: Client,
    tcp: TcpOptions,
    links: Vec<Option<Link>>,
    /// Unless a file of certificates was named, read when the first server speaks TLS: a hundred certificates take their time.
    trust: Option<Arc<ClientConfig>>,
    epoll: Epoll,
    memory: Vec<u8>,
    ready: Vec<u64>,
    looked_ns: u64,
}

impl XrootdSession {
    /// `authorities`: a file of certificates that are trusted beside the machine's. Errors: also where it is none.
    pub fn new(settings: Settings, tcp: TcpOptions, authorities: Option<&Path>) -> io::Result<XrootdSession> {
        Ok(XrootdSession {
            tcp,
            trust: authorities.map(|file| trust(Some(file))).transpose()?,
            client: Client::new(settings),
            links: Vec::new(),
            epoll: Epoll::new(READY_MAX)?,
            memory: vec![0; READ_BYTES],
            ready: Vec::with_capacity(READY_MAX),
            looked_ns: 0,
        })
    }

    fn act(&mut self) {
        while let Some(action) = self.client.action() {
            match action {
                Action::Connect { connection, place } => {
                    let begun = addresses(&place).and_then(|addresses| self.connect(connection, addresses));
                    if let Err(error) = begun {
                        self.lost(connection, &format!("cannot connect: {error}"));
                    }
                }
                Action::Secure { connection, place } => {
                    if let Err(text) = self.secure(connection, &place) {
                        self.lost(connection, &text);
                    }
                }
                Action::Close { connection } => {
                    if let Some(link) = self.links.get_mut(connection).and_then(Option::take) {
                        // A descriptor that is closed is no longer watched.
                        let _ = self.epoll.remove(link.stream.as_fd());
                    }
                }
            }
        }
    }

    /// Begins with TLS. Errors: what the server is called is no name that a certificate has.
    fn secure(&mut self, connection: usize, place: &Place) -> Result<(), String> {
        let Some(link) = self.links.get_mut(connection).and_then(Option::as_mut) else { return Ok(()) };
        let failed = |error: &dyn std::fmt::Display| format!("TLS: {error}");
        let name = match literal(&place.host) {
            Some(address) => ServerName::from(address),
            None => ServerName::try_from(place.host.clone()).map_err(|error| failed(&error))?,
        };
        let trusted = match self.trust.take() {
            Some(trusted) => trusted,
            None => trust(None).map_err(|error| failed(&error))?,
        };
        let trusted = self.trust.insert(trusted);
        let mut tls = ClientConnection::new(Arc::clone(trusted), name).map_err(|error| failed(&error))?;
        tls.set_buffer_limit(Some(TLS_HELD_BYTES));
        link.tls = Some(Box::new(tls));
        self.client.secured(connection);
        Ok(())
    }

    /// Begins to connect to the first address that takes it; the others stay for when that fails.
    fn connect(&mut self, connection: usize, mut addresses: Vec<SocketAddr>) -> io::Result<()> {
        let mut last = io::Error::new(ErrorKind::AddrNotAvailable, "the name has no address");
        while !addresses.is_empty() {
            let address = addresses.remove(0);
            match tcp::begin(&address, &self.tcp) {
                Ok((stream, is_connected)) => {
                    self.epoll.add_writable(stream.as_fd(), connection as u64)?;
                    while self.links.len() <= connection {
                        self.links.push(None);
                    }
                    let link = Link { stream, is_connected, others: addresses, writes: true, tls: None };
                    self.links[connection] = Some(link);
                    if is_connected {
                        self.client.connected(connection, clock::monotonic().as_ns());
                    }
                    return Ok(());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn lost(&mut self, connection: usize, text: &str) {
        self.client.lost(connection, text, clock::monotonic().as_ns());
    }

    /// A socket can be written to, or has something to read, or is broken.
    fn serve(&mut self, connection: usize) {
        let Some(link) = self.links.get_mut(connection).and_then(Option::as_mut) else { return };
        if !link.is_connected {
            match socket::pending_error(link.stream.as_fd()) {
                Ok(()) => {
                    link.is_connected = true;
                    self.client.connected(connection, clock::monotonic().as_ns());
                }
                Err(error) => {
                    let others = std::mem::take(&mut link.others);
                    let _ = self.epoll.remove(link.stream.as_fd());
                    self.links[connection] = None;
                    if others.is_empty() || self.connect(connection, others).is_err() {
                        self.lost(connection, &format!("cannot connect: {error}"));
                    }
                    return;
                }
            }
        }
        for _ in 0..READS_MAX {
            let Some(link) = self.links[connection].as_mut() else { return };
            match link.take(&mut self.memory) {
                Ok(0) => return self.lost(connection, "the server closed the connection"),
                Ok(count) => {
                    let now_ns = clock::monotonic().as_ns();
                    self.client.received(connection, &self.memory[..count], now_ns);
                    // TLS gives a record at a time, and may have more.
                    let link = self.links[connection].as_ref();
                    if count < READ_BYTES / 2 && link.is_none_or(|link| link.tls.is_none()) {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.lost(connection, &error.to_string()),
            }
        }
    }

    /// Sends what waits, and watches for room where some is left.
    fn send(&mut self) {
        for connection in 0..self.links.len() {
            let Some(link) = self.links[connection].as_mut().filter(|link| link.is_connected) else {
                continue;
            };
            let outgoing = self.client.outgoing(connection);
            let mut sent = 0;
            let mut broken = None;
            while sent < outgoing.len() || link.has_more() {
                match link.give(&outgoing[sent..]) {
                    Ok(_) if sent == outgoing.len() => break,
                    Ok(0) => break,
                    Ok(count) => sent += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => {
                        broken = Some(error.to_string());
                        break;
                    }
                }
            }
            outgoing.drain(..sent);
            let wants = !outgoing.is_empty() || link.has_more();
            if wants != link.writes && broken.is_none() {
                link.writes = wants;
                let interest = if wants { Interest::Either } else { Interest::Readable };
                broken = self
                    .epoll
                    .watch(link.stream.as_fd(), connection as u64, interest)
                    .err()
                    .map(|it| it.to_string());
            }
            if let Some(text) = broken {
                self.lost(connection, &text);
            }
        }
    }

    fn turn(&mut self) {
        self.act();
        self.send();
        self.act();
    }
}

/// Addresses of a server.
fn addresses(place: &Place) -> io::Result<Vec<SocketAddr>> {
    match literal(&place.host) {
        Some(address) => Ok(vec![SocketAddr::new(address, place.port)]),
        None => (place.host.as_str(), place.port).to_socket_addrs().map(Iterator::collect),
    }
}

/// The address that is written in place of a name. Managers write those of IPv4 as `[::10.0.0.1]`.
fn literal(host: &str) -> Option<IpAddr> {
    let text = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let address = match text.parse().ok()? {
        IpAddr::V6(address) => {
            match address.to_ipv4().filter(|_| !address.is_loopback() && !address.is_unspecified()) {
                Some(address) => IpAddr::V4(address),
                None => IpAddr::V6(address),
            }
        }
        v4 @ IpAddr::V4(_) => v4,
    };
    Some(address)
}

impl Session for XrootdSession {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        if requests.is_empty() {
            return;
        }
        let now_ns = clock::monotonic().as_ns();
        for request in requests.drain(..) {
            self.client.submit(request, now_ns);
        }
        self.turn();
    }

    fn reap(&mut self, completions: &mut Vec<Completion>, limit: Duration) -> io::Result<()> {
        let mut now_ns = clock::monotonic().as_ns();
        let until_ns = now_ns.saturating_add(limit.as_nanos() as u64);
        loop {
            let is_over = self.client.has_completions() || now_ns >= until_ns;
            let wake_ns = until_ns.min(self.client.wake_ns()).min(self.looked_ns + LOOK_NS);
            let wait =
                if is_over { Duration::ZERO } else { Duration::from_nanos(wake_ns.saturating_sub(now_ns)) };
            let mut ready = std::mem::take(&mut self.ready);
            ready.clear();
            ready.extend_from_slice(self.epoll.wait(Some(wait))?);
            for token in &ready {
                self.serve(*token as usize);
            }
            self.ready = ready;
            now_ns = clock::monotonic().as_ns();
            if now_ns >= self.client.wake_ns() || now_ns >= self.looked_ns + LOOK_NS {
                self.looked_ns = now_ns;
                self.client.tick(now_ns);
            }
            self.turn();
            if is_over || self.client.has_completions() {
                self.client.completions(completions);
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: xrootd.md#session-1
    #[test]
    fn an_address_of_the_old_protocol_in_the_form_of_the_new_one_is_reached_by_the_old() {
        let of = |host: &str| addresses(&Place { host: host.to_owned(), port: 7 }).unwrap()[0].to_string();
        assert_eq!(of("[::10.64.0.3]"), "10.64.0.3:7");
        assert_eq!(of("::ffff:10.64.0.3"), "10.64.0.3:7");
        assert_eq!(of("10.64.0.3"), "10.64.0.3:7");
        assert_eq!(of("[fd77::3]"), "[fd77::3]:7");
        assert_eq!(of("[::1]"), "[::1]:7");
    }
}
