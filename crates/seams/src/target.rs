//! Target: what storage load goes to. Completion-based, as io_uring and clients of servers are: operations are submitted in
//! batches, and their completions reaped in whatever order they come.

pub mod buffer;
pub mod conformance;
pub mod files;
pub mod url;

pub use buffer::{Buffer, Mark, Piece};
pub use files::{OpenFiles, inside};
pub use url::TargetUrl;

use std::io;
use std::time::Duration;
use thiserror::Error;
use weir_core::{Kind, Param, Values};

/// A file that is open, known to the session that opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One that exists, for reading.
    Read,
    /// One that exists, for reading and writing.
    Update,
    /// Made, or emptied where it exists; for writing and reading.
    Create,
}

/// What is asked for. Paths are below the target: the empty one is the target itself.
#[derive(Debug)]
pub enum Operation {
    Open {
        path: String,
        mode: Mode,
    },
    /// Fills the buffer from `offset` on, as far as the file goes.
    Read {
        file: FileId,
        offset: u64,
        buffer: Buffer,
    },
    /// Fills the buffer from the places that are its pieces, all of which lie within the file. Of targets that offer it.
    ReadPieces {
        file: FileId,
        buffer: Buffer,
    },
    /// Writes the whole buffer.
    Write {
        file: FileId,
        offset: u64,
        buffer: Buffer,
    },
    /// What was written is on stable storage when this completes.
    Sync {
        file: FileId,
    },
    Close {
        file: FileId,
    },
    Stat {
        path: String,
    },
    /// Names in a folder.
    List {
        path: String,
    },
    Remove {
        path: String,
    },
}

impl Operation {
    /// As records of failures have it.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Open { .. } => "open",
            Operation::Read { .. } | Operation::ReadPieces { .. } => "read",
            Operation::Write { .. } => "write",
            Operation::Sync { .. } => "sync",
            Operation::Close { .. } => "close",
            Operation::Stat { .. } => "stat",
            Operation::List { .. } => "list",
            Operation::Remove { .. } => "remove",
        }
    }
}

#[derive(Debug)]
pub struct Request {
    /// Comes back with the completion.
    pub tag: u64,
    pub operation: Operation,
}

/// What an operation that succeeded gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Opened {
        file: FileId,
        size_bytes: u64,
    },
    /// Read or written; fewer than asked for only at the end of a file.
    Moved {
        bytes: u64,
    },
    Info {
        size_bytes: u64,
        is_folder: bool,
    },
    Names(Vec<String>),
}

#[derive(Debug)]
pub struct Completion {
    pub tag: u64,
    pub result: Result<Answer, TargetError>,
    /// That of the request.
    pub buffer: Option<Buffer>,
    /// On the host's monotonic clock: when the first byte of the answer was there, and when all was.
    pub first_byte_ns: u64,
    pub done_ns: u64,
}

/// Why an operation failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct TargetError {
    /// The name of an errno, or the server's own code.
    pub code: Option<String>,
    /// What happened, where, and what to do.
    pub text: String,
    /// How often the session tried again before it gave up.
    pub retries: u32,
    /// The file is no longer open: only another open helps.
    pub is_lost: bool,
}

impl TargetError {
    pub fn new(text: impl Into<String>) -> TargetError {
        TargetError { text: text.into(), ..TargetError::default() }
    }
    pub fn coded(code: &str, text: impl Into<String>) -> TargetError {
        TargetError { code: Some(code.to_owned()), ..TargetError::new(text) }
    }
    /// Asked of a target that does not offer it.
    pub fn not_offered(operation: &str) -> TargetError {
        TargetError::coded("EOPNOTSUPP", format!("{operation}: this target has none"))
    }
    pub fn lost(self) -> TargetError {
        TargetError { is_lost: true, ..self }
    }
    pub fn is_missing(&self) -> bool {
        self.code.as_deref() == Some("ENOENT")
    }
}

/// The option of targets with connections by which loads on several of them are made equal.
pub const RETRIES: Param = Param::new(
    "retries",
    Kind::Count,
    "How often an operation whose connection ended is tried again. Absent: as the protocol's own clients do.",
)
.range(0.0, 1_000.0);

/// What `RETRIES` says; `None` where it is absent.
pub fn retries(options: &Values) -> Option<u32> {
    options.count(RETRIES.name).and_then(|it| u32::try_from(it).ok())
}

/// What a session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// Operations that are under way at once at most; the load keeps to it.
    pub depth: usize,
    /// For which a server may be silent before an operation fails.
    pub timeout: Duration,
}

/// What a kind of target can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// What is written can be read again.
    pub keeps_content: bool,
    /// Folders can be listed.
    pub lists: bool,
    /// Reached over a network: a test of it needs a server.
    pub is_remote: bool,
    /// A file is written from its beginning to its end alone, whole.
    pub writes_in_order: bool,
    /// One request reads several pieces of a file. Without it they are asked for one after the other.
    pub reads_pieces: Option<PiecesMax>,
}

/// What one request reads at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PiecesMax {
    pub count: u32,
    /// Of each piece.
    pub bytes: u32,
}

/// One kind of target, chosen by the scheme of its URL.
pub trait Target: Sync {
    fn offers(&self) -> Offers;
    /// Whether such a URL can be meant, before anything is touched. Errors: a sentence that names the part.
    fn check(&self, url: &TargetUrl) -> Result<(), String>;
    /// Connects. `options` are those of the URL, as the entry declares them.
    fn session(
        &self,
        url: &TargetUrl,
        options: &Values,
        settings: SessionSettings,
    ) -> Result<Box<dyn Session>, TargetError>;
}

/// One thread's way to a target. Dropped, it gives up what is under way, closes its files and waits for nobody.
pub trait Session: Send {
    /// Takes all of `requests`, in their order.
    fn submit(&mut self, requests: &mut Vec<Request>);
    /// Appends what has completed to `completions`; where there is nothing yet it waits for the first, at most `limit`.
    /// Errors: no waiting is possible, and the session is of no use any more.
    fn reap(&mut self, completions: &mut Vec<Completion>, limit: Duration) -> io::Result<()>;
    /// Who can say how many of these files' first bytes, as many as stand with each, this machine has in its memory, whoever reads them
    /// next; `None`: nobody. It is asked in a thread of its own, since a file system may hang, and answers `None` of a file that it cannot
    /// look at.
    fn resident(&self, _parts: Vec<(String, u64)>) -> Option<Resident> {
        None
    }
}

pub type Resident = Box<dyn FnOnce() -> Option<u64> + Send>;

pub type TargetEntry = crate::Entry<&'static dyn Target>;

/// One operation, waited for: for what is done before and after a load. Nothing else may be under way.
///
/// Errors: the operation's own, or `ETIMEDOUT` after `limit`.
pub fn ask(session: &mut dyn Session, operation: Operation, limit: Duration) -> Result<Answer, TargetError> {
    ask_with_buffer(session, operation, limit).map(|(answer, _)| answer)
}

/// As `ask`, and gives back the buffer.
pub fn ask_with_buffer(
    session: &mut dyn Session,
    operation: Operation,
    limit: Duration,
) -> Result<(Answer, Option<Buffer>), TargetError> {
    let name = operation.name();
    let began = std::time::Instant::now();
    session.submit(&mut vec![Request { tag: 0, operation }]);
    let mut completions = Vec::new();
    while completions.is_empty() {
        let left = limit.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(TargetError::coded("ETIMEDOUT", format!("{name}: no answer within {limit:?}")));
        }
        let reaped = session.reap(&mut completions, left);
        reaped.map_err(|error| TargetError::new(format!("{name}: {error}")))?;
    }
    let completion = completions.swap_remove(0);
    completion.result.map(|answer| (answer, completion.buffer))
}
