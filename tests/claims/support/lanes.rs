//! Which tests run at the same time: all of them are threads of one program, and each waits until there is room for its kind.

use std::cell::RefCell;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

static MACHINE: RwLock<()> = RwLock::new(());
static MEASURES: Mutex<()> = Mutex::new(());
/// How many more may wait for what they started.
static ROOM: Mutex<usize> = Mutex::new(2);
static ROOM_AGAIN: Condvar = Condvar::new();
/// By how many steps of nice those that wait stand behind those that measure.
const STEPS_DOWN: i32 = 10;
/// Each test adds a line here: how long it took since its turn came, in seconds, and its name.
const TIMES: &str = "WEIR_TEST_TIMES";

thread_local! {
    /// What the test of this thread has of the machine.
    static SHARE: RefCell<Option<Share>> = const { RefCell::new(None) };
}

/// A test's time; it ends with it.
#[must_use]
pub struct Turn {
    began: Instant,
    _lane: Lane,
}

#[expect(dead_code, reason = "held, not read")]
enum Share {
    Some(RwLockReadGuard<'static, ()>),
    All(RwLockWriteGuard<'static, ()>),
}

#[expect(dead_code, reason = "held, not read")]
enum Lane {
    Measures(MutexGuard<'static, ()>),
    Waits(Place),
}

/// A place among those that wait.
struct Place;

impl Drop for Place {
    fn drop(&mut self) {
        *ROOM.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        ROOM_AGAIN.notify_one();
    }
}

fn some() -> Share {
    Share::Some(MACHINE.read().unwrap_or_else(PoisonError::into_inner))
}

fn measures() -> Lane {
    Lane::Measures(MEASURES.lock().unwrap_or_else(PoisonError::into_inner))
}

fn all() -> Share {
    Share::All(MACHINE.write().unwrap_or_else(PoisonError::into_inner))
}

fn begin(lane: Lane, machine: Share) -> Turn {
    SHARE.set(Some(machine));
    Turn { began: Instant::now(), _lane: lane }
}

/// From now on the test of this thread has all of the machine: others were in its way.
pub fn take_all() {
    if !SHARE.with_borrow(|share| matches!(share, Some(Share::All(_)))) {
        // Who keeps a part while he waits for all waits for himself.
        SHARE.set(None);
        SHARE.set(Some(all()));
    }
}

/// For a test that measures: two at once would measure each other.
pub fn turn() -> Turn {
    begin(measures(), some())
}

/// For a test that needs all of the machine.
pub fn alone() -> Turn {
    let lane = measures();
    begin(lane, all())
}

/// For a test that starts programs and mostly waits for them: beside one that measures and few like it. What it judges must hold
/// however little of the machine is left for it.
pub fn beside() -> Turn {
    let room = ROOM.lock().unwrap_or_else(PoisonError::into_inner);
    let mut room = ROOM_AGAIN.wait_while(room, |room| *room == 0).unwrap_or_else(PoisonError::into_inner);
    *room -= 1;
    drop(room);
    // What it starts is as modest. Where nothing may be changed, it is not.
    let _ = weir_sys::process::raise_thread_priority(-STEPS_DOWN);
    begin(Lane::Waits(Place), some())
}

impl Drop for Turn {
    fn drop(&mut self) {
        SHARE.set(None);
        let (Some(file), Some(name)) =
            (std::env::var_os(TIMES), std::thread::current().name().map(str::to_owned))
        else {
            return;
        };
        let line = format!("{:.3}\t{name}\n", self.began.elapsed().as_secs_f64());
        let file = std::fs::OpenOptions::new().append(true).create(true).open(file);
        // A time that is not told fails nothing.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}
