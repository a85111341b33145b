//! Network namespaces held by descriptors, so that they vanish with their last holder.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;

/// What identifies a namespace: the same for every descriptor of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
}

fn identity_of(metadata: &fs::Metadata) -> Identity {
    Identity { device: metadata.dev(), inode: metadata.ino() }
}

/// The identity of the namespace behind a descriptor.
pub fn identity(namespace: BorrowedFd<'_>) -> io::Result<Identity> {
    Ok(identity_of(&File::from(namespace.try_clone_to_owned()?).metadata()?))
}

/// The identity of the namespace behind a path such as `/run/netns/NAME` or `/proc/PID/ns/net`.
pub fn identity_at(path: &Path) -> io::Result<Identity> {
    Ok(identity_of(&fs::metadata(path)?))
}

/// A fresh network namespace without a name. It lives as long as a descriptor, a process or a device file in it.
///
/// Errors: `PermissionDenied` without `CAP_SYS_ADMIN`.
pub fn create() -> io::Result<OwnedFd> {
    // Namespaces belong to threads: a thread of its own leaves the caller's untouched.
    in_thread(|| {
        // Safety: affects only this thread, which ends right after.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from(File::open("/proc/thread-self/ns/net")?))
    })
}

/// Moves the calling thread, and it alone, into a namespace.
pub(crate) fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // Safety: the descriptor is open for the length of the call; no memory is passed.
    if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Moves the calling process into a namespace. For a process that is about to replace itself: it must have one thread.
pub fn enter_for_good(namespace: BorrowedFd<'_>) -> io::Result<()> {
    enter(namespace)
}

/// Runs `work` in a thread inside the namespace and returns what it returns. Sockets opened there stay there.
pub fn run_in<T: Send>(namespace: BorrowedFd<'_>, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    in_thread(move || {
        enter(namespace)?;
        Ok(work())
    })
}

pub(crate) fn in_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("namespace".to_owned()).spawn_scoped(scope, work)?;
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Opens a named namespace, or that of a process by its `/proc` path.
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(OwnedFd::from(File::open(path)?))
}

/// Gives a namespace a name that outlives this process: `path`, in a folder that is there, becomes a mount of it.
pub fn mount_named(namespace: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    File::options().write(true).create_new(true).mode(0o444).open(path)?;
    let source = format!("/proc/self/fd/{}", namespace.as_raw_fd());
    crate::mount::bind(Path::new(&source), path).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

/// Processes with a thread's leader in one of the namespaces, by number, ascending.
/// Those that may not be looked at, or end meanwhile, are left out.
pub fn processes_in(namespaces: &[Identity]) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if let Ok(identity) = identity_at(&entry.path().join("ns/net"))
            && namespaces.contains(&identity)
        {
            found.push(number);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// True if the calling thread is in the namespace that the process as a whole (its main thread) is in.
pub(crate) fn at_home() -> io::Result<bool> {
    Ok(identity_at(Path::new("/proc/thread-self/ns/net"))? == identity_at(Path::new("/proc/self/ns/net"))?)
}

/// Takes the loopback interface of the calling thread's namespace up.
pub fn loopback_up() -> io::Result<()> {
    crate::address::interface_up("lo")
}

/// A descriptor of the calling thread's own namespace.
pub fn current() -> io::Result<OwnedFd> {
    open(Path::new("/proc/thread-self/ns/net"))
}

/// True if both are the same namespace.
pub fn same(one: &impl AsFd, other: &impl AsFd) -> io::Result<bool> {
    Ok(identity(one.as_fd())? == identity(other.as_fd())?)
}
