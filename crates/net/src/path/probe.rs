//! The probing end of a flow: hops, path MTU, round trips, a train of datagrams, and a transfer over the connection.

use super::answer::Turns;
use super::ask::{Answer, Asker};
use super::found::{Found, Hop, Vanished};
use super::mtu::{Fate, Search};
use super::plan::PathPlan;
use super::transfer;
use crate::rendezvous::Flow;
use crate::threads::Guard;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;
use weir_core::Instant;
use weir_seams::workload::Control;
use weir_sys::path_probe::{Said, Version};
use weir_sys::{clock, socket};
use weir_transport::datagram::{HEADER_BYTES, Header, Kind};
use weir_transport::udp::Association;

/// Words of the probing end on the connection.
pub const HERE: u8 = 0;
pub const TRANSFER: u8 = 1;
/// How often it says that it is still here.
const HERE_EVERY: Duration = Duration::from_secs(1);
/// Round trips to the peer with small packets, and with large ones.
const ROUND_TRIPS: u32 = 10;
/// How often a size is tried before it has vanished.
const SIZE_TRIES: u32 = 3;
/// Largest packet of the train; its first 8 bytes after the header are when it was sent.
const TRAIN_PACKET_BYTES: u64 = 1_228;
const TRAIN_GAP: Duration = Duration::from_micros(200);

pub struct Prober<'a> {
    pub plan: &'a PathPlan,
    pub control: &'a Control,
    pub guard: &'a Guard,
    /// What must be done first by others of this end.
    pub turns: &'a Turns,
}

/// The connection while datagrams are measured.
struct Words<'a> {
    stream: &'a TcpStream,
    said: Instant,
    guard: &'a Guard,
    heard: u64,
    control: &'a Control,
}

impl Words<'_> {
    /// Says once a second that this end is still here. Errors: the peer has left; stopped or aborted (`Interrupted`).
    fn here(&mut self) -> io::Result<()> {
        if self.control.stopping() {
            return Err(io::Error::new(ErrorKind::Interrupted, "cut short"));
        }
        let now = clock::monotonic();
        if now.since(self.said) >= HERE_EVERY {
            self.said = now;
            let mut stream = self.stream;
            stream.write_all(&[HERE]).map_err(left)?;
        }
        Ok(())
    }

    /// Something came from the network.
    fn heard(&mut self) {
        self.heard += 1;
        self.control.advance(1);
        self.guard.moved(self.heard);
    }
}

pub fn left(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the other end left before the path was described: {error}"))
}

impl Prober<'_> {
    pub fn run(&self, flow: &Flow, association: &Association, found: &mut Found) -> io::Result<()> {
        let mut words = Words {
            stream: &flow.stream,
            said: clock::monotonic(),
            guard: self.guard,
            heard: 0,
            control: self.control,
        };
        while !self.turns.over() {
            words.here()?;
            words.heard += 1;
            self.guard.moved(words.heard);
            clock::sleep_until(clock::monotonic() + Turns::LOOK);
        }
        let mut asker = Asker::new(association, self.plan.timeout)?;
        found.peer = Some(asker.peer);
        let least = asker.least_bytes();
        self.round_trips(&mut asker, &mut words, least, &mut found.small_ns)?;
        if found.small_ns.is_empty() {
            return Err(io::Error::new(ErrorKind::TimedOut, "the peer answers none of ten small datagrams"));
        }
        self.hops(&mut asker, &mut words, found)?;
        self.path_mtu(&mut asker, &mut words, found)?;
        self.full_size(&mut asker, &mut words, found)?;
        let (version, patience) = (asker.version, asker.patience());
        drop(asker);
        self.train(association, &mut words, version, found)?;
        // Those that are late are still of the train.
        clock::sleep_until(clock::monotonic() + patience);
        words.here()?;
        let mut stream = &flow.stream;
        stream.write_all(&[TRANSFER]).map_err(left)?;
        let bytes = self.plan.transfer_bytes;
        let carried = transfer::send(&flow.stream, version, bytes, self.control, self.guard)?;
        if !carried.complete {
            give_up(&flow.stream);
        }
        found.tcp = Some(carried);
        if self.control.stopping() { Err(ErrorKind::Interrupted.into()) } else { Ok(()) }
    }

    fn round_trips(
        &self,
        asker: &mut Asker<'_>,
        words: &mut Words<'_>,
        packet_bytes: u64,
        times_ns: &mut Vec<u64>,
    ) -> io::Result<()> {
        for _ in 0..ROUND_TRIPS {
            words.here()?;
            if let Answer::Reply { time_ns } = asker.ask(packet_bytes, None)? {
                words.heard();
                times_ns.push(time_ns);
            }
        }
        Ok(())
    }

    fn hops(&self, asker: &mut Asker<'_>, words: &mut Words<'_>, found: &mut Found) -> io::Result<()> {
        let least = asker.least_bytes();
        for number in 1..=self.plan.hops_max.min(255) as u8 {
            let mut hop = Hop { number, ..Hop::default() };
            let mut refused = 0;
            for _ in 0..self.plan.probes {
                words.here()?;
                hop.asked += 1;
                match asker.ask(least, Some(number))? {
                    Answer::Reply { time_ns } => {
                        hop.heard_from(asker.peer);
                        hop.small_ns.push(time_ns);
                        found.reached = true;
                        words.heard();
                    }
                    Answer::Ended { from, said, time_ns } => {
                        hop.heard_from(from);
                        hop.small_ns.push(time_ns);
                        refused += u64::from(said == Said::Unreachable);
                        words.heard();
                    }
                    Answer::TooBig { .. } | Answer::Silence => {}
                }
            }
            let refused_all = refused == self.plan.probes;
            found.hops.push(hop);
            if found.reached || refused_all {
                break;
            }
        }
        Ok(())
    }

    fn path_mtu(&self, asker: &mut Asker<'_>, words: &mut Words<'_>, found: &mut Found) -> io::Result<()> {
        let least = asker.least_bytes();
        // What the kernel has learned before may be less than its interface takes; it says so when it refuses.
        let own = u64::from(u16::MAX);
        let mut search = Search::new(least, own);
        while let Some(size) = search.next() {
            let fate = self.fate(asker, words, size, found)?;
            search.on(size, fate);
        }
        found.mtu_bytes = Some(search.found());
        found.kernel_mtu_bytes = asker.route_mtu().ok();
        if let Some(bytes) =
            search.vanished().filter(|_| found.black_holed_bytes().is_some_and(|more| more > 0))
        {
            found.vanished =
                Some(Vanished { bytes, after: self.last_that_answers(asker, words, found, bytes)? });
        }
        Ok(())
    }

    /// What becomes of packets of one size.
    fn fate(
        &self,
        asker: &mut Asker<'_>,
        words: &mut Words<'_>,
        size: u64,
        found: &mut Found,
    ) -> io::Result<Fate> {
        for _ in 0..SIZE_TRIES {
            words.here()?;
            match asker.ask(size, None)? {
                Answer::Reply { .. } => {
                    words.heard();
                    return Ok(Fate::Arrived);
                }
                Answer::TooBig { from, mtu } => {
                    words.heard();
                    let hop = found
                        .hops
                        .iter_mut()
                        .find(|hop| from.is_some_and(|from| hop.addresses.contains(&from)));
                    if let Some(hop) = hop {
                        hop.mtu_bytes = Some(hop.mtu_bytes.map_or(mtu, |known| known.min(mtu)));
                    }
                    return Ok(Fate::TooBig { mtu });
                }
                Answer::Ended { .. } | Answer::Silence => {}
            }
        }
        Ok(Fate::Vanished)
    }

    /// The last hop that answers packets of a size that does not arrive.
    fn last_that_answers(
        &self,
        asker: &mut Asker<'_>,
        words: &mut Words<'_>,
        found: &Found,
        size: u64,
    ) -> io::Result<Option<(u8, std::net::IpAddr)>> {
        let mut last = None;
        for hop in found.hops.iter().filter(|hop| !hop.small_ns.is_empty()) {
            let mut answered = false;
            for _ in 0..SIZE_TRIES {
                words.here()?;
                if let Answer::Ended { from, .. } = asker.ask(size, Some(hop.number))? {
                    words.heard();
                    (last, answered) = (Some((hop.number, from)), true);
                    break;
                }
            }
            if !answered {
                break;
            }
        }
        Ok(last)
    }

    fn full_size(&self, asker: &mut Asker<'_>, words: &mut Words<'_>, found: &mut Found) -> io::Result<()> {
        let Some(size) = found.mtu_bytes else { return Ok(()) };
        for hop in found.hops.iter_mut().filter(|hop| !hop.small_ns.is_empty()) {
            for _ in 0..self.plan.probes {
                words.here()?;
                if let Answer::Reply { time_ns } | Answer::Ended { time_ns, .. } =
                    asker.ask(size, Some(hop.number))?
                {
                    words.heard();
                    hop.full_ns.push(time_ns);
                }
            }
        }
        self.round_trips(asker, words, size, &mut found.full_ns)
    }

    fn train(
        &self,
        association: &Association,
        words: &mut Words<'_>,
        version: Version,
        found: &mut Found,
    ) -> io::Result<()> {
        let socket = &association.socket;
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(HERE_EVERY))?;
        let packet = found.mtu_bytes.unwrap_or(TRAIN_PACKET_BYTES).min(TRAIN_PACKET_BYTES) as usize;
        let length = packet.saturating_sub(version.header_bytes()).max(HEADER_BYTES + 8);
        let mut datagram = vec![0; length];
        for number in 0..self.plan.train {
            words.here()?;
            let now = clock::monotonic();
            Header { tag: association.tag, kind: Kind::Message, number }.write(&mut datagram);
            datagram[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&now.as_ns().to_le_bytes());
            if socket.send(&datagram).is_ok() {
                found.train_sent += 1;
                words.heard();
            }
            clock::sleep_until(now + TRAIN_GAP);
        }
        Ok(())
    }
}

/// The other end must not wait for what will not come.
pub fn give_up(stream: &TcpStream) {
    let _ = socket::reset_on_close(stream.as_fd());
}
