//! UDP: the door of whoever listens, and associations with those who have come in. What is said is in `datagram`.

use crate::address::Shown;
use crate::datagram::{Door, HEADER_BYTES, Header, Kind, OPENING_BYTES, Opening, OpeningKind, Reaction};
use crate::handshake::Token;
use crate::key::Key;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use weir_sys::poll::{self, Interest};
use weir_sys::{clock, socket};

/// Largest datagram of IPv4, its header taken off; IPv6 would carry 20 bytes more.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;
/// Payload of the largest message.
pub const MESSAGE_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - HEADER_BYTES;
/// Datagrams looked at before the clock is again, so that a flood keeps nobody waiting for ever.
const BURST: usize = 256;

/// A socket connected to a peer that has shown that it hears at its address.
#[derive(Debug)]
pub struct Association {
    pub socket: UdpSocket,
    /// In every message both ways; strangers do not know it.
    pub tag: u64,
    /// What let the peer in: said again to one that did not hear it. Clients have none.
    pub(crate) answer: Option<[u8; OPENING_BYTES]>,
}

impl Association {
    /// Answers a datagram that belongs to the opening; true when it was one, false when it is a message.
    pub fn reopened(&self, datagram: &[u8]) -> bool {
        let Some(answer) = &self.answer else { return false };
        let again = Opening::decode(datagram).is_some_and(|opening| opening.kind == OpeningKind::Proof);
        if again {
            // If it is lost too, the peer asks again.
            let _ = self.socket.send(answer);
        }
        again
    }

    /// Answers a peer that did not hear that it was let in, while no messages are expected yet; never blocks, and leaves the
    /// socket non-blocking.
    pub fn answer_again(&self) -> io::Result<()> {
        self.socket.set_nonblocking(true)?;
        let mut bytes = [0; OPENING_BYTES + 1];
        for _ in 0..BURST {
            match self.socket.recv(&mut bytes) {
                Ok(count) => {
                    self.reopened(&bytes[..count]);
                }
                Err(error) if is_peers(&error) => {}
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// The message's header when it belongs to this association.
    pub fn header(&self, datagram: &[u8]) -> Option<Header> {
        Header::read(datagram).filter(|header| header.tag == self.tag)
    }

    /// Sends a message of a header alone.
    pub fn send_bare(&self, kind: Kind, number: u64) -> io::Result<()> {
        let mut message = [0; HEADER_BYTES];
        Header { tag: self.tag, kind, number }.write(&mut message);
        self.socket.send(&message).map(drop)
    }
}

/// A peer that has come in by the door.
#[derive(Debug)]
pub struct Arrival {
    pub association: Association,
    pub token: Token,
    pub flow: u32,
    pub peer: SocketAddr,
}

/// The socket strangers send to. It keeps nothing for any of them.
pub struct UdpGate {
    socket: UdpSocket,
    door: Door,
}

impl UdpGate {
    /// Binds. `key`: `None` lets anyone in who hears at its address. Errors name the address and what to do.
    pub fn bind(address: SocketAddr, key: Option<Key>) -> io::Result<UdpGate> {
        Ok(UdpGate { socket: bind(address)?, door: Door::new(key)? })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The next peer that has shown that it hears at its address, has the key and is expected, waiting at most `limit`.
    /// Errors: the socket itself is broken.
    pub fn next(
        &mut self,
        limit: Duration,
        mut expects: impl FnMut(&Token, u32) -> bool,
    ) -> io::Result<Option<Arrival>> {
        let deadline = Instant::now() + limit;
        // One more than an opening has, so that longer datagrams are seen to be longer.
        let mut bytes = [0; OPENING_BYTES + 1];
        self.socket.set_nonblocking(true)?;
        loop {
            for _ in 0..BURST {
                let (count, from) = match self.socket.recv_from(&mut bytes) {
                    Ok(received) => received,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // Errors of earlier sends come back here; they say nothing about the socket.
                    Err(error) if is_peers(&error) => continue,
                    Err(error) => return Err(error),
                };
                let now_seconds = clock::monotonic().as_ns() / 1_000_000_000;
                match self.door.on_datagram(now_seconds, &from, &bytes[..count], &mut expects) {
                    Reaction::Nothing => {}
                    Reaction::Answer(answer) => {
                        // A client that does not hear it asks again.
                        let _ = self.socket.send_to(&answer, from);
                    }
                    Reaction::Proven { token, flow, tag, answer } => {
                        // Out of descriptors, say: the client asks again, and perhaps there are some then.
                        if let Ok(association) = self.admit(from, tag, answer) {
                            return Ok(Some(Arrival { association, token, flow, peer: from }));
                        }
                    }
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            poll::wait(self.socket.as_fd(), Interest::Readable, left)?;
        }
    }

    /// A socket of the peer's own at the same port: the kernel gives it what comes from there from now on.
    fn admit(&self, peer: SocketAddr, tag: u64, answer: [u8; OPENING_BYTES]) -> io::Result<Association> {
        let socket = shared_socket(self.socket.local_addr()?)?;
        socket.connect(peer)?;
        // Between being bound and being connected it may have got what others sent; they will send it again.
        socket.set_nonblocking(true)?;
        for _ in 0..BURST {
            if socket.recv(&mut [0; 1]).is_err() {
                break;
            }
        }
        socket.set_nonblocking(false)?;
        socket.send(&answer)?;
        Ok(Association { socket, tag, answer: Some(answer) })
    }
}

/// The socket strangers send to, at a port that `shared_socket` shares with it. Errors name the address and what to do.
pub fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let shown = Shown(address);
    let named = |error: io::Error| match error.kind() {
        ErrorKind::AddrInUse => io::Error::new(
            ErrorKind::AddrInUse,
            format!(
                "UDP {shown} is in use; stop what listens there (ss -lunp shows it) or choose another port"
            ),
        ),
        ErrorKind::AddrNotAvailable => {
            io::Error::new(ErrorKind::AddrNotAvailable, format!("{shown} is no address of this machine"))
        }
        kind => io::Error::new(kind, format!("cannot listen at UDP {shown}: {error}")),
    };
    // Without sharing first: a port that somebody has must be an error, not a rival.
    let probe = socket::udp_socket(&address).map_err(named)?;
    socket::bind(probe.as_fd(), &address, socket::Sharing::None).map_err(named)?;
    let bound = socket::local_address(probe.as_fd()).map_err(named)?;
    drop(probe);
    shared_socket(bound).map_err(named)
}

/// A further socket at the port of one that `bind` gave, to be connected to one peer.
pub fn shared_socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let descriptor = socket::udp_socket(&address)?;
    socket::bind(descriptor.as_fd(), &address, socket::Sharing::SameUser)?;
    Ok(UdpSocket::from(descriptor))
}

/// What the network says of something sent before, rather than of the socket: nobody listens there, no route, too big.
pub fn is_peers(error: &io::Error) -> bool {
    use ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkUnreachable,
        PermissionDenied,
    };
    matches!(
        error.kind(),
        ConnectionRefused
            | ConnectionReset
            | HostUnreachable
            | Interrupted
            | NetworkUnreachable
            | PermissionDenied
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::associate::open;
    use crate::datagram::{Heard, Knock};
    use crate::handshake::HandshakeError;

    const LIMIT: Duration = Duration::from_secs(10);

    fn gate(key: Option<Key>) -> (UdpGate, SocketAddr) {
        let gate = UdpGate::bind("127.0.0.1:0".parse().unwrap(), key).unwrap();
        let address = gate.address().unwrap();
        (gate, address)
    }

    // Spec: net-protocol.md#datagrams-4
    #[test]
    fn each_client_gets_a_socket_of_its_own_and_hears_no_other() {
        let key = Key::from_bytes(&[7; 20]).unwrap();
        let (mut gate, address) = gate(Some(key.clone()));
        let clients: Vec<_> = (0..8u32)
            .map(|flow| {
                let key = key.clone();
                std::thread::spawn(move || open(address, [4; 16], flow, Some(&key), LIMIT).unwrap())
            })
            .collect();
        let mut arrivals = std::collections::BTreeMap::new();
        while arrivals.len() < 8 {
            let seen: Vec<u32> = arrivals.keys().copied().collect();
            let arrival = gate.next(LIMIT, |token, flow| *token == [4; 16] && !seen.contains(&flow)).unwrap();
            let arrival = arrival.expect("a client comes");
            arrivals.insert(arrival.flow, arrival);
        }
        for (flow, client) in clients.into_iter().enumerate() {
            let client = client.join().unwrap();
            let arrival = &arrivals[&(flow as u32)];
            assert_eq!(client.tag, arrival.association.tag);
            client.send_bare(Kind::Request, flow as u64).unwrap();
            let mut bytes = [0; 64];
            arrival.association.socket.set_read_timeout(Some(LIMIT)).unwrap();
            let count = arrival.association.socket.recv(&mut bytes).unwrap();
            assert_eq!(arrival.association.header(&bytes[..count]).unwrap().number, flow as u64);
        }
    }

    // Spec: net-protocol.md#datagrams-3
    #[test]
    fn garbage_truncated_and_unexpected_openings_are_answered_with_nothing_over_a_socket() {
        let (mut gate, address) = gate(None);
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let hello = Opening::hello([4; 16], 1, [9; 32]).encode();
        let mut longer = hello.to_vec();
        longer.push(0);
        for bytes in [&b"GET / HTTP/1.0"[..], &hello[..135], &longer, &[0xff; 1400], &[], &hello] {
            stranger.send_to(bytes, address).unwrap();
            // Nobody waits for this flow.
            assert!(gate.next(Duration::from_millis(5), |_, _| false).unwrap().is_none());
        }
        stranger.set_nonblocking(true).unwrap();
        assert_eq!(stranger.recv(&mut [0; 200]).unwrap_err().kind(), ErrorKind::WouldBlock);
        // The same hello is answered once somebody waits for it, with no more than its own length.
        stranger.send_to(&hello, address).unwrap();
        assert!(gate.next(Duration::from_millis(5), |_, _| true).unwrap().is_none());
        stranger.set_nonblocking(false).unwrap();
        stranger.set_read_timeout(Some(LIMIT)).unwrap();
        assert_eq!(stranger.recv(&mut [0; 200]).unwrap(), hello.len());
    }

    #[test]
    fn a_wrong_key_is_told_and_a_door_without_anyone_is_given_up_within_the_limit() {
        let key = |byte| Key::from_bytes(&[byte; 20]).unwrap();
        let (mut gate, address) = gate(Some(key(1)));
        let asking = std::thread::spawn(move || open(address, [0; 16], 0, Some(&key(2)), LIMIT));
        while !asking.is_finished() {
            assert!(gate.next(Duration::from_millis(10), |_, _| true).unwrap().is_none());
        }
        assert!(matches!(asking.join().unwrap(), Err(HandshakeError::WrongKey)));
        drop(gate);
        let began = Instant::now();
        assert!(open(address, [0; 16], 0, None, Duration::from_millis(120)).is_err());
        assert!(began.elapsed() < LIMIT);
    }

    // Spec: net-protocol.md#datagrams-4
    #[test]
    fn a_client_that_did_not_hear_the_answer_hears_the_same_when_it_asks_again() {
        let (mut gate, address) = gate(None);
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(address).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        let mut knock = Knock::new([4; 16], 1, [9; 32]);
        let mut bytes = [0; 200];
        client.send(&knock.to_send()).unwrap();
        assert!(gate.next(Duration::from_millis(5), |_, _| true).unwrap().is_none());
        let count = client.recv(&mut bytes).unwrap();
        assert_eq!(knock.on_datagram(&bytes[..count], None), Heard::Challenged);
        client.send(&knock.to_send()).unwrap();
        let arrival = gate.next(LIMIT, |_, _| true).unwrap().unwrap();
        let lost = client.recv(&mut bytes).unwrap();
        let first = bytes[..lost].to_vec();
        client.send(&knock.to_send()).unwrap();
        arrival.association.answer_again().unwrap();
        let count = client.recv(&mut bytes).unwrap();
        assert_eq!(bytes[..count], first);
        assert_eq!(knock.on_datagram(&bytes[..count], None), Heard::Open(arrival.association.tag));
    }

    #[test]
    fn a_port_that_somebody_has_is_an_error_in_words() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = UdpGate::bind(taken.local_addr().unwrap(), None).err().unwrap();
        assert!(error.to_string().contains("is in use"), "{error}");
    }

    /// Tells this test program to be another user who wants a port.
    const RIVAL: &str = "WEIR_TRANSPORT_TEST_RIVAL";

    // Spec: net-protocol.md#datagrams-4
    #[test]
    fn another_user_cannot_bind_the_port_of_a_server_whatever_its_socket_says() {
        use socket::Sharing;
        use std::os::unix::process::CommandExt;
        let try_all = |address: SocketAddr| {
            [Sharing::None, Sharing::OldConnections, Sharing::SameUser].map(|sharing| {
                let socket = socket::udp_socket(&address).unwrap();
                socket::bind(socket.as_fd(), &address, sharing).err().map(|error| error.kind())
            })
        };
        if let Ok(address) = std::env::var(RIVAL) {
            assert_eq!(try_all(address.parse().unwrap()), [Some(ErrorKind::AddrInUse); 3]);
            return;
        }
        if weir_sys::process::User::real().uid != 0 {
            eprintln!("SKIPPED: becoming another user needs root");
            return;
        }
        let (mut gate, address) = gate(None);
        let client = std::thread::spawn(move || open(address, [4; 16], 0, None, LIMIT).unwrap());
        let arrival = gate.next(LIMIT, |_, _| true).unwrap();
        let _client = client.join().unwrap();
        assert!(arrival.is_some(), "the port is shared with an association now");
        let mut rival = std::process::Command::new("/proc/self/exe");
        let name = "udp::tests::another_user_cannot_bind_the_port_of_a_server_whatever_its_socket_says";
        rival
            .args(["--exact", name])
            .env(RIVAL, address.to_string())
            .current_dir("/")
            .uid(65_534)
            .gid(65_534);
        let rival = rival.output().unwrap();
        let said = String::from_utf8_lossy(&rival.stdout);
        assert!(rival.status.success() && said.contains("1 passed"), "{said}");
    }
}
