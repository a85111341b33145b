//! Bytes that the kernel sends from where they lie, instead of copying them into a socket's buffer.

use crate::shared_memory::{seal, unnamed_file};
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsRawFd, BorrowedFd};

/// A file in memory that holds these bytes and never others.
pub fn memory_file(bytes: &[u8]) -> io::Result<File> {
    let mut file = unnamed_file(c"weir-payload")?;
    file.write_all(bytes)?;
    // What a socket has been lent is read until it is acknowledged: a change would go out as something that was never sent.
    seal(&file, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE)?;
    Ok(file)
}

/// Sends up to `len` bytes of `file` from `offset` on; how many the socket took (sendfile(2)).
pub fn send_file(socket: BorrowedFd<'_>, file: &File, offset: u64, len: usize) -> io::Result<usize> {
    let mut offset =
        libc::off_t::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // Safety: `offset` is valid for the call, which reads and writes one `off_t` there.
    let sent = unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), &raw mut offset, len) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Sends what the slices hold, with more to follow at once: a segment that is not full waits for it (`MSG_MORE`, send(2)).
pub fn send_with_more(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    // Safety: all zeros is a valid `msghdr`: no name, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // `IoSlice` is guaranteed to have the layout of `iovec`; sendmsg only reads through it.
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = slices.len() as _;
    let flags = libc::MSG_MORE | libc::MSG_NOSIGNAL;
    // Safety: `message` points to `slices`, which live for the call.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_is_lent_arrives_behind_what_was_written_and_the_file_takes_no_other_bytes() {
        let bytes: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8).collect();
        let file = memory_file(&bytes).unwrap();
        assert!(file.write_at(b"x", 0).is_err() && file.set_len(0).is_err());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            all
        });
        assert_eq!(send_with_more(near.as_fd(), &[IoSlice::new(b"he"), IoSlice::new(b"ad")]).unwrap(), 4);
        let mut sent = 0;
        while sent < 150_000 {
            sent += send_file(near.as_fd(), &file, 1_000 + sent as u64, 150_000 - sent).unwrap();
        }
        drop(near);
        let all = reader.join().unwrap();
        assert_eq!(all[..4], *b"head");
        assert!(all[4..] == bytes[1_000..151_000]);
        assert!(send_file(File::open("/dev/null").unwrap().as_fd(), &file, u64::MAX, 1).is_err());
    }
}
