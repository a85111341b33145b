//! A folder behind a disk: passes everything through, and answers reads and writes when the disk would be done with them.

use crate::due::Due;
use crate::inodes::Inodes;
use crate::model::{Array, Counts, Disk, Request as DiskRequest, Settings};
use fuser::{
    AccessFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
    XattrFlags,
};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, PermissionsExt, lchown, symlink,
};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_core::fault::DiskTrouble;
use weir_sys::shared_memory::Page;

/// Everything that changes goes through us, so the kernel may believe for a while what it was told.
const TTL: Duration = Duration::from_secs(1);
const NO_GENERATION: Generation = Generation(0);
/// The largest read and write that the kernel sends.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Blocks of `statfs`.
const BLOCK_BYTES: u32 = 4096;

/// The disk behind one or several mounts.
pub struct Behind {
    settings: Settings,
    disk: Mutex<Disk>,
    array: Arc<Mutex<Array>>,
    trouble: Mutex<(DiskTrouble, f64)>,
    held: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    used_bytes: Mutex<u64>,
    since: Instant,
    /// What it has done, for whoever reads the page: its first word.
    page: (Arc<Page>, usize),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Behind {
    pub fn new(
        settings: Settings,
        array: Arc<Mutex<Array>>,
        used_bytes: u64,
        since: Instant,
        page: (Arc<Page>, usize),
    ) -> Behind {
        Behind {
            settings,
            disk: Mutex::new(Disk::new(settings)),
            array,
            trouble: Mutex::default(),
            held: Mutex::default(),
            used_bytes: Mutex::new(used_bytes),
            since,
            page,
        }
    }

    /// Nothing is in its cache any more.
    pub fn forget(&self) {
        lock(&self.array).forget();
    }

    pub fn set_trouble(&self, trouble: DiskTrouble) {
        *lock(&self.trouble) = (trouble, 0.0);
        lock(&self.disk).slow = trouble.slow;
        if !trouble.is_stuck {
            let held = std::mem::take(&mut *lock(&self.held));
            held.into_iter().for_each(|work| work());
        }
    }

    /// The error of this request, where it is one of those that fail.
    fn error(&self) -> Option<Errno> {
        let (trouble, share) = &mut *lock(&self.trouble);
        *share += trouble.error_ratio;
        let fails = *share >= 1.0;
        *share -= f64::from(u8::from(fails));
        fails.then(|| Errno::from_i32(trouble.error_code))
    }

    /// When the disk is done with a request that comes now.
    fn done_at(&self, request: DiskRequest) -> Instant {
        let now_ns = weir_core::time::nanoseconds(self.since.elapsed());
        let (mut disk, mut array) = (lock(&self.disk), lock(&self.array));
        let done_ns = disk.request(&mut array, now_ns, request);
        let Counts { read_bytes, written_bytes, cached_bytes, positionings, busy_ns } = disk.counts;
        let words = [read_bytes - cached_bytes, written_bytes, cached_bytes, positionings, busy_ns];
        for (word, value) in words.into_iter().enumerate() {
            self.page.0.set(self.page.1 + word, value);
        }
        self.since + Duration::from_nanos(done_ns)
    }

    /// Takes room for what a file grows by. False if there is none.
    fn grow(&self, from: u64, to: u64) -> bool {
        let mut used = lock(&self.used_bytes);
        let grown = used.saturating_add(to.saturating_sub(from));
        if to > from && (grown > self.settings.size_bytes || lock(&self.trouble).0.is_full) {
            return false;
        }
        *used = grown.saturating_sub(from.saturating_sub(to));
        true
    }
}

/// The file system of one mount.
pub struct DiskFiles {
    folder: PathBuf,
    behind: Arc<Behind>,
    due: Due,
    cached: Sender<(Cached, Instant)>,
    state: Mutex<State>,
}

/// Pages that the kernel holds of what was read: whoever has a file sent (`sendfile`) or maps it gets it that way, whatever the file
/// was opened with. They are given back after a second, else what is read again would cost no time.
pub struct Cached {
    pub ino: INodeNo,
    pub offset: u64,
    pub bytes: u64,
}

struct State {
    inodes: Inodes,
    open: HashMap<u64, (Arc<File>, u64)>,
    handle: u64,
}

impl DiskFiles {
    /// What the kernel has cached of a read is told to `cached`.
    pub fn new(
        folder: PathBuf,
        behind: Arc<Behind>,
        due: Due,
        cached: Sender<(Cached, Instant)>,
    ) -> DiskFiles {
        let state = State { inodes: Inodes::new(), open: HashMap::new(), handle: 1 };
        DiskFiles { folder, behind, due, cached, state: Mutex::new(state) }
    }

    fn path(&self, ino: INodeNo) -> Result<PathBuf, Errno> {
        let state = lock(&self.state);
        state.inodes.path(ino.0).map(|path| self.folder.join(path)).ok_or(Errno::ENOENT)
    }

    /// Relative and whole.
    fn child(&self, parent: INodeNo, name: &OsStr) -> Result<(PathBuf, PathBuf), Errno> {
        let below = lock(&self.state).inodes.child(parent.0, name).ok_or(Errno::ENOENT)?;
        let whole = self.folder.join(&below);
        Ok((below, whole))
    }

    /// Tells the kernel of what has a path.
    fn entry(&self, below: &Path, whole: &Path) -> Result<FileAttr, Errno> {
        let about = fs::symlink_metadata(whole)?;
        let number = lock(&self.state).inodes.tell(below, about.ino());
        Ok(attributes(number, &about))
    }

    /// What a user has just made belongs to that user.
    fn owned(&self, request: &Request, below: &Path, whole: &Path) -> Result<FileAttr, Errno> {
        lchown(whole, Some(request.uid()), Some(request.gid()))?;
        self.entry(below, whole)
    }

    fn opened(&self, file: File, ino: u64) -> FileHandle {
        let mut state = lock(&self.state);
        let handle = state.handle;
        state.handle += 1;
        state.open.insert(handle, (Arc::new(file), ino));
        FileHandle(handle)
    }

    fn file(&self, handle: FileHandle) -> Result<(Arc<File>, u64), Errno> {
        lock(&self.state).open.get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    /// Carries out `work` now, and says `answer` of what came of it when the disk is done.
    fn at_the_disks_pace<T: Send + 'static>(
        &self,
        request: DiskRequest,
        work: impl FnOnce() -> Result<T, Errno> + Send + 'static,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        let (behind, due) = (Arc::clone(&self.behind), self.due.clone());
        let carry_out = move || {
            // The disk's time begins when it is asked, not when we have done our part.
            let at = behind.done_at(request);
            let result = behind.error().map_or_else(work, Err);
            if at <= Instant::now() {
                answer(result);
            } else {
                due.at(at, move || answer(result));
            }
        };
        if lock(&self.behind.trouble).0.is_stuck {
            lock(&self.behind.held).push(Box::new(carry_out));
        } else {
            carry_out();
        }
    }

    /// A file that has no name any more, where somebody has it open.
    fn nameless(&self, ino: INodeNo) -> Result<Arc<File>, Errno> {
        let state = lock(&self.state);
        let of_it = state.open.values().find(|(_, number)| *number == ino.0);
        of_it.map(|(file, _)| Arc::clone(file)).ok_or(Errno::ENOENT)
    }

    fn about(&self, ino: INodeNo) -> Result<Metadata, Errno> {
        match self.path(ino) {
            Ok(path) => Ok(fs::symlink_metadata(path)?),
            Err(_) => Ok(self.nameless(ino)?.metadata()?),
        }
    }

    fn make_room(&self, file: &File, to: u64) -> Result<(), Errno> {
        let from = file.metadata()?.len();
        if self.behind.grow(from, to.max(from)) { Ok(()) } else { Err(Errno::ENOSPC) }
    }

    fn set_attributes(&self, ino: INodeNo, change: &Change) -> Result<FileAttr, Errno> {
        // By its name, or through a file that is open.
        let (path, flags) = match self.path(ino) {
            Ok(path) => (path, AtFlags::SYMLINK_NOFOLLOW),
            Err(_) => {
                let file = self.nameless(ino)?;
                let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
                (path, AtFlags::empty())
            }
        };
        if let Some(mode) = change.mode {
            fs::set_permissions(&path, Permissions::from_mode(mode & 0o7777))?;
        }
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            rustix::fs::chownat(CWD, &path, uid, gid, flags).map_err(errno)?;
        }
        if let Some(size) = change.size {
            let file = match change.handle {
                Some(handle) => self.file(handle)?.0,
                None => Arc::new(OpenOptions::new().write(true).open(&path)?),
            };
            let from = file.metadata()?.len();
            if !self.behind.grow(from, size) {
                return Err(Errno::ENOSPC);
            }
            file.set_len(size)?;
        }
        if change.accessed.is_some() || change.modified.is_some() {
            let times =
                Timestamps { last_access: spec(change.accessed), last_modification: spec(change.modified) };
            rustix::fs::utimensat(CWD, &path, &times, flags).map_err(errno)?;
        }
        Ok(attributes(ino.0, &self.about(ino)?))
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, is_folder: bool) -> Result<(), Errno> {
        let (below, whole) = self.child(parent, name)?;
        let about = fs::symlink_metadata(&whole)?;
        if is_folder {
            fs::remove_dir(&whole)?
        } else {
            fs::remove_file(&whole)?
        }
        if about.is_file() && about.nlink() == 1 {
            self.behind.grow(about.len(), 0);
        }
        lock(&self.state).inodes.removed(&below);
        Ok(())
    }
}

struct Change {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    accessed: Option<TimeOrNow>,
    modified: Option<TimeOrNow>,
    handle: Option<FileHandle>,
}

fn spec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW as _ },
        Some(TimeOrNow::SpecificTime(time)) => {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            Timespec { tv_sec: since.as_secs() as _, tv_nsec: since.subsec_nanos() as _ }
        }
    }
}

fn attributes(number: u64, about: &Metadata) -> FileAttr {
    let time = |seconds: i64, nanoseconds: i64| {
        let (seconds, nanoseconds) =
            (u64::try_from(seconds).unwrap_or(0), u64::try_from(nanoseconds).unwrap_or(0));
        UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
    };
    FileAttr {
        ino: INodeNo(number),
        size: about.len(),
        blocks: about.blocks(),
        atime: time(about.atime(), about.atime_nsec()),
        mtime: time(about.mtime(), about.mtime_nsec()),
        ctime: time(about.ctime(), about.ctime_nsec()),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(about.file_type()),
        perm: (about.mode() & 0o7777) as u16,
        nlink: u32::try_from(about.nlink()).unwrap_or(u32::MAX),
        uid: about.uid(),
        gid: about.gid(),
        rdev: u32::try_from(about.rdev()).unwrap_or(0),
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn kind(of: fs::FileType) -> FileType {
    match () {
        () if of.is_dir() => FileType::Directory,
        () if of.is_symlink() => FileType::Symlink,
        () if of.is_fifo() => FileType::NamedPipe,
        () if of.is_socket() => FileType::Socket,
        () if of.is_block_device() => FileType::BlockDevice,
        () if of.is_char_device() => FileType::CharDevice,
        () => FileType::RegularFile,
    }
}

/// Opens a file of the folder as the kernel was asked to, or makes it with this mode. What is of the page cache or of the position is
/// not passed on. The kernel itself followed links, so a link here is none that anybody meant.
fn open_backing(path: &Path, flags: i32, made_with: Option<u32>) -> io::Result<File> {
    let passed = OFlags::ACCMODE | OFlags::EXCL | OFlags::TRUNC;
    let mut opened = OFlags::from_bits_retain(flags as u32) & passed | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if made_with.is_some() {
        opened |= OFlags::CREATE;
    }
    let mode = Mode::from_raw_mode(made_with.unwrap_or(0) & 0o7777);
    Ok(File::from(rustix::fs::openat(CWD, path, opened, mode)?))
}

/// Reads and writes go to us each time, several at once.
const DIRECT: FopenFlags = FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);

/// Tells the kernel of a file.
fn told(reply: ReplyEntry, file: Result<FileAttr, Errno>) {
    match file {
        Ok(attributes) => reply.entry(&TTL, &attributes, NO_GENERATION),
        Err(error) => reply.error(error),
    }
}

/// An error of a call, as the kernel is told it.
fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from(io::Error::from(error))
}

macro_rules! answer {
    ($reply:ident, $result:expr) => {
        match $result {
            Ok(()) => $reply.ok(),
            Err(error) => $reply.error(error),
        }
    };
}

impl Filesystem for DiskFiles {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(512);
        for wanted in
            [InitFlags::FUSE_MAX_PAGES, InitFlags::FUSE_PARALLEL_DIROPS, InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP]
        {
            let _ = config.add_capabilities(wanted);
        }
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        told(reply, self.child(parent, name).and_then(|(below, whole)| self.entry(&below, &whole)));
    }

    fn forget(&self, _request: &Request, ino: INodeNo, nlookup: u64) {
        lock(&self.state).inodes.forget(ino.0, nlookup);
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let about = match handle.and_then(|handle| self.file(handle).ok()) {
            Some((file, _)) => file.metadata().map_err(Errno::from),
            None => self.about(ino),
        };
        match about {
            Ok(about) => reply.attr(&TTL, &attributes(ino.0, &about)),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _archived: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.set_attributes(ino, &Change { mode, uid, gid, size, accessed, modified, handle }) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.path(ino).and_then(|path| Ok(fs::read_link(path)?)) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let made = self.child(parent, name).and_then(|(below, whole)| {
            let (kind, mode) = (rustix::fs::FileType::from_raw_mode(mode), Mode::from_raw_mode(mode));
            rustix::fs::mknodat(CWD, &whole, kind, mode, u64::from(device)).map_err(errno)?;
            self.owned(request, &below, &whole)
        });
        told(reply, made);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.child(parent, name).and_then(|(below, whole)| {
            DirBuilder::new().mode(mode & 0o7777).create(&whole)?;
            self.owned(request, &below, &whole)
        });
        told(reply, made);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove(parent, name, false));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove(parent, name, true));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self.child(parent, name).and_then(|(below, whole)| {
            symlink(target, &whole)?;
            self.owned(request, &below, &whole)
        });
        told(reply, made);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = || {
            let ((from, whole_from), (to, whole_to)) =
                (self.child(parent, name)?, self.child(new_parent, new_name)?);
            let replaced = fs::symlink_metadata(&whole_to).ok();
            let flags = rustix::fs::RenameFlags::from_bits_truncate(flags.bits());
            if flags.contains(rustix::fs::RenameFlags::EXCHANGE) {
                return Err(Errno::EINVAL); // two paths would change their numbers at once
            }
            rustix::fs::renameat_with(CWD, &whole_from, CWD, &whole_to, flags).map_err(errno)?;
            if let Some(replaced) = replaced.filter(|about| about.is_file() && about.nlink() == 1) {
                self.behind.grow(replaced.len(), 0);
            }
            lock(&self.state).inodes.renamed(&from, &to);
            Ok(())
        };
        answer!(reply, renamed());
    }

    fn link(
        &self,
        _request: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let made = self.path(ino).and_then(|path| {
            let (below, whole) = self.child(new_parent, new_name)?;
            fs::hard_link(path, &whole)?;
            self.entry(&below, &whole)
        });
        told(reply, made);
    }

    fn open(&self, _request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.path(ino).and_then(|path| Ok(open_backing(&path, flags.0, None)?));
        match opened {
            Ok(file) => reply.opened(self.opened(file, ino.0), DIRECT),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.child(parent, name).and_then(|(below, whole)| {
            let file = open_backing(&whole, flags, Some(mode))?;
            Ok((file, self.owned(request, &below, &whole)?))
        });
        match made {
            Ok((file, attributes)) => {
                let handle = self.opened(file, attributes.ino.0);
                reply.created(&TTL, &attributes, NO_GENERATION, handle, DIRECT);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (file, number) = match self.file(handle) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        // What is asked beyond the end costs nothing.
        let length = file.metadata().map_or(0, |about| about.len());
        let bytes = u64::from(size).min(length.saturating_sub(offset));
        if bytes == 0 {
            return reply.data(&[]);
        }
        let request = DiskRequest { file: number, offset, bytes, is_write: false };
        let cached = self.cached.clone();
        let work = move || {
            let mut data = vec![0; bytes as usize];
            let mut filled = 0;
            while filled < data.len() {
                match file.read_at(&mut data[filled..], offset + filled as u64) {
                    Ok(0) => break,
                    Ok(read) => filled += read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(Errno::from(error)),
                }
            }
            data.truncate(filled);
            Ok(data)
        };
        self.at_the_disks_pace(request, work, move |result| match result {
            Ok(data) => {
                reply.data(&data);
                // A read into a program's own memory says whose it is, one into the kernel's does not. Whoever drops pages is gone
                // with the mount.
                if owner.is_none() {
                    let _ = cached.send((Cached { ino, offset, bytes }, Instant::now()));
                }
            }
            Err(error) => reply.error(error),
        });
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let bytes = data.len() as u64;
        let opened = self.file(handle).and_then(|(file, number)| {
            self.make_room(&file, offset + bytes)?;
            Ok((file, number))
        });
        let (file, number) = match opened {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        let data = data.to_vec();
        let request = DiskRequest { file: number, offset, bytes, is_write: true };
        let work = move || Ok(file.write_all_at(&data, offset)?);
        self.at_the_disks_pace(request, work, move |result| match result {
            Ok(()) => reply.written(bytes as u32),
            Err(error) => reply.error(error),
        });
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.state).open.remove(&handle.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _only_data: bool,
        reply: ReplyEmpty,
    ) {
        // A write is answered when it is on the disk: there is nothing to wait for.
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _only_data: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.path(ino).and_then(|path| {
            let mut names: Vec<(u64, FileType, std::ffi::OsString)> =
                vec![(ino.0, FileType::Directory, ".".into()), (ino.0, FileType::Directory, "..".into())];
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                names.push((entry.ino(), kind(entry.file_type()?), entry.file_name()));
            }
            Ok(names)
        });
        match listed {
            Ok(names) => {
                for (place, (number, kind, name)) in names.into_iter().enumerate().skip(offset as usize) {
                    // The kernel looks each of them up before it uses a number.
                    if reply.add(INodeNo(number), place as u64 + 1, kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let is_full = lock(&self.behind.trouble).0.is_full;
        let (size, used) = (self.behind.settings.size_bytes, *lock(&self.behind.used_bytes));
        let free = if is_full { 0 } else { size.saturating_sub(used) };
        let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
        reply.statfs(
            blocks(size),
            blocks(free),
            blocks(free),
            1 << 30,
            1 << 29,
            BLOCK_BYTES,
            255,
            BLOCK_BYTES,
        );
    }

    fn setxattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags::from_bits_truncate(flags as u32);
        let set =
            self.path(ino).and_then(|path| rustix::fs::lsetxattr(path, name, value, flags).map_err(errno));
        answer!(reply, set);
    }

    fn getxattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let mut value = vec![0; 64 << 10];
        let read =
            self.path(ino).and_then(|path| rustix::fs::lgetxattr(path, name, &mut value[..]).map_err(errno));
        attribute(read.map(|length| &value[..length]), size, reply);
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let mut names = vec![0; 64 << 10];
        let read =
            self.path(ino).and_then(|path| rustix::fs::llistxattr(path, &mut names[..]).map_err(errno));
        attribute(read.map(|length| &names[..length]), size, reply);
    }

    fn removexattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.path(ino).and_then(|path| rustix::fs::lremovexattr(path, name).map_err(errno));
        answer!(reply, removed);
    }

    fn access(&self, _request: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.ok(); // the kernel looks at the modes itself
    }

    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let flags = FallocateFlags::from_bits_truncate(mode as u32);
        let taken = self.file(handle).and_then(|(file, _)| {
            if flags.is_empty() {
                self.make_room(&file, offset.saturating_add(length))?;
            }
            let taken = rustix::fs::fallocate(&*file, flags, offset, length);
            taken.map_err(errno)
        });
        answer!(reply, taken);
    }
}

/// An attribute, or its length for whoever asks with no room.
fn attribute(value: Result<&[u8], Errno>, size: u32, reply: ReplyXattr) {
    match value {
        Err(error) => reply.error(error),
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(value),
    }
}
