//! A folder held by its descriptor. What is made in it is made without following links, and is still there after a power cut.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// End of the names of files that are being written; one that is left behind belongs to a process that was killed.
const PARTIAL: &str = ".partial";

/// What a name of a results folder must not be, as an error.
fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{what}; remove it, or choose another folder"))
}

#[derive(Debug)]
pub struct Directory {
    held: File,
    path: PathBuf,
}

impl Directory {
    /// The folder at `path`. Whoever names a path may name links: those in `path` are followed.
    pub fn open(path: &Path) -> io::Result<Directory> {
        let held = open_at(libc::AT_FDCWD, path.as_os_str(), libc::O_RDONLY | libc::O_DIRECTORY)?;
        Ok(Directory { held, path: path.to_owned() })
    }

    /// As `open`, and makes what is missing of the path. A folder that holds a new one is synced before this returns.
    pub fn create(path: &Path) -> io::Result<Directory> {
        let missing = match Directory::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => error,
            opened => return opened,
        };
        let name = path.file_name().ok_or(missing)?;
        let parent = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let made = Directory::create(parent)?.folder(name)?;
        Ok(Directory { path: path.to_owned(), ..made })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A folder of this one, made if it is not there. Errors: it is a link, or no folder.
    pub fn folder(&self, name: impl AsRef<OsStr>) -> io::Result<Directory> {
        let name = single(name.as_ref())?;
        let c_name = c_name(name)?;
        // Safety: a valid C string that outlives the call.
        let made = unsafe { libc::mkdirat(self.held.as_raw_fd(), c_name.as_ptr(), 0o777) };
        match done(made) {
            Ok(()) => self.sync()?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let held =
            open_at(self.held.as_raw_fd(), name, flags).map_err(|error| match error.raw_os_error() {
                Some(libc::ELOOP) => refused("is a symbolic link"),
                // Without following, a link to a folder is no folder either.
                Some(libc::ENOTDIR) => refused("is a symbolic link or a file where a folder belongs"),
                _ => error,
            })?;
        Ok(Directory { held, path: self.path.join(name) })
    }

    /// A file that was not there before, to append to; the folder is synced.
    pub fn create_new(&self, name: &str) -> io::Result<File> {
        let file = self.create_new_unsynced(name)?;
        self.sync()?;
        Ok(file)
    }

    /// As `create_new`, of a file that may go with the power.
    pub fn create_new_unsynced(&self, name: &str) -> io::Result<File> {
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        open_at(self.held.as_raw_fd(), single(OsStr::new(name))?, flags)
    }

    /// A file that is there, to append to. Errors: none is there, or what has its name is not a regular file of this folder
    /// alone: a link, also a hard one, or a named pipe, for which this does not wait.
    pub fn append(&self, name: &str) -> io::Result<File> {
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let opened = open_at(self.held.as_raw_fd(), single(OsStr::new(name))?, flags);
        let file = opened.map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => refused("is a symbolic link"),
            // What the system says of a pipe that nobody reads, and of a socket.
            Some(libc::ENXIO) => refused("is not a regular file"),
            _ => error,
        })?;
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(refused("is not a regular file"));
        }
        if about.nlink() > 1 {
            return Err(refused("has another name elsewhere (a hard link), whose file would change too"));
        }
        Ok(file)
    }

    /// `append`, or `create_new` where there is no such file.
    pub fn append_or_create(&self, name: &str) -> io::Result<File> {
        match self.append(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.create_new(name),
            opened => opened,
        }
    }

    /// Puts what `write` makes in the place of whatever has the name, a link itself and not what it leads to. The file is written
    /// under a name of its own, synced and renamed, and the folder synced: after an error, or a power cut, the old one is there as
    /// it was. `None` of `write` makes no file.
    pub fn replace<R>(
        &self,
        name: &str,
        write: impl FnOnce(&mut File) -> io::Result<Option<R>>,
    ) -> io::Result<Option<R>> {
        let name = single(OsStr::new(name))?;
        let (partial, mut file) = self.partial(name)?;
        let written = write(&mut file).and_then(|made| {
            if made.is_some() {
                file.sync_all()?;
                self.rename(&partial, name)?;
            }
            Ok(made)
        });
        if !matches!(written, Ok(Some(_))) {
            // Best effort: the error that matters is the one of writing.
            let _ = self.remove(&partial);
            return written;
        }
        self.sync()?;
        written
    }

    /// A new file beside `name`. Two processes may draw the same page, so no two have a name in common.
    fn partial(&self, name: &OsStr) -> io::Result<(String, File)> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let own = format!(".{}.{}-{count}{PARTIAL}", name.display(), std::process::id());
            match open_at(self.held.as_raw_fd(), OsStr::new(&own), flags) {
                // Left behind by a process that had the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && count < u32::MAX => {}
                opened => return opened.map(|file| (own, file)),
            }
        }
    }

    fn rename(&self, from: &str, to: &OsStr) -> io::Result<()> {
        let (from, to) = (c_name(OsStr::new(from))?, c_name(to)?);
        let at = self.held.as_raw_fd();
        // Safety: two valid C strings that outlive the call.
        done(unsafe { libc::renameat(at, from.as_ptr(), at, to.as_ptr()) })
    }

    /// Takes a file away if it is there; of a link, the link.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let name = c_name(single(OsStr::new(name))?)?;
        // Safety: a valid C string that outlives the call.
        match done(unsafe { libc::unlinkat(self.held.as_raw_fd(), name.as_ptr(), 0) }) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes away what processes that were killed had not finished writing. For a folder that nobody else writes to now.
    pub fn remove_partials(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            if let Some(name) = entry?.file_name().to_str()
                && name.starts_with('.')
                && name.ends_with(PARTIAL)
            {
                self.remove(name)?;
            }
        }
        Ok(())
    }

    /// Waits until the names in the folder are on the disk.
    pub fn sync(&self) -> io::Result<()> {
        match self.held.sync_all() {
            // File systems over a network that have nothing to sync of a folder say so.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        }
    }
}

/// Puts `bytes` where a user said. As `replace`, but where they named a link, where it leads, and straight into what is no
/// regular file, as a terminal or a pipe.
pub fn write_named(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let real = match path.canonicalize() {
        // A link to what is not there yet, or a name that is not there yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => match path.read_link() {
            Ok(target) => path.parent().unwrap_or(Path::new(".")).join(target),
            Err(_) => path.to_owned(),
        },
        real => real?,
    };
    let name = match real.file_name().and_then(OsStr::to_str) {
        Some(name) if !real.exists() || real.is_file() => name,
        _ => return fs::write(path, bytes),
    };
    let parent = real.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Directory::open(parent)?.replace(name, |file| file.write_all(bytes).map(Some)).map(drop)
}

/// Opens what a user named, to be filled as it comes: a new file in the place of an old one, or what is no regular file, as a
/// pipe that somebody reads. Errors: it is a link, whose file the user did not name; it is a pipe that nobody reads, for which
/// this does not wait.
pub fn create_named(path: &Path) -> io::Result<File> {
    let name = path.file_name().ok_or_else(|| refused("names no file"))?;
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = Directory::open(parent)?;
    let flags = libc::O_WRONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let fresh = || {
        let name = name.to_str().ok_or_else(|| refused("is no name in UTF-8"))?;
        folder.remove(name)?;
        folder.create_new_unsynced(name)
    };
    match open_at(folder.held.as_raw_fd(), name, flags) {
        Ok(there) if !there.metadata()?.is_file() => {
            // Safety: no memory is passed.
            done(unsafe { libc::fcntl(there.as_raw_fd(), libc::F_SETFL, libc::O_WRONLY) })?;
            Ok(there)
        }
        Ok(_) => fresh(),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT) => fresh(),
            Some(libc::ELOOP) => Err(refused("is a symbolic link")),
            Some(libc::ENXIO) => Err(refused("is a pipe that nobody reads, or a socket")),
            _ => Err(error),
        },
    }
}

/// A new file in `folder` that has no name: it is gone once nobody has it open. Everybody may read it who is given it.
pub fn unnamed_file(folder: &Path) -> io::Result<File> {
    let within = Directory::open(folder)?;
    // Not every file system has such files.
    let made = open_at(within.held.as_raw_fd(), OsStr::new("."), libc::O_RDWR | libc::O_TMPFILE);
    let file = made.or_else(|_| {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-{}-{number}{PARTIAL}", std::process::id());
        let file = within.create_new_unsynced(&name)?;
        within.remove(&name)?;
        Ok::<File, io::Error>(file)
    })?;
    // Safety: no memory is passed.
    done(unsafe { libc::fchmod(file.as_raw_fd(), 0o644) })?;
    Ok(file)
}

/// Begins to write what was appended to `file`, so that files synced one after the other share what is slow about it.
pub fn begin_sync(file: &File) {
    // Safety: no memory is passed. An error is met again by the sync that follows.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

/// The name itself, if it names something in the folder and not on a way out of it.
fn single(name: &OsStr) -> io::Result<&OsStr> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == name => Ok(name),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is not a name of a file"))),
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn c_name(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

fn open_at(at: libc::c_int, name: &OsStr, flags: libc::c_int) -> io::Result<File> {
    let name = c_name(name)?;
    // Safety: a valid C string that outlives the call.
    let opened = unsafe { libc::openat(at, name.as_ptr(), flags | libc::O_CLOEXEC, 0o666) };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // Safety: a descriptor that was opened just now, which nobody else has.
    Ok(unsafe { File::from_raw_fd(opened) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn write(text: &'static str) -> impl FnOnce(&mut File) -> io::Result<Option<()>> {
        move |file| file.write_all(text.as_bytes()).map(Some)
    }

    fn fifo(path: &Path) {
        let path = c_name(path.as_os_str()).unwrap();
        // Safety: a valid C string that outlives the call.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    }

    fn names(folder: &Path) -> Vec<String> {
        let found = fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut found: Vec<String> = found.collect();
        found.sort();
        found
    }

    // Spec: results.md#results-14
    #[test]
    fn what_a_link_leads_to_is_never_written() {
        let all = tempfile::tempdir().unwrap();
        let (inside, victim) = (all.path().join("inside"), all.path().join("victim"));
        fs::write(&victim, "kept").unwrap();
        fs::create_dir(all.path().join("elsewhere")).unwrap();
        let folder = Directory::create(&inside).unwrap();
        for name in ["page", "lines", "dangling"] {
            let target = if name == "dangling" { all.path().join("made") } else { victim.clone() };
            symlink(target, inside.join(name)).unwrap();
        }
        symlink("../elsewhere", inside.join("captures")).unwrap();
        let refused = |error: io::Error| assert!(error.to_string().contains("a symbolic link"), "{error}");
        refused(folder.append("lines").unwrap_err());
        refused(folder.append_or_create("dangling").unwrap_err());
        refused(folder.folder("captures").unwrap_err());
        assert_eq!(folder.create_new("dangling").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        folder.replace("page", write("new")).unwrap();
        assert_eq!(fs::read_to_string(inside.join("page")).unwrap(), "new");
        assert!(!inside.join("page").is_symlink());
        fs::hard_link(&victim, inside.join("shared")).unwrap();
        assert!(folder.append("shared").unwrap_err().to_string().contains("hard link"));
        folder.remove("lines").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        assert_eq!(names(all.path()), ["elsewhere", "inside", "victim"]);
        assert!(names(&all.path().join("elsewhere")).is_empty());
        for out in ["../x", "a/b", "..", ".", "", "/x"] {
            assert!(folder.replace(out, write("")).is_err() && folder.folder(out).is_err(), "{out:?}");
        }
    }

    // Spec: results.md#results-14
    #[test]
    fn a_named_pipe_in_the_place_of_a_file_is_refused_or_replaced_without_waiting() {
        let all = tempfile::tempdir().unwrap();
        let folder = Directory::open(all.path()).unwrap();
        fifo(&all.path().join("lines"));
        let refused = || folder.append("lines").unwrap_err().to_string();
        assert!(refused().contains("is not a regular file"), "{}", refused());
        // Also while somebody reads it, who would let it be opened.
        let flags = libc::O_RDONLY | libc::O_NONBLOCK;
        let reader = open_at(folder.held.as_raw_fd(), OsStr::new("lines"), flags).unwrap();
        assert!(refused().contains("is not a regular file"), "{}", refused());
        drop(reader);
        folder.replace("lines", write("text")).unwrap();
        assert_eq!(fs::read_to_string(all.path().join("lines")).unwrap(), "text");
    }

    // Spec: results.md#results-1
    #[test]
    fn a_file_that_cannot_be_written_whole_leaves_the_old_one_as_it_was() {
        let all = tempfile::tempdir().unwrap();
        let folder = Directory::open(all.path()).unwrap();
        folder.replace("page", write("old")).unwrap();
        let failed = folder.replace("page", |file| {
            file.write_all(b"ne")?;
            Err::<Option<()>, _>(io::Error::from(io::ErrorKind::StorageFull))
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(folder.replace("page", |_| Ok(None::<()>)).unwrap(), None);
        assert_eq!(fs::read_to_string(all.path().join("page")).unwrap(), "old");
        assert_eq!(names(all.path()), ["page"]);
        fs::write(all.path().join(".page.1-0.partial"), "half").unwrap();
        folder.remove_partials().unwrap();
        assert_eq!(names(all.path()), ["page"]);
    }

    #[test]
    fn a_page_goes_where_the_user_said_also_through_a_link_and_into_a_device() {
        let all = tempfile::tempdir().unwrap();
        let (page, link) = (all.path().join("page"), all.path().join("link"));
        symlink(&page, &link).unwrap();
        for text in ["first", "second"] {
            write_named(&link, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&page).unwrap(), text);
        }
        assert!(link.is_symlink());
        write_named(Path::new("/dev/null"), b"text").unwrap();
        assert_eq!(names(all.path()), ["link", "page"]);
    }

    // Spec: lab.md#lab-29
    #[test]
    fn a_stream_goes_into_a_new_file_or_a_pipe_with_a_reader_and_never_through_a_link() {
        let all = tempfile::tempdir().unwrap();
        let (stream, victim) = (all.path().join("stream"), all.path().join("victim"));
        fs::write(&victim, "kept").unwrap();
        fs::hard_link(&victim, &stream).unwrap();
        create_named(&stream).unwrap().write_all(b"first").unwrap();
        create_named(&stream).unwrap().write_all(b"2").unwrap();
        assert_eq!(fs::read_to_string(&stream).unwrap(), "2");
        symlink(&victim, all.path().join("link")).unwrap();
        symlink(all.path().join("made"), all.path().join("dangling")).unwrap();
        for link in ["link", "dangling"] {
            let refused = create_named(&all.path().join(link)).unwrap_err().to_string();
            assert!(refused.contains("is a symbolic link"), "{refused}");
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        let pipe = all.path().join("pipe");
        fifo(&pipe);
        let refused = create_named(&pipe).unwrap_err().to_string();
        assert!(refused.contains("a pipe that nobody reads"), "{refused}");
        let folder = Directory::open(all.path()).unwrap();
        let flags = libc::O_RDONLY | libc::O_NONBLOCK;
        let mut reader = open_at(folder.held.as_raw_fd(), OsStr::new("pipe"), flags).unwrap();
        create_named(&pipe).unwrap().write_all(b"text").unwrap();
        let mut text = String::new();
        io::Read::read_to_string(&mut reader, &mut text).unwrap();
        assert_eq!(text, "text");
        create_named(Path::new("/dev/null")).unwrap().write_all(b"text").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(create_named(all.path()).is_err() && create_named(Path::new("/")).is_err());
    }

    #[test]
    fn missing_parents_are_made_and_a_link_that_the_user_named_is_followed() {
        let all = tempfile::tempdir().unwrap();
        let deep = all.path().join("a/b/c");
        assert_eq!(Directory::create(&deep).unwrap().path(), deep);
        symlink(&deep, all.path().join("named")).unwrap();
        Directory::create(&all.path().join("named/d")).unwrap();
        assert!(deep.join("d").is_dir());
    }
}
