//! The two ends of a udp step, a thread for each flow. The sender hands a batch of datagrams to the kernel at each tick of an
//! absolute clock (one call where the kernel segments, UDP_SEGMENT); the receiver takes what has come together as one (UDP_GRO).

use super::account::Account;
use super::outcome::{Report, SentFlow};
use super::plan::{SIZE_BYTES_MIN, UdpPlan};
use crate::farewell;
use crate::generator::{Lateness, Ticks};
use crate::latency::pingpong::Until;
use crate::rendezvous::Flow;
use crate::stream::engine::{payload, wait_for_start};
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;
use weir_core::Instant;
use weir_seams::workload::Control;
use weir_sys::clock;
use weir_sys::socket::{self, Buffer};
use weir_transport::datagram::{HEADER_BYTES, Header, Kind};
use weir_transport::udp::{Association, is_peers};

/// Longest wait before the orders are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// The last moments before a tick are spent awake, since a timer may be so late; but never more than a fifth of the time.
const AWAKE: Duration = Duration::from_micros(60);
/// Largest buffer that the kernel hands over at once.
const ROOM: usize = 65_535;
/// Bytes, or time, between two additions to the live progress.
const REPORT_BYTES: u64 = 1 << 20;
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// How long a receiver waits for a sender of which nothing comes.
const SILENCE: Duration = Duration::from_secs(60);

pub struct End<'a> {
    pub plan: &'a UdpPlan,
    pub control: &'a Control,
}

fn now_ns() -> u64 {
    clock::monotonic().as_ns()
}

impl End<'_> {
    pub fn run(&self, flow: Flow<Association>) -> Report {
        let Flow { spec, stream: association } = flow;
        let mut report = Report { entity: spec.entity.clone(), ..Report::default() };
        let result = if spec.sends {
            self.send(&association, &mut report)
        } else {
            self.receive(&association, &mut report)
        };
        if let Err(error) = result {
            report.failure = Some(spec.failure(spec.operation(), &error));
        }
        report
    }

    fn send(&self, association: &Association, report: &mut Report) -> io::Result<()> {
        let plan = self.plan;
        let socket = &association.socket;
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(LOOK))?;
        clock::set_timer_slack_least();
        let (size, batch) = (plan.size_bytes as usize, plan.batch());
        let mut segments = batch > 1 && socket::set_datagram_segment(socket.as_fd(), size).is_ok();
        let mut block = payload(size * batch as usize);
        let mut flow = SentFlow { entity: report.entity.clone(), ..SentFlow::default() };
        let mut refused = 0;
        let mut lateness = Lateness::default();
        let start = self.control.start_at();
        let mut ticks = Ticks::new(start.as_ns(), plan.ticks_per_second()).until(plan.ticks());
        let count_max = if let Until::Count(count) = plan.until { count } else { u64::MAX };
        let mut failed = None;
        if wait_for_start(self.control, start) {
            while !ticks.over() && !self.control.stopping() {
                let now = now_ns();
                let Some(due) = ticks.take(now) else {
                    wait_until(ticks.next_ns(), ticks.period_ns());
                    continue;
                };
                let counted = due.counted_from(plan.counted_from());
                if let Some(due) = counted {
                    lateness.note(&ticks, due, now);
                }
                let first = due.number * batch;
                let count = batch.min(count_max.saturating_sub(first));
                for (number, datagram) in (first..first + count).zip(block.chunks_exact_mut(size)) {
                    Header { tag: association.tag, kind: Kind::Message, number }.write(datagram);
                    datagram[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&now.to_le_bytes());
                }
                let whole = &block[..size * count as usize];
                match hand_over(socket, whole, size, &mut segments) {
                    Ok(taken) => {
                        flow.sent_in_all += taken;
                        if counted.is_some() {
                            flow.sent += taken;
                            refused += count - taken;
                        }
                        self.control.send(taken * plan.size_bytes);
                    }
                    Err(error) => failed = Some(error),
                }
                if failed.is_some() {
                    break;
                }
            }
        }
        flow.refused = Some(refused);
        // However it went, the other end need not wait for more.
        let _ = socket::set_datagram_segment(socket.as_fd(), 0);
        let ended = farewell::say(association, flow.sent_in_all, self.control);
        report.sent = Some((flow, lateness, ticks));
        failed.map_or(ended, |error| {
            let text = format!("datagrams of {} bytes cannot be sent: {error}", plan.size_bytes);
            Err(io::Error::new(error.kind(), text))
        })
    }

    fn receive(&self, association: &Association, report: &mut Report) -> io::Result<()> {
        let plan = self.plan;
        let socket = &association.socket;
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(LOOK))?;
        socket::set_buffer(socket.as_fd(), Buffer::Receive, plan.receive_buffer_bytes)?;
        // Where the kernel cannot join them they come one by one.
        let _ = socket::set_datagram_join(socket.as_fd(), true);
        let size = plan.size_bytes as usize;
        let mut account = Account::new(plan.counted_from() * plan.batch())?;
        let mut bytes = vec![0; ROOM];
        let dropped_before = socket::dropped_datagrams(socket.as_fd()).ok();
        if !wait_for_start(self.control, self.control.start_at()) {
            return Ok(());
        }
        let planned = self.control.start_at() + plan.planned() + farewell::GRACE;
        let mut heard = clock::monotonic();
        let (mut ended, mut unreported, mut reported) = (None, 0, heard);
        let result = loop {
            match socket.recv(&mut bytes) {
                Ok(count) => {
                    let now = clock::monotonic();
                    let mut ours = false;
                    for datagram in bytes[..count].chunks(size) {
                        match association.header(datagram) {
                            Some(Header { kind: Kind::Message, number, .. })
                                if datagram.len() as u64 >= SIZE_BYTES_MIN =>
                            {
                                let mut sent = [0; 8];
                                sent.copy_from_slice(&datagram[HEADER_BYTES..HEADER_BYTES + 8]);
                                account.on_datagram(number, u64::from_le_bytes(sent), now.as_ns());
                                ours = true;
                            }
                            Some(Header { kind: Kind::End, number, .. }) => {
                                let _ = association.send_bare(Kind::Ended, number);
                                ended.get_or_insert(now);
                            }
                            // A client that did not hear that it was let in, or nothing of ours.
                            _ => {
                                association.reopened(datagram);
                            }
                        }
                    }
                    if ours {
                        heard = now;
                        unreported += count as u64;
                        if unreported >= REPORT_BYTES || now.since(reported) >= REPORT_EVERY {
                            self.control.advance(std::mem::take(&mut unreported));
                            reported = now;
                        }
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    let now = clock::monotonic();
                    if ended.is_some_and(|since| now.since(since) >= farewell::LINGER) || now >= planned {
                        break Ok(());
                    }
                    if now.since(heard) > SILENCE {
                        break Err(io::Error::new(
                            ErrorKind::TimedOut,
                            format!("the sender was silent for {SILENCE:?}"),
                        ));
                    }
                }
                Err(error) if is_peers(&error) => {}
                Err(error) => break Err(error),
            }
            if self.control.is_cut() {
                break Ok(());
            }
        };
        self.control.advance(unreported);
        let dropped = socket::dropped_datagrams(socket.as_fd()).ok();
        let overflowed = dropped.zip(dropped_before).map(|(after, before)| after.saturating_sub(before));
        report.received = Some((account, overflowed));
        result
    }
}

/// Until a tick is due, or for a while: the orders are to be looked at.
pub(crate) fn wait_until(at_ns: u64, period_ns: f64) {
    let awake_ns = (AWAKE.as_nanos() as u64).min((period_ns / 5.0) as u64);
    let wake = Instant::from_ns(at_ns.saturating_sub(awake_ns));
    let now = clock::monotonic();
    if now < wake {
        clock::sleep_until(wake.min(now + LOOK));
    }
    while now_ns() < at_ns && now_ns() >= wake.as_ns() {
        std::hint::spin_loop();
    }
}

/// Gives the kernel datagrams of `size` bytes, all with one call where it segments. How many it took.
fn hand_over(socket: &UdpSocket, whole: &[u8], size: usize, segments: &mut bool) -> io::Result<u64> {
    if *segments {
        match socket.send(whole) {
            Ok(sent) => return Ok((sent / size) as u64),
            Err(error) if is_refused(&error) => return Ok(0),
            // Larger than the path takes in one piece: only single ones are fragmented.
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                *segments = false;
                socket::set_datagram_segment(socket.as_fd(), 0)?;
            }
            Err(error) => return Err(error),
        }
    }
    let mut taken = 0;
    for datagram in whole.chunks_exact(size) {
        match socket.send(datagram) {
            Ok(_) => taken += 1,
            Err(error) if is_refused(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}

/// The kernel has no room now, or has had word of an earlier datagram that nobody took: this one was not sent.
pub(crate) fn is_refused(error: &io::Error) -> bool {
    const ENOBUFS: i32 = 105;
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
        || error.raw_os_error() == Some(ENOBUFS)
        || is_peers(error)
}
