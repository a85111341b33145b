//! A page of `u64` words in shared memory: one process writes counters, any number read them.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file in memory (memfd_create(2)); `name` is for people who look at the process.
fn unnamed_file(name: &CStr) -> io::Result<File> {
    // Safety: the name is a valid C string.
    let raw = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // Safety: the descriptor is fresh and ours alone.
    Ok(unsafe { File::from_raw_fd(raw) })
}

/// From now on nobody can do to the file what the seals forbid, nor take them away.
fn seal(file: &File, seals: libc::c_int) -> io::Result<()> {
    // Safety: no memory is passed.
    let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals | libc::F_SEAL_SEAL) };
    if sealed < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A mapping of the page. Words are single atomics: each is whole, but two need not be of the same moment.
struct Mapping {
    start: std::ptr::NonNull<AtomicU64>,
    words: usize,
}

// Safety: the mapping is shared memory reached only through atomics, and is unmapped once, on drop.
unsafe impl Send for Mapping {}
// Safety: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, words: usize, protection: libc::c_int) -> io::Result<Self> {
        // Safety: a new shared mapping placed by the kernel; its length is within the file, checked by the callers.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), words * 8, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = std::ptr::NonNull::new(address.cast()).expect("the kernel maps nothing at address zero");
        Ok(Mapping { start, words })
    }

    fn slice(&self) -> &[AtomicU64] {
        // Safety: the mapping covers `words` words, is page-aligned, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Safety: unmaps exactly what `new` mapped; no reference into it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

fn words_of(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let bytes = File::from(fd.try_clone_to_owned()?).metadata()?.len();
    if bytes == 0 || bytes % 8 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a page of {bytes} bytes is no page of words"),
        ));
    }
    Ok(bytes as usize / 8)
}

/// The writer's end. It belongs to one process; the layout is the caller's (`weir_core::fabric_page`).
pub struct Page {
    mapping: Mapping,
    fd: OwnedFd,
}

impl Page {
    /// A new page of `words` zeros, without a name: it lives as long as a descriptor or mapping of it.
    pub fn create(words: usize) -> io::Result<Self> {
        assert!(words > 0);
        let file = unnamed_file(c"weir-page")?;
        file.set_len(words as u64 * 8)?;
        // Without this a holder could shrink the file under a reader, who would then be killed by SIGBUS.
        seal(&file, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)?;
        Self::open(file.into())
    }

    /// Takes over a page made by `create` in another process.
    pub fn open(fd: OwnedFd) -> io::Result<Self> {
        let words = words_of(fd.as_fd())?;
        Ok(Page { mapping: Mapping::new(fd.as_fd(), words, libc::PROT_READ | libc::PROT_WRITE)?, fd })
    }

    pub fn words(&self) -> usize {
        self.mapping.words
    }
    pub fn set(&self, word: usize, value: u64) {
        self.mapping.slice()[word].store(value, Ordering::Relaxed);
    }
    pub fn get(&self, word: usize) -> u64 {
        self.mapping.slice()[word].load(Ordering::Relaxed)
    }
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
    /// A reader of the same page.
    pub fn view(&self) -> io::Result<PageView> {
        PageView::open(self.fd.try_clone()?)
    }
}

/// A reader's end.
pub struct PageView {
    mapping: Mapping,
    fd: OwnedFd,
}

impl PageView {
    pub fn open(fd: OwnedFd) -> io::Result<Self> {
        let words = words_of(fd.as_fd())?;
        Ok(PageView { mapping: Mapping::new(fd.as_fd(), words, libc::PROT_READ)?, fd })
    }
    pub fn words(&self) -> usize {
        self.mapping.words
    }
    /// Panics if `word` is not in the page.
    pub fn get(&self, word: usize) -> u64 {
        self.mapping.slice()[word].load(Ordering::Relaxed)
    }
    /// `count` words from `first`.
    pub fn copy(&self, first: usize, count: usize) -> Vec<u64> {
        self.mapping.slice()[first..first + count].iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }
    /// For handing the page to a child or another reader.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
    pub fn try_clone(&self) -> io::Result<PageView> {
        PageView::open(self.fd.try_clone()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_what_the_writer_wrote_even_after_the_writer_is_gone() {
        let page = Page::create(100).unwrap();
        let view = page.view().unwrap();
        page.set(99, u64::MAX - 1);
        assert_eq!(view.get(99), u64::MAX - 1);
        drop(page);
        assert_eq!(view.copy(98, 2), vec![0, u64::MAX - 1]);
    }

    #[test]
    fn a_file_that_is_no_page_is_refused() {
        let empty = tempfile::tempfile().unwrap();
        assert!(PageView::open(empty.into()).is_err());
    }
}
