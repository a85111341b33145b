//! A host's own view of the machine: process 1 of a PID, mount and UTS namespace whose root is an overlay of `/`. Others enter it
//! by a descriptor of that process; when it ends, all that runs in it ends.

use crate::mount::{self, c_path, mount_with};
use crate::netns::in_thread;
use crate::process::{check, hold_descriptor};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What of the machine a host has for itself: what is written there stays in the host. Everything else below `/` that is a folder is
/// the machine's own, so that users find their files, and what their programs write.
const OWN: &[&str] = &[
    "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "usr",
    "var",
];
/// Below one of these, and yet the machine's own.
const SHARED_BELOW: &[&str] = &["var/tmp"];
/// What a host may write of its own into system folders, most of it small files: a bound for what goes astray.
const OVERLAY_BYTES_MAX: &str = "size=512m,mode=0755";

/// How a host sees the machine.
pub struct View {
    /// The name that it has for itself.
    pub host: String,
    /// What `/etc/hosts` says in it.
    pub hosts: String,
    /// An empty folder of ours, on which a file system in memory is mounted, in the host's view alone.
    pub folder: PathBuf,
    /// Folders of the machine, and the absolute paths at which the host has them.
    pub binds: Vec<(PathBuf, PathBuf)>,
}

/// Gives the calling process the view. It must be the first process of its PID namespace, and have one thread.
///
/// Errors: what the kernel refused, with the step in words. The process is then good for nothing but to end.
pub fn take_view(view: &View) -> io::Result<()> {
    step("a mount namespace", check(unshare(libc::CLONE_NEWNS | libc::CLONE_NEWUTS)))?;
    step("its name", set_host_name(&view.host))?;
    let none = Path::new("none");
    step("private mounts", mount_with(none, Path::new("/"), "none", libc::MS_PRIVATE | libc::MS_REC, ""))?;
    // Held before anything is mounted over what they are below.
    let binds: Vec<(File, &PathBuf)> = view
        .binds
        .iter()
        .map(|(from, to)| Ok((step_at("the folder", from, mount::hold_path(from))?, to)))
        .collect::<io::Result<_>>()?;
    let folder = &view.folder;
    step_at("memory on", folder, mount_with(Path::new("tmpfs"), folder, "tmpfs", 0, OVERLAY_BYTES_MAX))?;
    let [upper, work, root] = ["upper", "work", "root"].map(|name| folder.join(name));
    for made in [&upper, &work, &root] {
        step_at("making", made, fs::create_dir(made))?;
    }
    let layers = format!("lowerdir=/,upperdir={},workdir={}", upper.display(), work.display());
    step("an overlay of /", mount_with(Path::new("overlay"), &root, "overlay", 0, &layers))?;
    let quiet = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    step("its /proc", mount_with(Path::new("proc"), &root.join("proc"), "proc", quiet, ""))?;
    step("its /sys", mount_with(Path::new("sysfs"), &root.join("sys"), "sysfs", quiet, ""))?;
    step("its /run", mount_with(Path::new("tmpfs"), &root.join("run"), "tmpfs", 0, "mode=0755"))?;
    step("its /dev", mount::bind_all(Path::new("/dev"), &root.join("dev")))?;
    for shared in shared_folders(folder)? {
        let below = shared.strip_prefix("/").unwrap_or(&shared);
        step_at("sharing", &shared, mount::bind_all(&shared, &root.join(below)))?;
    }
    for (from, to) in binds {
        let target = root.join(to.strip_prefix("/").unwrap_or(to));
        step_at("making", &target, fs::create_dir_all(&target))?;
        let source = PathBuf::from(format!("/proc/self/fd/{}", from.as_raw_fd()));
        step_at("binding", to, mount::bind(&source, &target))?;
    }
    for (name, text) in
        [("hosts", view.hosts.as_str()), ("hostname", &format!("{}\n", view.host)), ("resolv.conf", "")]
    {
        // Removed first: it may be a link to somewhere outside of the overlay.
        let path = root.join("etc").join(name);
        let _ = fs::remove_file(&path);
        step_at("writing", &path, fs::write(&path, text))?;
    }
    step("the overlay as its root", pivot(&root))
}

/// Top folders that are not a host's own, and what of the machine's mounts lies elsewhere but in `own`, which is of the host's view.
fn shared_folders(own: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut shared: BTreeSet<PathBuf> = SHARED_BELOW.iter().map(|below| Path::new("/").join(below)).collect();
    shared.retain(|path| path.is_dir());
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        let name = entry.file_name();
        if !OWN.iter().any(|own| name == *own) && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            shared.insert(entry.path());
        }
    }
    // The overlay does not show what is mounted on the machine below system folders, a package store for example.
    for mounted in mount::mount_points(&fs::read("/proc/self/mountinfo")?) {
        let first = mounted.components().nth(1).map(|part| part.as_os_str().to_owned());
        let is_system = |name: &&str| first.as_ref().is_some_and(|first| first == *name);
        let of_system = ["bin", "boot", "etc", "lib", "lib64", "sbin", "usr", "var"].iter().any(is_system);
        // Files that a container has mounted over /etc are written anew anyway.
        if of_system && !mounted.starts_with(own) && mounted.is_dir() {
            shared.insert(mounted);
        }
    }
    Ok(shared)
}

fn step<T>(what: &str, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), format!("{what}: {error}")))
}

fn step_at<T>(what: &str, path: &Path, result: io::Result<T>) -> io::Result<T> {
    step(&format!("{what} {}", path.display()), result)
}

fn unshare(flags: i32) -> i32 {
    // Safety: takes numbers. The process has one thread, so no other's view changes with it.
    unsafe { libc::unshare(flags) }
}

fn set_host_name(name: &str) -> io::Result<()> {
    // Safety: the kernel reads the length given.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })
}

/// Makes `root` the root of the caller's view, and takes what was there away.
fn pivot(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root)?;
    let here = c_path(Path::new("."))?;
    // With the old root stacked on the new one, detaching the current folder takes away the old one.
    // Safety: valid C strings that outlive the calls.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, here.as_ptr(), here.as_ptr()) } as i32)?;
    // Safety: as above.
    check(unsafe { libc::umount2(here.as_ptr(), libc::MNT_DETACH) })?;
    std::env::set_current_dir("/")
}

/// A process whose namespaces others enter, held by a descriptor: its number may become another's, what is entered stays the same.
#[derive(Debug)]
pub struct Holder {
    process: OwnedFd,
    id: u32,
}

impl AsFd for Holder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

impl Holder {
    /// Errors: there is no such process.
    pub fn of(id: u32) -> io::Result<Holder> {
        let process = hold_descriptor(id)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("process {id} is gone")))?;
        Ok(Holder { process, id })
    }
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Runs `work` in a thread in the host's network, and returns what it returns.
    pub fn run_in_network<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        in_thread(move || {
            check(set_namespaces(self.as_fd(), libc::CLONE_NEWNET))?;
            Ok(work())
        })
    }

    /// Moves the calling process, which must have one thread, into the host: its network, names and files at once, and what it starts
    /// from now on among the host's processes. Linux 5.8.
    pub fn enter_for_good(&self) -> io::Result<()> {
        check(set_namespaces(self.as_fd(), SEEN | libc::CLONE_NEWPID))
    }
}

/// What a process sees through: all but the numbers of processes.
pub(crate) const SEEN: i32 = libc::CLONE_NEWNET | libc::CLONE_NEWNS | libc::CLONE_NEWUTS;

pub(crate) fn set_namespaces(of: BorrowedFd<'_>, flags: i32) -> i32 {
    // Safety: takes numbers; the descriptor is open for the length of the call.
    unsafe { libc::setns(of.as_raw_fd(), flags) }
}

/// Runs `work`, which starts a process, so that what it starts is among the holder's processes (`None`: the first of a PID namespace
/// of its own). The calling thread starts others among its own again afterwards.
pub(crate) fn starting_in<T>(
    holder: Option<BorrowedFd<'_>>,
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let own = File::open("/proc/thread-self/ns/pid")?;
    let moved = match holder {
        Some(holder) => set_namespaces(holder, libc::CLONE_NEWPID),
        None => unshare(libc::CLONE_NEWPID),
    };
    check(moved)?;
    let result = work();
    check(set_namespaces(own.as_fd(), libc::CLONE_NEWPID))?;
    result
}

/// The first process of a PID namespace: takes in the dead of the others until it is asked to end (`SIGTERM`) and none is left, or is
/// killed.
pub fn hold_until_empty() -> io::Result<()> {
    let mut asked = false;
    // Safety: a set of signals; all zeros is the empty one.
    let mut awaited: libc::sigset_t = unsafe { std::mem::zeroed() };
    // Safety: the set outlives the calls; the numbers are signals'. Blocked, so that none is lost between two waits.
    unsafe {
        libc::sigemptyset(&raw mut awaited);
        libc::sigaddset(&raw mut awaited, libc::SIGCHLD);
        libc::sigaddset(&raw mut awaited, libc::SIGTERM);
        check(libc::sigprocmask(libc::SIG_BLOCK, &raw const awaited, std::ptr::null_mut()))?;
    }
    let soon = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    loop {
        // What others put here is no child of ours: its end is seen by looking.
        let limit = if asked { &raw const soon } else { std::ptr::null() };
        // Safety: set and time outlive the call, and nothing is asked to be written.
        let signal = unsafe { libc::sigtimedwait(&raw const awaited, std::ptr::null_mut(), limit) };
        asked |= signal == libc::SIGTERM;
        // Safety: takes numbers and no memory.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
        if asked && others()? == 0 {
            return Ok(());
        }
    }
}

/// Processes beside this one in its PID namespace.
fn others() -> io::Result<usize> {
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<u32>().ok();
    Ok(fs::read_dir("/proc")?.filter_map(number).filter(|number| *number != 1).count())
}
