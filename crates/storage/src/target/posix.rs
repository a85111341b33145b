//! Files through the kernel's calls: `pread` and `pwrite`, at a depth of one by the load's own thread, deeper by as many threads beside
//! it; or by io_uring, whatever the depth from the load's own thread.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_core::{Kind, Param, Values};
use weir_seams::target::{
    Answer, Buffer, Completion, FileId, Mark, Mode, Offers, OpenFiles, Operation, Request, Resident, Session,
    SessionSettings, Target, TargetError, TargetUrl, inside,
};
use weir_sys::ring::{self, Asked, Done, Ring};
use weir_sys::{clock, errno};

/// Threads of one session at most; what is deeper waits for one of them.
const THREADS_MAX: usize = 64;

const RING: &str = "io_uring";

pub const PARAMS: &[Param] = &[
    Param::new(
        "direct",
        Kind::Flag,
        "Go around the page cache (O_DIRECT); sizes are then multiples of the disk's block.",
    )
    .default("false"),
    Param::new(
        "engine",
        Kind::Choice(&["threads", RING]),
        "How many operations are under way at once: by a thread each, or by io_uring from one.",
    )
    .default("threads"),
];

pub struct Posix;

impl Target for Posix {
    fn offers(&self) -> Offers {
        Offers { keeps_content: true, lists: true, ..Offers::default() }
    }
    fn check(&self, url: &TargetUrl) -> Result<(), String> {
        if url.path.is_empty() {
            return Err(format!("{url}: no path follows `posix:`"));
        }
        Ok(())
    }
    fn session(
        &self,
        url: &TargetUrl,
        options: &Values,
        settings: SessionSettings,
    ) -> Result<Box<dyn Session>, TargetError> {
        let base = PathBuf::from(&url.path);
        let direct = options.flag("direct").unwrap_or(false);
        let files = Files { base, direct, open: OpenFiles::default() };
        if options.text("engine").as_deref() == Some(RING) {
            let ring = Ring::new(settings.depth);
            let ring = ring.map_err(|error| TargetError::new(format!("{url}: no io_uring here: {error}")))?;
            return Ok(Box::new(RingSession { files, ring, done: Vec::new(), reaped: Vec::new() }));
        }
        let threads = if settings.depth > 1 { settings.depth.min(THREADS_MAX) } else { 0 };
        let crew = (threads > 0).then(|| Crew::of(threads)).transpose();
        let crew = crew.map_err(|error| TargetError::new(format!("{url}: no thread for it: {error}")))?;
        Ok(Box::new(PosixSession { files, crew, done: Vec::new() }))
    }
}

/// A part of an operation that may take its time.
enum Work {
    Read { file: Arc<File>, offset: u64 },
    Write { file: Arc<File>, offset: u64 },
    Sync { file: Arc<File> },
}

struct Files {
    base: PathBuf,
    direct: bool,
    open: OpenFiles<Opened>,
}

struct Opened {
    file: Arc<File>,
    /// Where a ring holds it.
    place: Option<u32>,
}

impl Files {
    fn path(&self, path: &str) -> Result<PathBuf, TargetError> {
        inside(path)?;
        Ok(if path.is_empty() { self.base.clone() } else { self.base.join(path) })
    }

    /// What is asked of names, and of a session's own table: short calls, made by the load's thread.
    fn at_once(&mut self, operation: Operation) -> Result<Answer, TargetError> {
        match operation {
            Operation::Open { path, mode } => self.open(&path, mode),
            Operation::Close { file } => self.open.remove(file).map(|_| Answer::Done),
            Operation::Stat { path } => self.stat(&path),
            Operation::List { path } => self.list(&path),
            Operation::Remove { path } => self.remove(&path),
            Operation::ReadPieces { .. } => Err(TargetError::not_offered("reading pieces")),
            Operation::Read { .. } | Operation::Write { .. } | Operation::Sync { .. } => Ok(Answer::Done),
        }
    }

    fn open(&mut self, path: &str, mode: Mode) -> Result<Answer, TargetError> {
        let path = self.path(path)?;
        let mut options = OpenOptions::new();
        options.read(true).write(mode != Mode::Read);
        options.create(mode == Mode::Create).truncate(mode == Mode::Create);
        let opened = weir_sys::file::open(&path, &mut options, self.direct)
            .and_then(|file| file.metadata().map(|about| (file, about)));
        let (file, about) = opened.map_err(|error| failed(&path, &error))?;
        if !about.is_file() {
            return Err(TargetError::coded("EISDIR", format!("{}: not a regular file", path.display())));
        }
        let file = self.open.add(Opened { file: Arc::new(file), place: None });
        Ok(Answer::Opened { file, size_bytes: about.len() })
    }

    fn stat(&self, path: &str) -> Result<Answer, TargetError> {
        let path = self.path(path)?;
        let about = fs::metadata(&path).map_err(|error| failed(&path, &error))?;
        Ok(Answer::Info { size_bytes: about.len(), is_folder: about.is_dir() })
    }

    fn resident(&self, parts: &[(String, u64)]) -> Option<Resident> {
        let of_part = |(path, bytes): &(String, u64)| Ok((self.path(path)?, *bytes));
        let parts: Vec<(PathBuf, u64)> =
            parts.iter().map(of_part).collect::<Result<_, TargetError>>().ok()?;
        let of_part = |(path, bytes): (PathBuf, u64)| {
            let file = weir_sys::file::open(&path, OpenOptions::new().read(true), false);
            weir_sys::file::resident_bytes(&file.ok()?, bytes).ok()
        };
        Some(Box::new(move || parts.into_iter().map(of_part).sum()))
    }

    fn list(&self, path: &str) -> Result<Answer, TargetError> {
        let path = self.path(path)?;
        let names = fs::read_dir(&path).and_then(|entries| {
            entries
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect::<io::Result<_>>()
        });
        names.map(Answer::Names).map_err(|error| failed(&path, &error))
    }

    fn remove(&self, path: &str) -> Result<Answer, TargetError> {
        let path = self.path(path)?;
        fs::remove_file(&path).map(|()| Answer::Done).map_err(|error| failed(&path, &error))
    }
}

fn failed(path: &std::path::Path, error: &io::Error) -> TargetError {
    let code = errno::name(error).map(str::to_owned);
    TargetError { code, text: format!("{}: {error}", path.display()), ..TargetError::default() }
}

/// The load's own thread, and the kernel's ring.
struct RingSession {
    files: Files,
    ring: Ring,
    done: Vec<Completion>,
    reaped: Vec<Done>,
}

impl RingSession {
    /// Files that are open the ring holds, as many as it has room for.
    fn of_names(&mut self, operation: Operation) -> Result<Answer, TargetError> {
        let held = |it: &RingSession, file: FileId| it.files.open.get(file).ok().and_then(|file| file.place);
        let closes = if let Operation::Close { file } = &operation { held(self, *file) } else { None };
        let answer = self.files.at_once(operation)?;
        if let Some(place) = closes {
            self.ring.let_file_go(place);
        }
        if let Answer::Opened { file, .. } = answer
            && let Ok(opened) = self.files.open.get_mut(file)
        {
            opened.place = self.ring.hold_file(&opened.file);
        }
        Ok(answer)
    }
}

impl Session for RingSession {
    fn resident(&self, parts: Vec<(String, u64)>) -> Option<Resident> {
        self.files.resident(&parts)
    }

    fn submit(&mut self, requests: &mut Vec<Request>) {
        for Request { tag, operation } in requests.drain(..) {
            let (file, kind, offset, buffer) = match operation {
                Operation::Read { file, offset, buffer } => (file, ring::Kind::Read, offset, Some(buffer)),
                Operation::Write { file, offset, buffer } => (file, ring::Kind::Write, offset, Some(buffer)),
                Operation::Sync { file } => (file, ring::Kind::Sync, 0, None),
                at_once => {
                    let result = self.of_names(at_once);
                    self.done.push(completion(tag, result, None));
                    continue;
                }
            };
            match self.files.open.get(file) {
                Err(error) => self.done.push(completion(tag, Err(error), buffer)),
                Ok(Opened { file, place: file_place }) => {
                    let (file, file_place) = (Arc::clone(file), *file_place);
                    let mark = buffer.as_ref().and_then(Buffer::mark);
                    let (mut memory, from, length_bytes) = buffer.map(Buffer::into_parts).unwrap_or_default();
                    let memory_place = match mark.filter(|mark| mark.session == self.ring.number()) {
                        Some(mark) => mark.place,
                        None => self.ring.hold_memory(&mut memory),
                    };
                    let kept = Asked {
                        tag,
                        kind,
                        file,
                        offset,
                        memory,
                        from,
                        length_bytes,
                        file_place,
                        memory_place,
                    };
                    self.ring.ask(kept);
                }
            }
        }
        // What could not be handed over now is with the next call; a ring that is broken says so when it is waited for.
        let _ = self.ring.submit();
    }

    fn reap(&mut self, completions: &mut Vec<Completion>, limit: Duration) -> io::Result<()> {
        let wanted = if self.done.is_empty() { limit } else { Duration::ZERO };
        completions.append(&mut self.done);
        if self.ring.under_way() == 0 {
            std::thread::sleep(wanted);
            return Ok(());
        }
        self.ring.reap(&mut self.reaped, wanted)?;
        completions.extend(self.reaped.drain(..).map(|Done { asked, result }| {
            let is_sync = matches!(asked.kind, ring::Kind::Sync);
            let mark = Some(Mark { session: self.ring.number(), place: asked.memory_place });
            let buffer =
                (!is_sync).then(|| Buffer::from_parts(asked.memory, asked.from, asked.length_bytes, mark));
            let answer = |bytes| if is_sync { Answer::Done } else { Answer::Moved { bytes: bytes as u64 } };
            completion(asked.tag, result.map(answer).map_err(in_words), buffer)
        }));
        Ok(())
    }
}

/// What went wrong with an open file.
fn in_words(error: io::Error) -> TargetError {
    TargetError {
        code: errno::name(&error).map(str::to_owned),
        text: error.to_string(),
        is_lost: matches!(errno::name(&error), Some("ESTALE" | "ENOTCONN")),
        ..TargetError::default()
    }
}

struct PosixSession {
    files: Files,
    crew: Option<Crew>,
    done: Vec<Completion>,
}

impl Session for PosixSession {
    fn resident(&self, parts: Vec<(String, u64)>) -> Option<Resident> {
        self.files.resident(&parts)
    }

    fn submit(&mut self, requests: &mut Vec<Request>) {
        for Request { tag, operation } in requests.drain(..) {
            let opened = |file| self.files.open.get(file).map(|it| Arc::clone(&it.file));
            let (work, buffer) = match operation {
                Operation::Read { file, offset, buffer } => {
                    (opened(file).map(|file| Work::Read { file, offset }), Some(buffer))
                }
                Operation::Write { file, offset, buffer } => {
                    (opened(file).map(|file| Work::Write { file, offset }), Some(buffer))
                }
                Operation::Sync { file } => (opened(file).map(|file| Work::Sync { file }), None),
                at_once => {
                    let result = self.files.at_once(at_once);
                    self.done.push(completion(tag, result, None));
                    continue;
                }
            };
            match (work, &self.crew) {
                (Err(error), _) => self.done.push(completion(tag, Err(error), buffer)),
                (Ok(work), Some(crew)) => crew.give(Task { tag, work, buffer }),
                (Ok(work), None) => self.done.push(Task { tag, work, buffer }.carry_out()),
            }
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>, limit: Duration) -> io::Result<()> {
        let wanted = if self.done.is_empty() { limit } else { Duration::ZERO };
        completions.append(&mut self.done);
        match &self.crew {
            Some(crew) => crew.take(completions, wanted),
            None => std::thread::sleep(wanted),
        }
        Ok(())
    }
}

fn completion(tag: u64, result: Result<Answer, TargetError>, buffer: Option<Buffer>) -> Completion {
    let now_ns = clock::monotonic().as_ns();
    Completion { tag, result, buffer, first_byte_ns: now_ns, done_ns: now_ns }
}

struct Task {
    tag: u64,
    work: Work,
    buffer: Option<Buffer>,
}

impl Task {
    fn carry_out(mut self) -> Completion {
        let result = match (&self.work, &mut self.buffer) {
            (Work::Read { file, offset }, Some(buffer)) => {
                read(file, buffer, *offset).map(|bytes| Answer::Moved { bytes })
            }
            (Work::Write { file, offset }, Some(buffer)) => {
                file.write_all_at(buffer, *offset).map(|()| Answer::Moved { bytes: buffer.len() as u64 })
            }
            (Work::Sync { file }, _) => file.sync_data().map(|()| Answer::Done),
            (Work::Read { .. } | Work::Write { .. }, None) => Ok(Answer::Moved { bytes: 0 }),
        };
        let result = result.map_err(in_words);
        completion(self.tag, result, self.buffer)
    }
}

/// As far as the file goes.
fn read(file: &File, into: &mut [u8], offset: u64) -> io::Result<u64> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Of a file that is read around the cache the rest of a piece that ended early cannot be asked for.
            Err(error) if filled > 0 && error.kind() == ErrorKind::InvalidInput => break,
            Err(error) => return Err(error),
        }
    }
    Ok(filled as u64)
}

/// Threads that carry out what one session was asked.
struct Crew {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    something_waits: Condvar,
    done: Mutex<Vec<Completion>>,
    something_done: Condvar,
}

#[derive(Default)]
struct Waiting {
    tasks: VecDeque<Task>,
    over: bool,
}

impl Crew {
    fn of(threads: usize) -> io::Result<Crew> {
        let crew = Crew { shared: Arc::default() };
        for _ in 0..threads {
            let shared = Arc::clone(&crew.shared);
            std::thread::Builder::new().name("posix".to_owned()).spawn(move || serve(&shared))?;
        }
        Ok(crew)
    }

    fn give(&self, task: Task) {
        self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner).tasks.push_back(task);
        self.shared.something_waits.notify_one();
    }

    /// Waits for the first, at most `limit`.
    fn take(&self, completions: &mut Vec<Completion>, limit: Duration) {
        let until = Instant::now() + limit;
        let mut done = self.shared.done.lock().unwrap_or_else(PoisonError::into_inner);
        while done.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.something_done.wait_timeout(done, left);
            done = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        completions.append(&mut done);
    }
}

/// A thread that hangs in a call ends when the call does; nobody waits for it.
impl Drop for Crew {
    fn drop(&mut self) {
        let mut waiting = self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.over = true;
        waiting.tasks.clear();
        self.shared.something_waits.notify_all();
    }
}

fn serve(shared: &Shared) {
    loop {
        let mut waiting = shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let task = loop {
            if waiting.over {
                return;
            }
            match waiting.tasks.pop_front() {
                Some(task) => break task,
                None => {
                    waiting = shared.something_waits.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        drop(waiting);
        let completion = task.carry_out();
        shared.done.lock().unwrap_or_else(PoisonError::into_inner).push(completion);
        shared.something_done.notify_one();
    }
}
