//! A target that keeps nothing.

use std::io;
use std::time::Duration;
use weir_core::Values;
use weir_seams::target::{
    Answer, Completion, Offers, OpenFiles, Operation, Request, Session, SessionSettings, Target, TargetError,
    TargetUrl, inside,
};
use weir_sys::clock;

/// As large as any file that is asked for.
const SIZE_BYTES: u64 = 1 << 62;

pub struct Null;

impl Target for Null {
    fn offers(&self) -> Offers {
        Offers::default()
    }
    fn check(&self, url: &TargetUrl) -> Result<(), String> {
        // A path is as good as none: a service of nothing has names all the same.
        match &url.authority {
            None => Ok(()),
            Some(_) => Err(format!("{url}: no host follows `null:`")),
        }
    }
    fn session(
        &self,
        _url: &TargetUrl,
        _options: &Values,
        _settings: SessionSettings,
    ) -> Result<Box<dyn Session>, TargetError> {
        Ok(Box::<NullSession>::default())
    }
}

#[derive(Default)]
struct NullSession {
    files: OpenFiles<()>,
    done: Vec<Completion>,
}

impl Session for NullSession {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        for Request { tag, operation } in requests.drain(..) {
            let (result, buffer) = match operation {
                Operation::Open { path, .. } => {
                    let opened = inside(&path);
                    (
                        opened.map(|()| Answer::Opened { file: self.files.add(()), size_bytes: SIZE_BYTES }),
                        None,
                    )
                }
                Operation::Read { file, buffer, .. }
                | Operation::ReadPieces { file, buffer }
                | Operation::Write { file, buffer, .. } => {
                    let bytes = buffer.len() as u64;
                    (self.files.get(file).map(|()| Answer::Moved { bytes }), Some(buffer))
                }
                Operation::Sync { file } => (self.files.get(file).map(|()| Answer::Done), None),
                Operation::Close { file } => (self.files.remove(file).map(|()| Answer::Done), None),
                Operation::Stat { .. } => {
                    (Ok(Answer::Info { size_bytes: SIZE_BYTES, is_folder: false }), None)
                }
                Operation::List { .. } => (Ok(Answer::Names(Vec::new())), None),
                Operation::Remove { .. } => (Ok(Answer::Done), None),
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
