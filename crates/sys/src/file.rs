//! Files opened as the standard library does not open them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::null_mut;

/// Opens a file as `options` say; `direct` goes around the page cache (`O_DIRECT`), which asks for aligned offsets, lengths and
/// memory. A symbolic link is followed, a terminal never becomes this process's own.
pub fn open(path: &Path, options: &mut OpenOptions, direct: bool) -> io::Result<File> {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    options.custom_flags(flags | libc::O_NOCTTY).open(path)
}

/// Of the first `most_bytes` of a file, those that are in this machine's page cache (mincore(2)), to whole pages.
///
/// Errors: the file cannot be mapped, or the kernel does not say (that of a file of somebody else's).
pub fn resident_bytes(file: &File, most_bytes: u64) -> io::Result<u64> {
    // A byte for each page is asked for at once.
    const MAPPED_BYTES: u64 = 1 << 30;
    let file_bytes = file.metadata()?.len().min(most_bytes);
    // Safety: no memory is passed.
    let page_bytes = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1);
    let mut pages = Vec::new();
    let (mut at, mut resident_bytes) = (0, 0);
    while at < file_bytes {
        let length = MAPPED_BYTES.min(file_bytes - at) as usize;
        pages.clear();
        pages.resize(length.div_ceil(page_bytes as usize), 0u8);
        // Safety: a new mapping placed by the kernel, of which nothing is read; `at` is a multiple of the page's size.
        let address = unsafe {
            libc::mmap(
                null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                at as libc::off_t,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Safety: the mapping covers `length` bytes, and `pages` has a byte for each page of it.
        let asked = unsafe { libc::mincore(address, length, pages.as_mut_ptr()) };
        let error = io::Error::last_os_error();
        // Safety: unmaps exactly what was mapped; no reference into it was made.
        unsafe { libc::munmap(address, length) };
        if asked != 0 {
            return Err(error);
        }
        resident_bytes += pages.iter().filter(|page| **page & 1 == 1).count() as u64 * page_bytes;
        at += length as u64;
    }
    Ok(resident_bytes.min(file_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_just_written_is_in_memory_and_a_hole_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        assert_eq!(resident_bytes(&file, u64::MAX).unwrap(), 0);
        file.write_all(&[1; 100_000]).unwrap();
        assert_eq!(resident_bytes(&file, u64::MAX).unwrap(), 100_000);
        assert_eq!(resident_bytes(&file, 5_000).unwrap(), 5_000);
        file.set_len(3 << 30).unwrap();
        let resident_bytes = resident_bytes(&file, u64::MAX).unwrap();
        assert!((100_000..1 << 20).contains(&resident_bytes), "{resident_bytes}");
    }
}
