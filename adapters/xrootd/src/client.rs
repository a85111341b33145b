//! The client without its sockets: operations, bytes that came and the time go in; bytes to be sent, connections to be made and
//! completions come out.

use crate::connection::{Connection, NO_HEADER, Reading, Stage};
use crate::incoming::Incoming;
use crate::task::{Kind, Listing, Task};
use crate::wire::{self, HEADER_BYTES, Handle, Header, Opening, Tls};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_seams::target::{Answer, Completion, FileId, Mode, Operation, Piece, Request, TargetError, inside};

/// Redirects that one operation follows before it is taken to go in a circle.
const REDIRECTS_MAX: u32 = 16;
/// Longest answer beside the content of files: a folder's names.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// After a connection that failed the next to the same place is tried so much later.
const AGAIN_NS: u64 = 300_000_000;
/// A server that asks to wait is believed for so long.
const WAIT_SECONDS_MAX: u64 = 3_600;
/// So often one page may come or arrive with a checksum that does not fit it.
const WRONG_PAGES_MAX: u32 = 16;
/// Streams of a connection, one an operation that is under way.
const STREAMS_MAX: usize = 60_000;

/// Who and where a server is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub host: String,
    pub port: u16,
}

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Connect {
        connection: usize,
        place: Place,
    },
    /// TLS from here on, with whom is named; what is to be sent now is said over it.
    Secure {
        connection: usize,
        place: Place,
    },
    Close {
        connection: usize,
    },
}

enum FileState {
    Open {
        connection: usize,
        handle: Handle,
    },
    /// Its server is gone: it is opened again, and then these go on.
    Recovering {
        waiting: Vec<usize>,
    },
}

struct OpenFile {
    path: String,
    mode: Mode,
    state: FileState,
}

pub struct Settings {
    /// Where everything begins.
    pub first: Place,
    /// For which a server may be silent.
    pub silence_ns: u64,
    /// After which an operation has failed.
    pub limit_ns: u64,
    /// How often an operation is asked for again that a connection took with it.
    pub retries_max: u32,
    /// Reads and writes have a checksum for each page.
    pub pages: bool,
    /// The path of the target.
    pub base: String,
    pub process: u32,
    pub user: String,
    pub group: String,
    /// No word without TLS.
    pub secure: bool,
    /// What is shown to servers that ask for one, over TLS.
    pub token: Option<String>,
}

pub struct Client {
    settings: Settings,
    connections: Vec<Connection>,
    tasks: Vec<Option<Task>>,
    free: Vec<usize>,
    files: BTreeMap<FileId, OpenFile>,
    next_file: u32,
    actions: VecDeque<Action>,
    done: Vec<Completion>,
    /// When a place that failed may be tried again.
    not_before: BTreeMap<Place, u64>,
    /// Operations without a connection, until then.
    paused: Vec<(u64, usize)>,
}

impl Client {
    pub fn new(settings: Settings) -> Client {
        Client {
            settings,
            connections: Vec::new(),
            tasks: Vec::new(),
            free: Vec::new(),
            files: BTreeMap::new(),
            next_file: 0,
            actions: VecDeque::new(),
            done: Vec::new(),
            not_before: BTreeMap::new(),
            paused: Vec::new(),
        }
    }

    pub fn action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.done);
    }

    pub fn has_completions(&self) -> bool {
        !self.done.is_empty()
    }

    /// What is to be sent on a connection; whoever sends takes from its front.
    pub fn outgoing(&mut self, connection: usize) -> &mut Vec<u8> {
        &mut self.connections[connection].outgoing
    }

    pub fn submit(&mut self, request: Request, now_ns: u64) {
        let Request { tag, operation } = request;
        let (path, kind) = match operation {
            Operation::Open { path, mode } => {
                let opening = match mode {
                    Mode::Read => Opening::Read,
                    Mode::Update => Opening::Update,
                    Mode::Create => Opening::Create,
                };
                let file = FileId(self.next_file);
                self.next_file = self.next_file.wrapping_add(1);
                (path, Kind::Open { file, opening, is_recovery: false })
            }
            Operation::Read { file, offset, buffer } => (String::new(), Kind::Read { file, offset, buffer }),
            Operation::ReadPieces { file, buffer } => (String::new(), Kind::ReadPieces { file, buffer }),
            Operation::Write { file, offset, buffer } => {
                (String::new(), Kind::Write { file, offset, buffer, again: Vec::new() })
            }
            Operation::Sync { file } => (String::new(), Kind::Sync { file }),
            Operation::Close { file } => (String::new(), Kind::Close { file }),
            Operation::Stat { path } => (path, Kind::Stat),
            Operation::List { path } => {
                let (names, found) = (Vec::new(), BTreeSet::new());
                (path, Kind::List { names, found, is_there: false, refusal: None, step: Listing::Here })
            }
            Operation::Remove { path } => (path, Kind::Remove),
        };
        let of_file = kind.file();
        let refused = inside(&path).err();
        let path = match path.as_str() {
            "" => self.settings.base.clone(),
            below => format!("{}/{below}", self.settings.base.trim_end_matches('/')),
        };
        let deadline_ns = now_ns.saturating_add(self.settings.limit_ns);
        let key = self.add(Task::new(Some(tag), kind, path, deadline_ns));
        match (refused, of_file) {
            (Some(error), _) => self.fail(key, error, now_ns),
            (None, Some(file)) => self.send_of_file(key, file, now_ns),
            (None, None) => self.send_to(key, self.settings.first.clone(), now_ns),
        }
    }

    fn add(&mut self, task: Task) -> usize {
        match self.free.pop() {
            Some(key) => {
                self.tasks[key] = Some(task);
                key
            }
            None => {
                self.tasks.push(Some(task));
                self.tasks.len() - 1
            }
        }
    }

    /// Sends what concerns an open file to the server that has it.
    fn send_of_file(&mut self, key: usize, file: FileId, now_ns: u64) {
        match self.files.get_mut(&file).map(|it| &mut it.state) {
            None => {
                let text = format!("file {} of this session is not open", file.0);
                self.fail(key, TargetError::coded("EBADF", text).lost(), now_ns);
            }
            Some(FileState::Open { connection, .. }) => {
                let connection = *connection;
                self.send_on(key, connection, now_ns);
            }
            Some(FileState::Recovering { waiting }) => waiting.push(key),
        }
    }

    /// Sends to a server, over a connection that there is or a new one.
    fn send_to(&mut self, key: usize, place: Place, now_ns: u64) {
        let there = self.connections.iter().position(|it| it.place == place && it.stage != Stage::Gone);
        if let Some(connection) = there {
            return self.send_on(key, connection, now_ns);
        }
        let not_before_ns = self.not_before.get(&place).copied().unwrap_or(0);
        if not_before_ns > now_ns {
            self.paused.push((not_before_ns, key));
            return;
        }
        let connection = self.connections.len();
        self.connections.push(Connection {
            place: place.clone(),
            stage: Stage::Connecting,
            reading: NO_HEADER,
            outgoing: Vec::new(),
            streams: BTreeMap::new(),
            next_stream: 1,
            waiting: VecDeque::new(),
            heard_ns: now_ns,
            tls: Tls::Never,
            begins_tls: false,
        });
        self.actions.push_back(Action::Connect { connection, place });
        self.send_on(key, connection, now_ns);
    }

    fn send_on(&mut self, key: usize, connection: usize, now_ns: u64) {
        let Some(task) = self.tasks[key].as_mut() else { return };
        task.connection = Some(connection);
        let to = &mut self.connections[connection];
        if to.stage != Stage::Ready || to.streams.len() >= STREAMS_MAX {
            to.waiting.push_back(key);
            return;
        }
        if to.streams.is_empty() {
            // Silence counts from the first question on.
            to.heard_ns = now_ns;
        }
        let stream = to.stream_for(key);
        let handle = task.kind.file().and_then(|file| match self.files.get(&file)?.state {
            FileState::Open { handle, .. } => Some(handle),
            FileState::Recovering { .. } => None,
        });
        let handle = handle.unwrap_or_default();
        let path = with_opaque(&task.path, &task.opaque, &task.tried);
        let out = &mut to.outgoing;
        match &mut task.kind {
            Kind::Open { opening, .. } => {
                // Asked for each time, a manager would look anew each time and never answer.
                let refresh = std::mem::take(&mut task.refresh);
                wire::open(out, stream, *opening, refresh, &path);
            }
            Kind::Read { offset, buffer, .. } if self.settings.pages => {
                task.incoming = Incoming::pages(*offset, buffer);
                let piece = Piece { offset: *offset, length_bytes: buffer.len() as u32 };
                wire::read_pages(out, stream, handle, piece, false);
            }
            Kind::Read { offset, buffer, .. } => {
                task.incoming = Incoming::plain(buffer);
                wire::read(out, stream, handle, *offset, buffer.len() as u32);
            }
            Kind::ReadPieces { buffer, .. } => {
                task.incoming = Incoming::pieces(buffer);
                wire::read_vector(out, stream, handle, buffer.pieces());
            }
            Kind::Write { offset, buffer, again, .. } if self.settings.pages => {
                again.clear();
                wire::write_pages(out, stream, handle, *offset, buffer, false);
            }
            Kind::Write { offset, buffer, .. } => {
                wire::write(out, stream, handle, *offset, buffer.len());
                out.extend_from_slice(buffer);
            }
            Kind::Sync { .. } => wire::sync(out, stream, handle),
            Kind::Close { .. } => wire::close(out, stream, handle),
            Kind::Stat => wire::stat(out, stream, &path),
            Kind::List { names, step, .. } => {
                names.clear();
                match step {
                    Listing::Locating => wire::locate(out, stream, &path),
                    Listing::Here | Listing::At(_) => wire::list(out, stream, &path),
                }
            }
            Kind::Remove => wire::remove(out, stream, &path),
        }
    }

    /// The connection is made.
    pub fn connected(&mut self, connection: usize, now_ns: u64) {
        let to = &mut self.connections[connection];
        if to.stage == Stage::Connecting {
            (to.stage, to.heard_ns) = (Stage::Greeted, now_ns);
            wire::hello(&mut to.outgoing, self.settings.secure);
        }
    }

    /// Takes what came on a connection.
    pub fn received(&mut self, connection: usize, mut bytes: &[u8], now_ns: u64) {
        self.connections[connection].heard_ns = now_ns;
        while !bytes.is_empty() && self.connections[connection].stage != Stage::Gone {
            if self.connections[connection].begins_tls {
                return self.broken(connection, "it goes on without the TLS that it asked for", now_ns);
            }
            let taken = match &mut self.connections[connection].reading {
                Reading::Header { bytes: header, filled } => {
                    let count = bytes.len().min(HEADER_BYTES - *filled);
                    header[*filled..*filled + count].copy_from_slice(&bytes[..count]);
                    *filled += count;
                    if *filled == HEADER_BYTES {
                        let header = Header::of(*header);
                        self.begin_answer(connection, header, now_ns);
                    }
                    count
                }
                Reading::Body { header, body } => {
                    let count = bytes.len().min(header.length_bytes as usize - body.len());
                    body.extend_from_slice(&bytes[..count]);
                    if body.len() == header.length_bytes as usize {
                        let (header, body) = (*header, std::mem::take(body));
                        self.connections[connection].reading = NO_HEADER;
                        match header.status {
                            wire::STATUS => self.status(connection, header, &body, now_ns),
                            _ => self.answer(connection, header, &body, now_ns),
                        }
                    }
                    count
                }
                Reading::Content { key, header, left } => {
                    let count = bytes.len().min(*left);
                    let (key, header) = (*key, *header);
                    *left -= count;
                    let rest = *left;
                    let taken = self.tasks[key].as_mut().map(|task| task.take(&bytes[..count], rest));
                    if let Some(Err(what)) = taken {
                        self.broken(connection, &format!("it sent {what}"), now_ns);
                    } else if rest == 0 {
                        self.connections[connection].reading = NO_HEADER;
                        self.answer(connection, header, &[], now_ns);
                    }
                    count
                }
            };
            bytes = &bytes[taken..];
        }
    }

    /// Decides where what follows a header goes.
    fn begin_answer(&mut self, connection: usize, header: Header, now_ns: u64) {
        let length = header.length_bytes as usize;
        let from = &mut self.connections[connection];
        let key = from.streams.get(&header.stream).copied().filter(|_| from.stage == Stage::Ready);
        if let Some(key) = key
            && matches!(header.status, wire::OK | wire::OK_SO_FAR)
            && self.tasks[key].as_ref().is_some_and(Task::takes_content)
        {
            return self.begin_content(connection, key, header, now_ns);
        }
        if length > ANSWER_BYTES_MAX {
            return self.broken(connection, &format!("it announces an answer of {length} bytes"), now_ns);
        }
        if length == 0 {
            from.reading = NO_HEADER;
            return self.answer(connection, header, &[], now_ns);
        }
        // As much memory as has come, not as much as was announced.
        from.reading = Reading::Body { header, body: Vec::new() };
    }

    /// What follows goes into the buffer of the operation that asked for it.
    fn begin_content(&mut self, connection: usize, key: usize, header: Header, now_ns: u64) {
        let Some(task) = self.tasks[key].as_mut() else { return };
        let (length, room) = (header.length_bytes as usize, task.room());
        if length > room {
            let text = format!("it sent {length} bytes where {room} were left to be read");
            return self.broken(connection, &text, now_ns);
        }
        if task.first_byte_ns == 0 {
            task.first_byte_ns = now_ns;
        }
        if length == 0 {
            self.connections[connection].reading = NO_HEADER;
            return self.answer(connection, header, &[], now_ns);
        }
        self.connections[connection].reading = Reading::Content { key, header, left: length };
    }

    /// The answer to what has a checksum for each page: what follows it is not in the length that its head has.
    fn status(&mut self, connection: usize, header: Header, body: &[u8], now_ns: u64) {
        let key = self.connections[connection].streams.get(&header.stream).copied();
        let Some(key) = key.filter(|_| self.connections[connection].stage == Stage::Ready) else {
            return self.broken(connection, "a status of nothing that was asked", now_ns);
        };
        let status = match wire::status(header.stream, body) {
            Ok(status) => status,
            Err(what) => return self.broken(connection, &format!("it sent {what}"), now_ns),
        };
        let plain = if status.is_last { wire::OK } else { wire::OK_SO_FAR };
        let header = Header { status: plain, length_bytes: status.follows_bytes, ..header };
        match self.tasks[key].as_ref().map(|task| &task.kind) {
            Some(Kind::Read { .. }) => self.begin_content(connection, key, header, now_ns),
            Some(Kind::Write { .. }) if status.follows_bytes == 0 => {
                self.answer(connection, header, &[], now_ns);
            }
            Some(Kind::Write { .. }) if status.follows_bytes as usize <= ANSWER_BYTES_MAX => {
                self.connections[connection].reading = Reading::Body { header, body: Vec::new() };
            }
            _ => self.broken(connection, "a status of what has none", now_ns),
        }
    }

    /// One whole answer.
    fn answer(&mut self, connection: usize, header: Header, body: &[u8], now_ns: u64) {
        if header.status == wire::ATTENTION {
            return self.attention(connection, body, now_ns);
        }
        if self.connections[connection].stage != Stage::Ready {
            return self.greeting(connection, header, body, now_ns);
        }
        let Some(key) = self.connections[connection].streams.get(&header.stream).copied() else {
            let text = format!("it answers on stream {}, on which nothing was asked", header.stream);
            return self.broken(connection, &text, now_ns);
        };
        let is_last = !matches!(header.status, wire::OK_SO_FAR | wire::WAIT_FOR_ANSWER);
        if is_last {
            let from = &mut self.connections[connection];
            from.streams.remove(&header.stream);
            // Whoever waited for a stream of its own.
            if let Some(next) = from.waiting.pop_front() {
                self.send_on(next, connection, now_ns);
            }
        }
        match header.status {
            wire::OK | wire::OK_SO_FAR => self.succeeded(key, connection, is_last, body, now_ns),
            wire::ERROR => {
                let (number, text) = wire::error(body);
                let place = &self.connections[connection].place;
                let error = TargetError::coded(&wire::error_name(number), format!("{}: {text}", place.host));
                // Only of a file that is open does it say that the handle is of no use.
                let is_lost = error.code.as_deref() == Some("EBADF");
                self.refused(key, if is_lost { error.lost() } else { error }, now_ns);
            }
            wire::REDIRECT => match wire::redirection(body) {
                Some((host, port, opaque)) => self.redirected(key, Place { host, port }, opaque, now_ns),
                None => self.broken(connection, "it redirects to nowhere", now_ns),
            },
            wire::WAIT => {
                let seconds = u64::from(wire::number(body, 0).unwrap_or(1)).min(WAIT_SECONDS_MAX);
                if let Some(task) = self.tasks[key].as_mut() {
                    let until_ns = now_ns + seconds * 1_000_000_000;
                    task.resend_ns = Some(until_ns);
                    self.paused.push((until_ns, key));
                }
            }
            wire::WAIT_FOR_ANSWER => {
                let seconds = u64::from(wire::number(body, 0).unwrap_or(1)).min(WAIT_SECONDS_MAX);
                // Whoever said that it takes so long may be silent meanwhile.
                let from = &mut self.connections[connection];
                from.heard_ns = from.heard_ns.max(now_ns + seconds * 1_000_000_000);
            }
            other => self.broken(connection, &format!("its answer has the unknown status {other}"), now_ns),
        }
    }

    /// What a server says unasked: an answer that it had put off, or something for nobody.
    fn attention(&mut self, connection: usize, body: &[u8], now_ns: u64) {
        if wire::number(body, 0) != Some(wire::LATE_ANSWER) {
            return;
        }
        let Some(Ok(inner)) = body.get(8..16).map(<[u8; HEADER_BYTES]>::try_from) else {
            return self.broken(connection, "its late answer is cut short", now_ns);
        };
        let (header, rest) = (Header::of(inner), &body[16..]);
        if header.length_bytes as usize != rest.len() || header.status == wire::ATTENTION {
            return self.broken(connection, "its late answer has another length than it says", now_ns);
        }
        let key = self.connections[connection].streams.get(&header.stream).copied();
        if matches!(header.status, wire::OK | wire::OK_SO_FAR)
            && let Some(task) = key.and_then(|key| self.tasks[key].as_mut())
            && task.takes_content()
            && let Err(what) = task.take(rest, 0)
        {
            return self.broken(connection, &format!("its late answer is {what}"), now_ns);
        }
        self.answer(connection, header, rest, now_ns);
    }

    /// Answers before the login is through.
    fn greeting(&mut self, connection: usize, header: Header, body: &[u8], now_ns: u64) {
        let stage = self.connections[connection].stage;
        if header.status == wire::ERROR {
            let (_, text) = wire::error(body);
            return self.unusable(connection, "EACCES", &format!("it does not let us in: {text}"), now_ns);
        }
        let settings = &self.settings;
        let to = &mut self.connections[connection];
        match (stage, header.status) {
            (Stage::Greeted, wire::OK) => to.stage = Stage::VersionAsked,
            (Stage::VersionAsked, wire::OK) => {
                to.tls = wire::tls(body);
                if settings.secure && to.tls != Tls::Now {
                    let text = "it speaks no TLS, and `roots` says that it must";
                    return self.unusable(connection, "EPROTONOSUPPORT", text, now_ns);
                }
                if to.tls == Tls::Now {
                    to.secure(connection, &mut self.actions);
                }
                to.stage = Stage::LoggingIn;
                wire::login(&mut to.outgoing, settings.process, &settings.user);
            }
            (Stage::LoggingIn, wire::OK) => {
                if to.tls == Tls::AfterLogin {
                    to.secure(connection, &mut self.actions);
                }
                match body.get(16..).filter(|asked| !asked.is_empty()) {
                    None => self.ready(connection, now_ns),
                    Some(asked) => self.authenticate(connection, asked, now_ns),
                }
            }
            (Stage::Authenticating, wire::OK) => self.ready(connection, now_ns),
            (Stage::Authenticating, wire::AUTHENTICATE_MORE) => {
                self.unusable(connection, "EACCES", "it wants more than it was shown", now_ns);
            }
            (_, status) => self.broken(connection, &format!("it greets with status {status}"), now_ns),
        }
    }

    /// `asked` has the ways that the server knows, its favourite first.
    fn authenticate(&mut self, connection: usize, asked: &[u8], now_ns: u64) {
        let settings = &self.settings;
        let to = &mut self.connections[connection];
        to.stage = Stage::Authenticating;
        // Whichever it is, by now it has begun.
        match (&settings.token, to.tls != Tls::Never) {
            (Some(token), true) if offers(asked, "ztn") => {
                wire::authenticate_token(&mut to.outgoing, token);
            }
            _ if offers(asked, "unix") => {
                wire::authenticate_unix(&mut to.outgoing, &settings.user, &settings.group);
            }
            (None, true) if offers(asked, "ztn") => {
                let text = "it asks for a token, and there is none (BEARER_TOKEN, BEARER_TOKEN_FILE, XDG_RUNTIME_DIR/bt_uUID, /tmp/bt_uUID)";
                self.unusable(connection, "EACCES", text, now_ns);
            }
            _ => {
                let asked = String::from_utf8_lossy(asked);
                let asked: String = asked.chars().filter(|it| !it.is_control()).take(80).collect();
                let text = format!(
                    "it asks for authentication by {asked}; none, unix and, over TLS, ztn are spoken here"
                );
                self.unusable(connection, "EPROTONOSUPPORT", &text, now_ns);
            }
        }
    }

    /// TLS has begun on a connection.
    pub fn secured(&mut self, connection: usize) {
        self.connections[connection].begins_tls = false;
    }

    fn ready(&mut self, connection: usize, now_ns: u64) {
        self.connections[connection].stage = Stage::Ready;
        while self.connections[connection].stage == Stage::Ready
            && let Some(key) = self.connections[connection].waiting.pop_front()
        {
            self.send_on(key, connection, now_ns);
        }
    }

    fn succeeded(&mut self, key: usize, connection: usize, is_last: bool, body: &[u8], now_ns: u64) {
        let Some(task) = self.tasks[key].as_mut() else { return };
        if task.first_byte_ns == 0 {
            task.first_byte_ns = now_ns;
        }
        let is_in_parts = task.takes_content() || matches!(task.kind, Kind::List { .. });
        if !is_last && !is_in_parts {
            return self.broken(connection, "it answers in parts what has none", now_ns);
        }
        match &mut task.kind {
            Kind::Read { .. } | Kind::ReadPieces { .. } if !is_last => {}
            Kind::Read { buffer, .. } | Kind::ReadPieces { buffer, .. } => {
                if !task.incoming.is_whole(buffer) {
                    return self.broken(connection, "its answer ends within what it announced", now_ns);
                }
                if let Some(page) = task.incoming.again() {
                    return self.page_again(key, connection, page, now_ns);
                }
                let bytes = task.incoming.moved() as u64;
                self.complete(key, Ok(Answer::Moved { bytes }), now_ns);
            }
            Kind::Write { offset, buffer, again, .. } => {
                let (offset, bytes) = (*offset, buffer.len());
                let wrong = wire::wrong_pages(body);
                let place = |at: u64| {
                    let at = at.checked_sub(offset)?;
                    wire::pages(offset, bytes).find(|(from, _)| *from as u64 == at)
                };
                again.extend(wrong.filter_map(place));
                if let Some(page) = again.pop() {
                    return self.page_again(key, connection, page, now_ns);
                }
                self.complete(key, Ok(Answer::Moved { bytes: bytes as u64 }), now_ns);
            }
            Kind::List { names, .. } => {
                if names.len() + body.len() > ANSWER_BYTES_MAX {
                    return self.broken(connection, "its list of names does not end", now_ns);
                }
                names.extend_from_slice(body);
                if is_last {
                    self.listed(key, None, now_ns);
                }
            }
            Kind::Stat => match wire::info(body) {
                Some((size_bytes, is_folder)) => {
                    self.complete(key, Ok(Answer::Info { size_bytes, is_folder }), now_ns);
                }
                None => self.broken(connection, "what it says of a file is not understood", now_ns),
            },
            Kind::Open { file, opening, is_recovery } => {
                let (file, opening, is_recovery) = (*file, *opening, *is_recovery);
                let Some((handle, size)) = wire::opened(body) else {
                    return self.broken(connection, "its answer to an open has no handle", now_ns);
                };
                let state = FileState::Open { connection, handle };
                if is_recovery {
                    return self.recovered(key, file, state, now_ns);
                }
                let Some(size_bytes) = size else {
                    return self.broken(connection, "its answer to an open has no size", now_ns);
                };
                let mode = match opening {
                    Opening::Read => Mode::Read,
                    Opening::Update | Opening::Create => Mode::Update,
                };
                let path = task.path.clone();
                self.files.insert(file, OpenFile { path, mode, state });
                self.complete(key, Ok(Answer::Opened { file, size_bytes }), now_ns);
            }
            Kind::Close { file } => {
                let file = *file;
                self.files.remove(&file);
                self.complete(key, Ok(Answer::Done), now_ns);
            }
            Kind::Sync { .. } | Kind::Remove => self.complete(key, Ok(Answer::Done), now_ns),
        }
    }

    /// A server has said what it has in a folder, or that it has none; or a manager, who else may.
    fn listed(&mut self, key: usize, refused: Option<TargetError>, now_ns: u64) {
        let Some(task) = self.tasks[key].as_mut() else { return };
        let Kind::List { names, found, is_there, refusal, step } = &mut task.kind else { return };
        let said = std::mem::take(names);
        let mut left = if matches!(step, Listing::Locating) {
            wire::located(&said).into_iter().map(|(host, port)| Place { host, port }).collect()
        } else {
            *is_there |= refused.is_none();
            *refusal = refusal.take().or(refused);
            let text = String::from_utf8_lossy(&said);
            let all = text.trim_end_matches('\0').lines();
            found.extend(all.filter(|name| !name.is_empty() && inside(name).is_ok()).map(str::to_owned));
            match step {
                Listing::At(left) => std::mem::take(left),
                _ if found.is_empty() => {
                    *step = Listing::Locating;
                    return self.send_to(key, self.settings.first.clone(), now_ns);
                }
                _ => VecDeque::new(),
            }
        };
        if let Some(next) = left.pop_front() {
            *step = Listing::At(left);
            return self.send_to(key, next, now_ns);
        }
        match refusal.take().filter(|_| !*is_there) {
            Some(error) => self.fail(key, error, now_ns),
            None => {
                let names = std::mem::take(found).into_iter().collect();
                self.complete(key, Ok(Answer::Names(names)), now_ns);
            }
        }
    }

    /// Asks for a page, or sends it, that its checksum did not fit: so many bytes of the operation's buffer.
    fn page_again(&mut self, key: usize, connection: usize, (from, length): (usize, usize), now_ns: u64) {
        let Some(task) = self.tasks[key].as_mut() else { return };
        task.retries += 1;
        let to = &mut self.connections[connection];
        if task.retries > WRONG_PAGES_MAX {
            let text = format!("{}: pages that their checksums do not fit, again and again", to.place.host);
            return self.fail(key, TargetError::coded("EBADMSG", text), now_ns);
        }
        let open = task.kind.file().and_then(|file| self.files.get(&file));
        let Some(FileState::Open { handle, .. }) = open.map(|it| &it.state) else { return };
        let stream = to.stream_for(key);
        match &task.kind {
            Kind::Read { offset, .. } => {
                let piece = Piece { offset: *offset + from as u64, length_bytes: length as u32 };
                wire::read_pages(&mut to.outgoing, stream, *handle, piece, true);
            }
            Kind::Write { offset, buffer, .. } => {
                let page = &buffer[from..from + length];
                wire::write_pages(&mut to.outgoing, stream, *handle, *offset + from as u64, page, true);
            }
            _ => {} // nothing else has pages
        }
    }

    /// A file is open again, at whatever server: what waited for it goes on.
    fn recovered(&mut self, key: usize, file: FileId, state: FileState, now_ns: u64) {
        self.drop_task(key);
        let Some(there) = self.files.get_mut(&file) else { return };
        let before = std::mem::replace(&mut there.state, state);
        if let FileState::Recovering { waiting } = before {
            for key in waiting {
                self.send_of_file(key, file, now_ns);
            }
        }
    }

    /// The server's own no. Of a file that is opened again it is final for all that waits.
    fn refused(&mut self, key: usize, error: TargetError, now_ns: u64) {
        let Some(task) = self.tasks[key].as_mut() else { return };
        if let Kind::List { names, step, .. } = &mut task.kind {
            names.clear();
            // Of a manager that locates nothing what it said before counts.
            let is_locating = matches!(step, Listing::Locating);
            if is_locating || error.is_missing() {
                return self.listed(key, Some(error), now_ns);
            }
        }
        if error.is_missing() && !task.tried.is_empty() {
            // Nobody else has it. A manager leaves out whatever is on the hosts that were tried, at other ports too.
            (task.tried, task.opaque) = (Vec::new(), String::new());
            return self.send_to(key, self.settings.first.clone(), now_ns);
        }
        if let Kind::Open { file, is_recovery: true, .. } = task.kind {
            self.drop_task(key);
            return self.not_recovered(file, &error, now_ns);
        }
        self.fail(key, error, now_ns);
    }

    fn not_recovered(&mut self, file: FileId, error: &TargetError, now_ns: u64) {
        let Some(there) = self.files.remove(&file) else { return };
        if let FileState::Recovering { waiting } = there.state {
            for key in waiting {
                let text = format!("its server is gone, and it cannot be opened again: {}", error.text);
                self.fail(key, TargetError { text, ..error.clone() }.lost(), now_ns);
            }
        }
    }

    fn redirected(&mut self, key: usize, place: Place, opaque: String, now_ns: u64) {
        let Some(task) = self.tasks[key].as_mut() else { return };
        task.redirects += 1;
        if task.redirects > REDIRECTS_MAX {
            let text =
                format!("redirected {REDIRECTS_MAX} times, last to {}: it goes in a circle", place.host);
            return self.refused(key, TargetError::coded("ELOOP", text), now_ns);
        }
        if task.kind.file().is_some() {
            // A file that is open is at one server; whoever sends elsewhere wants it to be opened there.
            return self.refused(
                key,
                TargetError::coded("ESTALE", "its server sent it elsewhere").lost(),
                now_ns,
            );
        }
        task.opaque = opaque;
        self.send_to(key, place, now_ns);
    }

    /// What was said cannot be right: nothing more is believed of this connection.
    fn broken(&mut self, connection: usize, text: &str, now_ns: u64) {
        self.lost(connection, &format!("not understood: {text}"), now_ns);
    }

    /// The server can be reached and will not have us: whatever waits for it fails, now.
    fn unusable(&mut self, connection: usize, code: &str, text: &str, now_ns: u64) {
        let from = &mut self.connections[connection];
        from.stage = Stage::Gone;
        let keys: Vec<usize> = from.waiting.drain(..).collect();
        let text = format!("{}:{}: {text}", from.place.host, from.place.port);
        self.actions.push_back(Action::Close { connection });
        for key in keys {
            self.refused(key, TargetError::coded(code, text.clone()), now_ns);
        }
    }

    /// The connection ended or could not be made: files that were open there are opened again through the first server, and what was
    /// under way is asked for again.
    pub fn lost(&mut self, connection: usize, text: &str, now_ns: u64) {
        let from = &mut self.connections[connection];
        if from.stage == Stage::Gone {
            return;
        }
        from.stage = Stage::Gone;
        (from.outgoing, from.reading) = (Vec::new(), NO_HEADER);
        let under_way: Vec<usize> =
            std::mem::take(&mut from.streams).into_values().chain(from.waiting.drain(..)).collect();
        let place = from.place.clone();
        let why = format!("{}:{}: {text}", place.host, place.port);
        self.actions.push_back(Action::Close { connection });
        self.not_before.insert(place.clone(), now_ns + AGAIN_NS);
        let there = |file: &OpenFile| matches!(file.state, FileState::Open { connection: at, .. } if at == connection);
        let files: Vec<FileId> =
            self.files.iter().filter(|(_, file)| there(file)).map(|(id, _)| *id).collect();
        for file in files {
            self.recover(file, &place, &why, now_ns);
        }
        for key in under_way {
            self.ask_again(key, &place, &why, now_ns);
        }
    }

    fn recover(&mut self, file: FileId, gone: &Place, why: &str, now_ns: u64) {
        let Some(there) = self.files.get_mut(&file) else { return };
        there.state = FileState::Recovering { waiting: Vec::new() };
        let opening = if there.mode == Mode::Read { Opening::Read } else { Opening::Update };
        let kind = Kind::Open { file, opening, is_recovery: true };
        let deadline_ns = now_ns.saturating_add(self.settings.limit_ns);
        let task = Task::new(None, kind, there.path.clone(), deadline_ns);
        let tried = vec![gone.host.clone()];
        let key = self.add(Task { tried, refresh: true, last_failure: why.to_owned(), ..task });
        self.send_to(key, self.settings.first.clone(), now_ns);
    }

    fn ask_again(&mut self, key: usize, gone: &Place, why: &str, now_ns: u64) {
        let retries_max = self.settings.retries_max;
        let Some(task) = self.tasks[key].as_mut() else { return };
        // Closing is not: what is closed is so with its connection. Nor is what opens a file again for all its operations.
        if task.retries >= retries_max && task.tag.is_some() && !matches!(task.kind, Kind::Close { .. }) {
            return self.fail(key, TargetError::coded("ECONNRESET", why), now_ns);
        }
        task.retries += 1;
        task.refresh = true;
        why.clone_into(&mut task.last_failure);
        task.opaque.clear();
        match task.kind {
            // It is closed with its connection.
            Kind::Close { file } => {
                self.files.remove(&file);
                self.complete(key, Ok(Answer::Done), now_ns);
            }
            _ => match task.kind.file() {
                Some(file) => self.send_of_file(key, file, now_ns),
                None => {
                    if *gone != self.settings.first && !task.tried.contains(&gone.host) {
                        task.tried.push(gone.host.clone());
                    }
                    self.send_to(key, self.settings.first.clone(), now_ns);
                }
            },
        }
    }

    /// When the core wants to be asked again, at the latest.
    pub fn wake_ns(&self) -> u64 {
        self.paused.iter().map(|(due, _)| *due).min().unwrap_or(u64::MAX)
    }

    /// Carries out what the time asks for: what was to come again later, servers that are silent, operations that take too long.
    pub fn tick(&mut self, now_ns: u64) {
        let mut due = Vec::new();
        self.paused.retain(|(due_ns, key)| {
            let is_due = *due_ns <= now_ns;
            due.extend(is_due.then_some(*key));
            !is_due
        });
        for key in due {
            let Some(task) = self.tasks[key].as_mut() else { continue };
            let again = task.resend_ns.take().and(task.connection);
            match again.filter(|connection| self.connections[*connection].stage == Stage::Ready) {
                Some(connection) => self.send_on(key, connection, now_ns),
                None => self.send_to(key, self.settings.first.clone(), now_ns),
            }
        }
        for connection in 0..self.connections.len() {
            let at = &self.connections[connection];
            let is_asked = at.stage != Stage::Ready || !at.streams.is_empty();
            let is_silent = at.heard_ns.saturating_add(self.settings.silence_ns) < now_ns;
            if at.stage != Stage::Gone && is_asked && is_silent {
                let seconds = self.settings.silence_ns as f64 / 1e9;
                self.lost(connection, &format!("silent for {seconds} s"), now_ns);
            }
        }
        let late = |(key, task): (usize, &Option<Task>)| {
            task.as_ref().filter(|it| it.deadline_ns < now_ns).map(|_| key)
        };
        let late: Vec<usize> = self.tasks.iter().enumerate().filter_map(late).collect();
        for key in late {
            self.too_late(key, now_ns);
        }
    }

    fn too_late(&mut self, key: usize, now_ns: u64) {
        let Some(task) = &self.tasks[key] else { return };
        // An answer that comes after all must not be written into another's buffer: the connection has told all it will.
        if let Some(connection) = task.connection
            && self.connections[connection].streams.values().any(|at| *at == key)
        {
            self.connections[connection].streams.retain(|_, at| *at != key);
            self.lost(connection, "an answer did not come in time", now_ns);
        }
        for connection in &mut self.connections {
            connection.waiting.retain(|at| *at != key);
        }
        self.paused.retain(|(_, at)| *at != key);
        for file in self.files.values_mut() {
            if let FileState::Recovering { waiting } = &mut file.state {
                waiting.retain(|at| *at != key);
            }
        }
        let Some(task) = &self.tasks[key] else { return };
        let because = if task.last_failure.is_empty() { "no answer in time" } else { &task.last_failure };
        let error = TargetError::coded("ETIMEDOUT", because);
        self.refused(key, error, now_ns);
    }

    fn fail(&mut self, key: usize, error: TargetError, now_ns: u64) {
        let retries = self.tasks[key].as_ref().map_or(0, |task| task.retries);
        self.complete(key, Err(TargetError { retries, ..error }), now_ns);
    }

    fn complete(&mut self, key: usize, result: Result<Answer, TargetError>, now_ns: u64) {
        let Some(task) = self.drop_task(key) else { return };
        let first_byte_ns = if task.first_byte_ns == 0 { now_ns } else { task.first_byte_ns };
        let buffer = match task.kind {
            Kind::Read { buffer, .. } | Kind::ReadPieces { buffer, .. } | Kind::Write { buffer, .. } => {
                Some(buffer)
            }
            _ => None,
        };
        if let Some(tag) = task.tag {
            self.done.push(Completion { tag, result, buffer, first_byte_ns, done_ns: now_ns });
        }
    }

    fn drop_task(&mut self, key: usize) -> Option<Task> {
        let task = self.tasks[key].take()?;
        self.free.push(key);
        Some(task)
    }
}

fn offers(asked: &[u8], way: &str) -> bool {
    String::from_utf8_lossy(asked)
        .split('&')
        .filter_map(|part| part.trim_end_matches('\0').split(',').next()?.strip_prefix("P="))
        .any(|offered| offered == way)
}

/// A path with what its server is to know beside it.
fn with_opaque(path: &str, opaque: &str, tried: &[String]) -> String {
    let tried = if tried.is_empty() { String::new() } else { format!("tried={}", tried.join(",")) };
    let parts: Vec<&str> = [opaque, tried.as_str()].into_iter().filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { path.to_owned() } else { format!("{path}?{}", parts.join("&")) }
}
