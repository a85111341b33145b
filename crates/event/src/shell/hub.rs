//! The connections of one role in one epoll.

use super::news::{Desk, Inbox, News};
use super::pipe::{End, Pipe};
use crate::message::Message;
use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use weir_sys::epoll::Epoll;
use weir_sys::poll::Interest;

/// Token of the inbox; connections count from 1 and no number comes twice.
const INBOX: u64 = 0;
/// Descriptors that one wait tells of.
const READY_MAX: usize = 1024;
/// Bytes of one read of frames.
const SCRATCH_BYTES: usize = 256 * 1024;
/// Kept until somebody asks: a thousand peers that say nonsense are not told of one by one.
const COMPLAINTS_MAX: usize = 8;

pub struct Hub {
    epoll: Epoll,
    inbox: Inbox,
    pipes: BTreeMap<u64, Pipe>,
    next: u64,
    /// Connections with something to send.
    dirty: Vec<u64>,
    ready: Vec<u64>,
    scratch: Vec<u8>,
    heard_bytes: u64,
    complaints: Vec<String>,
}

impl Hub {
    pub fn new() -> io::Result<Hub> {
        let (epoll, inbox) = (Epoll::new(READY_MAX)?, Inbox::new()?);
        epoll.add(inbox.descriptor(), INBOX)?;
        Ok(Hub {
            epoll,
            inbox,
            pipes: BTreeMap::new(),
            next: INBOX + 1,
            dirty: Vec::new(),
            ready: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            heard_bytes: 0,
            complaints: Vec::new(),
        })
    }

    pub fn desk(&self) -> Desk {
        self.inbox.desk()
    }

    /// Takes a connection in; its number.
    pub fn add(&mut self, stream: TcpStream) -> io::Result<u64> {
        let pipe = Pipe::new(stream)?;
        let number = self.next;
        self.epoll.add(pipe.descriptor(), number)?;
        self.next += 1;
        self.pipes.insert(number, pipe);
        Ok(number)
    }

    /// Tells of a descriptor that is none of the connections, by a number of its own. It must live as long as this.
    pub fn attend(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<u64> {
        let number = self.next;
        self.epoll.add(descriptor, number)?;
        self.next += 1;
        Ok(number)
    }

    pub fn pipe(&mut self, number: u64) -> Option<&mut Pipe> {
        self.pipes.get_mut(&number)
    }

    /// Lets a connection go; what it was told last is sent as far as it takes it at once.
    pub fn close(&mut self, number: u64) {
        if let Some(mut pipe) = self.pipes.remove(&number) {
            let _ = pipe.flush();
            // The descriptor is closed with the pipe, which takes it out too.
            let _ = self.epoll.remove(pipe.descriptor());
        }
    }

    /// Takes a message for a connection; one that is gone already is passed over.
    pub fn send(&mut self, number: u64, message: &Message) -> Result<(), End> {
        let Some(pipe) = self.pipes.get_mut(&number) else { return Ok(()) };
        if !pipe.has_backlog() {
            self.dirty.push(number);
        }
        pipe.push(message)
    }

    /// The same frames for several connections, encoded once.
    pub fn send_bytes(&mut self, number: u64, frames: &[u8]) -> Result<(), End> {
        let Some(pipe) = self.pipes.get_mut(&number) else { return Ok(()) };
        if !pipe.has_backlog() {
            self.dirty.push(number);
        }
        pipe.push_bytes(frames)
    }

    /// Sends what connections take now; those that have ended.
    pub fn flush(&mut self) -> Vec<(u64, End)> {
        let mut ended = Vec::new();
        for number in std::mem::take(&mut self.dirty) {
            if let Err(end) = self.flush_one(number) {
                ended.push((number, end));
            }
        }
        ended
    }

    pub fn flush_one(&mut self, number: u64) -> Result<(), End> {
        let Some(pipe) = self.pipes.get_mut(&number) else { return Ok(()) };
        let waits = !pipe.flush()?;
        self.wait_for_room(number, waits)
    }

    /// Whether the epoll tells when there is room to send.
    pub fn wait_for_room(&mut self, number: u64, wanted: bool) -> Result<(), End> {
        let Some(pipe) = self.pipes.get_mut(&number) else { return Ok(()) };
        if pipe.waits_for_room != wanted {
            let interest = if wanted { Interest::Either } else { Interest::Readable };
            self.epoll.watch(pipe.descriptor(), number, interest).map_err(|_| End::Gone)?;
            pipe.waits_for_room = wanted;
        }
        Ok(())
    }

    /// Waits for at most `limit`; numbers of connections that are ready, and what is new elsewhere. The list is to be given back.
    pub fn wait(&mut self, limit: Duration) -> io::Result<(Vec<u64>, Vec<News>)> {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        ready.extend_from_slice(self.epoll.wait(Some(limit))?);
        let news = match ready.iter().position(|token| *token == INBOX) {
            Some(place) => {
                ready.swap_remove(place);
                self.inbox.take()
            }
            None => Vec::new(),
        };
        Ok((ready, news))
    }

    /// Takes the list of `wait` back for its memory.
    pub fn give_back(&mut self, ready: Vec<u64>) {
        self.ready = ready;
    }

    /// Sends what waits on a connection that is ready, and hands its messages to `each`, which gives them back for their memory.
    pub fn serve(&mut self, number: u64, each: impl FnMut(Message) -> Option<Message>) -> Result<(), End> {
        self.flush_one(number)?;
        let Some(pipe) = self.pipes.get_mut(&number) else { return Ok(()) };
        let before = pipe.heard();
        let result = pipe.receive(&mut self.scratch, each);
        self.heard_bytes += pipe.heard() - before;
        if let Err(End::Broken(words)) = &result
            && self.complaints.len() < COMPLAINTS_MAX
        {
            self.complaints.push(format!("what a peer said is not of the protocol: {words}"));
        }
        result
    }

    /// What was wrong with peers since this was asked.
    pub fn complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    /// Bytes of frames that have come on all connections.
    pub fn heard_bytes(&self) -> u64 {
        self.heard_bytes
    }
}
