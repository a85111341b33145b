//! Many associations at once: one after the other, a thousand over a path of 25 ms take over a minute, and one lost datagram
//! holds up all that come after it.

use crate::datagram::{Heard, Knock, OPENING_BYTES, Refusal};
use crate::handshake::{HandshakeError, Token};
use crate::key::{self, Key};
use crate::udp::Association;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use weir_sys::epoll::Epoll;
use weir_sys::socket;

/// Openings under way at once: their datagrams fit into the buffer of any listener.
const AT_ONCE: usize = 128;
/// First pause before an opening is said again; it doubles up to the second.
const AGAIN_FIRST: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// An association that was not made.
#[derive(Debug)]
pub struct Failed {
    /// Which of the calls.
    pub index: usize,
    pub error: HandshakeError,
}

/// One opening under way.
struct Line {
    socket: UdpSocket,
    knock: Knock,
    pause: Duration,
    say_at: Instant,
    until: Instant,
    /// The last thing that the network said against it.
    refused: Option<io::Error>,
}

impl Line {
    fn begin(address: SocketAddr, token: Token, flow: u32, limit: Duration) -> io::Result<Line> {
        let any: SocketAddr = if address.is_ipv4() {
            (Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let socket = UdpSocket::bind(any).map_err(socket::no_port_left)?;
        socket.connect(address)?;
        socket.set_nonblocking(true)?;
        let (knock, now) = (Knock::new(token, flow, key::random()?), Instant::now());
        Ok(Line { socket, knock, pause: AGAIN_FIRST, say_at: now, until: now + limit, refused: None })
    }

    /// Says its word when that is due. Errors: its time is over.
    fn say(&mut self, now: Instant, limit: Duration) -> Result<(), HandshakeError> {
        if now >= self.until {
            return Err(self.refused.take().map_or(HandshakeError::TimedOut(limit), HandshakeError::Io));
        }
        if now >= self.say_at {
            // What cannot be sent now is said again later.
            if let Err(error) = self.socket.send(&self.knock.to_send()) {
                self.refused = Some(error);
            }
            self.say_at = now + self.pause;
            self.pause = (self.pause * 2).min(AGAIN_MAX);
        }
        Ok(())
    }

    /// Hears what has come; the association's tag when it is open.
    fn hear(&mut self, key: Option<&Key>) -> Result<Option<u64>, HandshakeError> {
        // One more than an opening has, so that longer datagrams are seen to be longer.
        let mut bytes = [0; OPENING_BYTES + 1];
        let heard = match self.socket.recv(&mut bytes) {
            Ok(count) => self.knock.on_datagram(&bytes[..count], key),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            // Nobody listens there yet; perhaps soon.
            Err(error) => {
                self.refused = Some(error);
                return Ok(None);
            }
        };
        match heard {
            Heard::Noise => Ok(None),
            Heard::Challenged => {
                (self.say_at, self.pause) = (Instant::now(), AGAIN_FIRST);
                Ok(None)
            }
            Heard::Open(tag) => Ok(Some(tag)),
            Heard::Refused(why) => Err(refusal(why)),
        }
    }
}

fn refusal(why: Refusal) -> HandshakeError {
    match why {
        Refusal::KeyWanted => HandshakeError::KeyWanted,
        Refusal::ServerHasNoKey => HandshakeError::ServerHasNoKey,
        Refusal::WrongKey => HandshakeError::WrongKey,
        Refusal::Status(status) => status.refusal().unwrap_or(HandshakeError::NotWeir),
    }
}

/// Comes in at the doors of `calls`, each an address and a flow of the session `token`; at most 128 at once, each within
/// `limit`. Sockets block afterwards, in the order of the calls. Errors: the first that was refused or had no answer; a server
/// that does not expect a flow gives none.
// Spec: net-protocol.md#datagrams-1 net-protocol.md#datagrams-6
pub fn open_all(
    calls: &[(SocketAddr, u32)],
    token: Token,
    key: Option<&Key>,
    limit: Duration,
) -> Result<Vec<Association>, Failed> {
    let broken = |index: usize, error: io::Error| Failed { index, error: HandshakeError::Io(error) };
    let mut epoll = Epoll::new(AT_ONCE).map_err(|error| broken(0, error))?;
    let mut under_way: Vec<(usize, Line)> = Vec::with_capacity(AT_ONCE);
    let mut made: Vec<Option<Association>> = calls.iter().map(|_| None).collect();
    let mut begun = 0;
    loop {
        while begun < calls.len() && under_way.len() < AT_ONCE {
            let (address, flow) = calls[begun];
            let line = Line::begin(address, token, flow, limit).map_err(|error| broken(begun, error))?;
            epoll.add(line.socket.as_fd(), begun as u64).map_err(|error| broken(begun, error))?;
            under_way.push((begun, line));
            begun += 1;
        }
        let now = Instant::now();
        for (index, line) in &mut under_way {
            line.say(now, limit).map_err(|error| Failed { index: *index, error })?;
        }
        let Some(next) = under_way.iter().map(|(_, line)| line.say_at.min(line.until)).min() else {
            return Ok(made.into_iter().flatten().collect());
        };
        let oldest = under_way[0].0;
        let left = next.saturating_duration_since(Instant::now());
        let ready = epoll.wait(Some(left)).map_err(|error| broken(oldest, error))?.to_vec();
        for number in ready {
            let Some(place) = under_way.iter().position(|(index, _)| *index as u64 == number) else {
                continue;
            };
            let index = under_way[place].0;
            let Some(tag) = under_way[place].1.hear(key).map_err(|error| Failed { index, error })? else {
                continue;
            };
            let socket = under_way.remove(place).1.socket;
            let settled = epoll.remove(socket.as_fd()).and_then(|()| socket.set_nonblocking(false));
            settled.map_err(|error| broken(index, error))?;
            made[index] = Some(Association { socket, tag, answer: None });
        }
    }
}

/// Likewise of one.
pub fn open(
    address: SocketAddr,
    token: Token,
    flow: u32,
    key: Option<&Key>,
    limit: Duration,
) -> Result<Association, HandshakeError> {
    let mut made = open_all(&[(address, flow)], token, key, limit).map_err(|failed| failed.error)?;
    Ok(made.remove(0))
}
