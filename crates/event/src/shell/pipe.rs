//! A connection of frames: non-blocking, bounded both ways.

use crate::message::Message;
use crate::wire::{self, Decoder};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

/// What a peer may leave unread of what it is told; one that is slower than this is no peer.
const BACKLOG_BYTES_MAX: usize = 64 << 20;
/// Reads of one turn, so that a flood from one peer starves nobody.
const READS_PER_TURN: usize = 16;

/// Why a connection ended.
#[derive(Debug)]
pub enum End {
    /// The peer closed it, or left too much unread, or the network did.
    Gone,
    /// The peer broke the rules of the protocol.
    Broken(String),
}

pub struct Pipe {
    stream: TcpStream,
    decoder: Decoder,
    out: Vec<u8>,
    /// Of `out`, what is sent.
    sent: usize,
    /// Whether the epoll was told to wait for room.
    pub waits_for_room: bool,
    /// Bytes of frames that have come.
    heard: u64,
}

impl Pipe {
    /// `stream` is connected and has been let in.
    pub fn new(stream: TcpStream) -> io::Result<Pipe> {
        stream.set_nonblocking(true)?;
        // A grant or an assignment is a few bytes, and the next event waits for it.
        stream.set_nodelay(true)?;
        Ok(Pipe {
            stream,
            decoder: Decoder::new(),
            out: Vec::new(),
            sent: 0,
            waits_for_room: false,
            heard: 0,
        })
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Hands every message that is there to `each`, which gives it back for its memory. More may be there afterwards: the epoll
    /// says so again.
    pub fn receive(
        &mut self,
        scratch: &mut [u8],
        mut each: impl FnMut(Message) -> Option<Message>,
    ) -> Result<(), End> {
        for _ in 0..READS_PER_TURN {
            let count = match self.stream.read(scratch) {
                Ok(0) if self.decoder.is_between_frames() => {
                    return Err(End::Gone);
                }
                Ok(0) => return Err(End::Gone),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Err(End::Gone),
            };
            self.heard += count as u64;
            let mut input = &scratch[..count];
            loop {
                match self.decoder.next(&mut input) {
                    Ok(Some(message)) => {
                        if let Some(message) = each(message) {
                            self.decoder.recycle(message);
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return Err(End::Broken(error.to_string())),
                }
            }
            if count < scratch.len() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes a message to send; `flush` sends it.
    pub fn push(&mut self, message: &Message) -> Result<(), End> {
        self.make_room();
        wire::encode(message, &mut self.out).map_err(|error| End::Broken(error.to_string()))?;
        self.bounded()
    }

    /// Takes frames that were encoded before, for several peers.
    pub fn push_bytes(&mut self, frames: &[u8]) -> Result<(), End> {
        self.make_room();
        self.out.extend_from_slice(frames);
        self.bounded()
    }

    fn bounded(&self) -> Result<(), End> {
        if self.out.len() - self.sent <= BACKLOG_BYTES_MAX {
            return Ok(());
        }
        Err(End::Gone)
    }

    /// What is sent already makes room for what comes, once it is the larger part.
    fn make_room(&mut self) {
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        } else if self.sent > self.out.len() / 2 {
            self.out.copy_within(self.sent.., 0);
            self.out.truncate(self.out.len() - self.sent);
            self.sent = 0;
        }
    }

    /// Sends what the connection takes now; whether all is gone.
    pub fn flush(&mut self) -> Result<bool, End> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(End::Gone),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(End::Gone),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Bytes of frames that have come.
    pub fn heard(&self) -> u64 {
        self.heard
    }

    pub fn has_backlog(&self) -> bool {
        self.sent < self.out.len()
    }
}
