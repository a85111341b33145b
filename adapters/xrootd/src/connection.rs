//! One server's connection: how far its login is, what is read and what is to be sent.

use crate::client::{Action, Place};
use crate::wire::{HEADER_BYTES, Header, Tls};
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Connecting,
    /// The server's greeting and its version are awaited.
    Greeted,
    VersionAsked,
    LoggingIn,
    Authenticating,
    Ready,
    Gone,
}

/// What is read of an answer that is under way.
pub enum Reading {
    Header {
        bytes: [u8; HEADER_BYTES],
        filled: usize,
    },
    Body {
        header: Header,
        body: Vec<u8>,
    },
    /// Straight into the buffer of the operation that asked for it.
    Content {
        key: usize,
        header: Header,
        left: usize,
    },
}

pub const NO_HEADER: Reading = Reading::Header { bytes: [0; HEADER_BYTES], filled: 0 };

pub struct Connection {
    pub place: Place,
    pub stage: Stage,
    pub reading: Reading,
    /// What is to be sent.
    pub outgoing: Vec<u8>,
    /// By stream: the operation that waits for its answer.
    pub streams: BTreeMap<u16, usize>,
    pub next_stream: u16,
    /// Operations that are sent when the login is through.
    pub waiting: VecDeque<usize>,
    pub heard_ns: u64,
    /// What the server said of it.
    pub tls: Tls,
    /// The shell is to begin with TLS: whatever comes before it has is believed by nobody.
    pub begins_tls: bool,
}

impl Connection {
    /// The shell is to begin with TLS.
    pub fn secure(&mut self, connection: usize, actions: &mut VecDeque<Action>) {
        self.begins_tls = true;
        actions.push_back(Action::Secure { connection, place: self.place.clone() });
    }

    /// A stream on which nothing is asked, for this operation from here on.
    pub fn stream_for(&mut self, key: usize) -> u16 {
        while self.streams.contains_key(&self.next_stream) || self.next_stream == 0 {
            self.next_stream = self.next_stream.wrapping_add(1);
        }
        let stream = self.next_stream;
        self.next_stream = self.next_stream.wrapping_add(1);
        self.streams.insert(stream, key);
        stream
    }
}
