//! Kinds of faults of services.

use weir_core::fault::{Act, FOR, FaultKind, FaultOn, time_of};

pub const FAULTS: &[FaultKind] = &[FaultKind {
    name: "drain",
    about: "Their service sends nobody new to these servers, which go on with what they have; `on` is service.NAME.ROLE or service.NAME.ROLE.HOST.",
    on: FaultOn::Daemons,
    params: &[FOR],
    act: |_| Act::Drain,
    sentence: |values| format!("nobody new for {}", time_of(values)),
}];
