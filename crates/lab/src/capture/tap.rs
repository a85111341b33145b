//! The fabric's side of a capture: packets into batches, batches to the writer, and no waiting for it.

use super::pcapng::{self, Frame};
use super::writer::Writer;
use super::{Epoch, Request};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use weir_core::Instant;

/// A batch is handed over when it is as large as this.
const BATCH_BYTES: usize = 64 << 10;
/// Or when so long has passed since the last one that was handed over for its age.
const BATCH_AGE: Duration = Duration::from_millis(50);
/// Room for bursts: so many batches, 32 MiB, may wait for the disk.
const BATCHES: usize = 512;

/// Packets on their way to the file.
#[derive(Default)]
pub(super) struct Batch {
    /// Blocks of the file.
    pub bytes: Vec<u8>,
    pub checksums: Vec<Checksum>,
    /// Packets of each interface.
    pub packets: Vec<u64>,
}

/// A transport checksum that the writer completes: the fabric has no time for it.
pub(super) struct Checksum {
    /// Where the IP packet begins in the batch, and its length.
    pub at: usize,
    pub bytes: usize,
    pub vnet: crate::vnet::VnetHeader,
    pub protocol: u8,
}

/// What both sides see.
#[derive(Default)]
pub(super) struct Shared {
    /// The writer wants no more.
    pub done: AtomicBool,
    /// Packets seen on each interface, set when the tap ends.
    pub seen: Mutex<Option<Ended>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Ended {
    pub seen: Vec<u64>,
    pub end_ns: u64,
}

/// What is to be kept of one packet.
pub struct Record<'a> {
    pub link: usize,
    pub at: Instant,
    /// The packet from its IP header on, in two pieces.
    pub pieces: [&'a [u8]; 2],
    /// What the virtio-net header asks for, and the protocol whose checksum it is; `None`: nothing.
    pub unfinished: Option<(crate::vnet::VnetHeader, u8)>,
    pub comment: Option<&'a str>,
}

pub(crate) struct Tap {
    /// Interface of each directed link.
    interfaces: Vec<Option<u32>>,
    snap_bytes: usize,
    /// Added to an instant to give its time stamp; wraps.
    shift_ns: u64,
    left: Option<u64>,
    open: Batch,
    seen: Vec<u64>,
    last_ns: u64,
    flushed: Instant,
    batches: SyncSender<Batch>,
    empty: Receiver<Batch>,
    shared: Arc<Shared>,
}

/// A capture of the directed links `links`, called `names`. `lab_start`: the fabric's.
pub(super) fn pair(
    request: &Request,
    links: &[usize],
    names: &[String],
    lab_start: Instant,
    now: Instant,
    real_now_ns: u64,
) -> (Tap, Writer) {
    let (batches, from_tap) = sync_channel(BATCHES);
    let (to_tap, empty) = sync_channel(BATCHES);
    let shared = Arc::new(Shared::default());
    let mut interfaces = vec![None; names.len()];
    for (interface, link) in links.iter().enumerate() {
        interfaces[*link] = u32::try_from(interface).ok();
    }
    let shift_ns = match request.epoch {
        Epoch::Lab => lab_start.as_ns().wrapping_neg(),
        Epoch::At(ns) => ns.wrapping_neg(),
        Epoch::Real => real_now_ns.wrapping_sub(now.as_ns()),
    };
    let tap = Tap {
        interfaces,
        snap_bytes: request.snap_bytes.map_or(usize::MAX, |bytes| bytes as usize),
        shift_ns,
        left: request.count,
        open: Batch { packets: vec![0; links.len()], ..Batch::default() },
        seen: vec![0; links.len()],
        last_ns: 0,
        flushed: now,
        batches,
        empty,
        shared: shared.clone(),
    };
    // Of which the file says at which real time its own begins.
    let epoch_real_ns = real_now_ns.wrapping_sub(now.as_ns().wrapping_add(shift_ns));
    let writer = Writer {
        from_tap,
        to_tap,
        shared,
        names: links.iter().map(|link| names[*link].clone()).collect(),
        snap_bytes: request.snap_bytes.unwrap_or(0),
        start_ns: now.as_ns().wrapping_add(shift_ns),
        epoch: request.epoch,
        epoch_real_ns,
        duration_ns: request.duration_ns,
    };
    (tap, writer)
}

impl Tap {
    pub(super) fn takes(&self, link: usize) -> bool {
        self.interfaces[link].is_some()
    }

    pub(super) fn is_done(&self) -> bool {
        self.left == Some(0) || self.shared.done.load(Ordering::Relaxed)
    }

    pub(super) fn record(&mut self, record: &Record<'_>) {
        let Some(interface) = self.interfaces[record.link] else { return };
        if self.is_done() {
            return;
        }
        if let Some(left) = &mut self.left {
            *left -= 1;
        }
        self.seen[interface as usize] += 1;
        let [first, second] = record.pieces;
        let whole_bytes = first.len() + second.len();
        let first = &first[..first.len().min(self.snap_bytes)];
        let second = &second[..second.len().min(self.snap_bytes - first.len())];
        let time_ns = record.at.as_ns().wrapping_add(self.shift_ns);
        self.last_ns = self.last_ns.max(time_ns);
        let frame = Frame {
            interface,
            time_ns,
            data: [first, second],
            whole_bytes: whole_bytes as u32,
            comment: record.comment,
        };
        let at = pcapng::packet(&mut self.open.bytes, &frame);
        if let Some((vnet, protocol)) = record.unfinished
            && first.len() + second.len() == whole_bytes
        {
            self.open.checksums.push(Checksum { at, bytes: whole_bytes, vnet, protocol });
        }
        self.open.packets[interface as usize] += 1;
        if self.open.bytes.len() >= BATCH_BYTES {
            self.flush();
        }
    }

    /// Hands over what has waited for long enough. Not each time, or a few packets would fill the room for many.
    pub(super) fn flush_old(&mut self, now: Instant) {
        if !self.open.bytes.is_empty() && now >= self.flushed + BATCH_AGE {
            self.flushed = now;
            self.flush();
        }
    }

    /// Hands over what there is.
    pub(super) fn flush(&mut self) {
        if self.open.bytes.is_empty() {
            return;
        }
        let mut next = self.empty.try_recv().unwrap_or_default();
        next.bytes.clear();
        next.checksums.clear();
        next.packets.clear();
        next.packets.resize(self.seen.len(), 0);
        let full = std::mem::replace(&mut self.open, next);
        // Where there is no room it is lost, and the writer finds out: it has fewer packets than were seen.
        let _ = self.batches.try_send(full);
    }

    /// Ends the capture; the writer writes what it has and then says how it went.
    pub(super) fn end(mut self, now: Instant) {
        self.flush();
        let end_ns = now.as_ns().wrapping_add(self.shift_ns).max(self.last_ns);
        let ended = Ended { seen: self.seen, end_ns };
        *self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::super::pcapng::Statistics;
    use super::super::writer::Output;
    use super::*;
    use std::io::{self, Write};

    /// A file in memory, and how writing it went.
    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<(Vec<u8>, Option<Outcome>)>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().0.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Output for Memory {
        fn is_closed(&mut self) -> bool {
            false
        }
        fn finish(self: Box<Self>, outcome: &Outcome) {
            self.0.lock().unwrap().1 = Some(outcome.clone());
        }
    }

    /// `count` packets of 8,000 bytes on one link, all of them before the writer takes the first.
    fn captured(count: u64) -> (Vec<u8>, Outcome, Vec<u8>) {
        let request = Request {
            ports: vec!["link.wan.forward".to_owned()],
            snap_bytes: None,
            count: None,
            duration_ns: None,
            epoch: Epoch::Lab,
        };
        let names = request.ports.clone();
        let (mut tap, writer) = pair(&request, &[0], &names, Instant::ZERO, Instant::ZERO, 0);
        let packet = vec![0x45; 8_000];
        for number in 0..count {
            let record = Record {
                link: 0,
                at: Instant::from_ns(number),
                pieces: [&packet, &[]],
                unfinished: None,
                comment: None,
            };
            tap.record(&record);
        }
        tap.end(Instant::from_ns(count));
        let memory = Memory::default();
        writer.run(Box::new(memory.clone()));
        let (bytes, outcome) = memory.0.lock().unwrap().clone();
        let outcome = outcome.expect("the writer says how it went");
        let mut tail = Vec::new();
        let statistics =
            Statistics { interface: 0, start_ns: 0, end_ns: count, received: count, dropped: outcome.lost };
        pcapng::statistics(&mut tail, &statistics);
        (bytes, outcome, tail)
    }

    // Spec: lab.md#lab-23
    #[test]
    fn what_a_writer_that_falls_behind_has_no_room_for_is_left_out_counted_and_said() {
        let (bytes, outcome, tail) = captured(100);
        assert_eq!(outcome, Outcome { packets: 100, lost: 0, error: None });
        assert!(bytes.ends_with(&tail));

        // Nobody took a batch while these came, so recording them has not waited for anybody.
        let (bytes, outcome, tail) = captured(6_000);
        assert_eq!(outcome.packets + outcome.lost, 6_000);
        assert_eq!(outcome.error, None);
        // Batches are a little over 64 KiB: nine of these packets.
        assert_eq!(outcome.packets, 9 * BATCHES as u64, "room for 32 MiB and a little more");
        assert!(bytes.len() > 32 << 20 && bytes.len() < 40 << 20, "{} bytes", bytes.len());
        assert!(bytes.ends_with(&tail), "the statistics name what is missing");
    }
}
