//! Asks along a path, one packet at a time: a request of some size with some hop limit, and what comes of it.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;
use weir_core::Instant;
use weir_sys::clock;
use weir_sys::path_probe::{self, PathError, Said, Version};
use weir_sys::poll::{self, Interest};
use weir_transport::address::at_port;
use weir_transport::datagram::{HEADER_BYTES, Header, Kind};
use weir_transport::udp::{Association, DATAGRAM_BYTES_MAX};

/// Smallest wait for an answer beyond what the peer takes: routers say what they say beside their work.
const PATIENCE_MIN: Duration = Duration::from_millis(200);
/// How often a packet is handed to a kernel that has no room, or word of earlier ones.
const SEND_TRIES: u32 = 10;

/// What came of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The peer has it.
    Reply {
        time_ns: u64,
    },
    /// Its hop limit ended at `from`, or nobody takes it beyond.
    Ended {
        from: IpAddr,
        said: Said,
        time_ns: u64,
    },
    /// Larger than what the next link of `from` takes, or the sender's own (`None`).
    TooBig {
        from: Option<IpAddr>,
        mtu: u64,
    },
    Silence,
}

pub struct Asker<'a> {
    association: &'a Association,
    pub version: Version,
    pub peer: IpAddr,
    timeout: Duration,
    /// Longest round trip to the peer so far.
    longest: Option<Duration>,
    number: u64,
    /// Requests before this one without an answer: a late one could be taken for another's.
    unanswered: bool,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl<'a> Asker<'a> {
    /// Takes the association's socket for probing. Errors: the kernel cannot queue errors or keep packets whole.
    pub fn new(association: &'a Association, timeout: Duration) -> io::Result<Asker<'a>> {
        let socket = &association.socket;
        let peer = socket.peer_addr()?.ip();
        let version = Version::of(peer);
        socket.set_nonblocking(true)?;
        path_probe::prepare(socket.as_fd(), version)?;
        Ok(Asker {
            association,
            version,
            peer,
            timeout,
            longest: None,
            number: 0,
            unanswered: false,
            request: vec![0; DATAGRAM_BYTES_MAX],
            answer: vec![0; HEADER_BYTES * 8],
        })
    }

    /// The least that a request can be, as an IP packet.
    pub fn least_bytes(&self) -> u64 {
        (self.version.header_bytes() + HEADER_BYTES) as u64
    }

    /// What the next connection would go by: a socket of its own, since one that is connected may hold an older route.
    pub fn route_mtu(&self) -> io::Result<u64> {
        let used = &self.association.socket;
        let fresh = UdpSocket::bind(at_port(used.local_addr()?, 0))?;
        fresh.connect(used.peer_addr()?)?;
        path_probe::route_mtu(fresh.as_fd(), self.version)
    }

    pub fn patience(&self) -> Duration {
        self.longest.map_or(self.timeout, |longest| (3 * longest + PATIENCE_MIN).min(self.timeout))
    }

    /// Sends a request that makes an IP packet of `packet_bytes` and may pass `hops` routers less one (`None`: as many as
    /// usual), and waits for what comes of it.
    pub fn ask(&mut self, packet_bytes: u64, hops: Option<u8>) -> io::Result<Answer> {
        let socket = &self.association.socket;
        let most = DATAGRAM_BYTES_MAX;
        let length =
            (packet_bytes as usize).saturating_sub(self.version.header_bytes()).clamp(HEADER_BYTES, most);
        self.number += 1;
        Header { tag: self.association.tag, kind: Kind::Request, number: self.number }
            .write(&mut self.request);
        path_probe::set_hop_limit(socket.as_fd(), self.version, hops)?;
        let mut tries = 0;
        let sent = loop {
            let sent = clock::monotonic();
            match socket.send(&self.request[..length]) {
                Ok(_) => break sent,
                Err(error) => {
                    // Errors of earlier packets come back here too; what is taken now is of none that is waited for.
                    while let Some(error) = path_probe::take_error(socket.as_fd(), &mut self.answer)? {
                        if let PathError { from: None, said: Said::TooBig { mtu }, .. } = error {
                            return Ok(Answer::TooBig { from: None, mtu });
                        }
                    }
                    tries += 1;
                    if tries == SEND_TRIES {
                        return Err(io::Error::new(error.kind(), format!("a probe cannot be sent: {error}")));
                    }
                    clock::sleep_until(sent + Duration::from_millis(u64::from(tries)));
                }
            }
        };
        let answer = self.hear(sent)?;
        match answer {
            Answer::Reply { time_ns } => {
                let time = Duration::from_nanos(time_ns);
                self.longest = Some(self.longest.map_or(time, |longest| longest.max(time)));
            }
            Answer::Silence => self.unanswered = true,
            _ => {}
        }
        Ok(answer)
    }

    fn hear(&mut self, sent: Instant) -> io::Result<Answer> {
        let socket = &self.association.socket;
        let until = sent + self.patience();
        loop {
            // What has come is looked at before the clock.
            let now = clock::monotonic();
            let time_ns = now.since(sent).as_nanos() as u64;
            // Otherwise nothing is there, or word of a packet, which is in the queue.
            if let Ok(count) = socket.recv(&mut self.answer) {
                let datagram = &self.answer[..count];
                match self.association.header(datagram) {
                    Some(Header { kind: Kind::Reply, number, .. }) if number == self.number => {
                        return Ok(Answer::Reply { time_ns });
                    }
                    // An answer that is late, or a client that did not hear that it was let in.
                    _ => {
                        self.association.reopened(datagram);
                    }
                }
                if now < until {
                    continue;
                }
            }
            let mut heard = false;
            while let Some(error) = path_probe::take_error(socket.as_fd(), &mut self.answer)? {
                heard = true;
                if !self.is_of_this(error.quoted_bytes) {
                    continue;
                }
                match (error.from, error.said) {
                    (from, Said::TooBig { mtu }) => return Ok(Answer::TooBig { from, mtu }),
                    (Some(from), said @ (Said::TimeExceeded | Said::Unreachable)) => {
                        return Ok(Answer::Ended { from, said, time_ns });
                    }
                    _ => {}
                }
            }
            if heard && now < until {
                continue;
            }
            if now >= until {
                return Ok(Answer::Silence);
            }
            poll::wait(socket.as_fd(), Interest::Readable, until.since(now))?;
        }
    }

    /// Whether an error that quotes so many bytes, now in `answer`, is of the request that is waited for.
    fn is_of_this(&self, quoted_bytes: usize) -> bool {
        match self.answer.get(..quoted_bytes).and_then(Header::read) {
            Some(header) => header.tag == self.association.tag && header.number == self.number,
            None => !self.unanswered,
        }
    }
}

impl Drop for Asker<'_> {
    fn drop(&mut self) {
        // The train that follows travels as all packets do.
        let _ = path_probe::set_hop_limit(self.association.socket.as_fd(), self.version, None);
    }
}
