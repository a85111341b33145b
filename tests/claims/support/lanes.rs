//! Which tests run at the same time: all of them are threads of one program, and each waits until there is room for its kind.

use std::cell::RefCell;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

static MACHINE: RwLock<()> = RwLock::new(());
static MEASURES: Mutex<()> = Mutex::new(());
static MEASURES_LITTLE: Mutex<()> = Mutex::new(());
/// How many more may wait for what they started.
static ROOM: Mutex<usize> = Mutex::new(2);
static ROOM_AGAIN: Condvar = Condvar::new();
/// Tests that share the machine, waiting or running. Those that need all of it come last, one after the other: each would have to wait
/// until those that run have ended, and keep all others waiting.
static SHARING: Mutex<usize> = Mutex::new(0);
static NOBODY_SHARES: Condvar = Condvar::new();
/// By then every test of the program has said what it needs: all are threads from the start.
const ALL_HAVE_SAID: Duration = Duration::from_secs(2);
/// By how many steps of nice those that wait stand behind those that measure.
const STEPS_DOWN: i32 = 10;
const STEPS_DOWN_FOR_LITTLE: i32 = 5;
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
    /// `None`: it shares with nobody.
    _sharing: Option<Sharing>,
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

/// One more shares the machine.
pub struct Sharing;

impl Sharing {
    pub fn begin() -> Sharing {
        *SHARING.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Sharing
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        let mut sharing = SHARING.lock().unwrap_or_else(PoisonError::into_inner);
        *sharing -= 1;
        if *sharing == 0 {
            NOBODY_SHARES.notify_all();
        }
    }
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

fn measures(lane: &'static Mutex<()>) -> Lane {
    Lane::Measures(lane.lock().unwrap_or_else(PoisonError::into_inner))
}

fn all() -> Share {
    Share::All(MACHINE.write().unwrap_or_else(PoisonError::into_inner))
}

/// What the test of this thread starts is as modest. Where nothing may be changed, it is not.
fn step_down(steps: i32) {
    let _ = weir_sys::process::raise_thread_priority(-steps);
}

fn begin(lane: Lane, machine: Share, sharing: Option<Sharing>) -> Turn {
    SHARE.set(Some(machine));
    Turn { began: Instant::now(), _lane: lane, _sharing: sharing }
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
    let sharing = Sharing::begin();
    begin(measures(&MEASURES), some(), Some(sharing))
}

/// For a test that measures what takes little of a core, some 100 Mbit/s at most: beside one that measures more.
pub fn light() -> Turn {
    let sharing = Sharing::begin();
    let lane = measures(&MEASURES_LITTLE);
    step_down(STEPS_DOWN_FOR_LITTLE);
    begin(lane, some(), Some(sharing))
}

/// For a test that needs all of the machine.
pub fn alone() -> Turn {
    std::thread::sleep(ALL_HAVE_SAID);
    let sharing = SHARING.lock().unwrap_or_else(PoisonError::into_inner);
    drop(NOBODY_SHARES.wait_while(sharing, |sharing| *sharing > 0));
    let lane = measures(&MEASURES);
    begin(lane, all(), None)
}

/// For a test that starts programs and mostly waits for them: beside one that measures and few like it. What it judges must hold
/// however little of the machine is left for it.
pub fn beside() -> Turn {
    let sharing = Sharing::begin();
    let room = ROOM.lock().unwrap_or_else(PoisonError::into_inner);
    let mut room = ROOM_AGAIN.wait_while(room, |room| *room == 0).unwrap_or_else(PoisonError::into_inner);
    *room -= 1;
    drop(room);
    step_down(STEPS_DOWN);
    begin(Lane::Waits(Place), some(), Some(sharing))
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
