//! What other threads do for a shell: they let peers in and make connections, and ring when there is something new.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_transport::Key;
use weir_transport::dial::{Call, dial};
use weir_transport::gate::{Admitted, Gate, GateLimits};
use weir_transport::handshake::Status;
use weir_transport::tcp_options::TcpOptions;

/// A connection that takes longer is tried again.
pub const DIAL_LIMIT: Duration = Duration::from_secs(2);
/// Connections under way at once; more wait.
const DIALS_AT_ONCE: usize = 64;
/// How soon a gate notices that it is no longer wanted.
const NOTICE: Duration = Duration::from_millis(50);
/// Peers at one gate that have not been looked at.
const WAITING_MAX: usize = 4096;

/// What has happened elsewhere.
pub enum News {
    /// A peer at the gate has proven the key and waits to be let in.
    Arrived(Box<Admitted>),
    /// The connection that was asked for under this number.
    Dialled { number: u64, result: Result<TcpStream, String> },
    /// The gate broke.
    Broken(String),
}

/// The shell's end: its descriptor is readable when there is news.
pub struct Inbox {
    bell: UnixStream,
    news: Receiver<News>,
    desk: Desk,
}

/// What other threads hold of it.
#[derive(Clone)]
pub struct Desk {
    bell: Arc<UnixStream>,
    news: Sender<News>,
    waiting: Arc<AtomicUsize>,
}

impl Inbox {
    pub fn new() -> io::Result<Inbox> {
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ringer.set_nonblocking(true)?;
        let (sender, news) = channel();
        let desk = Desk { bell: Arc::new(ringer), news: sender, waiting: Arc::default() };
        Ok(Inbox { bell, news, desk })
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub fn desk(&self) -> Desk {
        self.desk.clone()
    }

    /// What has come since the last look.
    pub fn take(&mut self) -> Vec<News> {
        let mut drained = [0; 64];
        while matches!(self.bell.read(&mut drained), Ok(count) if count > 0) {}
        let all: Vec<News> = self.news.try_iter().collect();
        self.desk.waiting.fetch_sub(all.len(), Ordering::Relaxed);
        all
    }
}

impl Desk {
    fn put(&self, news: News) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // Nobody reads any more when the shell has ended.
        let _ = self.news.send(news);
        self.ring();
    }

    /// Wakes the shell.
    pub fn ring(&self) {
        // A full bell rings already.
        let _ = (&*self.bell).write(&[1]);
    }
}

/// Lets peers in by a thread of its own until it is dropped.
pub struct Door {
    unwanted: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    pub fn open(listener: TcpListener, key: Option<Key>, desk: Desk) -> io::Result<Door> {
        let mut gate = Gate::new(listener, key, GateLimits::default())?;
        let unwanted = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("weir-gate".to_owned()).spawn({
            let unwanted = Arc::clone(&unwanted);
            move || {
                while !unwanted.load(Ordering::Relaxed) {
                    let admitted = match gate.next(NOTICE) {
                        Ok(admitted) => admitted,
                        Err(error) => return desk.put(News::Broken(error.to_string())),
                    };
                    for client in admitted {
                        if desk.waiting.load(Ordering::Relaxed) >= WAITING_MAX {
                            client.refuse(Status::Busy);
                        } else {
                            desk.put(News::Arrived(Box::new(client)));
                        }
                    }
                }
            }
        })?;
        Ok(Door { unwanted, thread: Some(thread) })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.unwanted.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ends within `NOTICE`; what a panic there would mean, the shell has heard as silence.
            let _ = thread.join();
        }
    }
}

/// Makes connections by threads of its own.
pub struct Dialer {
    key: Option<Key>,
    options: TcpOptions,
    desk: Desk,
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    calls: std::collections::VecDeque<(u64, Call)>,
    threads: usize,
}

impl Dialer {
    pub fn new(key: Option<Key>, options: TcpOptions, desk: Desk) -> Dialer {
        Dialer { key, options, desk, queue: Arc::default() }
    }

    /// Makes a connection; the news of it carries `number`.
    pub fn dial(&self, number: u64, call: Call) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.calls.push_back((number, call));
        if queue.threads >= DIALS_AT_ONCE {
            return;
        }
        queue.threads += 1;
        drop(queue);
        let (waiting, key, options, desk) =
            (Arc::clone(&self.queue), self.key.clone(), self.options.clone(), self.desk.clone());
        let spawned = std::thread::Builder::new().name("weir-dial".to_owned()).spawn(move || {
            loop {
                let next = {
                    let mut queue = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                    let next = queue.calls.pop_front();
                    if next.is_none() {
                        queue.threads -= 1;
                    }
                    next
                };
                let Some((number, call)) = next else { return };
                desk.put(News::Dialled { number, result: connect(call, key.as_ref(), &options) });
            }
        });
        if let Err(error) = spawned {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.threads -= 1;
            for (number, _) in std::mem::take(&mut queue.calls) {
                self.desk.put(News::Dialled { number, result: Err(error.to_string()) });
            }
        }
    }
}

fn connect(call: Call, key: Option<&Key>, options: &TcpOptions) -> Result<TcpStream, String> {
    let mut made =
        dial(&[call], key, Some(options), DIAL_LIMIT).map_err(|failed| failed.error.to_string())?;
    made.pop().ok_or_else(|| io::Error::from(ErrorKind::NotConnected).to_string())
}
