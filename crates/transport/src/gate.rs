//! The door of whoever listens: accepts connections, hears each out in its own bounded slot, and hands over those that
//! have proven themselves. A port scanner, garbage, a cut-off opening or a silent peer costs one slot for a few seconds
//! and never a thread; when the slots are full the oldest opening is dropped, so honest clients (who finish within a
//! round trip or two) still come in.

use crate::handshake::{self, Hello, ServerHandshake, Status, Step};
use crate::key::{self, Key};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use weir_sys::epoll::Epoll;

/// Token of the listener itself; openings count from 1.
const LISTENER: u64 = 0;
/// Connections accepted before openings are looked at again, so that a flood of them starves nobody.
const ACCEPT_BURST: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateLimits {
    /// Openings under way at once.
    pub pending_max: usize,
    /// Time an opening may take.
    pub opening: Duration,
}

impl Default for GateLimits {
    fn default() -> Self {
        GateLimits { pending_max: 256, opening: Duration::from_secs(5) }
    }
}

struct Opening {
    stream: TcpStream,
    peer: SocketAddr,
    since: Instant,
    handshake: ServerHandshake,
}

/// A client that has proven itself and waits for an answer. Dropped without one, it is refused.
pub struct Admitted {
    stream: TcpStream,
    transcript: [u8; 128],
    key: Option<Key>,
    pub hello: Hello,
    pub peer: SocketAddr,
}

impl Admitted {
    /// Lets it in; the socket is blocking.
    pub fn welcome(self) -> io::Result<TcpStream> {
        let mut stream = self.stream;
        // The buffer of a fresh socket always has room for it; if not, the peer has gone wrong.
        stream.write_all(&handshake::answer(Status::Welcome, &self.transcript, self.key.as_ref()))?;
        stream.set_nonblocking(false)?;
        Ok(stream)
    }

    pub fn refuse(self, status: Status) {
        let mut stream = self.stream;
        // It is refused either way; whether it hears of it is its own affair.
        let _ = stream.write_all(&handshake::answer(status, &self.transcript, None));
    }
}

pub struct Gate {
    listener: TcpListener,
    key: Option<Key>,
    limits: GateLimits,
    epoll: Epoll,
    openings: BTreeMap<u64, Opening>,
    next_number: u64,
}

impl Gate {
    /// `key`: `None` lets anyone in.
    pub fn new(listener: TcpListener, key: Option<Key>, limits: GateLimits) -> io::Result<Gate> {
        listener.set_nonblocking(true)?;
        let epoll = Epoll::new(limits.pending_max + 1)?;
        epoll.add(listener.as_fd(), LISTENER)?;
        Ok(Gate { listener, key, limits, epoll, openings: BTreeMap::new(), next_number: LISTENER + 1 })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Hands over clients that have proven themselves, waiting at most `limit` for the first. Errors: the listener
    /// itself is broken.
    pub fn next(&mut self, limit: Duration) -> io::Result<Vec<Admitted>> {
        let deadline = Instant::now() + limit;
        let mut admitted = Vec::new();
        loop {
            let now = Instant::now();
            self.drop_late(now);
            let oldest = self.openings.values().next().map(|opening| opening.since + self.limits.opening);
            let wake = oldest.map_or(deadline, |late| late.min(deadline));
            let ready = self.epoll.wait(Some(wake.saturating_duration_since(now)))?.to_vec();
            for number in ready {
                if number == LISTENER {
                    self.accept()?;
                } else if let Some(client) = self.hear(number) {
                    admitted.push(client);
                }
            }
            if !admitted.is_empty() || Instant::now() >= deadline {
                return Ok(admitted);
            }
        }
    }

    /// Openings are numbered in the order they came, so the first are the oldest.
    fn drop_late(&mut self, now: Instant) {
        while let Some(entry) = self.openings.first_entry() {
            if now.duration_since(entry.get().since) < self.limits.opening {
                break;
            }
            entry.remove();
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..ACCEPT_BURST {
            let (stream, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => match error.raw_os_error() {
                    _ if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                    // Out of descriptors or memory: give the oldest opening's back and let the rest wait a moment.
                    Some(EMFILE | ENFILE | ENOBUFS | ENOMEM) => {
                        self.openings.pop_first();
                        std::thread::sleep(Duration::from_millis(5));
                        return Ok(());
                    }
                    Some(EBADF | EINVAL | ENOTSOCK) => return Err(error),
                    // The connection died while it waited.
                    _ => continue,
                },
            };
            if self.openings.len() >= self.limits.pending_max {
                self.openings.pop_first();
            }
            stream.set_nonblocking(true)?;
            let number = self.next_number;
            self.next_number += 1;
            let handshake = ServerHandshake::new(key::random()?);
            self.epoll.add(stream.as_fd(), number)?;
            self.openings.insert(number, Opening { stream, peer, since: Instant::now(), handshake });
        }
        Ok(())
    }

    /// Reads what has come on one opening; it leaves its slot when it is proven or must go.
    fn hear(&mut self, number: u64) -> Option<Admitted> {
        let opening = self.openings.get_mut(&number)?;
        let mut bytes = [0; handshake::HELLO_BYTES];
        loop {
            let wanted = opening.handshake.wants();
            let step = match opening.stream.read(&mut bytes[..wanted]) {
                Ok(0) => Step::Close,
                Ok(count) => opening.handshake.on_bytes(&bytes[..count], self.key.as_ref()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => Step::Close,
            };
            match step {
                Step::More => {}
                Step::Challenge(challenge) => {
                    if opening.stream.write_all(&challenge).is_err() {
                        self.openings.remove(&number);
                        return None;
                    }
                }
                Step::Refuse(reply) => {
                    let _ = opening.stream.write_all(&reply);
                    self.openings.remove(&number);
                    return None;
                }
                Step::Close => {
                    self.openings.remove(&number);
                    return None;
                }
                Step::Proven { hello, transcript } => {
                    let opening = self.openings.remove(&number)?;
                    // The descriptor lives on, so it must be taken out by hand; a failure means it is out already.
                    let _ = self.epoll.remove(opening.stream.as_fd());
                    let key = self.key.clone();
                    return Some(Admitted {
                        stream: opening.stream,
                        transcript,
                        key,
                        hello,
                        peer: opening.peer,
                    });
                }
            }
        }
    }
}

// Linux numbers, the same on every architecture.
const ENOMEM: i32 = 12;
const EBADF: i32 = 9;
const EINVAL: i32 = 22;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOTSOCK: i32 = 88;
const ENOBUFS: i32 = 105;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::{HandshakeError, Mode, open};

    const LIMIT: Duration = Duration::from_secs(10);

    fn gate(key: Option<Key>, limits: GateLimits) -> (Gate, SocketAddr) {
        let gate = Gate::new(TcpListener::bind("127.0.0.1:0").unwrap(), key, limits).unwrap();
        let address = gate.address().unwrap();
        (gate, address)
    }

    fn admit_one(gate: &mut Gate) -> Hello {
        let mut admitted = gate.next(LIMIT).unwrap();
        assert_eq!(admitted.len(), 1);
        let admitted = admitted.remove(0);
        let hello = admitted.hello;
        admitted.welcome().unwrap();
        hello
    }

    #[test]
    fn an_honest_client_comes_in_past_a_thousand_silent_ones_and_garbage() {
        let key = Key::from_bytes(&[7; 20]).unwrap();
        let (mut gate, address) =
            gate(Some(key.clone()), GateLimits { pending_max: 64, ..GateLimits::default() });
        let client = std::thread::spawn(move || {
            let mut silent = Vec::new();
            for index in 0..1000 {
                let mut stream = TcpStream::connect(address).unwrap();
                if index % 2 == 0 {
                    let _ = stream.write_all(&[0xff; 40]);
                }
                silent.push(stream);
                if silent.len() > 200 {
                    silent.remove(0);
                }
            }
            let stream = TcpStream::connect(address).unwrap();
            open(&stream, Mode::Data, [4; 16], 11, Some(&key), LIMIT)
        });
        let hello = admit_one(&mut gate);
        assert_eq!((hello.mode, hello.flow, hello.token), (Mode::Data, 11, [4; 16]));
        client.join().unwrap().unwrap();
        assert!(gate.openings.len() <= 64);
    }

    #[test]
    fn a_wrong_key_no_key_and_a_key_too_many_are_each_told_what_is_wrong() {
        let right = Key::from_bytes(&[7; 20]).unwrap();
        let wrong = Key::from_bytes(&[8; 20]).unwrap();
        let ask = |server: Option<Key>, client: Option<Key>| {
            let (mut gate, address) = gate(server, GateLimits::default());
            let asking = std::thread::spawn(move || {
                let stream = TcpStream::connect(address).unwrap();
                open(&stream, Mode::Control, [0; 16], 0, client.as_ref(), LIMIT)
            });
            while !asking.is_finished() {
                for admitted in gate.next(Duration::from_millis(20)).unwrap() {
                    admitted.welcome().unwrap();
                }
            }
            asking.join().unwrap()
        };
        assert!(matches!(ask(Some(right.clone()), Some(right.clone())), Ok(())));
        assert!(matches!(ask(None, None), Ok(())));
        assert!(matches!(ask(Some(right.clone()), Some(wrong)), Err(HandshakeError::WrongKey)));
        assert!(matches!(ask(Some(right.clone()), None), Err(HandshakeError::KeyWanted)));
        assert!(matches!(ask(None, Some(right)), Err(HandshakeError::ServerHasNoKey)));
    }

    // Spec: net-protocol.md#opening-1
    #[test]
    fn a_server_that_does_not_know_the_key_is_left_even_if_it_says_welcome() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let impostor = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut hello = [0; handshake::HELLO_BYTES];
            stream.read_exact(&mut hello).unwrap();
            let mut reply = handshake::Reply {
                version: handshake::VERSION,
                status: Status::Welcome,
                key_wanted: true,
                body: [1; 32],
            };
            stream.write_all(&reply.encode()).unwrap();
            let mut proof = [0; handshake::PROOF_BYTES];
            stream.read_exact(&mut proof).unwrap();
            // The best it can do: give the client's own proof back.
            reply.body = proof;
            stream.write_all(&reply.encode()).unwrap();
        });
        let stream = TcpStream::connect(address).unwrap();
        let key = Key::from_bytes(&[7; 20]).unwrap();
        let result = open(&stream, Mode::Control, [0; 16], 0, Some(&key), LIMIT);
        assert!(matches!(result, Err(HandshakeError::WrongKey)));
        impostor.join().unwrap();
    }

    // Spec: net-protocol.md#opening-3
    #[test]
    fn an_opening_that_is_never_finished_leaves_its_slot() {
        let limits = GateLimits { opening: Duration::from_millis(30), ..GateLimits::default() };
        let (mut gate, address) = gate(None, limits);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&handshake::MAGIC[..4]).unwrap();
        while gate.next_number == 1 {
            assert!(gate.next(Duration::from_millis(1)).unwrap().is_empty());
        }
        while !gate.openings.is_empty() {
            assert!(gate.next(Duration::from_millis(10)).unwrap().is_empty());
        }
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
    }
}
