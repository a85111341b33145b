//! Kinds of faults of disks.

use weir_core::fault::{Act, DiskTrouble, FOR, FaultKind, FaultOn, time_of};
use weir_core::units::share;
use weir_core::{Kind, Param, Values};
use weir_sys::errno;

/// Errors that disks give.
const ERRORS: &[&str] = &["EIO", "ENOSPC", "EROFS", "EREMOTEIO"];

pub const FAULTS: &[FaultKind] = &[
    FaultKind {
        name: "slow",
        about: "A disk takes longer; `on` is service.NAME.disk, service.NAME.disk.HOST or, of one of several, service.NAME.disk.HOST.NUMBER.",
        on: FaultOn::Disks,
        params: &[
            Param::new("factor", Kind::Ratio, "How many times as long everything takes.")
                .required()
                .range(1.0, 1e6),
            FOR,
        ],
        act: |values| trouble(|trouble| trouble.slow = ratio(values, "factor")),
        sentence: |values| format!("{} times as slow for {}", ratio(values, "factor"), time_of(values)),
    },
    FaultKind {
        name: "errors",
        about: "A disk fails some of its reads and writes.",
        on: FaultOn::Disks,
        params: &[
            Param::ratio("ratio", "Share of the reads and writes that fail, evenly spread.").required(),
            Param::new("code", Kind::Choice(ERRORS), "The error.").default("EIO"),
            FOR,
        ],
        act: |values| {
            trouble(|trouble| {
                trouble.error_ratio = ratio(values, "ratio");
                trouble.error_code = errno::number(&code(values)).unwrap_or(trouble.error_code);
            })
        },
        sentence: |values| {
            let of = share(ratio(values, "ratio"));
            format!("{} to {of} of its requests for {}", code(values), time_of(values))
        },
    },
    FaultKind {
        name: "full",
        about: "A disk takes nothing more.",
        on: FaultOn::Disks,
        params: &[FOR],
        act: |_| trouble(|trouble| trouble.is_full = true),
        sentence: |values| format!("full for {}", time_of(values)),
    },
    FaultKind {
        name: "stuck",
        about: "A disk answers no read and no write until it is over.",
        on: FaultOn::Disks,
        params: &[FOR],
        act: |_| trouble(|trouble| trouble.is_stuck = true),
        sentence: |values| format!("no answer for {}", time_of(values)),
    },
];

fn trouble(change: impl FnOnce(&mut DiskTrouble)) -> Act {
    let mut trouble = DiskTrouble::default();
    change(&mut trouble);
    Act::Disk(trouble)
}

fn ratio(values: &Values, key: &str) -> f64 {
    values.ratio(key).unwrap_or_default()
}

fn code(values: &Values) -> String {
    values.text("code").unwrap_or_else(|| ERRORS[0].to_owned())
}
