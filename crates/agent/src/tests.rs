//! Agents in threads, over pipes, with workloads that misbehave.

use crate::fleet::{Event, Fleet};
use crate::job::{Interrupt, Observer, StepJob, StepResult};
use crate::launcher::LocalLauncher;
use crate::message::{FromAgent, HostReport, PROTOCOL, ToAgent};
use crate::serve::{Host, serve};
use crate::step::run_trial;
use std::collections::BTreeMap;
use std::io::{Write, pipe};
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Duration;
use weir_core::metric::Metric;
use weir_core::scenario::StepStart;
use weir_core::scenario::{Opening, Shape};
use weir_core::{Instant, Values};
use weir_seams::Entry;
use weir_seams::launcher::{LaunchError, Launched, Launcher, Process};
use weir_seams::workload::{
    Assignment, Control, DeriveContext, Derived, Estimate, Outcome, Peer, StepRequest, Task, Workload,
    WorkloadEntry, WorkloadError,
};
use weir_sys::clock::{monotonic, sleep_until};
use weir_transport::frame::write_frame;

/// Behaves as its `body` says.
struct Fake;
struct FakeTask(Assignment);

impl Workload for Fake {
    fn roles(&self) -> &'static [weir_core::scenario::RoleKey] {
        weir_core::scenario::FROM_TO
    }
    fn metrics(&self) -> &'static [Metric] {
        &[]
    }
    fn estimate(&self, _values: &Values, _shape: &Shape) -> Result<Estimate, WorkloadError> {
        Ok(Estimate::bounded(Duration::from_millis(50)))
    }
    fn opening(&self, _values: &Values) -> Opening {
        Opening { limit: Duration::from_secs(1), round_trips: 1 }
    }
    fn assignments(&self, request: &StepRequest<'_>) -> Vec<Assignment> {
        let assignment = |host: &str, stage, role: &str| Assignment {
            workload: "fake".to_owned(),
            step: request.step.to_owned(),
            host: host.to_owned(),
            stage,
            role: role.to_owned(),
            values: request.values.clone(),
            peers: Default::default(),
            data_ports: None,
            key: request.key.to_owned(),
            inputs: BTreeMap::new(),
            body: request.step.into(),
        };
        let both = |(from, to): &(Peer, Peer)| {
            [assignment(&to.host, 0, "accept"), assignment(&from.host, 1, "connect")]
        };
        request.pairs.iter().flat_map(both).collect()
    }
    fn inputs(&self, values: &Values) -> Vec<String> {
        values.texts("reads")
    }
    fn derive(&self, _context: &DeriveContext<'_>, _outcomes: &[Outcome]) -> Derived {
        Derived::default()
    }
    fn prepare(&self, assignment: &Assignment) -> Result<Box<dyn Task>, WorkloadError> {
        if assignment.body == "refuses" {
            return Err(WorkloadError::new("port 1 is in use"));
        }
        if assignment.role == "connect" && assignment.peers.is_empty() {
            return Err(WorkloadError::new("the acceptor's address is missing"));
        }
        Ok(Box::new(FakeTask(assignment.clone())))
    }
}

impl Task for FakeTask {
    fn address(&self) -> Option<String> {
        (self.0.role == "accept").then(|| "127.0.0.1:1".to_owned())
    }
    fn run(self: Box<Self>, control: &Control) -> Result<Outcome, WorkloadError> {
        sleep_until(control.start_at());
        let started_ns = monotonic().as_ns();
        control.advance(1000);
        if self.0.body == "panics" {
            panic!("as asked");
        }
        if self.0.body == "long" {
            while !control.stopping() {
                thread::sleep(Duration::from_millis(5));
            }
        }
        let read = |path: String| (path.clone(), std::fs::read(&path).map_or(0, |content| content.len()));
        let body = serde_json::to_value(self.0.values.text("reads").map(read)).unwrap();
        Ok(Outcome {
            host: self.0.host,
            role: self.0.role,
            body,
            started_ns,
            ended_ns: monotonic().as_ns(),
            ..Outcome::default()
        })
    }
}

static FAKES: &[WorkloadEntry] =
    &[Entry { name: "fake", about: "misbehaves", params: &[], needs: &[], build: &Fake }];

struct NoProcess;
impl Process for NoProcess {
    fn id(&self) -> u32 {
        std::process::id()
    }
    fn kill(&mut self) {}
    fn wait(&mut self, _limit: Duration) -> bool {
        true
    }
}

fn hello(version: String, schema: String) -> FromAgent {
    let host = HostReport::default();
    FromAgent::Hello { protocol: PROTOCOL, version, schema, process: 1, monotonic_ns: 0, host }
}

fn nowhere() -> Host {
    Host { report: HostReport::default(), abandon: || {} }
}

/// Agents that are threads; what the host named `z-slow`, `late`, `silent`, `garbage` or `old` does is in its name.
struct Threads;
impl Launcher for Threads {
    fn launch(&self, host: &str) -> Result<Launched, LaunchError> {
        let (orders, input) = pipe().unwrap();
        let (output, mut answers) = pipe().unwrap();
        let host = host.to_owned();
        if host == "z-slow" {
            thread::sleep(Duration::from_millis(3_500)); // a login on a loaded host
        }
        thread::spawn(move || match host.as_str() {
            "late" => {
                thread::sleep(Duration::from_millis(3_500)); // many processes, few cores
                serve(orders, answers, FAKES, nowhere());
            }
            "silent" => {
                thread::sleep(Duration::from_secs(8));
                drop((orders, answers));
            }
            "garbage" => answers.write_all(&[0xff; 4096]).unwrap(),
            "old" => {
                let (version, schema) = ("0.0.0".to_owned(), weir_core::record::SUMMARY_SCHEMA.to_owned());
                let hello = hello(version, schema);
                write_frame(&mut answers, &hello).unwrap();
            }
            _ => {
                serve(orders, answers, FAKES, nowhere());
            }
        });
        Ok(Launched { input: Box::new(input), output: Box::new(output), process: Box::new(NoProcess) })
    }
    fn shares_clock(&self, _host: &str) -> bool {
        true
    }
}

#[derive(Default)]
struct Quiet {
    stop_after: Option<Duration>,
    started: Option<Instant>,
    order: Vec<usize>,
}
impl Observer for Quiet {
    fn trial_starts(&mut self, at: Instant) {
        self.started = Some(at);
    }
    fn step_starts(&mut self, step: usize, _at: Instant) {
        self.order.push(step);
    }
    fn step_ended(&mut self, _step: usize, _result: &StepResult) {}
    fn progress(&mut self, _step: usize, _done: u64, _now: Instant) {}
    fn interrupt(&mut self) -> Interrupt {
        let due = self.stop_after.zip(self.started).is_some_and(|(after, start)| monotonic() > start + after);
        if due { Interrupt::Drain } else { Interrupt::None }
    }
    fn broken(&mut self) -> Option<String> {
        None
    }
}

fn run_steps(names: &[&str], observer: &mut Quiet) -> Vec<StepResult> {
    let each: Vec<usize> = (0..names.len()).collect();
    run_groups(names, &each, observer)
}

/// Jobs by what they do, each with its group.
fn run_groups(names: &[&str], groups: &[usize], observer: &mut Quiet) -> Vec<StepResult> {
    let mut fleet = Fleet::default();
    let hosts = ["a-0".to_owned(), "b-0".to_owned()];
    assert!(fleet.launch(&Threads, &hosts, Duration::from_secs(5)).is_empty());
    run_on(&mut fleet, names, groups, observer)
}

/// The same between hosts `a-0` and `b-0` of a fleet that is there.
fn run_on(fleet: &mut Fleet, names: &[&str], groups: &[usize], observer: &mut Quiet) -> Vec<StepResult> {
    run_with(fleet, names, groups, &Values::default(), observer)
}

fn run_with(
    fleet: &mut Fleet,
    names: &[&str],
    groups: &[usize],
    values: &Values,
    observer: &mut Quiet,
) -> Vec<StepResult> {
    let any_port = BTreeMap::new();
    let peer = |host: &str| Peer {
        host: host.to_owned(),
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        auxiliary: None,
    };
    let jobs: Vec<StepJob<'_>> = names
        .iter()
        .enumerate()
        .map(|(index, name)| StepJob {
            name,
            workload_name: "fake",
            workload: &Fake,
            values,
            seed: 1,
            pairs: vec![(peer("a-0"), peer("b-0"))],
            roles: Vec::new(),
            group: groups[index],
            start: StepStart::After(groups[index].checked_sub(1)),
            estimate: Fake.estimate(values, &Shape::of_pairs(1, Duration::ZERO)).unwrap(),
            data_ports: &any_port,
            samplers: Vec::new(),
        })
        .collect();
    run_trial(fleet, &jobs, "00", 1, observer)
}

#[test]
fn steps_follow_each_other_and_every_host_starts_at_the_agreed_instant() {
    let mut observer = Quiet::default();
    let results = run_steps(&["one", "two", "three"], &mut observer);
    assert_eq!(observer.order, [0, 1, 2]);
    let mut before = Instant::ZERO;
    for result in &results {
        assert_eq!(result.failure, None);
        assert_eq!(result.outcomes.len(), 2);
        let start = result.started.unwrap();
        assert!(start > before, "a step started before the one it follows had ended");
        for outcome in &result.outcomes {
            assert!(outcome.started_ns >= start.as_ns(), "{outcome:?} began before {start:?}");
        }
        before = result.ended.unwrap();
    }
}

#[test]
fn a_step_that_fails_on_one_host_names_it_and_the_next_step_goes_on() {
    let results = run_steps(&["refuses", "panics", "one"], &mut Quiet::default());
    assert_eq!(results[0].failure.as_deref(), Some("host b-0: port 1 is in use"));
    assert!(results[1].failure.as_deref().unwrap().contains("panicked"), "{:?}", results[1].failure);
    assert_eq!(results[2].failure, None);
}

/// As `Threads`, on machines of their own.
struct Elsewhere;
impl Launcher for Elsewhere {
    fn launch(&self, host: &str) -> Result<Launched, LaunchError> {
        Threads.launch(host)
    }
    fn shares_clock(&self, _host: &str) -> bool {
        false
    }
}

// Spec: agent-protocol.md#inputs-1 and agent-protocol.md#inputs-2
#[test]
fn what_a_step_reads_is_carried_to_hosts_elsewhere_once_and_to_none_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace").display().to_string();
    std::fs::write(&path, vec![7_u8; 3_000_001]).unwrap();
    let values = Values(BTreeMap::from([("reads".to_owned(), weir_core::Value::Text(path.clone()))]));
    let hosts = ["a-0".to_owned(), "b-0".to_owned()];
    let of_launcher = |launcher: &dyn Launcher| {
        let mut fleet = Fleet::default();
        assert!(fleet.launch(launcher, &hosts, Duration::from_secs(5)).is_empty());
        let mut read = || -> Vec<(String, usize)> {
            let results = run_with(&mut fleet, &["one"], &[0], &values, &mut Quiet::default());
            assert_eq!(results[0].failure, None);
            let bodies = results[0].outcomes.iter().map(|outcome| outcome.body.clone());
            let mut own: Vec<(String, usize)> =
                bodies.map(|body| serde_json::from_value(body).unwrap()).collect();
            own.sort();
            own
        };
        let first = read();
        assert_eq!(read(), first, "a second trial has the same copies");
        assert_eq!((first.len(), first[0].1, first[1].1), (2, 3_000_001, 3_000_001));
        (fleet, first.into_iter().map(|(own, _)| own).collect::<Vec<_>>())
    };
    let (_, own) = of_launcher(&Threads);
    assert_eq!(own, [path.clone(), path.clone()]);
    let (mut fleet, own) = of_launcher(&Elsewhere);
    assert!(own.iter().all(|own| own.starts_with("/proc/self/fd/")), "{own:?}");
    std::fs::remove_file(&path).unwrap();
    let gone = run_with(&mut fleet, &["one", "two"], &[0, 0], &values, &mut Quiet::default());
    for result in gone {
        let text = result.failure.unwrap();
        assert!(text.contains(&path) && text.contains("could not be carried there: No such file"), "{text}");
    }
}

// Spec: scenario.md#turns-4
#[test]
fn jobs_of_a_group_start_at_one_instant_and_what_fails_in_it_fails_alone() {
    let mut observer = Quiet::default();
    let names = ["one", "refuses", "two", "panics", "three", "four"];
    let results = run_groups(&names, &[0, 0, 0, 1, 1, 2], &mut observer);
    let failed: Vec<bool> = results.iter().map(|result| result.failure.is_some()).collect();
    assert_eq!(failed, [false, true, false, true, false, false]);
    assert_eq!(observer.order, [0, 2, 3, 4, 5], "what refuses never starts");
    assert_eq!(results[0].started, results[2].started, "a group starts as one");
    assert_eq!(results[3].started, results[4].started);
    let end = |of: &[usize]| of.iter().map(|index| results[*index].ended.unwrap()).max().unwrap();
    assert!(results[4].started.unwrap() > end(&[0, 1, 2]), "a group waits for all of the one before it");
    assert!(results[5].started.unwrap() > end(&[3, 4]));
}

#[test]
fn an_interruption_drains_what_runs_and_skips_what_has_not_begun() {
    let mut observer = Quiet { stop_after: Some(Duration::from_millis(100)), ..Quiet::default() };
    let results = run_steps(&["long", "one"], &mut observer);
    assert_eq!(results[0].outcomes.len(), 2, "what was measured is kept");
    assert_eq!(results[0].failure.as_deref(), Some("cut short by the user"));
    assert_eq!(results[1].failure.as_deref(), Some("cut short by the user before it began"));
    assert_eq!(observer.order, [0]);
}

fn launch_alone(host: &str) -> LaunchError {
    let mut fleet = Fleet::default();
    fleet.launch(&Threads, &[host.to_owned()], Duration::from_secs(1)).remove(0)
}

// Spec: agent-protocol.md#agent-1
#[test]
fn an_agent_of_another_version_garbage_and_silence_are_refused_with_the_reason() {
    assert!(launch_alone("old").text.contains("weir is 0.0.0 there"), "{}", launch_alone("old"));
    assert!(launch_alone("garbage").text.contains("no message"), "{}", launch_alone("garbage"));
    assert!(launch_alone("silent").text.contains("no hello"), "{}", launch_alone("silent"));
}

// Spec: agent-protocol.md#lost-1
#[test]
fn an_agent_lost_between_its_greeting_and_its_first_step_fails_it_with_its_last_words() {
    const WORDS: &str = "it was killed by signal 9; it said: out of memory";
    struct Dead;
    impl Process for Dead {
        fn id(&self) -> u32 {
            std::process::id()
        }
        fn kill(&mut self) {}
        fn wait(&mut self, _limit: Duration) -> bool {
            true
        }
        fn last_words(&mut self) -> Option<String> {
            Some(WORDS.to_owned())
        }
    }
    /// It would have been the first to prepare: nobody hears of its end before its order is due.
    struct Dies;
    impl Launcher for Dies {
        fn launch(&self, host: &str) -> Result<Launched, LaunchError> {
            if host != "b-0" {
                return Threads.launch(host);
            }
            let (orders, input) = pipe().unwrap();
            let (output, mut answers) = pipe().unwrap();
            let version = env!("CARGO_PKG_VERSION").to_owned();
            write_frame(&mut answers, &hello(version, weir_core::record::SUMMARY_SCHEMA.to_owned())).unwrap();
            drop((orders, answers));
            Ok(Launched { input: Box::new(input), output: Box::new(output), process: Box::new(Dead) })
        }
        // Clocks are read before the first step, and the end is heard then.
        fn shares_clock(&self, _host: &str) -> bool {
            false
        }
    }
    let mut fleet = Fleet::default();
    // One after the other: an agent that ends while others are waited for was not launched.
    for host in ["a-0", "b-0"] {
        assert!(fleet.launch(&Dies, &[host.to_owned()], Duration::from_secs(5)).is_empty());
    }
    let results = run_on(&mut fleet, &["one", "two"], &[0, 1], &mut Quiet::default());
    for result in results {
        let failure = result.failure.unwrap();
        assert_eq!(failure, format!("host b-0: the agent ended: {WORDS}"));
    }
}

// Spec: agent-protocol.md#agent-5
#[test]
fn a_program_that_is_no_agent_is_shown_by_what_it_said_and_how_it_ended() {
    let refused = |script: &str| {
        let arguments = vec!["-c".to_owned(), script.to_owned()];
        let launcher = LocalLauncher { program: "/bin/sh".into(), arguments };
        let mut fleet = Fleet::default();
        fleet.launch(&launcher, &["a-0".to_owned()], Duration::from_secs(5)).remove(0).text
    };
    assert_eq!(refused("exit 0"), "the agent ended: it exited with status 0");
    assert_eq!(
        refused("printf 'no \\033[1mroom\n' >&2; exit 4"),
        "the agent ended: it exited with status 4; it said: no ␛[1mroom"
    );
    assert_eq!(refused("kill -9 $$"), "the agent ended: it was killed by signal 9");
    let text = refused("echo Usage: program FILE");
    assert!(text.contains("no message") && text.contains("it printed: Usage: program FILE"), "{text}");
}

// Spec: agent-protocol.md#agent-4
#[test]
fn agents_are_not_lost_while_others_are_launched_nor_before_they_have_had_their_time_to_say_hello() {
    // The seventeenth is not among those that are launched first, which wait meanwhile.
    let mut hosts: Vec<String> = (0..16).map(|number| format!("a-{number}")).collect();
    hosts.push("z-slow".to_owned());
    let mut fleet = Fleet::default();
    let failed = fleet.launch(&Threads, &hosts, Duration::from_secs(5));
    assert!(failed.is_empty(), "{failed:?}");
    assert!(fleet.launch(&Threads, &["late".to_owned()], Duration::from_secs(10)).is_empty());
    assert!(hosts.iter().all(|host| fleet.is_up(host)));
}

// Spec: agent-protocol.md#agent-3
#[test]
fn an_agent_that_falls_silent_is_lost_within_five_seconds() {
    struct Stops;
    impl Launcher for Stops {
        fn launch(&self, _host: &str) -> Result<Launched, LaunchError> {
            let (orders, input) = pipe().unwrap();
            let (output, mut answers) = pipe().unwrap();
            thread::spawn(move || {
                let version = env!("CARGO_PKG_VERSION").to_owned();
                let schema = weir_core::record::SUMMARY_SCHEMA.to_owned();
                let hello = hello(version, schema);
                write_frame(&mut answers, &hello).unwrap();
                thread::sleep(Duration::from_secs(20)); // as if stopped by SIGSTOP
                drop(orders);
            });
            Ok(Launched { input: Box::new(input), output: Box::new(output), process: Box::new(NoProcess) })
        }
        fn shares_clock(&self, _host: &str) -> bool {
            true
        }
    }
    let mut fleet = Fleet::default();
    assert!(fleet.launch(&Stops, &["a-0".to_owned()], Duration::from_secs(5)).is_empty());
    let Some((host, Event::Lost(lost))) = fleet.next(monotonic() + Duration::from_secs(5)) else {
        panic!("silence was not noticed");
    };
    assert_eq!(host, "a-0");
    assert!(lost.reason.contains("silent"), "{lost}");
    assert!(!fleet.is_up("a-0"));
}

// Spec: agent-protocol.md#agent-1, agent-protocol.md#agent-2
#[test]
fn orders_that_are_no_messages_end_the_agent_with_a_reason() {
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &[3, 0, 0, 0, b'{', b'}', b'}'], &[200, 0, 0, 0, b'{']]
    {
        let (mut answers, output) = pipe().unwrap();
        assert_eq!(serve(bytes, output, FAKES, nowhere()), 2);
        let said = weir_transport::frame::read_frame::<FromAgent>(&mut answers, 1 << 16).unwrap().unwrap();
        assert!(matches!(said, FromAgent::Refused { .. }), "{said:?}");
    }
    let mut hello = Vec::new();
    let (version, schema) = ("9.9.9".to_owned(), "other/1".to_owned());
    write_frame(&mut hello, &ToAgent::Hello { protocol: PROTOCOL, version, schema, host: "h".to_owned() })
        .unwrap();
    let (mut answers, output) = pipe().unwrap();
    assert_eq!(serve(&hello[..], output, FAKES, nowhere()), 2);
    let said = weir_transport::frame::read_frame::<FromAgent>(&mut answers, 1 << 16).unwrap().unwrap();
    let FromAgent::Refused { text } = said else { panic!("{said:?}") };
    assert!(text.contains("9.9.9"), "{text}");
}

#[test]
fn a_heartbeat_of_running_tasks_survives_the_wire() {
    let mut wire = Vec::new();
    write_frame(
        &mut wire,
        &FromAgent::Heartbeat { monotonic_ns: 7, progress: vec![(2, 1 << 40, 7), (3, 0, 0)] },
    )
    .unwrap();
    let said = weir_transport::frame::read_frame::<FromAgent>(&mut &wire[..], 1 << 16).unwrap().unwrap();
    let FromAgent::Heartbeat { progress, .. } = said else { panic!("{said:?}") };
    assert_eq!(progress, [(2, 1 << 40, 7), (3, 0, 0)]);
}
