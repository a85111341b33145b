//! Mounts, and a private view of the file system for programs in a lab.

use crate::netns::in_thread;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

fn mount(source: &Path, target: &Path, kind: &str, flags: libc::c_ulong) -> io::Result<()> {
    mount_with(source, target, kind, flags, "")
}

/// `data` is what the kind of file system takes besides the flags.
pub(crate) fn mount_with(
    source: &Path,
    target: &Path,
    kind: &str,
    flags: libc::c_ulong,
    data: &str,
) -> io::Result<()> {
    let [source, target, kind, data] = [source, target, Path::new(kind), Path::new(data)].map(c_path);
    let (source, target, kind, data) = (source?, target?, kind?, data?);
    // Safety: four valid C strings that outlive the call.
    let result =
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes `target` show `source` and all that is mounted below it.
pub(crate) fn bind_all(source: &Path, target: &Path) -> io::Result<()> {
    mount(source, target, "none", libc::MS_BIND | libc::MS_REC)
}

/// Holds what is at a path, whatever is mounted there later.
pub(crate) fn hold_path(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_PATH).open(path)
}

/// Makes `target` show `source`.
pub fn bind(source: &Path, target: &Path) -> io::Result<()> {
    mount(source, target, "none", libc::MS_BIND)
}

/// Mounts a file system that this process will serve, at a folder in the view of the process behind `host` (a descriptor of it), made
/// there if it is not. Returns the device to serve it by.
pub fn mount_fuse(host: BorrowedFd<'_>, at: &Path, name: &str) -> io::Result<OwnedFd> {
    in_thread(|| {
        // A view is entered by a thread that shares neither root nor current folder with others.
        // Safety: takes numbers; only this thread changes, which ends right after.
        if unsafe { libc::unshare(libc::CLONE_FS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // Safety: as above; the descriptor is open for the length of the call.
        if unsafe { libc::setns(host.as_raw_fd(), libc::CLONE_NEWNS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // Of a process that is gone.
        while detach(at).is_ok() {}
        fs::create_dir_all(at)?;
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let data = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,max_read=1048576",
            device.as_raw_fd()
        );
        mount_with(Path::new(name), at, &format!("fuse.{name}"), libc::MS_NOSUID | libc::MS_NODEV, &data)?;
        Ok(OwnedFd::from(device))
    })
}

/// Takes a mount away; it disappears at once and is freed when nobody uses it any more.
pub fn detach(target: &Path) -> io::Result<()> {
    let target = c_path(target)?;
    // Safety: a valid C string that outlives the call.
    let result = unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes away files that are mounts, with every mount on them; those that are not there, or no mounts, are fine. Also where a
/// mount that another program made meanwhile hides the folder with our mounts in it: such a file is busy, and cannot be reached
/// by its name. Returns what failed.
pub fn remove_mounts(paths: &[PathBuf]) -> Vec<(PathBuf, io::Error)> {
    let mut failed = Vec::new();
    let mut hidden = Vec::new();
    for path in paths {
        while detach(path).is_ok() {}
        match fs::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => hidden.push(path),
            Err(error) => failed.push((path.clone(), error)),
        }
    }
    if !hidden.is_empty() {
        match in_thread(|| remove_hidden(&hidden)) {
            Ok(more) => failed.extend(more),
            Err(error) => failed.extend(hidden.into_iter().map(|path| {
                (path.clone(), io::Error::new(error.kind(), format!("reaching what hides it: {error}")))
            })),
        }
    }
    failed
}

/// In a thread of its own: from a view of the file system in which nothing is mounted on the files they can be unlinked, and
/// with a file go the mounts on it in every other view.
fn remove_hidden(paths: &[&PathBuf]) -> io::Result<Vec<(PathBuf, io::Error)>> {
    // Held before anything is taken from above them.
    let folder = |path: &PathBuf| hold_path(path.parent().unwrap_or(Path::new("/")));
    let folders = paths.iter().map(|path| folder(path)).collect::<io::Result<Vec<File>>>()?;
    // Safety: no memory is passed; only this thread's view changes.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } < 0 {
        return Err(io::Error::last_os_error());
    }
    mount(Path::new("none"), Path::new("/"), "none", libc::MS_PRIVATE | libc::MS_REC)?;
    let mut mounted = mount_points(&fs::read("/proc/thread-self/mountinfo")?);
    mounted.retain(|path| path != Path::new("/"));
    // Until nothing goes any more: what is on top hides what is below.
    while mounted.iter().rev().filter(|path| detach(path).is_ok()).count() > 0 {}
    let unlink = |(path, folder): (&&PathBuf, File)| {
        let name = c_path(Path::new(path.file_name().unwrap_or(OsStr::new("")))).ok()?;
        // Safety: a valid C string that outlives the call.
        let result = unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) };
        (result < 0).then(|| ((*path).clone(), io::Error::last_os_error()))
    };
    Ok(paths.iter().zip(folders).filter_map(unlink).collect())
}

/// The fifth field of every line; blanks in it are written in octal.
pub(crate) fn mount_points(mountinfo: &[u8]) -> Vec<PathBuf> {
    let unescaped = |field: &[u8]| {
        let mut bytes = Vec::with_capacity(field.len());
        let mut rest = field;
        while let Some((first, after)) = rest.split_first() {
            let octal = after.get(..3).filter(|_| *first == b'\\');
            let code = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
            bytes.push(code.unwrap_or(*first));
            rest = if code.is_some() { &after[3..] } else { after };
        }
        PathBuf::from(OsString::from_vec(bytes))
    };
    let lines = mountinfo.split(|byte| *byte == b'\n');
    lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4).map(unescaped)).collect()
}

/// Gives the calling process a file system view of its own in which `/etc/hosts` is `hosts`, `/etc/resolv.conf` is
/// `resolv` (if the machine has one) and `/sys` shows the network namespace the caller is in. Others see nothing of it.
///
/// For a process that is about to replace itself and has one thread, after it entered its network namespace.
pub fn enter_private_view(hosts: &Path, resolv: &Path) -> io::Result<()> {
    // Safety: no memory is passed; the process has one thread, so no other's view changes with it.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // Slave, not private: what the machine mounts later still shows, what we mount stays here.
    mount(Path::new("none"), Path::new("/"), "none", libc::MS_SLAVE | libc::MS_REC)?;
    bind(hosts, Path::new("/etc/hosts"))?;
    // Where it is a link, the mount goes onto the file it leads to; where it leads nowhere there is nothing to hide.
    if let Ok(real) = Path::new("/etc/resolv.conf").canonicalize() {
        bind(resolv, &real)?;
    }
    // /sys/class/net belongs to the namespace of the mount's maker. Without rights for it the old view stays, which only
    // misleads programs that look there.
    if mount(
        Path::new("sysfs"),
        Path::new("/sys"),
        "sysfs",
        libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
    )
    .is_ok()
    {
        // The new /sys hides the control groups mounted below the old one; programs that need them find them in /proc.
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_with_a_blank_in_its_name_is_read_as_it_is() {
        let text =
            b"21 42 0:4 net:[4026532280] /run/a\\040b\\134c rw - nsfs nsfs rw\n22 1 0:5 / / rw - ext4 x rw\n";
        assert_eq!(mount_points(text), [Path::new("/run/a b\\c"), Path::new("/")]);
    }
}
