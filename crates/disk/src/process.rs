//! The process behind the hidden subcommand `disk-process`: all disks of a lab, each a file system mounted in its host's view.

use crate::due::Due;
use crate::file_system::{Behind, Cached, DiskFiles};
use crate::model::{Array, Settings};
use fuser::{Config, Session, SessionACL};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use weir_core::fault::DiskTrouble;
use weir_sys::epoll::readable_within;
use weir_sys::holder::Holder;
use weir_sys::process::{Child, ErrorsTo, Spawn, describe, take_inherited};
use weir_sys::shared_memory::{Page, PageView};

pub const SUBCOMMAND: &str = "disk-process";
/// Mounting takes milliseconds; looking through the content of a disk more.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// A disk and where it is mounted.
pub struct Mounted<'a> {
    pub holder: &'a Holder,
    /// In the host.
    pub at: PathBuf,
    /// On the machine, where nobody else reaches it.
    pub folder: PathBuf,
    pub settings: Settings,
    /// Disks of one name share rate and cache.
    pub array: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Setup {
    disks: Vec<DiskSetup>,
    page: i32,
}

#[derive(Serialize, Deserialize)]
struct DiskSetup {
    /// An inherited descriptor of the host's first process.
    holder: i32,
    at: PathBuf,
    folder: PathBuf,
    settings: Settings,
    array: Option<String>,
}

#[derive(Serialize, Deserialize)]
enum Command {
    Forget,
    Trouble { disk: usize, trouble: DiskTrouble },
}

#[derive(Serialize, Deserialize)]
struct Done;

/// Pages that the kernel reads ahead for whoever has a file sent are used by then. Dropped at once, most of them were read twice: 12 MB/s of
/// a disk of 120.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// Words of the page that a disk has: bytes read from it, bytes written, bytes read from its cache, positionings, and nanoseconds in which
/// it was busy.
pub const WORDS: usize = 5;

/// The process, as its owner has it. Dropping it ends it, unless it was let go.
pub struct DiskProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    page: PageView,
}

impl DiskProcess {
    /// Mounts the disks. `network` is where it runs, so that whoever takes a host down finds it.
    ///
    /// Errors: what the kernel refused, in words.
    pub fn start(
        exe: &Path,
        disks: &[Mounted<'_>],
        network: BorrowedFd<'_>,
        outlives_us: bool,
    ) -> Result<DiskProcess, String> {
        let mut spawn = Spawn::new(exe).argument(SUBCOMMAND);
        spawn.namespace = Some(network);
        spawn.outlives_us = outlives_us;
        spawn.errors_to = ErrorsTo::Pipe;
        let page = Page::create(WORDS * disks.len().max(1))
            .map_err(|error| format!("a page of counters: {error}"))?;
        let view = page.view().map_err(|error| format!("a page of counters: {error}"))?;
        spawn.inherit = disks.iter().map(|disk| disk.holder.as_fd()).chain([page.fd()]).collect();
        let mut child = spawn.start().map_err(|error| format!("the process of the disks: {error}"))?;
        let pipes = (child.take_stdin(), child.take_stdout(), child.take_stderr());
        let (Some(input), Some(output), Some(mut errors)) = pipes else {
            return Err("the process of the disks has no pipes".to_owned());
        };
        let setup = |disk: &Mounted<'_>| DiskSetup {
            holder: disk.holder.as_fd().as_raw_fd(),
            at: disk.at.clone(),
            folder: disk.folder.clone(),
            settings: disk.settings,
            array: disk.array.clone(),
        };
        let mut process = DiskProcess { child, input, output: BufReader::new(output), page: view };
        match process.ask(&Setup { disks: disks.iter().map(setup).collect(), page: page.fd().as_raw_fd() }) {
            Ok(()) => Ok(process),
            Err(error) => {
                process.child.kill();
                let mut text = String::new();
                let _ = errors.by_ref().take(4096).read_to_string(&mut text);
                Err(if text.trim().is_empty() { error } else { text.trim().to_owned() })
            }
        }
    }

    pub fn set_trouble(&mut self, disk: usize, trouble: DiskTrouble) -> Result<(), String> {
        self.ask(&Command::Trouble { disk, trouble })
    }

    /// Empties the caches of all of them.
    pub fn forget(&mut self) -> Result<(), String> {
        self.ask(&Command::Forget)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the disks have done, `WORDS` words each.
    pub fn page(&self) -> &PageView {
        &self.page
    }

    /// Lets it live on without this process.
    pub fn release(self) {
        self.child.release();
    }

    fn ask(&mut self, question: &impl Serialize) -> Result<(), String> {
        let failed = |text: &dyn std::fmt::Display| format!("the process of the disks: {text}");
        let mut line = serde_json::to_vec(question).map_err(|error| failed(&error))?;
        line.push(b'\n');
        let told = self
            .input
            .write_all(&line)
            .and_then(|()| readable_within(self.output.get_ref().as_fd(), ANSWER_WITHIN));
        let mut answer = String::new();
        match told {
            Ok(true) => self.output.read_line(&mut answer).map_err(|error| failed(&error))?,
            Ok(false) => return Err(failed(&"has not answered")),
            Err(error) => return Err(failed(&error)),
        };
        if answer.is_empty() {
            let ended = self.child.wait(Duration::from_millis(200));
            return Err(failed(&ended.map_or("closed its output".to_owned(), describe)));
        }
        serde_json::from_str(&answer).map(|Done| ()).map_err(|error| failed(&error))
    }
}

/// Runs until it is killed. Returns the exit status after an error on standard error.
pub fn main() -> i32 {
    match run() {
        Ok(()) => 0,
        Err(problem) => {
            let _ = writeln!(io::stderr(), "{problem}");
            2
        }
    }
}

fn run() -> Result<(), String> {
    let mut lines = BufReader::new(io::stdin());
    let mut line = String::new();
    lines.read_line(&mut line).map_err(|error| format!("reading the setup: {error}"))?;
    let setup: Setup = serde_json::from_str(&line).map_err(|error| format!("the setup: {error}"))?;
    // Modes are as those who make files say.
    rustix::process::umask(rustix::fs::Mode::empty());
    let _ = weir_sys::process::raise_descriptor_limit();
    let due = Due::start().map_err(|error| format!("starting a thread: {error}"))?;
    let since = Instant::now();
    let mut arrays: HashMap<String, Arc<Mutex<Array>>> = HashMap::new();
    let mut behind = Vec::new();
    let page =
        take_inherited(setup.page).and_then(Page::open).map_err(|error| format!("the page: {error}"))?;
    let page = Arc::new(page);
    // A host may have several disks.
    let mut holders: HashMap<i32, OwnedFd> = HashMap::new();
    for (index, disk) in setup.disks.iter().enumerate() {
        let own = || Arc::new(Mutex::new(Array::new(&disk.settings)));
        let array = match &disk.array {
            Some(name) => Arc::clone(arrays.entry(name.clone()).or_insert_with(own)),
            None => own(),
        };
        let failed = |what: &str, error: io::Error| format!("{what} {}: {error}", disk.at.display());
        let used = used_bytes(&disk.folder)
            .map_err(|error| failed("looking at the content of the disk at", error))?;
        let one =
            Arc::new(Behind::new(disk.settings, array, used, since, (Arc::clone(&page), index * WORDS)));
        let holder = match holders.entry(disk.holder) {
            Entry::Occupied(own) => own.into_mut(),
            Entry::Vacant(free) => free
                .insert(take_inherited(disk.holder).map_err(|error| failed("entering the host of", error))?),
        };
        mount(holder.as_fd(), disk, Arc::clone(&one), due.clone())
            .map_err(|error| failed("mounting the disk at", error))?;
        behind.push(one);
    }
    answer()?;
    loop {
        line.clear();
        match lines.read_line(&mut line) {
            // Its owner has let it go, or is gone: then the kernel ends it too.
            Ok(0) => loop {
                std::thread::park();
            },
            Ok(_) => {}
            Err(error) => return Err(format!("reading a command: {error}")),
        }
        match serde_json::from_str(&line).map_err(|error| format!("a command: {error}"))? {
            Command::Forget => {
                behind.iter().for_each(|behind| behind.forget());
                answer()?;
            }
            Command::Trouble { disk, trouble } => {
                if let Some(behind) = behind.get(disk) {
                    behind.set_trouble(trouble);
                }
                answer()?;
            }
        }
    }
}

fn answer() -> Result<(), String> {
    let mut line = serde_json::to_vec(&Done).map_err(|error| error.to_string())?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).map_err(|error| format!("answering: {error}"))
}

/// Mounts a disk in its host's view and serves it in a thread of its own, for as long as this process lives.
fn mount(holder: BorrowedFd<'_>, disk: &DiskSetup, behind: Arc<Behind>, due: Due) -> io::Result<()> {
    let device = weir_sys::mount::mount_fuse(holder, &disk.at, "weir-disk")?;
    let (cached, to_drop) = mpsc::channel();
    let files = DiskFiles::new(disk.folder.clone(), behind, due, cached);
    let session = Session::from_fd(files, device, SessionACL::All, Config::default())?;
    let notifier = session.notifier();
    // A thread of its own: a page that is read once more in the meantime is waited for.
    std::thread::Builder::new().name("drop-pages".to_owned()).spawn(move || {
        for (Cached { ino, offset, bytes }, read_at) in to_drop {
            std::thread::sleep((read_at + KEPT_FOR).saturating_duration_since(Instant::now()));
            // A file that the kernel has forgotten has no pages.
            let _ = notifier.inval_inode(ino, offset as i64, bytes as i64);
        }
    })?;
    std::thread::Builder::new().name("disk".to_owned()).spawn(move || session.run())?;
    Ok(())
}

/// The length of all files of a folder together.
fn used_bytes(folder: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        sum += match about.is_dir() {
            true => used_bytes(&entry.path())?,
            false => about.len(),
        };
    }
    Ok(sum)
}
