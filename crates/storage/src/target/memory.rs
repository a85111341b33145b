//! Files in the memory of this process, shared by its threads.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use weir_core::Values;
use weir_seams::target::{
    Answer, Completion, Mode, Offers, OpenFiles, Operation, Request, Session, SessionSettings, Target,
    TargetError, TargetUrl, inside,
};
use weir_sys::clock;

/// A write that would make a file larger is refused as on a disk that is full.
const FILE_BYTES_MAX: u64 = 16 << 30;

type Content = Arc<RwLock<Vec<u8>>>;
static STORE: Mutex<BTreeMap<String, Content>> = Mutex::new(BTreeMap::new());

pub struct Memory;

impl Target for Memory {
    fn offers(&self) -> Offers {
        Offers { keeps_content: true, lists: true, ..Offers::default() }
    }
    fn check(&self, url: &TargetUrl) -> Result<(), String> {
        if url.authority.is_some() {
            return Err(format!("{url}: `mem:` is of this process and takes no host"));
        }
        Ok(())
    }
    fn session(
        &self,
        url: &TargetUrl,
        _options: &Values,
        _settings: SessionSettings,
    ) -> Result<Box<dyn Session>, TargetError> {
        Ok(Box::new(MemorySession { url: url.clone(), files: OpenFiles::default(), done: Vec::new() }))
    }
}

struct MemorySession {
    url: TargetUrl,
    files: OpenFiles<Content>,
    done: Vec<Completion>,
}

impl MemorySession {
    fn name(&self, path: &str) -> Result<String, TargetError> {
        inside(path).map(|()| self.url.below(path))
    }

    fn open(&mut self, path: &str, mode: Mode) -> Result<Answer, TargetError> {
        let name = self.name(path)?;
        let mut store = STORE.lock().unwrap_or_else(PoisonError::into_inner);
        let content = match (store.get(&name), mode) {
            (None, Mode::Create) => Arc::clone(store.entry(name).or_default()),
            (None, _) => return Err(missing(&name)),
            (Some(content), _) => Arc::clone(content),
        };
        drop(store);
        if mode == Mode::Create {
            content.write().unwrap_or_else(PoisonError::into_inner).clear();
        }
        let size_bytes = content.read().unwrap_or_else(PoisonError::into_inner).len() as u64;
        Ok(Answer::Opened { file: self.files.add(content), size_bytes })
    }

    fn stat(&self, path: &str) -> Result<Answer, TargetError> {
        let name = self.name(path)?;
        let store = STORE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(content) = store.get(&name) {
            let size_bytes = content.read().unwrap_or_else(PoisonError::into_inner).len() as u64;
            return Ok(Answer::Info { size_bytes, is_folder: false });
        }
        let folder = format!("{}/", name.trim_end_matches('/'));
        // What is named as a folder is there before anything is in it.
        let is_root = path.is_empty() && (name.is_empty() || name.ends_with('/'));
        if is_root || store.keys().any(|key| key.starts_with(&folder)) {
            return Ok(Answer::Info { size_bytes: 0, is_folder: true });
        }
        Err(missing(&name))
    }

    fn list(&self, path: &str) -> Result<Answer, TargetError> {
        let folder = format!("{}/", self.name(path)?.trim_end_matches('/'));
        let store = STORE.lock().unwrap_or_else(PoisonError::into_inner);
        let below =
            store.keys().filter_map(|key| key.strip_prefix(&folder)).filter(|rest| !rest.contains('/'));
        Ok(Answer::Names(below.map(str::to_owned).collect()))
    }
}

fn missing(name: &str) -> TargetError {
    TargetError::coded("ENOENT", format!("mem:{name}: no such file"))
}

/// Reads what there is from `offset` on.
fn read(content: &Content, offset: u64, into: &mut [u8]) -> u64 {
    let content = content.read().unwrap_or_else(PoisonError::into_inner);
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
    let count = into.len().min(content.len() - from);
    into[..count].copy_from_slice(&content[from..from + count]);
    count as u64
}

fn write(content: &Content, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
    let end = offset.saturating_add(bytes.len() as u64);
    if end > FILE_BYTES_MAX {
        return Err(TargetError::coded("ENOSPC", format!("mem: files have at most {FILE_BYTES_MAX} bytes")));
    }
    let mut content = content.write().unwrap_or_else(PoisonError::into_inner);
    let (from, end) = (offset as usize, end as usize);
    if content.len() < end {
        content.resize(end, 0);
    }
    content[from..end].copy_from_slice(bytes);
    Ok(())
}

impl Session for MemorySession {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        for Request { tag, operation } in requests.drain(..) {
            let (result, buffer) = match operation {
                Operation::Open { path, mode } => (self.open(&path, mode), None),
                Operation::Read { file, offset, mut buffer } => {
                    let read = self.files.get(file).map(|content| read(content, offset, &mut buffer));
                    (read.map(|bytes| Answer::Moved { bytes }), Some(buffer))
                }
                Operation::ReadPieces { buffer, .. } => {
                    (Err(TargetError::not_offered("reading pieces")), Some(buffer))
                }
                Operation::Write { file, offset, buffer } => {
                    let written = self.files.get(file).and_then(|content| write(content, offset, &buffer));
                    (written.map(|()| Answer::Moved { bytes: buffer.len() as u64 }), Some(buffer))
                }
                Operation::Sync { file } => (self.files.get(file).map(|_| Answer::Done), None),
                Operation::Close { file } => (self.files.remove(file).map(|_| Answer::Done), None),
                Operation::Stat { path } => (self.stat(&path), None),
                Operation::List { path } => (self.list(&path), None),
                Operation::Remove { path } => {
                    let removed = self.name(&path).and_then(|name| {
                        let mut store = STORE.lock().unwrap_or_else(PoisonError::into_inner);
                        store.remove(&name).map(|_| Answer::Done).ok_or_else(|| missing(&name))
                    });
                    (removed, None)
                }
            };
            let now_ns = clock::monotonic().as_ns();
            self.done.push(Completion { tag, result, buffer, first_byte_ns: now_ns, done_ns: now_ns });
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>, limit: Duration) -> io::Result<()> {
        if self.done.is_empty() {
            std::thread::sleep(limit);
        }
        completions.append(&mut self.done);
        Ok(())
    }
}
