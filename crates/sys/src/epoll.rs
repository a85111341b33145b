//! Waiting for descriptors with nanosecond timeouts.

use crate::clock::timespec;
use crate::poll::Interest;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A set of descriptors watched for being readable (level-triggered).
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
    ready: Vec<u64>,
}

impl Epoll {
    pub fn new(capacity: usize) -> io::Result<Self> {
        // Safety: no memory is passed.
        let raw = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // Safety: the descriptor is fresh and ours alone.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let events = vec![libc::epoll_event { events: 0, u64: 0 }; capacity.max(1)];
        Ok(Epoll { fd, events, ready: Vec::with_capacity(capacity) })
    }

    fn control(&self, operation: libc::c_int, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control_for(operation, fd, token, libc::EPOLLIN as u32)
    }

    fn control_for(
        &self,
        operation: libc::c_int,
        fd: BorrowedFd<'_>,
        token: u64,
        events: u32,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token };
        // Safety: both descriptors are open, and `event` lives through the call.
        let result = unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd.as_raw_fd(), &mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Watches `fd`; `token` comes back from `wait` when it is readable, closed or in error.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token)
    }
    /// Watches `fd`; `token` comes back from `wait` when it can be written to, is closed or in error.
    pub fn add_writable(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control_for(libc::EPOLL_CTL_ADD, fd, token, libc::EPOLLOUT as u32)
    }
    /// From now on watches `fd`, added before, for being readable.
    pub fn watch_readable(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token)
    }
    /// From now on watches `fd`, added before, for what is of interest.
    pub fn watch(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        let events = match interest {
            Interest::Readable => libc::EPOLLIN,
            Interest::Writable => libc::EPOLLOUT,
            Interest::Either => libc::EPOLLIN | libc::EPOLLOUT,
        };
        self.control_for(libc::EPOLL_CTL_MOD, fd, token, events as u32)
    }
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0)
    }

    /// The tokens of the descriptors that are ready, waiting at most `limit` (`None`: for ever) for the first one.
    /// A signal ends the wait early with none.
    pub fn wait(&mut self, limit: Option<Duration>) -> io::Result<&[u64]> {
        let limit = limit.map(timespec);
        let limit_pointer = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // Safety: `events` has room for as many events as the call is told, and the timeout outlives the call. glibc
        // before 2.35 has no wrapper, so the call is made by number; the last two arguments are "no signal mask".
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len() as libc::c_int,
                limit_pointer,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        self.ready.clear();
        if count < 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINTR) {
                return Err(error);
            }
            return Ok(&self.ready);
        }
        self.ready.extend(self.events[..count as usize].iter().map(|event| event.u64));
        Ok(&self.ready)
    }
}

/// Whether `fd` becomes readable (or closed) within `limit`.
pub fn readable_within(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    let mut epoll = Epoll::new(1)?;
    epoll.add(fd, 0)?;
    Ok(!epoll.wait(Some(limit))?.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn a_pipe_is_ready_only_once_something_was_written() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert!(!readable_within(reader.as_fd(), Duration::from_millis(1)).unwrap());
        writer.write_all(b"x").unwrap();
        assert!(readable_within(reader.as_fd(), Duration::from_secs(5)).unwrap());
    }

    #[test]
    fn a_socket_watched_for_both_is_told_of_room_and_one_watched_for_reading_is_not() {
        let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut epoll = Epoll::new(1).unwrap();
        let ready = |epoll: &mut Epoll| epoll.wait(Some(Duration::from_millis(1))).unwrap().to_vec();
        epoll.add(near.as_fd(), 7).unwrap();
        assert_eq!(ready(&mut epoll), [0; 0]);
        epoll.watch(near.as_fd(), 7, Interest::Either).unwrap();
        assert_eq!(ready(&mut epoll), [7]);
        epoll.watch_readable(near.as_fd(), 7).unwrap();
        assert_eq!(ready(&mut epoll), [0; 0]);
        far.write_all(b"x").unwrap();
        assert_eq!(ready(&mut epoll), [7]);
    }
}
