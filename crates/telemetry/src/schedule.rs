//! Runs samplers at their intervals in one thread of their own, within a budget of CPU time.

use crate::proc_file::{Quantity, Recorder};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use weir_core::Instant;
use weir_core::record::Series;
use weir_seams::sampler::{Sampler, SeriesView};
use weir_sys::clock::{monotonic, sleep_until, thread_cpu_time};

/// Share of one core that all samplers of a schedule together may take.
pub const COST_MAX: f64 = 0.01;

/// The schedule's own series: what sampling has cost so far.
pub(crate) const COST: Quantity = Quantity::counter("telemetry.cpu_seconds", "s");

/// The cost is noted with the first sample after so long.
const COST_EVERY: Duration = Duration::from_millis(90);

struct Slot {
    /// The interval asked for; the one kept is this times the stretch.
    asked: Duration,
    due: Instant,
    sampler: Box<dyn Sampler>,
    cost: Cost,
}

/// What one sample costs: a moving mean over about eight, the very first left out, which pays for cold caches.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    samples: u64,
    mean_seconds: f64,
}

impl Cost {
    fn add(&mut self, seconds: f64) {
        self.samples += 1;
        self.mean_seconds = match self.samples {
            1 | 2 => seconds,
            _ => self.mean_seconds + (seconds - self.mean_seconds) / 8.0,
        };
    }
}

/// By how much all intervals are stretched so that the whole stays within its budget; never below 1. `costs`: the
/// interval asked for and the cost of one sample, in seconds.
fn stretch(costs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let total: f64 = costs.map(|(every, cost)| cost / every.max(1e-6)).sum();
    (total / COST_MAX).max(1.0)
}

struct State {
    slots: Vec<Slot>,
    spent: Duration,
    noted: Instant,
    costs: Recorder,
    entity: String,
}

type Shared = Arc<Mutex<State>>;

/// Tells what a schedule has gathered while it runs; the schedule keeps it all.
pub struct Teller {
    state: Shared,
    /// What was read until then is told.
    told_ns: i64,
}

impl Teller {
    /// What came since this was asked last, each series from its last told sample on; of a counter that stood still nothing.
    pub fn fresh(&mut self) -> Vec<Series> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Samples are taken under the lock, so those to come are later.
        let now_ns = i64::try_from(monotonic().as_ns()).unwrap_or(i64::MAX);
        let told_ns = std::mem::replace(&mut self.told_ns, now_ns);
        let mut fresh = Vec::new();
        let mut tell = |series: SeriesView<'_>| fresh.extend(series.after(told_ns));
        state.costs.show(&mut tell);
        state.slots.iter().for_each(|slot| slot.sampler.show(&mut tell));
        fresh
    }
}

/// A running schedule; ends when it is dropped.
pub struct Schedule {
    state: Shared,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Schedule {
    /// Samples each sampler every so often, on an absolute grid from now. A late sample keeps its true time and is not
    /// repeated to catch up. Where all of them together would cost more than `COST_MAX` of a core, all intervals stretch alike;
    /// the series' timestamps show it. `entity` names whose cost it is: `machine`, `host.NAME`.
    pub fn start(entity: &str, samplers: Vec<(Duration, Box<dyn Sampler>)>) -> Schedule {
        let now = monotonic();
        let slots = samplers
            .into_iter()
            .map(|(asked, sampler)| Slot { asked, due: now, sampler, cost: Cost::default() })
            .collect();
        let state: Shared = Arc::new(Mutex::new(State {
            slots,
            spent: Duration::ZERO,
            noted: Instant::ZERO,
            costs: Recorder::default(),
            entity: entity.to_owned(),
        }));
        let ended = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (state, ended) = (Arc::clone(&state), Arc::clone(&ended));
            move || {
                while !ended.load(Ordering::Relaxed) {
                    let next = state.lock().unwrap_or_else(PoisonError::into_inner).turn();
                    // Bounded, so that the end is noticed soon.
                    sleep_until(next.min(monotonic() + Duration::from_millis(50)));
                }
            }
        });
        Schedule { state, ended, thread: Some(thread) }
    }

    pub fn teller(&self) -> Teller {
        Teller { state: Arc::clone(&self.state), told_ns: i64::MIN }
    }

    /// Ends the schedule after a last sample of everything and hands over all series.
    pub fn finish(mut self) -> Vec<Series> {
        self.end();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = monotonic();
        state.note_cost(now);
        let mut all: Vec<Series> = state.costs.take();
        for slot in &mut state.slots {
            slot.sampler.sample(now);
            all.extend(slot.sampler.take());
        }
        all
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

impl State {
    /// Samples what is due; returns when the next one is.
    fn turn(&mut self) -> Instant {
        let stretch =
            stretch(self.slots.iter().map(|slot| (slot.asked.as_secs_f64(), slot.cost.mean_seconds)));
        let mut soonest = Instant::NEVER;
        let mut sampled = false;
        for slot in &mut self.slots {
            let now = monotonic();
            if now >= slot.due {
                let before = thread_cpu_time();
                slot.sampler.sample(now);
                let cost = thread_cpu_time().saturating_sub(before);
                self.spent += cost;
                slot.cost.add(cost.as_secs_f64());
                let every = slot.asked.mul_f64(stretch).max(Duration::from_micros(1));
                let missed = now.since(slot.due).as_nanos() / every.as_nanos();
                slot.due = slot.due
                    + Duration::from_nanos(
                        u64::try_from((missed + 1) * every.as_nanos()).unwrap_or(u64::MAX),
                    );
                sampled = true;
            }
            soonest = soonest.min(slot.due);
        }
        let now = monotonic();
        if sampled && now.since(self.noted) >= COST_EVERY {
            self.note_cost(now);
        }
        soonest
    }

    fn note_cost(&mut self, now: Instant) {
        self.noted = now;
        self.costs.put(now, &self.entity, &COST, self.spent.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Burns this much CPU a sample.
    struct Dear(Duration, u64);

    impl Sampler for Dear {
        fn sample(&mut self, _now: Instant) {
            let until = thread_cpu_time() + self.0;
            while thread_cpu_time() < until {}
            self.1 += 1;
        }
        fn show(&self, _to: &mut dyn FnMut(SeriesView<'_>)) {}
        fn take(&mut self) -> Vec<Series> {
            vec![Series { name: "count".to_owned(), value: vec![self.1 as f64], ..Series::default() }]
        }
    }

    /// Counts its samples, each with its time.
    #[derive(Default)]
    struct Count(Series);

    impl Sampler for Count {
        fn sample(&mut self, now: Instant) {
            self.0.t_ns.push(now.as_ns() as i64);
            self.0.value.push(self.0.t_ns.len() as f64);
        }
        fn show(&self, to: &mut dyn FnMut(SeriesView<'_>)) {
            to((&self.0).into());
        }
        fn take(&mut self) -> Vec<Series> {
            vec![std::mem::take(&mut self.0)]
        }
    }

    // Spec: results.md#results-19
    #[test]
    fn what_is_told_while_a_schedule_runs_is_what_it_hands_over_in_the_end() {
        let count = Count(Series { name: "count".to_owned(), cumulative: true, ..Series::default() });
        let schedule = Schedule::start("machine", vec![(Duration::from_millis(2), Box::new(count))]);
        let mut teller = schedule.teller();
        let mut told: Vec<(i64, f64)> = Vec::new();
        while told.len() < 20 {
            std::thread::sleep(Duration::from_millis(5));
            let fresh = teller.fresh();
            for series in fresh.iter().filter(|it| it.name == "count") {
                let new = series.t_ns.iter().copied().zip(series.value.iter().copied());
                let (again, new): (Vec<_>, Vec<_>) = new.partition(|it| told.last() >= Some(it));
                assert!(again.len() <= 1 && again.last().is_none_or(|it| Some(it) == told.last()));
                told.extend(new);
            }
        }
        let all = schedule.finish();
        let whole = all.iter().find(|it| it.name == "count").unwrap();
        let first: Vec<(i64, f64)> =
            whole.t_ns.iter().copied().zip(whole.value.iter().copied()).take(told.len()).collect();
        assert_eq!(told, first);
        assert!(teller.fresh().is_empty(), "what was handed over is not told again");
    }

    #[test]
    fn intervals_stretch_by_what_the_samplers_cost_beyond_their_budget_and_by_nothing_below() {
        assert_eq!(stretch([(0.1, 0.000_5), (0.01, 0.000_02)].into_iter()), 1.0);
        // 2 ms every 100 ms and 0.1 ms every 10 ms are 3 % of a core.
        assert!((stretch([(0.1, 0.002), (0.01, 0.000_1)].into_iter()) - 3.0).abs() < 1e-9);
        assert_eq!(stretch(std::iter::empty()), 1.0);
    }

    #[test]
    fn a_dear_sampler_is_read_seldom_and_its_cost_stays_within_the_budget() {
        let schedule = Schedule::start(
            "machine",
            vec![(Duration::from_millis(1), Box::new(Dear(Duration::from_micros(500), 0)))],
        );
        let began = monotonic();
        std::thread::sleep(Duration::from_millis(800));
        let length = monotonic().since(began).as_secs_f64();
        let series = schedule.finish();
        let count = series.iter().find(|it| it.name == "count").unwrap().value[0];
        // 800 were asked for; 16 are 1 %. The first two come before the cost is known, and one when it ends.
        assert!((2.0..=20.0 + length * 20.0).contains(&count), "{count} samples in {length} s");
        let cost = series.iter().find(|it| it.name == COST.name).unwrap();
        let spent = cost.value.last().unwrap();
        assert!((0.001..=0.03).contains(spent), "{spent}");
    }
}
