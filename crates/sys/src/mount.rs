//! Mounts, and a private view of the file system for programs in a lab.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

fn mount(source: &Path, target: &Path, kind: &str, flags: libc::c_ulong) -> io::Result<()> {
    let (source, target, kind) = (c_path(source)?, c_path(target)?, c_path(Path::new(kind))?);
    // Safety: three valid C strings that outlive the call, and no data.
    let result =
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes `target` show `source`.
pub fn bind(source: &Path, target: &Path) -> io::Result<()> {
    mount(source, target, "none", libc::MS_BIND)
}

/// Takes a mount away; it disappears at once and is freed when nobody uses it any more.
pub fn detach(target: &Path) -> io::Result<()> {
    let target = c_path(target)?;
    // Safety: a valid C string that outlives the call.
    let result = unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
