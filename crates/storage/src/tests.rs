//! Whole loads in one process, on real files and on a target that does as a test says.

use crate::content::Content;
use crate::target::TARGETS;
use crate::workloads;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use weir_core::evidence::Around;
use weir_core::record::{Observed, Row};
use weir_core::{Bytes, Hertz, Value, Values};
use weir_seams::Entry;
use weir_seams::target::{
    Answer, Completion, Offers, OpenFiles, Operation, Request, Session, SessionSettings, Target, TargetEntry,
    TargetError, TargetUrl,
};
use weir_seams::workload::{
    Control, DeriveContext, Derived, Outcome, Peer, StepRequest, WorkloadEntry, conformance,
};
use weir_sys::clock;

#[test]
fn every_workload_keeps_the_claims_of_the_seam() {
    let given = [
        ("target", text("null:")),
        ("jobs", Value::Count(2)),
        ("trace", text("random-1")),
        ("file_size", size(1 << 30)),
    ];
    conformance::check_given(&workloads(TARGETS), &given);
}

struct Ran {
    outcomes: Vec<Outcome>,
    derived: Derived,
}

impl Ran {
    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.outcomes.iter().flat_map(|it| &it.rows).chain(&self.derived.rows)
    }
    fn values(&self, metric: &str) -> Vec<f64> {
        let value = |row: &Row| match &row.value {
            Observed::Value(value) => Some(*value),
            Observed::Histogram(_) => None,
        };
        self.rows().filter(|row| row.metric == metric).filter_map(value).collect()
    }
    fn value(&self, metric: &str) -> f64 {
        let all = self.values(metric);
        assert_eq!(all.len(), 1, "{metric}: {all:?}");
        all[0]
    }
    fn counted(&self, metric: &str) -> u64 {
        let of = |row: &Row| match &row.value {
            Observed::Histogram(histogram) => histogram.count.iter().sum(),
            Observed::Value(_) => 0,
        };
        self.rows().filter(|row| row.metric == metric).map(of).sum()
    }
    fn failures(&self) -> Vec<(String, String)> {
        let all = self.outcomes.iter().flat_map(|it| it.failures.iter());
        all.map(|it| (it.operation.clone(), it.code.clone().unwrap_or_default())).collect()
    }
}

fn entry(name: &str, targets: &'static [TargetEntry]) -> WorkloadEntry {
    *workloads(targets).iter().find(|entry| entry.name == name).unwrap()
}

fn values(entry: &WorkloadEntry, target: &str, given: &[(&str, Value)]) -> Values {
    let mut values = Values::defaults(entry.params);
    values.set("target", Value::Text(target.to_owned()));
    given.iter().for_each(|(key, value)| values.set(key, value.clone()));
    values
}

/// Runs a load on `hosts` hosts, all of them in this process.
fn run_on(
    hosts: usize,
    name: &str,
    targets: &'static [TargetEntry],
    target: &str,
    given: &[(&str, Value)],
) -> Ran {
    let entry = entry(name, targets);
    let values = values(&entry, target, given);
    let peer = |index: usize| Peer {
        host: format!("a-{index}"),
        address: "127.0.0.1".parse().unwrap(),
        auxiliary: None,
    };
    let roles = vec![("hosts", (0..hosts).map(peer).collect())];
    let request = StepRequest { step: "s", values: &values, seed: 7, pairs: Vec::new(), roles, key: "" };
    let mut tasks = Vec::new();
    for assignment in entry.build.assignments(&request) {
        tasks.push(entry.build.prepare(&assignment).unwrap());
    }
    let control = Control::new(clock::monotonic() + Duration::from_millis(5));
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let running: Vec<_> = tasks.into_iter().map(|task| scope.spawn(|| task.run(&control))).collect();
        running.into_iter().map(|it| it.join().unwrap().unwrap()).collect()
    });
    let around = Around::default();
    let context = DeriveContext { values: &values, start_ns: 0, faults: &[], around: &around };
    let derived = entry.build.derive(&context, &outcomes);
    Ran { outcomes, derived }
}

fn run(name: &str, target: &Path, given: &[(&str, Value)]) -> Ran {
    run_on(1, name, TARGETS, target.to_str().unwrap(), given)
}

fn refused(name: &str, target: &str, given: &[(&str, Value)]) -> String {
    let entry = entry(name, TARGETS);
    let values = values(&entry, target, given);
    let shape = weir_core::scenario::Shape { hosts: vec![("hosts", 1)], ..Default::default() };
    entry.build.estimate(&values, &shape).expect_err("a refusal").text
}

fn size(bytes: u64) -> Value {
    Value::Size(Bytes(bytes))
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn write(path: &Path, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Content::of(path.to_str().unwrap()).fill(0, &mut content);
    fs::write(path, &content).unwrap();
    content
}

// Spec: storage.md#io-1 and storage.md#io-2
#[test]
fn a_file_that_is_there_is_read_once_from_end_to_end_and_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    let content = write(&path, 1_000_001);
    let ran = run(
        "io-seq",
        &path,
        &[("size", size(65_536)), ("verify", Value::Flag(true)), ("depth", Value::Count(4))],
    );
    assert_eq!(ran.derived.invalid, None);
    assert_eq!(ran.counted("io.latency_seconds"), 16, "15 whole operations and the rest");
    let seconds = ran.value("io.job_seconds");
    assert!((ran.value("io.bytes_total_per_second") * seconds - 1_000_001.0).abs() < 1.0);
    assert_eq!((ran.value("io.failed_operations"), ran.failures().len()), (0.0, 0));
    assert_eq!(fs::read(&path).unwrap(), content);
}

// Spec: storage.md#verify-2
#[test]
fn a_wrong_byte_fails_its_operation_and_not_the_trial() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    let mut content = write(&path, 40_960);
    content[20_000] ^= 0x10;
    fs::write(&path, &content).unwrap();
    let given = [("size", size(4_096)), ("verify", Value::Flag(true))];
    let ran = run("io-seq", &path, &given);
    assert_eq!(ran.derived.invalid, None);
    assert_eq!(ran.failures(), [("read".to_owned(), "EBADMSG".to_owned())]);
    let failure = ran.outcomes[0].failures.first().unwrap();
    assert!(failure.text.contains("20000") && failure.target.ends_with("/f"), "{failure:?}");
    assert_eq!(ran.value("io.mismatched_operations"), 1.0);
    assert_eq!(ran.counted("io.latency_seconds"), 9);
}

// Spec: storage.md#io-6
#[test]
fn an_operation_of_pieces_reads_each_of_them_and_finds_a_wrong_byte_in_any() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    let mut content = write(&path, 65_536);
    for engine in ["", "?engine=io_uring"] {
        let target = PathBuf::from(format!("{}{engine}", path.display()));
        let given = [
            ("size", size(512)),
            ("pieces", Value::Count(64)),
            ("count", Value::Count(20)),
            ("depth", Value::Count(3)),
            ("verify", Value::Flag(true)),
        ];
        let ran = run("io-random", &target, &given);
        assert_eq!((ran.derived.invalid.clone(), ran.failures().len()), (None, 0));
        assert_eq!(ran.counted("io.latency_seconds"), 20, "one operation, however many pieces it has");
        let bytes = ran.value("io.bytes_total_per_second") * ran.value("io.job_seconds");
        assert!((bytes - 20.0 * 64.0 * 512.0).abs() < 1.0, "{bytes}");
        // A block in 128: of 1,280 pieces some are there, of 64 most often none.
        content[30_000] ^= 1;
        fs::write(&path, &content).unwrap();
        let ran = run("io-random", &target, &given);
        let wrong = ran.value("io.mismatched_operations");
        assert!((1.0..20.0).contains(&wrong), "{wrong} of 20 operations have the wrong byte");
        content[30_000] ^= 1;
        fs::write(&path, &content).unwrap();
    }
}

// Spec: storage.md#io-2
#[test]
fn files_that_the_load_made_go_away_with_it_and_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    fs::create_dir(folder.path().join("made")).unwrap();
    fs::write(&other, "mine").unwrap();
    let made = folder.path().join("made");
    let given = [
        ("file_size", size(100_000)),
        ("size", size(4_096)),
        ("jobs", Value::Count(3)),
        ("verify", Value::Flag(true)),
    ];
    let ran = run("io-random", &made, &given);
    assert_eq!(
        ran.counted("io.latency_seconds"),
        3 * 24,
        "as many as fit into each file, none of them short"
    );
    assert_eq!(ran.values("io.operations_per_second").len(), 3);
    assert_eq!(fs::read_dir(&made).unwrap().count(), 0);
    let mut kept = given.to_vec();
    kept.push(("keep", Value::Flag(true)));
    run("io-random", &made, &kept);
    assert_eq!(fs::read_dir(&made).unwrap().count(), 3);
    assert_eq!(fs::read(&other).unwrap(), b"mine");
}

// Spec: storage.md#io-3
#[test]
fn jobs_that_share_a_file_write_each_byte_of_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared");
    let given = [
        ("file_size", size(1 << 20)),
        ("size", size(10_000)),
        ("jobs", Value::Count(7)),
        ("layout", text("shared")),
        ("mix", Value::Ratio(0.0)),
        ("keep", Value::Flag(true)),
    ];
    let ran = run_on(3, "io-seq", TARGETS, path.to_str().unwrap(), &given);
    assert_eq!(ran.counted("io.latency_seconds"), 105);
    assert_eq!(ran.counted("io.sync_seconds"), 7, "each job syncs what it wrote");
    let mut expected = vec![0; 1 << 20];
    Content::of("shared").fill(0, &mut expected);
    assert!(fs::read(&path).unwrap() == expected);
}

// Spec: storage.md#io-4
#[test]
fn an_open_loop_keeps_its_times_and_measures_from_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    write(&path, 1 << 20);
    let given = [
        ("rate", Value::Frequency(Hertz(200.0))),
        ("jobs", Value::Count(2)),
        ("layout", text("shared")),
        ("count", Value::Count(20)),
        ("size", size(512)),
    ];
    let ran = run("io-random", &path, &given);
    let seconds = ran.values("io.job_seconds");
    // The twentieth of a job is due 190 ms after the first.
    assert!(seconds.iter().all(|seconds| *seconds >= 0.19), "{seconds:?}");
    let generator = ran.derived.load.generator.unwrap();
    assert_eq!((generator.due_count, generator.period_seconds), (40, 0.01));
}

#[test]
fn what_contradicts_itself_is_refused_by_the_name_of_its_key() {
    type Given<'a> = &'a [(&'a str, Value)];
    let cases: &[(&str, Given<'_>, &str)] = &[
        ("nosuch:x", &[], "\"nosuch\""),
        ("/x?engine=warp", &[], "\"engine\""),
        ("null:", &[], "`file_size`"),
        ("null:", &[("verify", Value::Flag(true)), ("count", Value::Count(1))], "`verify`"),
        ("/x", &[("file_size", size(10)), ("size", size(11))], "`size`"),
        ("/x", &[("pieces", Value::Count(2)), ("mix", Value::Ratio(0.5))], "`mix`"),
        ("/x", &[("warm_up", Value::Duration(Duration::from_secs(1)))], "`warm_up`"),
        ("/x", &[("jobs", Value::Count(100_000)), ("depth", Value::Count(60_000))], "`depth`"),
    ];
    for (target, given, said) in cases {
        let text = refused("io-random", target, given);
        assert!(text.contains(said), "{target}: {text}");
    }
}

#[test]
fn a_file_that_is_not_there_or_too_small_is_told_before_any_load() {
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small");
    write(&small, 100);
    let entry = entry("io-seq", TARGETS);
    let tried = |path: &Path, given: &[(&str, Value)]| {
        let values = values(&entry, path.to_str().unwrap(), given);
        let peer = Peer { host: "a-0".to_owned(), address: "127.0.0.1".parse().unwrap(), auxiliary: None };
        let roles = vec![("hosts", vec![peer])];
        let request = StepRequest { step: "s", values: &values, seed: 7, pairs: Vec::new(), roles, key: "" };
        let assignment = entry.build.assignments(&request).remove(0);
        entry.build.prepare(&assignment).err().expect("a refusal").text
    };
    assert!(tried(&folder.path().join("none"), &[]).contains("`file_size` says how large"));
    assert!(tried(&small, &[("file_size", size(2 << 20))]).contains("has 100 bytes"));
    let many = tried(&small, &[("jobs", Value::Count(2)), ("file_size", size(2 << 20))]);
    assert!(many.contains("no folder"), "{many}");
    assert_eq!(fs::metadata(&small).unwrap().len(), 100);
}

/// What the odd target does with the reads that come, one after the other; the rest succeed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Fails(&'static str),
    Loses,
    /// Never answers.
    Hangs,
}

/// By path of the URL, so that tests beside each other do not meet.
static SCRIPTS: Mutex<Vec<(String, VecDeque<Does>)>> = Mutex::new(Vec::new());

fn script(name: &str, does: &[Does]) -> String {
    SCRIPTS.lock().unwrap().push((name.to_owned(), does.iter().copied().collect()));
    format!("odd:{name}")
}

struct Odd;

impl Target for Odd {
    fn offers(&self) -> Offers {
        Offers { keeps_content: true, ..Offers::default() }
    }
    fn check(&self, _url: &TargetUrl) -> Result<(), String> {
        Ok(())
    }
    fn session(
        &self,
        url: &TargetUrl,
        _: &Values,
        _: SessionSettings,
    ) -> Result<Box<dyn Session>, TargetError> {
        Ok(Box::new(OddSession { name: url.path.clone(), files: OpenFiles::default(), done: Vec::new() }))
    }
}

static ODD: &[TargetEntry] =
    &[Entry { name: "odd", about: "does as it is told", params: &[], needs: &[], build: &Odd }];

struct OddSession {
    name: String,
    files: OpenFiles<()>,
    done: Vec<Completion>,
}

impl Session for OddSession {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        for Request { tag, operation } in requests.drain(..) {
            let now_ns = clock::monotonic().as_ns();
            let (result, buffer) = match operation {
                Operation::Open { .. } => {
                    (Ok(Answer::Opened { file: self.files.add(()), size_bytes: 1 << 20 }), None)
                }
                Operation::Stat { .. } => (Ok(Answer::Info { size_bytes: 1 << 20, is_folder: false }), None),
                Operation::Read { file, buffer, .. } => {
                    let mut scripts = SCRIPTS.lock().unwrap();
                    let own = scripts.iter_mut().find(|(name, _)| *name == self.name);
                    let does = own.and_then(|(_, does)| does.pop_front());
                    let result = match (does, self.files.get(file)) {
                        (_, Err(error)) => Err(error),
                        (Some(Does::Hangs), _) => continue,
                        (Some(Does::Fails(code)), _) => Err(TargetError::coded(code, "as it was told")),
                        (Some(Does::Loses), _) => {
                            self.files.remove(file).unwrap();
                            Err(TargetError::coded("ENOTCONN", "gone").lost())
                        }
                        (None, Ok(())) => Ok(Answer::Moved { bytes: buffer.len() as u64 }),
                    };
                    (result, Some(buffer))
                }
                _ => (Ok(Answer::Done), None),
            };
            self.done.push(Completion { tag, result, buffer, first_byte_ns: now_ns, done_ns: now_ns });
        }
    }
    fn reap(&mut self, completions: &mut Vec<Completion>, limit: Duration) -> io::Result<()> {
        if self.done.is_empty() {
            std::thread::sleep(limit);
        }
        completions.append(&mut self.done);
        Ok(())
    }
}

// Spec: storage.md#failure-1
#[test]
fn an_operation_that_fails_is_told_and_the_rest_goes_on() {
    let target = script("fails", &[Does::Fails("EIO"), Does::Fails("EACCES")]);
    let ran = run_on(1, "io-random", ODD, &target, &[("count", Value::Count(50))]);
    let failed = [("read".to_owned(), "EIO".to_owned()), ("read".to_owned(), "EACCES".to_owned())];
    assert_eq!(ran.failures(), failed);
    assert_eq!((ran.counted("io.latency_seconds"), ran.value("io.failed_operations")), (48, 2.0));
    assert_eq!(ran.derived.invalid, None);
}

// Spec: storage.md#io-5
#[test]
fn what_is_done_in_the_warm_up_does_not_count() {
    let at = "mem:warm";
    let given = |duration_ms: u64, warm_up_ms: u64| {
        vec![
            ("file_size", size(1 << 16)),
            ("rate", Value::Frequency(Hertz(1_000.0))),
            ("duration", Value::Duration(Duration::from_millis(duration_ms))),
            ("warm_up", Value::Duration(Duration::from_millis(warm_up_ms))),
        ]
    };
    let whole = run_on(1, "io-random", TARGETS, at, &given(400, 0)).counted("io.latency_seconds");
    let part = run_on(1, "io-random", TARGETS, at, &given(400, 300)).counted("io.latency_seconds");
    // A busy machine may leave the last ones undone, and never does more.
    assert!(whole <= 400 && part <= 101 && part < whole, "{whole} {part}");
}

// Spec: storage.md#target-2
#[test]
fn a_number_of_a_file_that_was_closed_is_not_anothers() {
    let mut files = OpenFiles::default();
    let first = files.add(());
    files.remove(first).unwrap();
    assert_ne!(files.add(()), first);
    assert!(files.get(first).unwrap_err().is_lost);
}

// Spec: storage.md#failure-2
#[test]
fn a_handle_that_is_lost_is_opened_again_and_never_used_once_more() {
    let target = script("loses", &[Does::Loses]);
    let ran =
        run_on(1, "io-random", ODD, &target, &[("count", Value::Count(50)), ("depth", Value::Count(4))]);
    assert_eq!(ran.counted("io.open_seconds"), 2, "at the beginning and again");
    // Those that were under way on it are lost with it.
    assert!(ran.failures().iter().all(|(operation, _)| operation == "read"), "{:?}", ran.failures());
    assert_eq!(ran.counted("io.latency_seconds") + ran.failures().len() as u64, 50);
}

// Spec: storage.md#failure-3
#[test]
fn an_answer_that_never_comes_ends_its_job_and_nobody_else() {
    let target = script("hangs", &[Does::Hangs]);
    let given = [
        ("count", Value::Count(10)),
        ("jobs", Value::Count(2)),
        ("layout", text("shared")),
        ("timeout", Value::Duration(Duration::from_millis(300))),
    ];
    let ran = run_on(1, "io-random", ODD, &target, &given);
    assert_eq!(ran.failures(), [("read".to_owned(), "ETIMEDOUT".to_owned())]);
    assert_eq!(ran.counted("io.latency_seconds"), 10, "the other job's");
}
