//! Files that only root or we ourselves can have written, so that what they say may be acted on. Modes are set and not left to
//! the mask of whoever started us, and links are not followed.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Others may write.
const WRITABLE: u32 = 0o022;

/// Makes a folder that nobody else can enter; `publish` opens it. Errors: it is there.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Lets everybody enter a folder and see what is in it.
pub fn publish(path: &Path) -> io::Result<()> {
    open_as(path, libc::O_DIRECTORY)?.set_permissions(Permissions::from_mode(0o755))
}

/// A folder that everybody may enter and only root or we may change: made, with the folders above it, or found to be so.
pub fn ensure_folder(path: &Path) -> io::Result<()> {
    if let Some(above) = path.parent().filter(|above| !above.exists()) {
        DirBuilder::new().recursive(true).mode(0o755).create(above)?;
    }
    match make_folder(path) {
        Ok(()) => publish(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => check_folder(path),
        Err(error) => Err(error),
    }
}

/// Errors: `NotFound`; `InvalidData` for a folder that others may have changed, or a link.
pub fn check_folder(path: &Path) -> io::Result<()> {
    open_checked(path, libc::O_DIRECTORY, WRITABLE).map(drop)
}

/// A new file with this mode and content. Errors: something of that name is there.
pub fn write_new(path: &Path, mode: u32, content: &[u8]) -> io::Result<File> {
    let mut file =
        File::options().write(true).create_new(true).mode(mode).custom_flags(libc::O_NOFOLLOW).open(path)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    Ok(file)
}

/// The whole of a file. Errors: `NotFound`; `InvalidData` for one that others may have changed, that is no plain file, or that
/// is longer than `bytes_max`.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open_checked(path, 0, WRITABLE)?;
    if !file.metadata()?.is_file() {
        return Err(doubtful(format!("{} is no plain file", path.display())));
    }
    let mut content = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut content)?;
    if content.len() as u64 > bytes_max {
        return Err(doubtful(format!("{} is longer than {bytes_max} B", path.display())));
    }
    Ok(content)
}

/// A file to be locked, which nobody else can open and so keep locked. One that others can open is replaced: who holds that one
/// holds nothing.
pub fn lock_file(path: &Path) -> io::Result<File> {
    loop {
        match open_checked(path, libc::O_RDWR, 0o077) {
            Ok(file) => return Ok(file),
            Err(error) if error.kind() == ErrorKind::NotFound => match write_new(path, 0o600, b"") {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                other => return other,
            },
            Err(error) if error.kind() == ErrorKind::InvalidData => fs::remove_file(path)?,
            Err(error) => return Err(error),
        }
    }
}

/// The process that holds a lock on a whole file (`flock`), as far as the kernel tells.
pub fn lock_holder(file: &File) -> Option<u32> {
    let inode = format!(":{}", file.metadata().ok()?.ino());
    // "1: FLOCK  ADVISORY  WRITE 4711 00:19:1234 0 EOF"; who waits has an arrow behind the number.
    fs::read_to_string("/proc/locks").ok()?.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let held = words.get(1) == Some(&"FLOCK") && words.get(5)?.ends_with(&inode);
        if held { words.get(4)?.parse().ok() } else { None }
    })
}

fn open_as(path: &Path, flags: i32) -> io::Result<File> {
    // Without waiting: a FIFO in the file's place must not hang us.
    let flags = flags | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let writing = flags & libc::O_RDWR != 0;
    File::options().read(true).write(writing).custom_flags(flags & !libc::O_RDWR).open(path).map_err(
        |error| match error.raw_os_error() {
            Some(libc::ELOOP | libc::ENOTDIR | libc::ENXIO) => {
                doubtful(format!("{} is not what weir made there ({error}); remove it", path.display()))
            }
            _ => error,
        },
    )
}

fn open_checked(path: &Path, flags: i32, forbidden: u32) -> io::Result<File> {
    let file = open_as(path, flags)?;
    let about = file.metadata()?;
    let (owner, mode) = (about.uid(), about.mode() & 0o7777);
    // Safety: takes nothing and cannot fail.
    let ours = unsafe { libc::geteuid() };
    if (owner != 0 && owner != ours) || mode & forbidden != 0 {
        return Err(doubtful(format!(
            "{} belongs to user {owner} and has mode {mode:o}: others may have changed it, so nothing in it is believed; \
             look at it, then set its owner and mode (0, {:o}) or remove it",
            path.display(),
            mode & !forbidden
        )));
    }
    Ok(file)
}

fn doubtful(text: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    // Spec: lab.md#lab-28
    #[test]
    fn what_others_may_have_written_is_not_read_and_links_and_fifos_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        write_new(&path("good"), 0o644, b"text").unwrap();
        assert_eq!(read(&path("good"), 4).unwrap(), b"text");
        assert_eq!(read(&path("good"), 3).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(read(&path("none"), 4).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(write_new(&path("good"), 0o644, b"").unwrap_err().kind(), ErrorKind::AlreadyExists);
        symlink(path("good"), path("link")).unwrap();
        symlink(folder.path(), path("to-folder")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path("fifo")).status().unwrap().success());
        for (name, bits) in [("others", 0o646), ("group", 0o664)] {
            write_new(&path(name), bits, b"text").unwrap();
        }
        for bad in ["link", "to-folder", "fifo", "others", "group"] {
            assert_eq!(read(&path(bad), 4).unwrap_err().kind(), ErrorKind::InvalidData, "{bad}");
        }
        for bad in ["to-folder", "good"] {
            assert_eq!(check_folder(&path(bad)).unwrap_err().kind(), ErrorKind::InvalidData, "{bad}");
        }
        for new in ["folder", "folder", "above/it/folder"] {
            ensure_folder(&path(new)).unwrap();
            assert_eq!(mode(&path(new)), 0o755);
        }
        fs::set_permissions(path("folder"), Permissions::from_mode(0o777)).unwrap();
        let refused = ensure_folder(&path("folder")).unwrap_err().to_string();
        assert!(refused.contains("has mode 777"), "{refused}");
    }

    // Spec: lab.md#lab-15
    #[test]
    fn a_lock_that_others_could_open_is_replaced_and_who_holds_one_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let open_to_all = write_new(&path, 0o644, b"").unwrap();
        open_to_all.lock().unwrap();
        let ours = lock_file(&path).unwrap();
        ours.try_lock().unwrap();
        assert_eq!(mode(&path), 0o600);
        let again = lock_file(&path).unwrap();
        assert!(matches!(again.try_lock(), Err(fs::TryLockError::WouldBlock)));
        assert_eq!(lock_holder(&again), Some(std::process::id()));
    }
}
