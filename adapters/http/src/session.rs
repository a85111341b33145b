//! One thread's requests, all of them on the load's own thread: a runtime that runs while the load waits.

use crate::exchange::{Ask, Asker, Flavour, Spot};
use crate::upload::{self, Order};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use weir_seams::target::{
    Answer, Buffer, Completion, FileId, Mode, OpenFiles, Operation, Request, Session, TargetError, inside,
};
use weir_sys::clock;

struct File {
    spot: Spot,
    /// Of those that may be written.
    orders: Option<UnboundedSender<Order>>,
}

type Files = Arc<Mutex<OpenFiles<Arc<File>>>>;

pub struct HttpSession {
    runtime: Runtime,
    asker: Arc<Asker>,
    files: Files,
    tell: UnboundedSender<Completion>,
    done: UnboundedReceiver<Completion>,
}

/// Tells what became of an operation. `first_byte_ns` is 0 where nothing came before the end.
pub fn complete(
    done: &UnboundedSender<Completion>,
    tag: u64,
    result: Result<Answer, TargetError>,
    buffer: Option<Buffer>,
    first_byte_ns: u64,
) {
    let done_ns = clock::monotonic().as_ns();
    let first_byte_ns = if first_byte_ns == 0 { done_ns } else { first_byte_ns };
    // Where the session is gone nobody waits for it.
    done.send(Completion { tag, result, buffer, first_byte_ns, done_ns }).ok();
}

fn locked(files: &Files) -> MutexGuard<'_, OpenFiles<Arc<File>>> {
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

pub async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, TargetError>>,
) -> Result<T, TargetError> {
    let late = || TargetError::coded("ETIMEDOUT", format!("no answer within {limit:?}"));
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(late()))
}

impl HttpSession {
    /// Errors: the runtime cannot be made.
    pub fn new(asker: Asker) -> io::Result<HttpSession> {
        let runtime = runtime()?;
        let (tell, done) = unbounded_channel();
        Ok(HttpSession { runtime, asker: Arc::new(asker), files: Files::default(), tell, done })
    }

    fn file(&self, id: FileId) -> Result<Arc<File>, TargetError> {
        locked(&self.files).get(id).cloned()
    }

    fn begin(&mut self, request: Request) {
        let Request { tag, operation } = request;
        let refuse = |error, buffer| complete(&self.tell, tag, Err(error), buffer, 0);
        match operation {
            Operation::Read { file, offset, buffer } => self.read(tag, file, buffer, Some(offset)),
            Operation::ReadPieces { file, buffer } => self.read(tag, file, buffer, None),
            Operation::Write { file, offset, buffer } => {
                let file = self.file(file);
                match file.as_ref().map(|file| &file.orders) {
                    Err(error) => refuse(error.clone(), Some(buffer)),
                    Ok(None) => refuse(TargetError::coded("EBADF", "opened for reading"), Some(buffer)),
                    Ok(Some(orders)) => {
                        // Its reader ends with the session.
                        orders.send(Order::Write { tag, offset, buffer }).ok();
                    }
                }
            }
            Operation::Sync { file } => match self.file(file) {
                Err(error) => refuse(error, None),
                Ok(file) => self.finish(tag, &file),
            },
            Operation::Close { file } => {
                let removed = locked(&self.files).remove(file);
                match removed {
                    Err(error) => refuse(error, None),
                    Ok(file) => self.finish(tag, &file),
                }
            }
            Operation::Open { path, .. }
            | Operation::Stat { path }
            | Operation::List { path }
            | Operation::Remove { path }
                if inside(&path).is_err() =>
            {
                refuse(inside(&path).err().unwrap_or_default(), None);
            }
            Operation::Open { path, mode } => {
                let (asker, files, tell) =
                    (Arc::clone(&self.asker), Arc::clone(&self.files), self.tell.clone());
                self.runtime.spawn(async move {
                    let opened = within(asker.limit, open(&asker, &path, mode)).await;
                    let result = opened.map(|(spot, size_bytes)| {
                        let orders = (mode != Mode::Read).then(|| {
                            let (orders, taken) = unbounded_channel();
                            let place = (spot.path.clone(), spot.at().clone());
                            tokio::spawn(upload::write(Arc::clone(&asker), place, taken, tell.clone()));
                            orders
                        });
                        let file = locked(&files).add(Arc::new(File { spot, orders }));
                        Answer::Opened { file, size_bytes }
                    });
                    complete(&tell, tag, result, None, 0);
                });
            }
            Operation::Stat { path } => self.spawn(tag, move |asker| async move {
                let info = asker.info(&path).await?;
                Ok(Answer::Info { size_bytes: info.size_bytes, is_folder: info.is_folder })
            }),
            Operation::List { path } => {
                self.spawn(tag, move |asker| async move { asker.list(&path).await.map(Answer::Names) });
            }
            Operation::Remove { path } => self.spawn(tag, move |asker| async move {
                let there = asker.path(&path);
                if matches!(asker.flavour, Flavour::Objects { .. }) {
                    // Removing what is not there succeeds, and is told apart by nobody else.
                    asker.head(&there).await?;
                }
                asker.tell(Ask::new("DELETE", &there), None).await.map(|_| Answer::Done)
            }),
        }
    }

    /// Reads from `offset` on, or what the buffer's pieces are.
    fn read(&self, tag: u64, file: FileId, mut buffer: Buffer, offset: Option<u64>) {
        let file = match self.file(file) {
            Ok(file) => file,
            Err(error) => return complete(&self.tell, tag, Err(error), Some(buffer), 0),
        };
        let (asker, tell) = (Arc::clone(&self.asker), self.tell.clone());
        self.runtime.spawn(async move {
            let read = match offset {
                Some(offset) => within(asker.limit, asker.read(&file.spot, offset, &mut buffer)).await,
                None => within(asker.limit, asker.read_pieces(&file.spot, &mut buffer)).await,
            };
            let first_byte_ns = read.as_ref().map_or(0, |(_, first)| *first);
            let result = read.map(|(bytes, _)| Answer::Moved { bytes });
            complete(&tell, tag, result, Some(buffer), first_byte_ns);
        });
    }

    fn spawn<F>(&self, tag: u64, work: impl FnOnce(Arc<Asker>) -> F)
    where
        F: Future<Output = Result<Answer, TargetError>> + Send + 'static,
    {
        let (limit, tell) = (self.asker.limit, self.tell.clone());
        let work = work(Arc::clone(&self.asker));
        self.runtime.spawn(async move {
            let result = within(limit, work).await;
            complete(&tell, tag, result, None, 0);
        });
    }

    fn finish(&self, tag: u64, file: &File) {
        match &file.orders {
            Some(orders) => {
                orders.send(Order::Finish { tag }).ok();
            }
            None => complete(&self.tell, tag, Ok(Answer::Done), None, 0),
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// What is under way is given up, and a server is told of uploads that nobody will join.
impl Drop for HttpSession {
    fn drop(&mut self) {
        if self.asker.uploads.is_empty() {
            return;
        }
        // Requests and connections end with the runtime that they are in: no part arrives after its upload was given up.
        let Ok(own) = runtime() else { return };
        drop(std::mem::replace(&mut self.runtime, own));
        self.runtime.block_on(upload::forget(&self.asker));
    }
}

async fn open(asker: &Asker, path: &str, mode: Mode) -> Result<(Spot, u64), TargetError> {
    let there = asker.path(path);
    let (size_bytes, at) = match mode {
        Mode::Create => (0, asker.tell(Ask::new("PUT", &there), None).await?),
        Mode::Read | Mode::Update => asker.head(&there).await?,
    };
    Ok((Spot::new(there, at), size_bytes))
}

impl Session for HttpSession {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        for request in requests.drain(..) {
            self.begin(request);
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>, limit: Duration) -> io::Result<()> {
        let done = &mut self.done;
        self.runtime.block_on(async {
            // Requests go on also where nobody is to wait.
            tokio::task::yield_now().await;
            if done.is_empty()
                && let Ok(Some(first)) = tokio::time::timeout(limit, done.recv()).await
            {
                completions.push(first);
            }
            while let Ok(more) = done.try_recv() {
                completions.push(more);
            }
        });
        Ok(())
    }
}
