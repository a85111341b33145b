//! Runs samplers at their intervals in one thread of their own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use weir_core::Instant;
use weir_core::record::Series;
use weir_seams::sampler::Sampler;
use weir_sys::clock::{monotonic, sleep_until};

type Shared = Arc<Mutex<Vec<(Duration, Instant, Box<dyn Sampler>)>>>;

/// A running schedule; ends when it is dropped.
pub struct Schedule {
    samplers: Shared,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Schedule {
    /// Samples each sampler every so often, on an absolute grid from now. A late sample keeps its true time and is not
    /// repeated to catch up.
    pub fn start(samplers: Vec<(Duration, Box<dyn Sampler>)>) -> Schedule {
        let now = monotonic();
        let samplers: Shared = Arc::new(Mutex::new(
            samplers.into_iter().map(|(every, sampler)| (every, now, sampler)).collect(),
        ));
        let ended = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (samplers, ended) = (Arc::clone(&samplers), Arc::clone(&ended));
            move || {
                while !ended.load(Ordering::Relaxed) {
                    let next = turn(&samplers);
                    // Bounded, so that the end is noticed soon.
                    sleep_until(next.min(monotonic() + Duration::from_millis(50)));
                }
            }
        });
        Schedule { samplers, ended, thread: Some(thread) }
    }

    /// Ends the schedule after a last sample of everything and hands over all series.
    pub fn finish(mut self) -> Vec<Series> {
        self.end();
        let mut samplers = self.samplers.lock().unwrap_or_else(PoisonError::into_inner);
        let now = monotonic();
        samplers
            .iter_mut()
            .flat_map(|(_, _, sampler)| {
                sampler.sample(now);
                sampler.take()
            })
            .collect()
    }

    fn end(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Schedule {
    fn drop(&mut self) {
        self.end();
    }
}

/// Samples what is due; returns when the next one is.
fn turn(samplers: &Shared) -> Instant {
    let mut samplers = samplers.lock().unwrap_or_else(PoisonError::into_inner);
    let mut soonest = Instant::NEVER;
    for (every, due, sampler) in samplers.iter_mut() {
        let now = monotonic();
        if now >= *due {
            sampler.sample(now);
            let missed = now.since(*due).as_nanos() / every.as_nanos().max(1);
            *due = *due
                + Duration::from_nanos(u64::try_from((missed + 1) * every.as_nanos()).unwrap_or(u64::MAX));
        }
        soonest = soonest.min(*due);
    }
    soonest
}
