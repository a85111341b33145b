//! A value that one thread changes and another, which waits for descriptors, is told of.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value behind a lock, with a descriptor that is readable while there may be something new in it: for `epoll`.
#[derive(Debug)]
pub struct Belled<T> {
    value: Mutex<T>,
    /// An eventfd, rung and silenced only under the lock: it never tells less than the value has.
    bell: OwnedFd,
}

impl<T> Belled<T> {
    /// Errors: no descriptor or no memory left.
    pub fn new(value: T) -> io::Result<Self> {
        // Safety: no memory is passed.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // Safety: the descriptor is fresh and ours alone.
        let bell = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Belled { value: Mutex::new(value), bell })
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the value, and rings where `change` says that there is something new: the other thread will look.
    pub fn change(&self, change: impl FnOnce(&mut T) -> bool) {
        let mut value = self.lock();
        if change(&mut value) {
            let one = 1_u64;
            // Safety: the buffer is eight bytes long and outlives the call. It fails only where the count would overflow: rung then.
            unsafe { libc::write(self.bell.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }

    /// Takes one new thing out of the value; the bell is silent once `take` finds none.
    pub fn take<R>(&self, take: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let mut value = self.lock();
        let taken = take(&mut value);
        if taken.is_none() {
            let mut count = 0_u64;
            // Safety: the buffer is eight bytes long and outlives the call. It fails where the bell is silent already.
            unsafe { libc::read(self.bell.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
        taken
    }

    /// Looks without touching the bell.
    pub fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.lock())
    }
}

impl<T> AsFd for Belled<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::{Interest, wait};
    use std::time::Duration;

    #[test]
    fn the_descriptor_is_readable_exactly_while_something_may_be_there() {
        let belled = Belled::new(Vec::new()).unwrap();
        let rings = || wait(belled.as_fd(), Interest::Readable, Duration::ZERO).unwrap();
        assert!(!rings());
        let put = |value| {
            belled.change(|values| {
                values.push(value);
                true
            });
        };
        belled.change(|_| false);
        assert!(!rings());
        put(1);
        put(2);
        assert!(rings());
        assert_eq!(belled.take(Vec::pop), Some(2));
        assert!(rings(), "another value waits");
        assert_eq!(belled.take(Vec::pop), Some(1));
        assert_eq!(belled.take(Vec::pop), None);
        assert!(!rings());
        put(3);
        assert!(rings());
    }

    #[test]
    fn a_thread_that_waits_for_the_descriptor_is_woken() {
        let belled = Belled::new(None).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| belled.change(|value| value.replace(7).is_none()));
            while !wait(belled.as_fd(), Interest::Readable, Duration::from_secs(60)).unwrap() {}
            assert_eq!(belled.take(Option::take), Some(7));
        });
    }
}
