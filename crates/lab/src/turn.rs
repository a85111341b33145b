//! The fabric's loop body: packets from the devices into the core, and what the core says out again.

use crate::buffer::Buffers;
use crate::capture::{Captures, Record};
use crate::delivery::{Delivery, collect};
use crate::image::Image;
use crate::packet::Packet;
use crate::port::{self, Port};
use crate::station::Station;
use crate::vnet::VNET_HEADER_BYTES;
use std::io::IoSlice;
use weir_core::Instant;
use weir_core::behind::Behind;
use weir_core::fabric_page::{
    BEHIND_START, LATENESS_BUCKETS, LATENESS_START, header, lateness_bucket, link_start,
};
use weir_core::topology::Topology;
use weir_fabric::{Action, DropReason, Fabric, Network};
use weir_sys::clock::{ThreadWaits, monotonic, thread_cpu_time};
use weir_sys::shared_memory::Page;

/// What one device may hand over before the next one's turn and before what is due is delivered.
const READ_BYTES: usize = 128 << 10;
const READ_PACKETS: usize = 32;
/// A look that took longer was cut short by other programs, and their time was not free.
const LOOK_NS_MAX: u64 = 20_000;
/// The page is as old as this at most while packets move.
const PAGE_AGE_NS: u64 = 1_000_000;

pub struct Shell {
    pub fabric: Fabric,
    pub ports: Vec<Port>,
    pub captures: Captures,
    topology: Topology,
    buffers: Buffers,
    page: Page,
    deliveries: Vec<Delivery>,
    /// Each arrival of this turn: the delivery it is part of, and when it was planned.
    arrivals: Vec<(usize, Instant)>,
    turns: u64,
    lateness: Vec<u64>,
    behind: Lagging,
    write_failed: u64,
    refused: u64,
    looked_ns: u64,
    page_written: Instant,
}

impl Shell {
    pub fn new(topology: Topology, fabric: Fabric, ports: Vec<Port>, captures: Captures, page: Page) -> Self {
        Shell {
            fabric,
            ports,
            captures,
            topology,
            buffers: Buffers::default(),
            page,
            deliveries: Vec::new(),
            arrivals: Vec::new(),
            turns: 0,
            lateness: vec![0; LATENESS_BUCKETS],
            behind: Lagging::new(),
            write_failed: 0,
            refused: 0,
            looked_ns: 0,
            page_written: Instant::ZERO,
        }
    }

    /// Reads what one device has, up to a bound. `woken`: when the wait before this turn ended.
    pub fn read(&mut self, device: usize, woken: Instant) {
        let mut bytes = 0;
        for _ in 0..READ_PACKETS {
            if bytes >= READ_BYTES || !self.ports[device].may_read(&self.fabric) {
                return;
            }
            let read = self.ports[device].tun.read(self.buffers.spare());
            let now = monotonic();
            match read {
                Ok(Some(used)) => {
                    bytes += used;
                    self.accept(device, used, now, woken);
                }
                // An interface that was taken down gives errors until it is up again: nothing to read either way.
                Ok(None) | Err(_) => {
                    self.ports[device].seen_empty = now;
                    return;
                }
            }
        }
    }

    fn accept(&mut self, device: usize, used: usize, now: Instant, woken: Instant) {
        let port = &self.ports[device];
        let parsed = Packet::parse(&self.buffers.spare()[..used]);
        let destination = parsed.ok().and_then(|packet| {
            // Nothing crosses from one network to the other, whatever routes a program sets.
            match (port.network, Station::of(&self.topology, packet.ip.to)?) {
                (Network::Data, Station::Host(to)) | (Network::Auxiliary, Station::Auxiliary(to)) => {
                    Some((packet, to))
                }
                (Network::Data, Station::Router(stage)) if packet.echo_request => {
                    Some((packet, self.fabric.router(stage)))
                }
                _ => None,
            }
        });
        let Some((packet, to)) = destination else {
            self.refused += 1;
            return;
        };
        // A packet that found the host's link busy would have waited there anyway. One that found it idle has waited, unread,
        // at most since the device was last seen empty, or since we woke: what is later is ours to answer for.
        let unread_ns = match port.hold_bytes(&self.fabric) {
            0 => now.as_ns().saturating_sub(port.seen_empty.max(woken).as_ns()),
            _ => 0,
        };
        let (host, meta) = (port.host, packet.meta(port.network, to));
        let buffer = self.buffers.keep(used, packet, unread_ns);
        self.fabric.ingress(host, buffer, meta, now);
    }

    /// Lets the core catch up with the clock and carries out what it says. Whether anything was delivered.
    pub fn carry_out(&mut self, now: Instant) -> bool {
        self.fabric.advance(now);
        self.turns += 1;
        while let Some(action) = self.fabric.poll() {
            match action {
                Action::Deliver { host, packet, planned } => {
                    let device = port::number(&self.topology, packet.network(), host);
                    let buffer = self.buffers.get_mut(packet.buffer);
                    let index = collect(&mut self.deliveries, buffer, self.turns, device, packet);
                    self.arrivals.push((index, planned));
                }
                Action::Drop { packet, .. } => self.buffers.release(packet.buffer, packet.count),
                Action::Seen { packet, link, at, dropped } => self.record(&packet, link, at, dropped),
            }
        }
        for index in 0..self.deliveries.len() {
            self.deliver(index);
        }
        let (mut latest_ns, mut at_ns) = (0, now.as_ns());
        for (index, planned) in self.arrivals.drain(..) {
            let late_ns = self.deliveries[index].late_from_ns.saturating_sub(planned.as_ns());
            self.lateness[lateness_bucket(late_ns)] += 1;
            (latest_ns, at_ns) = (late_ns.max(latest_ns), at_ns.max(self.deliveries[index].late_from_ns));
        }
        self.behind.turn(latest_ns, at_ns);
        let any = !self.deliveries.is_empty();
        self.deliveries.clear();
        any
    }

    fn deliver(&mut self, index: usize) {
        let Delivery { device, run, .. } = self.deliveries[index];
        let state = self.buffers.get(run.buffer);
        let image = Image::of(state, &run);
        let [first, second] = image.pieces(state);
        let written = self.ports[device].tun.write(&[IoSlice::new(first), IoSlice::new(second)]);
        // A full or closed receiver loses packets as it would on a real wire; the count says so.
        if written.is_err() {
            self.write_failed += u64::from(run.count);
        }
        self.deliveries[index].late_from_ns = monotonic().as_ns() + state.unread_ns;
        self.buffers.release(run.buffer, run.count);
    }

    fn record(&mut self, run: &weir_fabric::Packet, link: usize, at: Instant, dropped: Option<DropReason>) {
        let state = self.buffers.get(run.buffer);
        let image = Image::of(state, run);
        let [first, second] = image.pieces(state);
        let vnet = image.vnet(state);
        self.captures.record(&Record {
            link,
            at,
            pieces: [&first[VNET_HEADER_BYTES..], second],
            unfinished: (vnet.flags != 0).then_some((vnet, state.packet.ip.protocol)),
            comment: dropped.map(comment),
        });
    }

    /// A turn that did not sleep began at `begun`, ended at `ended`, and had nothing to read or deliver.
    pub fn looked(&mut self, begun: Instant, ended: Instant) {
        self.looked_ns += ended.as_ns().saturating_sub(begun.as_ns()).min(LOOK_NS_MAX);
    }

    /// Brings the page up to date if it would be too old at `next`, when this can next be called.
    pub fn publish(&mut self, now: Instant, next: Instant) {
        if next.as_ns() < self.page_written.as_ns() + PAGE_AGE_NS {
            return;
        }
        self.page_written = now;
        let totals = *self.fabric.totals();
        let page = &self.page;
        page.set(header::PACKETS_IN, totals.entered);
        page.set(header::PACKETS_OUT, totals.delivered.saturating_sub(self.write_failed));
        page.set(header::PACKETS_DROPPED, totals.dropped);
        page.set(header::WRITE_FAILED, self.write_failed);
        page.set(header::UNROUTABLE, totals.unroutable + self.refused);
        page.set(header::ANSWERED, totals.answered);
        page.set(header::CPU_NS, weir_core::time::nanoseconds(thread_cpu_time()));
        page.set(header::TURNS, self.turns);
        page.set(header::LOOKED_NS, self.looked_ns);
        for (bucket, count) in self.lateness.iter().enumerate() {
            page.set(LATENESS_START + bucket, *count);
        }
        for (bucket, time_ns) in self.behind.account.words().iter().enumerate() {
            page.set(BEHIND_START + bucket, *time_ns);
        }
        for link in 0..self.fabric.link_count() {
            let start = link_start(link);
            for (word, value) in self.fabric.counters(link).words().into_iter().enumerate() {
                page.set(start + word, value);
            }
        }
        // Last, so that a fresh heartbeat means fresh counters.
        page.set(header::HEARTBEAT_NS, now.as_ns());
    }
}

/// How long the fabric was behind, by the larger of what it carried out late and what its thread waited for a core.
struct Lagging {
    account: Behind,
    waits: Option<ThreadWaits>,
    /// The end of the last turn.
    turned_ns: u64,
    look_at_ns: u64,
}

/// A turn that comes so long after the last may have waited for a core; so often the kernel is asked anyway.
const GAP_NS: u64 = 500_000;
const LOOK_NS: u64 = 10_000_000;

impl Lagging {
    fn new() -> Lagging {
        Lagging { account: Behind::default(), waits: ThreadWaits::new(), turned_ns: 0, look_at_ns: 0 }
    }

    /// A turn ended at `at_ns`, and the latest of what it carried out was so late.
    fn turn(&mut self, late_ns: u64, at_ns: u64) {
        let passed_ns = at_ns.saturating_sub(self.turned_ns);
        self.turned_ns = at_ns.max(self.turned_ns);
        let mut behind_ns = late_ns;
        if passed_ns >= GAP_NS || at_ns >= self.look_at_ns {
            self.look_at_ns = at_ns + LOOK_NS;
            let (_, each_ns) = self.waits.as_mut().map_or((0, 0), ThreadWaits::look);
            behind_ns = behind_ns.max(each_ns.min(passed_ns));
        }
        // What it was behind by before the last turn ended was counted then.
        self.account.add(behind_ns.saturating_sub(passed_ns), behind_ns, 1);
    }
}

/// How a capture marks a packet that was not carried on.
fn comment(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Queue => "dropped: queue full",
        DropReason::Loss => "dropped: lost on the wire",
        DropReason::Outage => "dropped: outage",
        DropReason::Mtu => "dropped: larger than the MTU",
        DropReason::Unroutable => "dropped: no path",
        DropReason::HopLimit => "dropped: hop limit ended",
        DropReason::Buffer => "dropped: shared buffer full",
        DropReason::Early => "dropped: early, by the queue's discipline",
        DropReason::BurstLoss => "dropped: lost on the wire in a burst",
        DropReason::Rule => "dropped: by a fault's rule",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: evidence.md#fitness-3
    #[test]
    fn a_stall_of_the_fabric_counts_once_and_by_its_length_however_few_packets_were_late() {
        let mut lagging = Lagging { waits: None, ..Lagging::new() };
        let mut at_ns = 0;
        // Ten seconds of turns every 20 us, four of them 113 ms late and the turns after them ever less.
        for turn in 0..500_000_u64 {
            at_ns += 20_000;
            if turn % 125_000 == 60_000 {
                at_ns += 113_000_000;
                lagging.turn(113_000_000, at_ns);
                at_ns += 20_000;
                lagging.turn(113_020_000, at_ns);
            }
            lagging.turn(30_000, at_ns);
        }
        let beyond_ns = lagging.account.beyond_ns(800_000);
        assert!((4 * 112_000_000..4 * 112_300_000).contains(&beyond_ns), "{beyond_ns}");
    }
}
