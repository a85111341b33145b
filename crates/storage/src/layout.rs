//! The files of a load: those that are there, and those that are made for it and go away with it.

use crate::content::Content;
use crate::plan::{MADE, NUMBER, Plan};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::time::Duration;
use weir_seams::target::{
    Answer, Buffer, Completion, Mode, Operation, Request, Session, SessionSettings, TargetError, ask,
};

/// Bytes and number of the writes that fill a new file.
const BLOCK_BYTES: u64 = 1 << 20;
const DEPTH: usize = 8;
/// For each file when the load is over: whoever hangs is not waited for longer.
const REMOVED_WITHIN: Duration = Duration::from_secs(10);

/// Files of which it is asked how much is in memory; of more, these stand for all.
const RESIDENT_FILES_MAX: usize = 4_096;

/// A file system that hangs is not waited for.
const RESIDENT_WITHIN: Duration = Duration::from_secs(2);

/// What of files is in a machine's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InMemory {
    pub resident_bytes: u64,
    pub file_bytes: u64,
}

impl InMemory {
    /// The share of all hosts' files; `None` where one did not say, or there is nothing.
    pub fn share<'a>(hosts: impl Iterator<Item = Option<&'a InMemory>>) -> Option<f64> {
        let hosts: Vec<&InMemory> = hosts.collect::<Option<_>>()?;
        let sum = |of: fn(&InMemory) -> u64| hosts.iter().map(|host| of(host)).sum::<u64>() as f64;
        let file_bytes = sum(|it| it.file_bytes);
        (file_bytes > 0.0).then(|| sum(|it| it.resident_bytes) / file_bytes)
    }
}

/// One file of the load.
#[derive(Clone, Debug)]
pub struct LaidFile {
    /// Below the target; empty: the target itself.
    pub path: String,
    pub size_bytes: u64,
    pub content: Content,
}

/// The files of one host's jobs, by their index among all.
pub struct Laid {
    pub files: BTreeMap<u64, LaidFile>,
    made: Vec<String>,
    session: Box<dyn Session>,
    /// How long it waits for an answer.
    within: Duration,
    keep: bool,
}

impl Laid {
    /// Finds or makes the files of `jobs`. `makes_shared`: of files that all hosts share this one makes those that lack.
    ///
    /// Errors: a file lacks, is too small, or cannot be made.
    pub fn lay(plan: &Plan, jobs: &[u32], makes_shared: bool) -> Result<Laid, TargetError> {
        let session = |timeout: Duration| {
            let settings = SessionSettings { depth: DEPTH, timeout };
            plan.target.build.session(&plan.url, &plan.options, settings)
        };
        let (within, keep) = (plan.found_within(), plan.keep);
        let mut laid =
            Laid { files: BTreeMap::new(), made: Vec::new(), session: session(within)?, within, keep };
        let names = laid.names(plan)?;
        let may_make = !plan.is_shared || makes_shared;
        let of_job =
            |job: &u32| (0..plan.files_per_job).map(|file| plan.file_of(*job, file)).collect::<Vec<u64>>();
        let wanted: BTreeSet<u64> = jobs.iter().flat_map(of_job).collect();
        // Many jobs may have the same file: it is asked for once.
        let paths: BTreeSet<String> = wanted.iter().map(|index| names.of(*index)).collect();
        let paths: Vec<String> = paths.into_iter().collect();
        let there = laid.looked_at(plan, &paths)?;
        if plan.file_bytes.is_some() && plan.timeout > within {
            // What is written may take as long as a load's own operations.
            (laid.session, laid.within) = (session(plan.timeout)?, plan.timeout);
        }
        let mut found = BTreeMap::new();
        for (path, there) in paths.into_iter().zip(there) {
            found.insert(path.clone(), laid.file(plan, path, there, may_make)?);
        }
        let of_index = |index: u64| Some((index, found.get(&names.of(index))?.clone()));
        laid.files.extend(wanted.into_iter().filter_map(of_index));
        Ok(laid)
    }

    /// How much of the files is in this machine's memory; `None` where the target cannot tell, or does not in time.
    // Spec: storage.md#io-7
    pub fn resident(&self) -> Option<InMemory> {
        let of_path = |file: &LaidFile| (file.path.clone(), file.size_bytes);
        let files: BTreeMap<String, u64> =
            self.files.values().map(of_path).take(RESIDENT_FILES_MAX).collect();
        let file_bytes = files.values().sum();
        let ask = self.session.resident(files.into_iter().collect())?;
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || tell.send(ask()));
        let resident_bytes = told.recv_timeout(RESIDENT_WITHIN).ok()??;
        Some(InMemory { resident_bytes, file_bytes })
    }

    /// Those of one job, in its order.
    pub fn of_job(&self, plan: &Plan, job: u32) -> Vec<LaidFile> {
        (0..plan.files_per_job).filter_map(|file| self.files.get(&plan.file_of(job, file)).cloned()).collect()
    }

    /// What the target says of each path, several asked for at a time: one after the other, files far away take their round trips.
    ///
    /// Errors: it does not answer.
    fn looked_at(
        &mut self,
        plan: &Plan,
        paths: &[String],
    ) -> Result<Vec<Result<Answer, TargetError>>, TargetError> {
        let unasked = || Err(TargetError::new("it was not asked for"));
        let mut found: Vec<_> = paths.iter().map(|_| unasked()).collect();
        let (mut batch, mut done, mut under_way) = (Vec::new(), Vec::new(), 0);
        let mut rest = paths.iter().enumerate().peekable();
        while rest.peek().is_some() || under_way > 0 {
            for (tag, path) in rest.by_ref().take(DEPTH - under_way) {
                batch.push(Request { tag: tag as u64, operation: Operation::Stat { path: path.clone() } });
            }
            under_way += batch.len();
            self.session.submit(&mut batch);
            let reaped = self.session.reap(&mut done, self.within);
            reaped.map_err(|error| TargetError::new(error.to_string()))?;
            if done.is_empty() {
                let text = format!("{}: no answer within {:?}", plan.url, self.within);
                return Err(TargetError::coded("ETIMEDOUT", text));
            }
            under_way -= done.len();
            for Completion { tag, result, .. } in done.drain(..) {
                if let Some(slot) = found.get_mut(tag as usize) {
                    *slot = result;
                }
            }
        }
        Ok(found)
    }

    fn ask(&mut self, operation: Operation) -> Result<Answer, TargetError> {
        ask(&mut *self.session, operation, self.within)
    }

    fn names(&mut self, plan: &Plan) -> Result<Names, TargetError> {
        if !plan.listed.is_empty() {
            return Ok(Names::There(plan.listed.clone()));
        }
        if let Some(pattern) = &plan.numbered {
            return Ok(Names::Numbered(pattern.clone()));
        }
        let offers = plan.target.build.offers();
        if !offers.keeps_content {
            return Ok(Names::Made);
        }
        let is_folder = match self.ask(Operation::Stat { path: String::new() }) {
            Ok(Answer::Info { is_folder, .. }) => is_folder,
            Ok(_) => false,
            Err(error) if error.is_missing() => false,
            Err(error) => return Err(error),
        };
        if !is_folder {
            return match plan.file_count() {
                1 => Ok(Names::Itself),
                many => Err(TargetError::coded(
                    "ENOTDIR",
                    format!(
                        "{}: no folder, and the load has {many} files; name a folder that exists",
                        plan.url
                    ),
                )),
            };
        }
        if plan.reads_only() && offers.lists {
            let mut there = match self.ask(Operation::List { path: String::new() })? {
                Answer::Names(names) => names,
                _ => Vec::new(),
            };
            there.sort_unstable();
            let mut files = Vec::new();
            for path in there {
                let info = self.ask(Operation::Stat { path: path.clone() })?;
                if matches!(info, Answer::Info { is_folder: false, .. }) {
                    files.push(path);
                }
            }
            if !files.is_empty() {
                return Ok(Names::There(files));
            }
        }
        Ok(Names::Made)
    }

    /// A file of which the target says what is `there`.
    fn file(
        &mut self,
        plan: &Plan,
        path: String,
        there: Result<Answer, TargetError>,
        may_make: bool,
    ) -> Result<LaidFile, TargetError> {
        let of_url = plan.url.below(&path);
        let content = Content::of(&of_url);
        let there = match there {
            Ok(Answer::Info { size_bytes, is_folder: false }) => Some(size_bytes),
            Ok(_) => {
                return Err(TargetError::coded("EISDIR", format!("{of_url} is a folder and not a file")));
            }
            Err(error) if error.is_missing() => None,
            Err(error) => return Err(error),
        };
        let too_small = |size: u64, wanted: u64| {
            let text = format!(
                "{of_url} has {size} bytes, and {wanted} are wanted; a file that exists is not made larger"
            );
            Err(TargetError::coded("ENODATA", text))
        };
        // The host that made it did so empty, for all to write.
        let is_new = !may_make && plan.mix <= 0.0;
        let size_bytes = match (there, plan.file_bytes) {
            (Some(size), Some(wanted)) if size < wanted && !is_new => return too_small(size, wanted),
            (Some(size), None) if size < plan.size_bytes => return too_small(size, plan.size_bytes),
            (Some(size), wanted) => wanted.unwrap_or(size),
            (None, Some(wanted)) if may_make => {
                self.make(plan, &path, wanted, content)?;
                wanted
            }
            (None, _) => {
                let offers = plan.target.build.offers();
                // Nobody could say what is in the folder.
                let unlisted = plan.reads_only()
                    && !offers.lists
                    && !path.is_empty()
                    && plan.numbered.is_none()
                    && plan.listed.is_empty();
                let named = match unlisted {
                    true => {
                        "; this kind of target lists no folder: name its files, or their pattern as in `f-{n}`"
                    }
                    false => "",
                };
                let text = format!("{of_url} does not exist; `file_size` says how large to make it{named}");
                return Err(TargetError::coded("ENOENT", text));
            }
        };
        Ok(LaidFile { path, size_bytes, content })
    }

    /// A file that is only written is left empty; what is read has its content first.
    fn make(
        &mut self,
        plan: &Plan,
        path: &str,
        size_bytes: u64,
        content: Content,
    ) -> Result<(), TargetError> {
        let opened = self.ask(Operation::Open { path: path.to_owned(), mode: Mode::Create })?;
        self.made.push(path.to_owned());
        let Answer::Opened { file, .. } = opened else { return Ok(()) };
        if plan.mix > 0.0 && plan.target.build.offers().keeps_content {
            let (mut at, mut under_way) = (0, 0);
            let mut buffers: Vec<Buffer> = (0..DEPTH).map(|_| Buffer::new(BLOCK_BYTES as usize)).collect();
            let mut batch = Vec::new();
            let mut done: Vec<Completion> = Vec::new();
            while at < size_bytes || under_way > 0 {
                while at < size_bytes
                    && let Some(mut buffer) = buffers.pop()
                {
                    let length = BLOCK_BYTES.min(size_bytes - at);
                    buffer.resize(length as usize);
                    content.fill(at, &mut buffer);
                    batch.push(Request {
                        tag: length,
                        operation: Operation::Write { file, offset: at, buffer },
                    });
                    at += length;
                    under_way += 1;
                }
                self.session.submit(&mut batch);
                let before = done.len();
                let reaped = self.session.reap(&mut done, plan.timeout);
                reaped.map_err(|error| TargetError::new(error.to_string()))?;
                if done.len() == before {
                    let text = format!("{path}: making it: no answer within {:?}", plan.timeout);
                    return Err(TargetError::coded("ETIMEDOUT", text));
                }
                for completion in done.drain(..) {
                    under_way -= 1;
                    completion.result.map_err(|error| {
                        let text = format!("{}: making it: {}", plan.url.below(path), error.text);
                        TargetError { text, ..error }
                    })?;
                    buffers.extend(completion.buffer);
                }
            }
            self.ask(Operation::Sync { file })?;
        }
        self.ask(Operation::Close { file }).map(drop)
    }
}

/// What was made goes away, whatever became of the load.
impl Drop for Laid {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        for path in std::mem::take(&mut self.made) {
            // One that cannot be removed is told by the next load, which finds it.
            if ask(&mut *self.session, Operation::Remove { path }, REMOVED_WITHIN)
                .is_err_and(|error| error.code.as_deref() == Some("ETIMEDOUT"))
            {
                return;
            }
        }
    }
}

/// How the files of a load are called.
enum Names {
    /// There is one, the target.
    Itself,
    /// Those that a folder holds, in order of name, from the first again where there are more jobs.
    There(Vec<String>),
    Numbered(String),
    Made,
}

impl Names {
    fn of(&self, index: u64) -> String {
        match self {
            Names::Itself => String::new(),
            Names::There(names) => names[(index % names.len() as u64) as usize].clone(),
            Names::Numbered(pattern) => pattern.replace(NUMBER, &index.to_string()),
            Names::Made => format!("{MADE}-{index}"),
        }
    }
}
