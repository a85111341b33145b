//! How long a thread that measures or carries was ready and had no core, and in how long waits.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use weir_core::Instant;
use weir_core::behind::Behind;

/// The kernel is asked when a thread reads the clock so long after it read it last, since it may have waited meanwhile,
const GAP_NS: u64 = 1_000_000;
/// and so often while it reads the clock all the time.
const LOOK_NS: u64 = 10_000_000;

/// The waits of the calling thread, by its line in `/proc`. It keeps the file open: a look is one system call.
pub struct ThreadWaits {
    file: File,
    waited_ns: u64,
    slices: u64,
}

impl ThreadWaits {
    /// From now on. `None` where the kernel keeps no such statistics.
    pub fn new() -> Option<ThreadWaits> {
        let file = File::open("/proc/thread-self/schedstat").ok()?;
        let mut waits = ThreadWaits { file, waited_ns: 0, slices: 0 };
        (waits.waited_ns, waits.slices) = waits.read()?;
        Some(waits)
    }

    fn read(&self) -> Option<(u64, u64)> {
        let mut line = [0; 96];
        let used = self.file.read_at(&mut line, 0).ok()?;
        parse(&line[..used])
    }

    /// How often the thread was given a core since the last look, and how long it waited for it each time, on average.
    pub fn look(&mut self) -> (u64, u64) {
        let Some((waited_ns, slices)) = self.read() else { return (0, 0) };
        let times = slices.saturating_sub(self.slices);
        let grown_ns = waited_ns.saturating_sub(self.waited_ns);
        (self.waited_ns, self.slices) = (waited_ns, slices);
        (times, grown_ns / times.max(1))
    }
}

/// Time waited and slices, of a line of `schedstat`: time run, time waited, slices.
fn parse(line: &[u8]) -> Option<(u64, u64)> {
    let mut numbers = std::str::from_utf8(line).ok()?.split_ascii_whitespace().skip(1);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

struct Watched {
    waits: ThreadWaits,
    behind: Behind,
}

thread_local! {
    /// When this thread read the clock last; `u64::MAX` while it is not watched.
    static READ_NS: Cell<u64> = const { Cell::new(u64::MAX) };
    static LOOK_AT_NS: Cell<u64> = const { Cell::new(0) };
    static WATCHED: RefCell<Option<Watched>> = const { RefCell::new(None) };
}

/// Called with every reading of the clock, which every loop that measures makes: no loop has to remember to look.
#[inline]
pub(super) fn clock_read(now: Instant) {
    let before_ns = READ_NS.get();
    if before_ns == u64::MAX {
        return;
    }
    let now_ns = now.as_ns();
    READ_NS.set(now_ns);
    if now_ns.saturating_sub(before_ns) >= GAP_NS || now_ns >= LOOK_AT_NS.get() {
        look(now_ns);
    }
}

#[cold]
fn look(now_ns: u64) {
    LOOK_AT_NS.set(now_ns + LOOK_NS);
    WATCHED.with_borrow_mut(|watched| {
        if let Some(Watched { waits, behind }) = watched {
            let (times, each_ns) = waits.look();
            behind.add(0, each_ns, times);
        }
    });
}

/// The calling thread's waits are watched from `begin` to `end`.
pub struct WaitWatch {
    /// It is of this thread.
    not_send: PhantomData<*const ()>,
}

impl WaitWatch {
    pub fn begin() -> WaitWatch {
        let watched = ThreadWaits::new().map(|waits| Watched { waits, behind: Behind::default() });
        READ_NS.set(if watched.is_some() { 0 } else { u64::MAX });
        WATCHED.set(watched);
        WaitWatch { not_send: PhantomData }
    }

    /// The waits, by their length.
    pub fn end(self) -> Behind {
        look(0);
        WATCHED.take().map(|watched| watched.behind).unwrap_or_default()
    }
}

impl Drop for WaitWatch {
    fn drop(&mut self) {
        READ_NS.set(u64::MAX);
        WATCHED.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::super::monotonic;
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_line_of_the_kernel_gives_the_wait_and_the_slices_and_another_gives_nothing() {
        assert_eq!(parse(b"13265 992170 7\n"), Some((992_170, 7)));
        assert_eq!([parse(b"13265 992170"), parse(b""), parse(b"1 x 2"), parse(b"\xff 1 2")], [None; 4]);
    }

    // Spec: evidence.md#fitness-4
    #[test]
    fn a_watched_thread_that_shares_its_core_sees_its_long_waits_by_reading_the_clock() {
        if ThreadWaits::new().is_none() {
            eprintln!("skipped: this kernel keeps no scheduling statistics");
            return;
        }
        let threads = 4 * std::thread::available_parallelism().map_or(1, usize::from) + 2;
        let until = monotonic() + Duration::from_millis(300);
        let longest: Vec<u64> = std::thread::scope(|scope| {
            let spin = |watched: bool| {
                let watch = watched.then(WaitWatch::begin);
                while monotonic() < until {}
                watch.map_or(0, |watch| watch.end().longest_ns())
            };
            let all: Vec<_> = (0..threads).map(|index| scope.spawn(move || spin(index % 2 == 0))).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(longest.iter().any(|longest| *longest > 500_000), "{longest:?}");
        assert!(longest.iter().skip(1).step_by(2).all(|longest| *longest == 0), "{longest:?}");
    }
}
