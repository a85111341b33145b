//! Files opened as the standard library does not open them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file as `options` say; `direct` goes around the page cache (`O_DIRECT`), which asks for aligned offsets, lengths and
/// memory. A symbolic link is followed, a terminal never becomes this process's own.
pub fn open(path: &Path, options: &mut OpenOptions, direct: bool) -> io::Result<File> {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    options.custom_flags(flags | libc::O_NOCTTY).open(path)
}
