//! Signals that ask the program to end.

use std::sync::atomic::{AtomicU32, Ordering};

static ASKED: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_signal: libc::c_int) {
    ASKED.fetch_add(1, Ordering::Relaxed);
}

/// From now on SIGINT and SIGTERM are counted instead of ending the process, and a closed pipe is an error of the write.
pub fn count_interrupts() {
    // Safety: the handler only increments an atomic, which is async-signal-safe; the action is fully initialised.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGINT, &raw const action, std::ptr::null_mut());
        libc::sigaction(libc::SIGTERM, &raw const action, std::ptr::null_mut());
    }
}

/// How often the program was asked to end.
pub fn interrupts() -> u32 {
    ASKED.load(Ordering::Relaxed)
}

/// Lets SIGINT pass by: for children of a coordinator, which tells them itself.
pub fn ignore_interrupt() {
    // Safety: ignoring a signal has no handler and no shared state.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
    }
}

/// While it lives, writing to a connection that the other end has closed is an error of the call and does not end the program, however
/// it is written (writev(2) and sendfile(2) know no `MSG_NOSIGNAL`).
pub struct BrokenPipesAreErrors(());

impl BrokenPipesAreErrors {
    pub fn begin() -> BrokenPipesAreErrors {
        // Safety: ignoring a signal has no handler and no shared state.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        }
        BrokenPipesAreErrors(())
    }
}

impl Drop for BrokenPipesAreErrors {
    fn drop(&mut self) {
        default_broken_pipe();
    }
}

/// A closed pipe on standard output ends the program quietly, as for any filter in a shell.
pub fn default_broken_pipe() {
    // Safety: restores the default action, no handler involved.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}
