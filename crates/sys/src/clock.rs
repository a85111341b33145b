//! Clocks: the experiment's clock and what a thread has cost.

mod waits;

use std::time::Duration;
use weir_core::Instant;

pub use waits::{ThreadWaits, WaitWatch};

fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Safety: `time` is a valid timespec for the call to fill; the clocks used here exist on every Linux.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(result, 0, "clock {clock} cannot be read");
    time
}

/// Now on the experiment's clock (`CLOCK_MONOTONIC`): the same in every process of this machine.
pub fn monotonic() -> Instant {
    let time = read(libc::CLOCK_MONOTONIC);
    let now = Instant::from_ns(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
    waits::clock_read(now);
    now
}

/// Which clock `monotonic` reads: two processes with the same answer read the same one. The kernel's boot and the process's
/// time namespace are in it. `None` where `/proc` does not tell.
pub fn identity() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // A kernel without time namespaces has one clock for all.
    let namespace = std::fs::read_link("/proc/self/ns/time").ok();
    let namespace = namespace.as_ref().map_or_else(String::new, |path| path.display().to_string());
    Some(format!("{} {namespace}", boot.trim()))
}

/// Time the calling thread has spent on a CPU, user and system.
pub fn thread_cpu_time() -> Duration {
    let time = read(libc::CLOCK_THREAD_CPUTIME_ID);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU time of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    pub user: Duration,
    pub system: Duration,
}

impl CpuTime {
    /// What was added to `before`.
    pub fn since(&self, before: CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
        }
    }
}

/// CPU time of all threads of this process so far.
pub fn process_cpu_time() -> CpuTime {
    // Safety: all zeros is a valid `rusage`, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000);
    CpuTime { user: time(usage.ru_utime), system: time(usage.ru_stime) }
}

/// Time the calling thread could have run and waited for a core: other threads had it, or a control group's quota was used
/// up. `None` where the kernel keeps no such statistics (`/proc/thread-self/schedstat`, since Linux 2.6.23 where
/// `CONFIG_SCHED_INFO` is set). Opens a file: for the edges of a measurement, not for its inner loop.
pub fn thread_cpu_wait_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// What a thread has had of the cores until a moment. Opens a file, as `thread_cpu_wait_time` does: for the edges of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct ThreadMark {
    at_ns: u64,
    ran: Duration,
    /// 0 where the kernel does not say.
    waited: Duration,
}

impl ThreadMark {
    /// Of the calling thread; `at_ns` is the time now, on any clock that its other marks share.
    pub fn at(at_ns: u64) -> ThreadMark {
        ThreadMark { at_ns, ran: thread_cpu_time(), waited: thread_cpu_wait_time().unwrap_or_default() }
    }

    /// Shares of the time since `before` that the thread spent on a core, and that it could have run and waited for one; `None` when no
    /// time has passed.
    pub fn shares_since(&self, before: &ThreadMark) -> Option<(f64, f64)> {
        let passed_ns = self.at_ns.checked_sub(before.at_ns).filter(|passed_ns| *passed_ns > 0)?;
        let share = |after: Duration, before: Duration| {
            after.saturating_sub(before).as_nanos() as f64 / passed_ns as f64
        };
        Some((share(self.ran, before.ran), share(self.waited, before.waited)))
    }
}

/// Sleeps until `at`, whatever signals arrive meanwhile; returns at once when it is past.
pub fn sleep_until(at: Instant) {
    let until = timespec(Duration::from_nanos(at.as_ns()));
    loop {
        // Safety: `until` outlives the call, and a null remainder is allowed for an absolute sleep.
        let result = unsafe {
            libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &until, std::ptr::null_mut())
        };
        if result != libc::EINTR {
            return;
        }
    }
}

/// Makes the calling thread's timers fire when they are due instead of up to 50 µs later.
pub fn set_timer_slack_least() {
    // Safety: this option takes one number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

pub(crate) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(duration.subsec_nanos() as i32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_until_an_instant_does_not_return_before_it() {
        let until = monotonic() + Duration::from_millis(3);
        sleep_until(until);
        assert!(monotonic() >= until);
        sleep_until(Instant::ZERO);
    }

    #[test]
    fn a_thread_that_shares_its_core_waits_for_it_and_one_that_sleeps_does_not() {
        let Some(before) = thread_cpu_wait_time() else {
            eprintln!("skipped: this kernel keeps no scheduling statistics");
            return;
        };
        sleep_until(monotonic() + Duration::from_millis(50));
        let slept = thread_cpu_wait_time().unwrap().saturating_sub(before);
        assert!(slept < Duration::from_millis(50), "{slept:?}");
        // More threads than cores, all busy: each must wait for the others.
        let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from) + 2;
        let until = monotonic() + Duration::from_millis(300);
        let waited: Vec<Duration> = std::thread::scope(|scope| {
            let spin = || {
                while monotonic() < until {}
                thread_cpu_wait_time().unwrap()
            };
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(spin)).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let sum: Duration = waited.iter().sum();
        assert!(sum > Duration::from_millis(100), "{waited:?}");
    }
}
