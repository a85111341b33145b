//! Scripts, what is made of their sections, and whole loads on this machine.

use super::burst::{BURST_JAIN, BURST_RATE, BURST_SECONDS, BURST_TOTAL};
use super::restart::LOST;
use super::{Act, BURST, JobOrder, Kind, Piece, RESTART, SMALL, ScriptPlan, Section, workloads};
use crate::metrics::{READ_TOTAL, WRITE_TOTAL};
use std::fs;
use std::time::Duration;
use weir_core::evidence::Around;
use weir_core::record::{Observed, Row};
use weir_core::units::Bytes;
use weir_core::{Instant, Value, Values};
use weir_seams::workload::{Control, DeriveContext, Derived, Outcome, Peer, StepRequest, Workload};

fn plan(kind: &dyn Kind, keys: &[(&str, Value)]) -> ScriptPlan {
    ScriptPlan::of(&values(kind, "mem:", keys), crate::target::TARGETS).unwrap()
}

pub fn values(kind: &dyn Kind, target: &str, keys: &[(&str, Value)]) -> Values {
    let mut values = Values::defaults(kind.params());
    values.set("target", Value::Text(target.to_owned()));
    for (key, value) in keys {
        values.set(key, value.clone());
    }
    values
}

fn size(bytes: u64) -> Value {
    Value::Size(Bytes(bytes))
}

pub fn of<'a>(rows: &'a [Row], metric: &str) -> Vec<(&'a str, f64)> {
    let plain = |row: &'a Row| match row.value {
        Observed::Value(value) if row.metric == metric => Some((row.entity.as_str(), value)),
        _ => None,
    };
    rows.iter().filter_map(plain).collect()
}

// Spec: storage.md#script-3
#[test]
fn a_burst_is_rounded_up_to_words_split_above_two_gibibytes_and_each_process_has_its_stretch() {
    let pieces = |bytes: u64, layout: &str, job: u32| -> Vec<Piece> {
        let keys = [
            ("size", size(bytes)),
            ("repetitions", Value::Count(1)),
            ("jobs", Value::Count(4)),
            ("layout", Value::Text(layout.to_owned())),
        ];
        let acts =
            BURST.script(&plan(&BURST, &keys), JobOrder { number: job, ..JobOrder::FIRST }).unwrap().acts;
        acts.filter_map(|act| if let Act::Write(piece) = act { Some(piece) } else { None }).collect()
    };
    let piece = |offset, length_bytes| Piece { file: 0, offset, length_bytes };
    assert_eq!(pieces(1, "file-per-process", 3), [piece(0, 8)]);
    assert_eq!(pieces(1_001, "shared", 3), [piece(3 * 1_008, 1_008)]);
    let most = (2 << 30) - 8;
    assert_eq!(
        pieces(4_000_000_000, "file-per-process", 0),
        [piece(0, most), piece(most, 4_000_000_000 - most)]
    );
    assert_eq!(BURST.remarks(&plan(&BURST, &[("size", size(1_001))])).len(), 1);
}

fn section(job: u32, kind: &str, round: u32, times_ms: (u64, u64), bytes: u64, failed: u32) -> Section {
    let (begin_ns, end_ns) = (times_ms.0 * 1_000_000, times_ms.1 * 1_000_000);
    let kind = kind.to_owned();
    Section {
        job,
        kind,
        round,
        begin_ns,
        end_ns,
        bytes,
        wanted_bytes: bytes,
        reads: 0,
        thought_ns: 0,
        failed,
        cause: None,
    }
}

// Spec: storage.md#script-4 and storage.md#script-3
#[test]
fn aggregates_go_from_the_first_that_began_to_the_last_that_ended_and_leave_out_what_failed() {
    let sections = [
        section(0, "burst", 0, (0, 100), 1_000, 0),
        section(1, "burst", 0, (10, 210), 1_000, 0),
        section(0, "burst", 1, (0, 1), 1_000, 1),
        section(1, "burst", 1, (0, 900), 1_000, 0),
    ];
    let rows = BURST.derive(&plan(&BURST, &[]), &sections, &Around::default());
    assert_eq!(of(&rows, BURST_TOTAL), [("trial", 2_000.0 * 1e9 / 210e6)]);
    assert_eq!(of(&rows, BURST_SECONDS), [("job-0", 0.1), ("job-1", 0.2)]);
    assert_eq!(of(&rows, BURST_RATE), [("job-0", 10_000.0), ("job-1", 5_000.0)]);
    assert_eq!(of(&rows, BURST_JAIN), [("trial", 0.9)]);
    let sections = [
        section(0, "write", 0, (0, 1_000), 500, 0),
        section(1, "write", 0, (0, 2_000), 500, 0),
        section(0, "read", 0, (0, 500), 500, 0),
        section(1, "read", 0, (0, 1_000), 500, 0),
    ];
    let rows = RESTART.derive(
        &plan(&RESTART, &[("think", Value::Duration(Duration::from_millis(500)))]),
        &sections,
        &Around::default(),
    );
    assert_eq!(of(&rows, WRITE_TOTAL), [("trial", 500.0)]);
    assert_eq!(of(&rows, READ_TOTAL), [("trial", 1_000.0)]);
    assert_eq!(of(&rows, LOST), [("trial", 0.75)]);
}

/// All of a load: its hosts' parts at once, and what they come to.
pub fn load(name: &str, values: &Values, hosts: usize) -> (Vec<Outcome>, Derived) {
    let all = workloads(crate::target::TARGETS);
    let workload: &dyn Workload = all.iter().find(|entry| entry.name == name).unwrap().build;
    let peer = |number: usize| Peer {
        host: format!("h-{number}"),
        address: "127.0.0.1".parse().unwrap(),
        auxiliary: None,
    };
    let request = StepRequest {
        step: "s",
        values,
        seed: 1,
        pairs: Vec::new(),
        roles: vec![("hosts", (0..hosts).map(peer).collect())],
        key: &"5a".repeat(32),
    };
    let (mut tasks, mut peers) = (Vec::new(), std::collections::BTreeMap::new());
    for mut assignment in workload.assignments(&request) {
        assignment.peers.clone_from(&peers);
        let task = workload.prepare(&assignment).unwrap();
        peers.extend(task.address().map(|address| (assignment.host.clone(), address)));
        tasks.push(task);
    }
    let control = Control::new(Instant::from_ns(weir_sys::clock::monotonic().as_ns() + 10_000_000));
    let running: Vec<_> = tasks
        .into_iter()
        .map(|task| {
            let control = std::sync::Arc::clone(&control);
            std::thread::spawn(move || task.run(&control).unwrap())
        })
        .collect();
    let outcomes: Vec<Outcome> = running.into_iter().map(|thread| thread.join().unwrap()).collect();
    let around = Around::default();
    let context = DeriveContext { values, start_ns: 0, faults: &[], around: &around };
    let derived = workload.derive(&context, &outcomes);
    (outcomes, derived)
}

// Spec: storage.md#script-2
#[test]
fn processes_on_three_hosts_burst_together_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    for layout in ["file-per-process", "shared"] {
        for mix in [0.0, 1.0] {
            let keys = [
                ("jobs", Value::Count(7)),
                ("repetitions", Value::Count(5)),
                ("size", size(100_000)),
                ("mix", Value::Ratio(mix)),
                ("verify", Value::Flag(true)),
                ("layout", Value::Text(layout.to_owned())),
            ];
            let (outcomes, derived) = load("io-burst", &values(&BURST, &path, &keys), 3);
            assert_eq!(derived.invalid, None);
            assert_eq!(outcomes.len(), 3);
            let failed = of(&derived.rows, crate::metrics::FAILED);
            assert_eq!(failed, [("trial", 0.0)], "{layout} {mix}: {:?}", derived.warnings);
            assert_eq!(of(&derived.rows, BURST_RATE).len(), 7, "{layout} {mix}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{layout} {mix}");
        }
    }
}

#[test]
fn small_files_and_restart_files_come_back_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let small = [
        ("jobs", Value::Count(5)),
        ("files", Value::Count(20)),
        ("verify", Value::Flag(true)),
        ("size", size(10_000)),
    ];
    let restart = [
        ("jobs", Value::Count(3)),
        ("file_size", size(1_000_001)),
        ("size", size(100_000)),
        ("depth", Value::Count(4)),
        ("think", Value::Duration(Duration::from_millis(5))),
        ("repetitions", Value::Count(2)),
        ("verify", Value::Flag(true)),
    ];
    for (name, values) in
        [("io-small", values(&SMALL, &path, &small)), ("io-restart", values(&RESTART, &path, &restart))]
    {
        let (outcomes, derived) = load(name, &values, 2);
        assert_eq!(derived.invalid, None, "{name}");
        assert_eq!(
            of(&derived.rows, crate::metrics::FAILED),
            [("trial", 0.0)],
            "{name}: {:?}",
            derived.warnings
        );
        let kinds = |outcome: &Outcome| outcome.rows.iter().map(|row| row.metric.clone()).collect::<Vec<_>>();
        assert!(kinds(&outcomes[0]).contains(&crate::metrics::READ.to_owned()), "{name}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{name}");
    }
}

// Spec: storage.md#script-1
#[test]
fn a_file_that_cannot_be_opened_holds_nobody() {
    let folder = tempfile::tempdir().unwrap();
    // One of the files is a folder: it can be neither written nor removed.
    fs::create_dir(folder.path().join("weir-io-1")).unwrap();
    let keys = [("jobs", Value::Count(3)), ("repetitions", Value::Count(4)), ("size", size(1_000))];
    let path = folder.path().display().to_string();
    let (outcomes, derived) = load("io-burst", &values(&BURST, &path, &keys), 2);
    assert_eq!(derived.invalid, None);
    let failed: u64 = outcomes.iter().map(|outcome| outcome.failures.iter().count() as u64).sum();
    assert_eq!(failed, 8, "an open and a removal of each repetition");
    assert_eq!(of(&derived.rows, BURST_TOTAL), [], "no repetition was whole");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
