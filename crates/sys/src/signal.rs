//! Signals that ask the program to end, and those that come instead of an error.

use std::sync::atomic::{AtomicU32, Ordering};

static ASKED: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_signal: libc::c_int) {
    ASKED.fetch_add(1, Ordering::Relaxed);
}

/// From now on SIGINT and SIGTERM are counted instead of ending the process.
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

/// Leaves what a terminal sends to the program that runs in the foreground, as shells do.
pub fn ignore_the_terminal() {
    set(&[libc::SIGINT, libc::SIGQUIT], libc::SIG_IGN);
}

/// From now on a write that the other end, or the limit of file sizes (`ulimit -f`), does not take is an error of the call and
/// does not end the program, however it is written (writev(2) and sendfile(2) know no `MSG_NOSIGNAL`). For the whole program
/// and once: what is switched on and off is off in some other thread's write.
pub fn failed_writes_are_errors() {
    set(&[libc::SIGPIPE, libc::SIGXFSZ], libc::SIG_IGN);
}

/// Takes that back: another program expects to be started with these signals as they are by default.
pub fn failed_writes_end_the_program() {
    set(&[libc::SIGPIPE, libc::SIGXFSZ], libc::SIG_DFL);
}

/// Ends the program as any filter in a shell ends whose reader has gone.
pub fn end_by_broken_pipe() -> ! {
    /// Where a starter left the signal blocked: what a shell says of one that died of it.
    const STATUS: i32 = 128 + libc::SIGPIPE;
    set(&[libc::SIGPIPE], libc::SIG_DFL);
    // Safety: takes a number; the default action ends the process.
    unsafe {
        libc::raise(libc::SIGPIPE);
    }
    std::process::exit(STATUS)
}

fn set(signals: &[libc::c_int], action: libc::sighandler_t) {
    for signal in signals {
        // Safety: both actions are the kernel's own, no handler is involved. Async-signal-safe, so also between fork and exec.
        unsafe {
            libc::signal(*signal, action);
        }
    }
}
