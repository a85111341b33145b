//! Connections of the three roles: how they are made, made again, read and written without waiting.

use super::frame::{self, Word};
use super::queue::Outbox;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use std::time::Duration;
use weir_core::Instant;
use weir_seams::workload::{Control, WorkloadError};
use weir_sys::clock::{self, monotonic};
use weir_sys::epoll::Epoll;
use weir_sys::poll::Interest;
use weir_transport::handshake::{self, Mode, Token};
use weir_transport::key::Key;
use weir_transport::tcp;
use weir_transport::tcp_options::TcpOptions;

/// What a connection is for; in the place of a session's token, each with what its flow number means.
pub const BROADCAST_TOKEN: Token = *b"weir o2b2 beats\n";
pub const FEEDBACK_TOKEN: Token = *b"weir o2b2 acks \n";
pub const DATA_TOKEN: Token = *b"weir o2b2 data \n";

/// A connection that ended is made anew after so long, for as long as the role runs (the message library's `ZMQ_RECONNECT_IVL`).
const AGAIN: Duration = Duration::from_millis(100);
/// How long making a connection may take.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Longest time for which a role does not look at orders, its listener and connections under way.
pub const LOOK: Duration = Duration::from_millis(5);
/// Read at once from one connection, so that all have their turn.
pub const READ_BYTES: usize = 64 << 10;

/// Whom to call.
#[derive(Clone)]
pub struct Call {
    pub address: SocketAddr,
    pub token: Token,
    /// Who calls.
    pub number: u32,
    pub key: Option<Key>,
    pub tcp: TcpOptions,
}

impl Call {
    fn make(&self) -> io::Result<TcpStream> {
        let stream = tcp::connect(self.address, Some(&self.tcp), CONNECT_LIMIT)?;
        handshake::open(&stream, Mode::Data, self.token, self.number, self.key.as_ref(), CONNECT_LIMIT)
            .map_err(io::Error::other)?;
        ready(stream)
    }
}

/// A connection as roles want it: never waiting; and without Nagle's delay, as the message library has it.
pub fn ready(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// A connection that is to be there for as long as the role runs. It is made on a thread, so that a builder that does not answer
/// holds nobody up.
pub struct Line {
    call: Call,
    token: u64,
    stream: Option<TcpStream>,
    dialing: Option<JoinHandle<io::Result<TcpStream>>>,
    /// Not before.
    dial_at: Instant,
    waits_for_room: bool,
}

/// What a look at a connection under way has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    Same,
    /// There is a connection now, a new one.
    Made,
}

impl Line {
    /// `token` is what the epoll gives back for it.
    pub fn new(call: Call, token: u64) -> Line {
        let dial_at = Instant::ZERO;
        Line { call, token, stream: None, dialing: None, dial_at, waits_for_room: false }
    }

    pub fn connected(&self) -> bool {
        self.stream.is_some()
    }

    /// Goes on with making the connection. Errors: the machine refuses a thread or the descriptor.
    pub fn look(&mut self, now: Instant, epoll: &Epoll) -> io::Result<Looked> {
        if self.stream.is_some() {
            return Ok(Looked::Same);
        }
        match self.dialing.take() {
            Some(dialing) if !dialing.is_finished() => self.dialing = Some(dialing),
            Some(dialing) => {
                if let Ok(Ok(stream)) = dialing.join() {
                    epoll.add(stream.as_fd(), self.token)?;
                    self.stream = Some(stream);
                    self.waits_for_room = false;
                    return Ok(Looked::Made);
                }
                self.dial_at = now + AGAIN;
            }
            None if now >= self.dial_at => {
                let call = self.call.clone();
                let name = "weir-original-dial".to_owned();
                self.dialing = Some(std::thread::Builder::new().name(name).spawn(move || call.make())?);
            }
            None => {}
        }
        Ok(Looked::Same)
    }

    /// Takes the connection down; it is not made again before `until`.
    pub fn down(&mut self, until: Instant) {
        self.stream = None;
        self.dialing = None;
        self.dial_at = until;
    }

    /// The other end has ended it.
    pub fn ended(&mut self, now: Instant) {
        self.down(now + AGAIN);
    }

    /// Reads once; `None` where nothing is there. 0: it has ended, or was not there.
    pub fn read(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.stream.as_ref().map_or(Some(0), |stream| read(stream, buffer))
    }

    /// Gives bytes to TCP: how many it took. Errors: the connection has ended.
    pub fn write(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let Some(stream) = &self.stream else { return Ok(0) };
        write(stream, slices)
    }

    pub fn flush(&mut self, outbox: &mut Outbox) -> io::Result<()> {
        self.stream.as_ref().map_or(Ok(()), |stream| flush(stream, outbox))
    }

    /// Watches for room to write, or no longer.
    pub fn want_room(&mut self, want: bool, epoll: &Epoll) -> io::Result<()> {
        let Some(stream) = &self.stream else { return Ok(()) };
        if self.waits_for_room != want {
            self.waits_for_room = want;
            watch(epoll, stream, self.token, want)?;
        }
        Ok(())
    }
}

pub fn watch(epoll: &Epoll, stream: &TcpStream, token: u64, room: bool) -> io::Result<()> {
    epoll.watch(stream.as_fd(), token, if room { Interest::Either } else { Interest::Readable })
}

/// Reads once; `None` where nothing is there, 0 where the connection has ended, with an error or without.
pub fn read(mut stream: &TcpStream, buffer: &mut [u8]) -> Option<usize> {
    loop {
        match stream.read(buffer) {
            Ok(count) => return Some(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(_) => return Some(0),
        }
    }
}

/// Gives bytes to TCP: how many it took, 0 where it has no room.
pub fn write(mut stream: &TcpStream, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
    loop {
        match stream.write_vectored(slices) {
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error),
        }
    }
}

/// Sends of an outbox what TCP takes.
pub fn flush(stream: &TcpStream, outbox: &mut Outbox) -> io::Result<()> {
    while !outbox.is_empty() {
        let count = write(stream, &[io::IoSlice::new(outbox.waiting())])?;
        if count == 0 {
            return Ok(());
        }
        outbox.advance(count);
    }
    Ok(())
}

/// Puts a word into an outbox, whatever waits there.
pub fn say(outbox: &mut Outbox, word: Word) {
    outbox.push(&[&[word as u8]], u64::MAX);
}

/// Returns at the start, or when the load was told to end before: then false.
pub fn wait_for_start(control: &Control) -> bool {
    loop {
        if control.stopping() {
            return false;
        }
        let now = monotonic();
        let start = control.start_at();
        if now >= start {
            control.begin(now);
            return true;
        }
        clock::sleep_until(start.min(now + 4 * LOOK));
    }
}

/// How long a role may look away.
pub fn patience(now: Instant, wake_at: Instant) -> Duration {
    wake_at.since(now).min(LOOK)
}

/// The machine did not give what a role needs.
pub fn failed(role: &str) -> impl Fn(io::Error) -> WorkloadError + '_ {
    move |error| WorkloadError::new(format!("{role} of the original's profile: {error}"))
}

/// Bytes that a data message has on its connection, and those before its payload.
pub fn message_bytes(fragment_bytes: u64, id_part: bool) -> u64 {
    let head = if id_part { frame::part_bytes(frame::BEAT_BYTES as u64) } else { 0 };
    head + frame::part_bytes(fragment_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use weir_sys::socket;
    use weir_transport::gate::{Gate, GateLimits};

    // Spec: event-original.md#send-3
    #[test]
    fn a_connection_is_made_with_the_options_that_were_given() {
        let mut gate =
            Gate::new(TcpListener::bind("127.0.0.1:0").unwrap(), None, GateLimits::default()).unwrap();
        // Every kernel lets everyone have reno, and none has it by default.
        let tcp = TcpOptions { congestion: "reno".to_owned(), ..TcpOptions::default() };
        let call = Call { address: gate.address().unwrap(), token: DATA_TOKEN, number: 0, key: None, tcp };
        let dialing = std::thread::spawn(move || call.make());
        let mut let_in = Vec::new();
        while let_in.is_empty() {
            let admitted = gate.next(LOOK).unwrap();
            let_in.extend(admitted.into_iter().map(|client| client.welcome().unwrap()));
        }
        let stream = dialing.join().unwrap().unwrap();
        assert_eq!(socket::congestion(stream.as_fd()).unwrap(), "reno");
    }
}
