//! Answers that are due later.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

type Work = Box<dyn FnOnce() + Send>;

struct Entry {
    due: Instant,
    number: u64,
    work: Work,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.number) == (other.due, other.number)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

#[derive(Default)]
struct Waiting {
    entries: BinaryHeap<Reverse<Entry>>,
    number: u64,
}

/// One thread that carries out work at its time, in the order of times and of coming.
#[derive(Clone)]
pub struct Due {
    waiting: Arc<(Mutex<Waiting>, Condvar)>,
}

impl Due {
    pub fn start() -> io::Result<Due> {
        let due = Due { waiting: Arc::default() };
        let own = due.clone();
        thread::Builder::new().name("due".to_owned()).spawn(move || own.run())?;
        Ok(due)
    }

    pub fn at(&self, due: Instant, work: impl FnOnce() + Send + 'static) {
        let (waiting, bell) = &*self.waiting;
        let mut waiting = waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        waiting.number += 1;
        let number = waiting.number;
        let is_next = waiting.entries.peek().is_none_or(|Reverse(next)| due < next.due);
        waiting.entries.push(Reverse(Entry { due, number, work: Box::new(work) }));
        drop(waiting);
        if is_next {
            bell.notify_one();
        }
    }

    fn run(&self) {
        // Timers of this thread are not put together with others'.
        weir_sys::clock::set_timer_slack_least();
        let (waiting, bell) = &*self.waiting;
        let mut held = waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // How late this thread wakes, so that it asks to be woken so much before; the rest it waits awake.
        let mut late = Duration::ZERO;
        loop {
            let left =
                held.entries.peek().map(|Reverse(next)| next.due.saturating_duration_since(Instant::now()));
            match left {
                Some(left) if left <= late => {
                    let Some(Reverse(entry)) = held.entries.pop() else { continue };
                    drop(held);
                    while Instant::now() < entry.due {
                        std::hint::spin_loop();
                    }
                    (entry.work)();
                    held = waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                }
                Some(left) => {
                    let wake = Instant::now() + (left - late);
                    let woken =
                        bell.wait_timeout(held, left - late).unwrap_or_else(|poisoned| poisoned.into_inner());
                    held = woken.0;
                    if woken.1.timed_out() {
                        let own = wake.elapsed().min(LATE_MAX);
                        late = (late * 7 + own) / 8;
                    }
                }
                None => held = bell.wait(held).unwrap_or_else(|poisoned| poisoned.into_inner()),
            }
        }
    }
}

/// A thread that wakes later than this was kept from its core, which is no reason to wait awake.
const LATE_MAX: Duration = Duration::from_micros(150);
