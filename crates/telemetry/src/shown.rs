//! How the series of ports and of the machine are shown.

use std::borrow::Cow::Borrowed;
use weir_core::shown::{Place, SeriesShown, Shown};

pub static SHOWN: Shown = Shown { series: Borrowed(SERIES), ledgers: Borrowed(&[]), views: Borrowed(&[]) };

const SERIES: &[SeriesShown] = &[
    SeriesShown::new("port.queue_bytes", "queue depth", Place::Open(5)).queue(),
    SeriesShown::new("port.dropped_queue_packets", "drops so far, queue full", Place::Open(20)),
    SeriesShown::new("port.dropped_loss_packets", "drops so far, random loss", Place::Open(21)),
    SeriesShown::new("port.dropped_outage_packets", "drops so far, outage", Place::Open(22)),
    SeriesShown::new("port.wire_bytes", "rate on the wire", Place::Folded),
    SeriesShown::new("port.sent_packets", "packets sent", Place::Folded),
    SeriesShown {
        name: Borrowed("cpu.busy_seconds"),
        spoken: Borrowed("CPU in use, each core"),
        place: Place::Folded,
        of: (Borrowed(""), Borrowed("")),
        is_queue: false,
        sum: Borrowed("machine"),
    },
    SeriesShown::new("cpu.process_seconds", "CPU in use, each process", Place::Folded),
    SeriesShown::new("cpu.process_wait_seconds", "waiting for a core, each process", Place::Folded),
    SeriesShown::new("service.cpu_seconds", "CPU in use, each daemon of a service", Place::Folded),
    SeriesShown::new("service.transfers", "files open on a daemon", Place::Folded),
    SeriesShown::new("service.slots_taken", "requests in a daemon’s slots", Place::Folded),
    SeriesShown::new("service.slot_waiters", "requests that wait for a slot", Place::Folded),
    SeriesShown::new("cpu.stolen_seconds", "cores’ time in the hypervisor’s hands", Place::Folded),
];
