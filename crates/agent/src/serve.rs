//! The agent itself: `weir agent`, reading orders from standard input.

use crate::inputs::Inputs;
use crate::message::{self, FromAgent, HostReport, PROTOCOL, TO_AGENT_BYTES_MAX, ToAgent};
use data_encoding::BASE64;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use weir_core::Instant;
use weir_core::record::Series;
use weir_seams::sampler::SamplerTarget;
use weir_seams::workload::{Assignment, Control, Task, WorkloadEntry, WorkloadError};
use weir_sys::clock::{WaitWatch, monotonic};
use weir_sys::process::{User, act_as};
use weir_telemetry::{Schedule, Teller};
use weir_transport::frame::{read_frame, write_frame};

/// Most tasks at once; a scenario has a handful of steps.
const TASKS_MAX: usize = 256;

enum Slot {
    /// Being prepared in its own thread.
    Preparing,
    Ready(Box<dyn Task>, Option<User>),
    Running(Arc<Control>, Option<Teller>),
}

struct Shared<W: Write + Send> {
    /// This host's name in records.
    host: String,
    output: Mutex<W>,
    tasks: Mutex<BTreeMap<u64, Slot>>,
    /// Set when the coordinator is gone or said `Bye`.
    ended: AtomicBool,
    /// Held while chunks are taken and said, so that none comes after its task has finished.
    carrying: Mutex<()>,
    /// When the coordinator last asked for the clock; 0: never, and then its silence means nothing.
    asked_ns: AtomicU64,
    inputs: Mutex<Inputs>,
}

/// What the program around an agent gives it.
pub struct Host {
    pub report: HostReport,
    /// Ends the process: called when the coordinator, that kept asking for the clock, has fallen silent while its stream
    /// stays open, as a connection that was cut without a word does.
    pub abandon: fn(),
}

impl<W: Write + Send> Shared<W> {
    /// An output that fails means the coordinator is gone: the input will end too, so there is nobody left to tell.
    fn say(&self, message: &FromAgent) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        if write_frame(&mut *output, message).and_then(|()| output.flush()).is_err() {
            self.ended.store(true, Ordering::Relaxed);
        }
    }
    /// Answers at once, between other messages: the time that one of them takes is not the clock's.
    fn tell_clock(&self, sent_ns: u64, heard: Instant) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let answered_ns = monotonic().as_ns();
        let answer = FromAgent::Clock { sent_ns, heard_ns: heard.as_ns(), answered_ns };
        if write_frame(&mut *output, &answer).is_err() {
            self.ended.store(true, Ordering::Relaxed);
        }
    }
    fn inputs(&self) -> std::sync::MutexGuard<'_, Inputs> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn tell_input(&self, digest: String, have: std::io::Result<u64>) {
        let (have_bytes, problem) =
            have.map_or_else(|error| (0, Some(error.to_string())), |have| (have, None));
        self.say(&FromAgent::Input { digest, have_bytes, problem });
    }
    fn tasks(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Slot>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Passes on what fine series of a task wait.
    fn carry(&self, task: u64, control: &Control) {
        let Some(queue) = control.chunks() else { return };
        let _carrying = self.carrying.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(chunk) = queue.next() {
            self.say(&FromAgent::Chunk { task, chunk: Box::new(chunk) });
        }
    }
    /// Passes on what samplers have gathered beside the tasks that run.
    fn tell_series(&self) {
        let fresh = |(task, slot): (&u64, &mut Slot)| match slot {
            Slot::Running(_, Some(teller)) => Some((*task, teller.fresh())),
            _ => None,
        };
        let all: Vec<(u64, Vec<Series>)> = self.tasks().iter_mut().filter_map(fresh).collect();
        for (task, series) in all.into_iter().filter(|(_, series)| !series.is_empty()) {
            self.say(&FromAgent::Series { task, series });
        }
    }
    fn failed(&self, task: u64, error: WorkloadError) {
        self.tasks().remove(&task);
        self.say(&FromAgent::Failed { task, error });
    }
}

/// Serves one coordinator until it says `Bye` or its stream ends. Returns the process's exit status.
pub fn serve<R, W>(mut input: R, output: W, workloads: &'static [WorkloadEntry], host: Host) -> i32
where
    R: Read,
    W: Write + Send + 'static,
{
    let mut shared = Shared {
        host: String::new(),
        output: Mutex::new(output),
        tasks: Mutex::default(),
        ended: AtomicBool::new(false),
        carrying: Mutex::default(),
        asked_ns: AtomicU64::new(0),
        inputs: Mutex::default(),
    };
    match read_frame::<ToAgent>(&mut input, TO_AGENT_BYTES_MAX) {
        Ok(Some(ToAgent::Hello { protocol, version, schema, host })) => {
            if let Some(text) =
                message::mismatch(protocol, &version, &schema, ["at the coordinator", "at the agent"])
            {
                shared.say(&FromAgent::Refused { text });
                return 2;
            }
            shared.host = host;
        }
        Ok(Some(_)) => {
            shared.say(&FromAgent::Refused { text: "the first message was not a hello".to_owned() });
            return 2;
        }
        Ok(None) => return 0,
        Err(error) => {
            shared.say(&FromAgent::Refused {
                text: format!("standard input carries no agent messages: {error}"),
            });
            return 2;
        }
    }
    let shared = Arc::new(shared);
    shared.say(&FromAgent::Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        schema: weir_core::record::SUMMARY_SCHEMA.to_owned(),
        process: std::process::id(),
        monotonic_ns: monotonic().as_ns(),
        host: host.report,
    });
    let heart = thread::spawn({
        let shared = Arc::clone(&shared);
        move || beat(&shared, host.abandon)
    });
    let status = obey(&mut input, &shared, workloads);
    shared.ended.store(true, Ordering::Relaxed);
    abort_all(&shared);
    heart.thread().unpark();
    let _ = heart.join();
    status
}

fn obey<R: Read, W: Write + Send + 'static>(
    input: &mut R,
    shared: &Arc<Shared<W>>,
    workloads: &'static [WorkloadEntry],
) -> i32 {
    loop {
        match read_frame::<ToAgent>(input, TO_AGENT_BYTES_MAX) {
            Ok(Some(ToAgent::Input { digest, bytes })) => {
                let begun = shared.inputs().begin(&digest, bytes);
                shared.tell_input(digest, begun);
            }
            Ok(Some(ToAgent::Piece { digest, data })) => {
                let data = BASE64.decode(data.as_bytes()).map_err(std::io::Error::other);
                let added = data.and_then(|data| shared.inputs().add(&digest, &data));
                shared.tell_input(digest, added);
            }
            Ok(Some(ToAgent::Prepare { task, mut assignment })) => {
                let Some(entry) = workloads.iter().find(|entry| entry.name == assignment.workload) else {
                    let text = format!("this agent has no workload {:?}", assignment.workload);
                    shared.failed(task, WorkloadError::new(text));
                    continue;
                };
                if shared.tasks().len() >= TASKS_MAX {
                    shared.failed(task, WorkloadError::new(format!("more than {TASKS_MAX} tasks at once")));
                    continue;
                }
                shared.tasks().insert(task, Slot::Preparing);
                // Preparing connects and may wait for a peer; orders must be heard meanwhile.
                let shared = Arc::clone(shared);
                let named = {
                    let paths = std::mem::take(&mut assignment.inputs);
                    shared.inputs().put_into(&mut assignment.values, &paths)
                };
                let prepare = move || {
                    named.map_err(WorkloadError::new)?;
                    let user = acting_as(&assignment)?;
                    Ok((entry.build.prepare(&assignment)?, user))
                };
                thread::spawn(move || match prepare() {
                    Ok((ready, user)) => {
                        let address = ready.address();
                        shared.tasks().insert(task, Slot::Ready(ready, user));
                        shared.say(&FromAgent::Prepared { task, address });
                    }
                    Err(error) => shared.failed(task, error),
                });
            }
            Ok(Some(ToAgent::Start { task, at_ns, samplers })) => {
                start(shared, task, Instant::from_ns(at_ns), &samplers);
            }
            Ok(Some(ToAgent::Stop { task })) => steer(shared, task, Control::stop),
            Ok(Some(ToAgent::Abort { task })) => {
                steer(shared, task, Control::abort);
                // One that never started has nobody else to drop it.
                let mut tasks = shared.tasks();
                if matches!(tasks.get(&task), Some(Slot::Ready(..))) {
                    tasks.remove(&task);
                }
            }
            Ok(Some(ToAgent::Clock { sent_ns })) => {
                let heard = monotonic();
                shared.asked_ns.store(heard.as_ns(), Ordering::Relaxed);
                shared.tell_clock(sent_ns, heard);
            }
            Ok(Some(ToAgent::Bye)) | Ok(None) => return 0,
            Ok(Some(ToAgent::Hello { .. })) => {
                shared.say(&FromAgent::Refused { text: "a second hello".to_owned() });
                return 2;
            }
            Err(error) => {
                shared.say(&FromAgent::Refused { text: format!("unreadable order: {error}") });
                return 2;
            }
        }
    }
}

/// Has the calling thread be who the step says. Errors: there is no such user here, or we may not.
fn acting_as(assignment: &Assignment) -> Result<Option<User>, WorkloadError> {
    let Some(name) = assignment.values.text("user") else { return Ok(None) };
    let user = User::of(&name)
        .ok_or_else(|| WorkloadError::new(format!("`user`: {} has no account {name:?}", assignment.host)))?;
    act_as(user).map_err(refused)?;
    Ok(Some(user))
}

fn refused(error: std::io::Error) -> WorkloadError {
    WorkloadError::new(format!(
        "`user`: weir cannot act as another user here: {error}; run it as root, or leave `user` out"
    ))
}

fn abort_all<W: Write + Send>(shared: &Shared<W>) {
    for slot in shared.tasks().values() {
        if let Slot::Running(control, _) = slot {
            control.abort();
        }
    }
}

fn steer<W: Write + Send>(shared: &Shared<W>, task: u64, order: fn(&Control)) {
    if let Some(Slot::Running(control, _)) = shared.tasks().get(&task) {
        order(control);
    }
}

fn start<W: Write + Send + 'static>(shared: &Arc<Shared<W>>, task: u64, at: Instant, samplers: &[String]) {
    let control = Control::new(at);
    control.record();
    let ready = {
        let mut tasks = shared.tasks();
        match tasks.remove(&task) {
            Some(Slot::Ready(ready, user)) => {
                let watch = watch(&shared.host, samplers);
                let teller = watch.as_ref().map(Schedule::teller);
                tasks.insert(task, Slot::Running(Arc::clone(&control), teller));
                Some((ready, user, watch))
            }
            Some(other) => {
                tasks.insert(task, other);
                None
            }
            None => None,
        }
    };
    let Some((ready, user, watch)) = ready else {
        shared.say(&FromAgent::Failed {
            task,
            error: WorkloadError::new("told to start a task that is not ready"),
        });
        return;
    };
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        // A panic in a workload is our bug; it must fail its trial and not the agent.
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            user.map_or(Ok(()), |user| act_as(user).map_err(refused))?;
            let watch = WaitWatch::begin();
            let ran = ready.run(&control);
            control.waited(watch.end());
            ran
        }));
        match ran {
            Ok(Ok(mut outcome)) => {
                if let Some(began) = control.began() {
                    outcome.started_ns = began.as_ns();
                }
                outcome.waits = control.waits();
                outcome.series.extend(watch.map(Schedule::finish).unwrap_or_default());
                shared.carry(task, &control);
                shared.tasks().remove(&task);
                shared.say(&FromAgent::Finished { task, outcome: Box::new(outcome) });
            }
            Ok(Err(error)) => shared.failed(task, error),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word");
                let text = format!("the workload panicked: {text}: a bug in weir; please report it");
                shared.failed(task, WorkloadError::new(text));
            }
        }
    });
}

/// The samplers that watch this host while a task runs.
fn watch(host: &str, names: &[String]) -> Option<Schedule> {
    let target =
        SamplerTarget { host: host.to_owned(), processes: vec![(host.to_owned(), std::process::id())] };
    let samplers = weir_telemetry::build(names, &target, weir_telemetry::HOST_INTERVAL);
    (!samplers.is_empty()).then(|| Schedule::start(&format!("host.{host}"), samplers))
}

fn beat<W: Write + Send>(shared: &Shared<W>, abandon: fn()) {
    let mut told = monotonic();
    while !shared.ended.load(Ordering::Relaxed) {
        let asked = Instant::from_ns(shared.asked_ns.load(Ordering::Relaxed));
        if asked > Instant::ZERO && monotonic().since(asked) > message::COORDINATOR_SILENCE_MAX {
            abort_all(shared);
            abandon();
        }
        let running: Vec<(u64, Arc<Control>)> = shared
            .tasks()
            .iter()
            .filter_map(|(task, slot)| match slot {
                Slot::Running(control, _) => Some((*task, Arc::clone(control))),
                Slot::Preparing | Slot::Ready(..) => None,
            })
            .collect();
        let progress =
            running.iter().map(|(task, control)| (*task, control.progress(), control.sent())).collect();
        for (task, control) in &running {
            shared.carry(*task, control);
        }
        shared.say(&FromAgent::Heartbeat { monotonic_ns: monotonic().as_ns(), progress });
        if monotonic().since(told) >= message::SERIES_EVERY {
            told = monotonic();
            shared.tell_series();
        }
        thread::park_timeout(message::HEARTBEAT_EVERY);
    }
}
