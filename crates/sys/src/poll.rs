//! Waiting for one descriptor with a limit of nanosecond resolution. For many, see `epoll`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    Readable,
    Writable,
    /// Whichever comes first.
    Either,
}

/// Waits until the descriptor is ready (or has failed, which the next call on it will tell), at most `limit`; false when
/// the limit passed first. A signal counts as a wake-up before the limit: the caller looks at its clock and waits again.
pub fn wait(descriptor: BorrowedFd<'_>, interest: Interest, limit: Duration) -> io::Result<bool> {
    let events = match interest {
        Interest::Readable => libc::POLLIN,
        Interest::Writable => libc::POLLOUT,
        Interest::Either => libc::POLLIN | libc::POLLOUT,
    };
    let mut entry = libc::pollfd { fd: descriptor.as_raw_fd(), events, revents: 0 };
    let limit = libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // Safety: the first pointer describes one `pollfd`, the second one `timespec`; both outlive the call. No signal mask.
    let ready = unsafe { libc::ppoll(&raw mut entry, 1, &raw const limit, std::ptr::null()) };
    if ready >= 0 {
        return Ok(ready > 0);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_wait_ends_with_the_limit_or_with_the_byte() {
        let (mut near, far) = UnixStream::pair().unwrap();
        assert!(!wait(far.as_fd(), Interest::Readable, Duration::from_millis(5)).unwrap());
        near.write_all(b"x").unwrap();
        assert!(wait(far.as_fd(), Interest::Readable, Duration::from_secs(5)).unwrap());
    }
}
