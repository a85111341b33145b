//! Kinds of faults of hosts' processes.

use weir_core::fault::{Act, FOR, FOR_MAX_NS, FaultKind, FaultOn, time_of};
use weir_core::{Kind, Param};

pub const FAULTS: &[FaultKind] = &[
    FaultKind {
        name: "pause",
        about: "The processes of the hosts stand still; `on` is host.NAME or site.NAME.",
        on: FaultOn::Processes,
        params: &[FOR],
        act: |_| Act::Stop,
        sentence: |values| format!("processes paused for {}", time_of(values)),
    },
    FaultKind {
        name: "kill",
        about: "The processes of the hosts are killed, and started again after `for`; without it they stay dead for the rest of the trial.",
        on: FaultOn::Processes,
        params: &[Param::new(
            "for",
            Kind::Duration,
            "How long until they are started again; never unless given.",
        )
        .range(1.0, FOR_MAX_NS)],
        act: |_| Act::Kill,
        sentence: |values| match values.get(FOR.name) {
            Some(_) => format!("processes killed, and started again {} later", time_of(values)),
            None => "processes killed".to_owned(),
        },
    },
];
