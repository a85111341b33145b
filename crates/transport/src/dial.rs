//! Many connections at once: over a path of 25 ms, one after the other a thousand take over a minute.

use crate::address::Shown;
use crate::handshake::{ClientHandshake, ClientStep, HandshakeError, Mode, Token};
use crate::key::{self, Key};
use crate::tcp_options::{OptionError, TcpOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use thiserror::Error;
use weir_sys::epoll::Epoll;
use weir_sys::socket;

/// Connections under way at once: well below any listener's backlog.
const AT_ONCE: usize = 128;

/// One connection to make.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub address: SocketAddr,
    pub mode: Mode,
    pub token: Token,
    pub flow: u32,
}

#[derive(Debug, Error)]
pub enum DialError {
    /// An option of this machine's own socket was refused; the other end has nothing to do with it.
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error("{0}")]
    Connect(io::Error),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

/// A connection that was not made.
#[derive(Debug)]
pub struct Failed {
    /// Which of the calls.
    pub index: usize,
    pub error: DialError,
}

enum Phase {
    Connecting,
    Opening(Box<ClientHandshake>),
}

struct Line {
    stream: TcpStream,
    until: Instant,
    phase: Phase,
}

/// Makes every connection and proves to each listener that it belongs there, at most 128 at once, each within `limit`. The
/// sockets are blocking afterwards, in the order of the calls. Errors: the first that failed; the others are closed.
pub fn dial(
    calls: &[Call],
    key: Option<&Key>,
    options: Option<&TcpOptions>,
    limit: Duration,
) -> Result<Vec<TcpStream>, Failed> {
    let failed = |index: usize, error: io::Error| Failed { index, error: DialError::Connect(error) };
    let mut epoll = Epoll::new(AT_ONCE).map_err(|error| failed(0, error))?;
    let mut lines: Vec<Option<Line>> = (0..calls.len()).map(|_| None).collect();
    let mut made: Vec<Option<TcpStream>> = (0..calls.len()).map(|_| None).collect();
    // Calls are begun in order, so those under way have their time-outs in order too.
    let (mut begun, mut done, mut oldest) = (0, 0, 0);
    while done < calls.len() {
        while begun < calls.len() && begun - done < AT_ONCE {
            let line = begin(&calls[begun], options, limit, &epoll, begun as u64)
                .map_err(|error| Failed { index: begun, error })?;
            lines[begun] = Some(line);
            begun += 1;
        }
        while oldest < begun && lines[oldest].is_none() {
            oldest += 1;
        }
        let until = lines[oldest].as_ref().map_or_else(Instant::now, |line| line.until);
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let text = format!("no answer from {} within {limit:?}", Shown(calls[oldest].address));
            return Err(failed(oldest, io::Error::new(ErrorKind::TimedOut, text)));
        }
        let ready = epoll.wait(Some(left)).map_err(|error| failed(oldest, error))?.to_vec();
        for number in ready {
            let index = number as usize;
            let Some(line) = &mut lines[index] else { continue };
            let open =
                advance(line, &calls[index], key, &epoll, number).map_err(|error| Failed { index, error })?;
            if !open {
                continue;
            }
            if let Some(line) = lines[index].take() {
                let settled = epoll
                    .remove(line.stream.as_fd())
                    .and_then(|()| socket::set_nonblocking(line.stream.as_fd(), false));
                settled.map_err(|error| failed(index, error))?;
                made[index] = Some(line.stream);
                done += 1;
            }
        }
    }
    Ok(made.into_iter().flatten().collect())
}

fn begin(
    call: &Call,
    options: Option<&TcpOptions>,
    limit: Duration,
    epoll: &Epoll,
    number: u64,
) -> Result<Line, DialError> {
    let descriptor = socket::tcp_socket(&call.address).map_err(DialError::Connect)?;
    if let Some(options) = options {
        options.apply(descriptor.as_fd())?;
    }
    socket::begin_connect(descriptor.as_fd(), &call.address).map_err(DialError::Connect)?;
    epoll.add_writable(descriptor.as_fd(), number).map_err(DialError::Connect)?;
    Ok(Line { stream: TcpStream::from(descriptor), until: Instant::now() + limit, phase: Phase::Connecting })
}

/// Goes on with one line that is ready; true when it is open.
fn advance(
    line: &mut Line,
    call: &Call,
    key: Option<&Key>,
    epoll: &Epoll,
    number: u64,
) -> Result<bool, DialError> {
    match &mut line.phase {
        Phase::Connecting => {
            socket::pending_error(line.stream.as_fd()).map_err(DialError::Connect)?;
            let nonce = key::random().map_err(DialError::Connect)?;
            let handshake = ClientHandshake::new(call.mode, call.token, call.flow, nonce);
            // 64 bytes always fit into a fresh socket's buffer.
            line.stream.write_all(handshake.hello()).map_err(DialError::Connect)?;
            epoll.watch_readable(line.stream.as_fd(), number).map_err(DialError::Connect)?;
            line.phase = Phase::Opening(Box::new(handshake));
            Ok(false)
        }
        Phase::Opening(handshake) => {
            let mut bytes = [0; 64];
            let wanted = handshake.wants().min(bytes.len());
            let count = match line.stream.read(&mut bytes[..wanted]) {
                Ok(0) => return Err(HandshakeError::from(io::Error::from(ErrorKind::UnexpectedEof)).into()),
                Ok(count) => count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Ok(false);
                }
                Err(error) => return Err(HandshakeError::from(error).into()),
            };
            match handshake.on_bytes(&bytes[..count], key)? {
                ClientStep::More => Ok(false),
                ClientStep::Prove(proof) => {
                    line.stream.write_all(&proof).map_err(HandshakeError::from)?;
                    Ok(false)
                }
                ClientStep::Open => Ok(true),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{Gate, GateLimits};
    use std::net::TcpListener;

    const LIMIT: Duration = Duration::from_secs(10);

    fn call(address: SocketAddr, flow: u32) -> Call {
        Call { address, mode: Mode::Data, token: [1; 16], flow }
    }

    #[test]
    fn a_thousand_calls_are_all_answered_and_come_back_in_their_order() {
        let key = Key::from_bytes(&[7; 20]).unwrap();
        let listener = crate::tcp::listen("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let mut gate = Gate::new(listener, Some(key.clone()), GateLimits::default()).unwrap();
        let address = gate.address().unwrap();
        let calls: Vec<Call> = (0..1000).map(|flow| call(address, flow)).collect();
        let dialling = std::thread::spawn(move || dial(&calls, Some(&key), None, LIMIT).unwrap());
        let mut admitted = std::collections::BTreeMap::new();
        while admitted.len() < 1000 {
            for client in gate.next(LIMIT).unwrap() {
                let (flow, peer) = (client.hello.flow, client.peer);
                client.welcome().unwrap();
                assert!(admitted.insert(flow, peer).is_none(), "flow {flow} came twice");
            }
        }
        for (flow, stream) in dialling.join().unwrap().iter().enumerate() {
            assert_eq!(stream.local_addr().unwrap(), admitted[&(flow as u32)]);
        }
    }

    #[test]
    fn a_refused_and_a_silent_listener_are_named_by_their_call() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = silent.local_addr().unwrap();
        let failed = dial(&[call(at, 0), call(closed, 1)], None, None, LIMIT).unwrap_err();
        assert_eq!(failed.index, 1);
        assert!(failed.error.to_string().contains("refused"), "{}", failed.error);
        let failed = dial(&[call(at, 0)], None, None, Duration::from_millis(50)).unwrap_err();
        assert!(failed.error.to_string().contains("no answer from"), "{}", failed.error);
    }
}
