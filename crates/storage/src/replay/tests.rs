//! Whole replays on this machine.

use super::*;
use crate::content::Content;
use crate::script::tests::{load, of, values};
use crate::trace::{Record, text};
use std::collections::BTreeMap;
use std::path::PathBuf;
use weir_core::Value;
use weir_core::record::Observed;
use weir_core::units::Bytes;
use weir_seams::workload::{Derived, Outcome};

fn folder_of(files: usize, bytes: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..files {
        let mut content = vec![0; bytes];
        Content::of(&format!("f-{number}")).fill(0, &mut content);
        fs::write(folder.path().join(format!("f-{number}")), content).unwrap();
    }
    folder
}

fn written(name: &str, files: &[&str], is_timed: bool, records: &[Record]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let files: Vec<String> = files.iter().map(|name| (*name).to_owned()).collect();
    let mut out = Vec::new();
    text::write(&mut out, "written by a test", &files, is_timed, records).unwrap();
    fs::write(&path, out).unwrap();
    (folder, path)
}

fn texts(all: &[&str]) -> Value {
    Value::List(all.iter().map(|text| Value::Text((*text).to_owned())).collect())
}

fn ms(time: u64) -> Value {
    Value::Duration(Duration::from_millis(time))
}

fn read(offset: u64, length_bytes: u32) -> Record {
    Record { offset, length_bytes, ..Record::default() }
}

/// All of the outcomes' rows and those of the whole.
fn rows(outcomes: &[Outcome], derived: &Derived) -> Vec<Row> {
    outcomes.iter().flat_map(|outcome| outcome.rows.clone()).chain(derived.rows.clone()).collect()
}

fn count_of(rows: &[Row], metric: &str) -> u64 {
    let of = rows.iter().filter(|row| row.metric == metric).map(|row| match &row.value {
        Observed::Histogram(histogram) => histogram.count.iter().sum::<u64>(),
        _ => 1,
    });
    of.sum()
}

// Spec: replay.md#replay-1 and replay.md#replay-6
#[test]
fn jobs_open_all_their_files_read_every_record_of_each_and_close_them() {
    let folder = folder_of(7, 200_000);
    let path = folder.path().display().to_string();
    let keys = [
        ("trace", texts(&["random-1", "analysis-2"])),
        ("jobs", Value::Count(6)),
        ("files_per_job", Value::Count(3)),
        ("reads", Value::Count(100)),
        ("verify", Value::Flag(true)),
    ];
    let (outcomes, derived) = load("replay", &values(&REPLAY, &path, &keys), 2);
    assert_eq!(derived.invalid, None);
    let rows = rows(&outcomes, &derived);
    assert_eq!(of(&rows, figures::FAILED), [("trial", 0.0)], "{:?}", derived.warnings);
    assert_eq!(of(&rows, figures::JOB).len(), 6);
    assert_eq!((count_of(&rows, "io.open_seconds"), count_of(&rows, "io.read_seconds")), (18, 600));
    // A hundred reads of three files: the first has one more.
    let mut by_file: BTreeMap<&str, f64> = BTreeMap::new();
    for (entity, reads) in of(&rows, "replay.reads_count_per_file") {
        *by_file.entry(entity.rsplit('.').next().unwrap()).or_default() += reads;
    }
    assert_eq!(by_file.into_values().collect::<Vec<_>>(), [204.0, 198.0, 198.0]);
    assert_eq!(of(&rows, "replay.opened_ok_files_count").iter().map(|(_, it)| it).sum::<f64>(), 18.0);
    // Both traces were drawn by some job, and the same seed draws the same again.
    let drawn = of(&rows, "replay.trace_number");
    assert!(drawn.iter().any(|(_, it)| *it == 0.0) && drawn.iter().any(|(_, it)| *it == 1.0), "{drawn:?}");
    let (again, _) = load("replay", &values(&REPLAY, &path, &keys), 2);
    let again: Vec<Row> = again.into_iter().flat_map(|outcome| outcome.rows).collect();
    assert_eq!(of(&again, "replay.trace_number"), drawn);
}

// Spec: replay.md#replay-2
#[test]
fn the_reads_of_a_job_are_record_after_record_over_its_files_unless_they_are_one_request() {
    let trace = Trace::kept(Vec::new(), false, vec![read(0, 10), read(50, 20), read(7, 5)]);
    let order = |keys: &[(&str, Value)]| -> Vec<(usize, u64)> {
        let mut values = values(&REPLAY, "mem:", keys);
        values.set("trace", texts(&["random-1"]));
        let own = Own::of(&values).unwrap();
        let acts = Replaying::new(&trace, vec![1_000; 2], &own, 0).unwrap();
        let place = |act| match act {
            crate::script::Act::Read(piece) => Some((piece.file, piece.offset)),
            _ => None,
        };
        acts.filter_map(place).collect()
    };
    assert_eq!(order(&[]), [(0, 0), (1, 0), (0, 50), (1, 50), (0, 7), (1, 7)]);
    assert_eq!(order(&[("vector", Value::Count(2))]), [(0, 0), (0, 50), (1, 0), (1, 50), (0, 7), (1, 7)]);
    assert_eq!(order(&[("reads", Value::Count(3))]), [(0, 0), (1, 0), (0, 50)]);
}

// Spec: replay.md#replay-4
#[test]
fn thinking_is_waited_for_or_burnt_and_reading_ahead_counts_apart() {
    let folder = folder_of(2, 200_000);
    let path = folder.path().display().to_string();
    let (_kept, trace) = written("t", &[], false, &[read(0, 100), read(100, 100), read(50_000, 100)]);
    let base = [
        ("trace", Value::Text(trace.display().to_string())),
        ("files_per_job", Value::Count(2)),
        ("jobs", Value::Count(3)),
        ("think", ms(5)),
    ];
    for mode in ["wait", "burn"] {
        let mut keys = base.to_vec();
        keys.push(("think_mode", Value::Text(mode.to_owned())));
        let (outcomes, derived) = load("replay", &values(&REPLAY, &path, &keys), 1);
        let rows = rows(&outcomes, &derived);
        // Six reads, each followed by 5 ms.
        let seconds = of(&rows, figures::JOB);
        assert!(seconds.iter().all(|(_, it)| *it >= 0.030), "{mode}: {seconds:?}");
        let cpu = of(&rows, "io.cpu_seconds_per_operation");
        assert_eq!(
            mode == "burn",
            cpu[0].1 * of(&rows, "replay.reads_count_per_file").len() as f64 * 5.0 > 0.085
        );
    }
    let mut keys = base.to_vec();
    keys.extend([("read_ahead", Value::Size(Bytes(1_000))), ("verify", Value::Flag(true))]);
    let (outcomes, derived) = load("replay", &values(&REPLAY, &path, &keys), 1);
    let rows = rows(&outcomes, &derived);
    assert_eq!(of(&rows, "replay.wanted_bytes"), [("trial", 6.0 * 300.0)]);
    // The second record is there already.
    assert_eq!(of(&rows, "replay.fetched_ratio"), [("trial", 2_000.0 / 300.0)]);
    assert_eq!(count_of(&rows, "io.read_seconds"), 12);
}

// Spec: replay.md#replay-5
#[test]
fn one_failed_read_fails_its_job_and_no_other_and_its_files_are_closed() {
    let folder = folder_of(6, 200_000);
    // The job that has the last two files reads past the end of one.
    fs::write(folder.path().join("f-5"), vec![0; 60_000]).unwrap();
    let path = folder.path().display().to_string();
    let (_kept, trace) = written("t", &[], false, &[read(0, 100), read(100_000, 100), read(200, 100)]);
    let keys = [
        ("trace", Value::Text(trace.display().to_string())),
        ("files_per_job", Value::Count(2)),
        ("jobs", Value::Count(3)),
    ];
    let (outcomes, derived) = load("replay", &values(&REPLAY, &path, &keys), 1);
    assert_eq!(derived.invalid, None);
    let rows = rows(&outcomes, &derived);
    assert_eq!(of(&rows, figures::FAILED), [("trial", 1.0)]);
    assert_eq!(of(&rows, "replay.jobs_failed_reading"), [("trial", 1.0)]);
    assert_eq!(of(&rows, figures::JOB).len(), 2);
    assert_eq!(count_of(&rows, "io.close_seconds"), 6);
    // It reads no further: six of each other job, and three before the one that failed.
    assert_eq!(count_of(&rows, "io.read_seconds"), 15);
    let failure = outcomes[0].failures.first().unwrap();
    assert_eq!(
        (failure.job.as_str(), failure.operation.as_str(), failure.code.as_deref()),
        ("job-2", "read", Some("ENODATA"))
    );
}

// Spec: replay.md#replay-7
#[test]
fn a_trace_with_times_keeps_them_at_any_speed_and_what_it_names_is_read() {
    let folder = folder_of(3, 200_000);
    let path = folder.path().display().to_string();
    let at = |at_ms: u64, file: u32| Record { at_ns: at_ms * 1_000_000, file, ..read(at_ms * 100, 50) };
    let records: Vec<Record> = (0..51).map(|n| at(n * 4, (n % 2) as u32)).collect();
    let (_kept, trace) = written("t", &["f-2", "f-0"], true, &records);
    let lasts = |speed: f64| {
        let keys = [
            ("trace", Value::Text(trace.display().to_string())),
            ("speed", Value::Ratio(speed)),
            ("verify", Value::Flag(true)),
        ];
        let (outcomes, derived) = load("replay", &values(&REPLAY, &path, &keys), 1);
        let rows = rows(&outcomes, &derived);
        assert_eq!(of(&rows, figures::FAILED), [("trial", 0.0)], "{:?}", derived.warnings);
        assert_eq!(
            of(&rows, "replay.reads_count_per_file"),
            [("job-0.file-0", 26.0), ("job-0.file-1", 25.0)]
        );
        (of(&rows, figures::JOB)[0].1, derived.load.generator)
    };
    let (seconds, generator) = lasts(1.0);
    let generator = generator.unwrap();
    // The start is one of them.
    assert!((51..=52).contains(&generator.due_count), "{generator:?}");
    assert!((0.200..0.300).contains(&seconds), "{seconds}");
    assert!(lasts(2.0).0 >= 0.100);
    let (seconds, generator) = lasts(0.0);
    assert!(seconds < 0.1 && generator.is_none(), "{seconds}");
}

#[test]
fn what_cannot_be_replayed_is_refused_before_anything_is_touched() {
    let (_kept, timed) = written("t", &[], true, &[read(0, 1)]);
    let (_other, list) = written("l", &["../f"], false, &[read(0, 1)]);
    let timed = Value::Text(timed.display().to_string());
    let (_third, slow) = written("s", &[], true, &[read(0, 1), Record { at_ns: 1, ..read(0, 1) }]);
    let slow = Value::Text(slow.display().to_string());
    let cases: &[(&[(&str, Value)], &str)] = &[
        (&[], "`trace` is missing"),
        (&[("trace", texts(&["/nowhere/t"]))], "`trace`: /nowhere/t: No such file"),
        (&[("trace", timed.clone()), ("think", ms(1))], "`think`: a trace with times"),
        (
            &[("trace", timed.clone()), ("order", Value::Text("sorted".to_owned()))],
            "`order`: a trace with times",
        ),
        (
            &[("trace", Value::List(vec![timed.clone(), Value::Text("random-1".to_owned())]))],
            "`trace`: some have times",
        ),
        (
            &[("trace", texts(&["random-1"])), ("files", Value::Text("/nowhere/l".to_owned()))],
            "`files`: /nowhere/l",
        ),
        (&[("trace", Value::Text(list.display().to_string()))], "line 3: \"../f\" leads outside the target"),
        (&[("trace", slow.clone()), ("speed", Value::Ratio(1e-300))], "more than a year"),
        (&[("trace", timed.clone()), ("reads", Value::Count(6))], "`reads` is 6, and "),
        (
            &[("trace", texts(&["random-1"])), ("think", Value::Duration(Duration::from_secs(86_400)))],
            "more than a year",
        ),
    ];
    for (keys, wanted) in cases {
        let values = values(&REPLAY, "mem:", keys);
        let plan = ScriptPlan::of(&values, crate::target::TARGETS);
        let error = plan.and_then(|mut plan| {
            REPLAY.settle(&mut plan)?;
            REPLAY.expected(&plan)
        });
        let error = error.err().unwrap_or_else(|| panic!("{wanted}: not refused")).text;
        assert!(error.contains(wanted), "{error}");
    }
}

// Spec: storage.md#io-8
#[test]
fn a_trace_of_a_file_has_time_to_be_looked_through_and_one_that_is_made_needs_none() {
    let (_kept, path) = written("long", &[], false, &[read(0, 1), read(5, 1), read(9, 1)]);
    let looked_through = |trace: String| {
        let mut plan = ScriptPlan::of(
            &values(&REPLAY, "mem:", &[("trace", Value::Text(trace))]),
            crate::target::TARGETS,
        )
        .unwrap();
        REPLAY.settle(&mut plan).unwrap();
        REPLAY.expected(&plan).unwrap().looked_through
    };
    assert_eq!(looked_through(path.display().to_string()), 3);
    assert_eq!(looked_through("random-1".to_owned()), 0);
}
