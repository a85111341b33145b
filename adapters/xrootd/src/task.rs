//! One operation: what was asked for, and how far it has come.

use crate::client::Place;
use crate::incoming::Incoming;
use crate::wire::Opening;
use std::collections::{BTreeSet, VecDeque};
use weir_seams::target::{Buffer, FileId, TargetError};

/// A manager has no folders of its own: of whom a list is asked.
pub enum Listing {
    /// Whoever the client came to.
    Here,
    /// It again, where else.
    Locating,
    /// Servers, one after the other, and those that are left.
    At(VecDeque<Place>),
}

pub enum Kind {
    Open {
        file: FileId,
        opening: Opening,
        is_recovery: bool,
    },
    Read {
        file: FileId,
        offset: u64,
        buffer: Buffer,
    },
    ReadPieces {
        file: FileId,
        buffer: Buffer,
    },
    /// `again`: the part of the buffer that arrived wrong, after which come others that did.
    Write {
        file: FileId,
        offset: u64,
        buffer: Buffer,
        again: Vec<(usize, usize)>,
    },
    Sync {
        file: FileId,
    },
    Close {
        file: FileId,
    },
    Stat,
    List {
        /// What one server has said so far.
        names: Vec<u8>,
        /// Names that servers before it have; of none of which one has the folder where there is only a refusal.
        found: BTreeSet<String>,
        is_there: bool,
        refusal: Option<TargetError>,
        step: Listing,
    },
    Remove,
}

pub struct Task {
    /// `None`: of the client's own.
    pub tag: Option<u64>,
    pub kind: Kind,
    /// Of those that name one.
    pub path: String,
    /// What the last redirect wants to be told.
    pub opaque: String,
    /// Hosts that did not answer.
    pub tried: Vec<String>,
    /// A manager may remember that only a server which is gone has it: it is to look anew.
    pub refresh: bool,
    pub connection: Option<usize>,
    pub redirects: u32,
    pub retries: u32,
    pub incoming: Incoming,
    pub first_byte_ns: u64,
    /// Given up then.
    pub deadline_ns: u64,
    /// A server asked to come again later.
    pub resend_ns: Option<u64>,
    pub last_failure: String,
}

impl Task {
    /// One that nobody has been asked for yet; of the path of what it is of, or of none.
    pub fn new(tag: Option<u64>, kind: Kind, path: String, deadline_ns: u64) -> Task {
        Task {
            tag,
            kind,
            path,
            opaque: String::new(),
            tried: Vec::new(),
            refresh: false,
            connection: None,
            redirects: 0,
            retries: 0,
            incoming: Incoming::default(),
            first_byte_ns: 0,
            deadline_ns,
            resend_ns: None,
            last_failure: String::new(),
        }
    }

    /// Its answer is content of a file.
    pub fn takes_content(&self) -> bool {
        matches!(self.kind, Kind::Read { .. } | Kind::ReadPieces { .. })
    }

    /// Bytes of its answer that may still come.
    pub fn room(&self) -> usize {
        match &self.kind {
            Kind::Read { buffer, .. } | Kind::ReadPieces { buffer, .. } => self.incoming.room(buffer),
            _ => 0,
        }
    }

    /// Takes a part of its answer, after which so many bytes are to come. Errors: what is wrong with it.
    pub fn take(&mut self, bytes: &[u8], rest: usize) -> Result<(), &'static str> {
        match &mut self.kind {
            Kind::Read { buffer, .. } | Kind::ReadPieces { buffer, .. } => {
                self.incoming.take(bytes, rest, buffer)
            }
            _ => Ok(()),
        }
    }
}

impl Kind {
    /// The open file that it is of.
    pub fn file(&self) -> Option<FileId> {
        match self {
            Kind::Read { file, .. }
            | Kind::ReadPieces { file, .. }
            | Kind::Write { file, .. }
            | Kind::Sync { file }
            | Kind::Close { file } => Some(*file),
            Kind::Open { .. } | Kind::Stat | Kind::List { .. } | Kind::Remove => None,
        }
    }
}
