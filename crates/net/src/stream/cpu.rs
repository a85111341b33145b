//! What a data thread has of the cores: its own time and its waiting, over the steady state.

use super::clock::Schedule;
use std::time::Duration;
use weir_core::time::nanoseconds;
use weir_sys::clock::{self, ThreadMark};

/// CPU time of a data thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadCpu {
    /// From the start to its end, drain included.
    pub total_ns: u64,
    pub sends: bool,
    pub receives: bool,
    /// When the steady state began and ended for it.
    steady_start: Option<ThreadMark>,
    steady_end: Option<ThreadMark>,
}

impl ThreadCpu {
    pub fn of(sends: bool, receives: bool) -> ThreadCpu {
        ThreadCpu { sends, receives, ..ThreadCpu::default() }
    }

    /// To be called with the time now and then: notes the edges of the steady state that have been passed.
    pub fn look(&mut self, schedule: &Schedule, now_ns: u64) {
        if self.steady_start.is_none() && now_ns >= schedule.warm_ns {
            self.steady_start = Some(ThreadMark::at(now_ns));
        }
        if self.steady_end.is_none() && now_ns >= schedule.end_ns {
            self.steady_end = Some(ThreadMark::at(now_ns));
        }
    }

    /// The thread is through at `now_ns`; its CPU time was `before` at the start.
    pub fn end(&mut self, schedule: &Schedule, before: Duration, now_ns: u64) {
        self.look(schedule, now_ns);
        let cpu = clock::thread_cpu_time();
        // A step bounded by bytes has no planned end.
        self.steady_end.get_or_insert_with(|| ThreadMark::at(now_ns));
        self.total_ns = nanoseconds(cpu.saturating_sub(before));
    }

    /// Shares of the steady state that it spent on a core, and waiting for one; `None` when there was none.
    pub fn shares(&self) -> Option<(f64, f64)> {
        self.steady_end?.shares_since(&self.steady_start?)
    }
}
