//! The two ends of a stream of datagrams: seconds, microseconds and a number that begins at 1, and payload. A thread a stream.

use crate::generator::{Lateness, Ticks};
use crate::rendezvous::Flow;
use crate::stream::engine::payload;
use crate::udp::account::Account;
use crate::udp::ends::{is_refused, wait_until};
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;
use weir_core::failure::Failure;
use weir_seams::workload::Control;
use weir_sys::clock;
use weir_sys::socket::{self, Buffer};
use weir_transport::udp::is_peers;

/// What a client says first on a stream, and what it hears; both in the byte order of either end, and older ones.
pub const HELLO: [[u8; 4]; 4] = [
    0x3637_3839_u32.to_le_bytes(),
    0x3637_3839_u32.to_be_bytes(),
    OLD_HELLO.to_le_bytes(),
    OLD_HELLO.to_be_bytes(),
];
pub const REPLY: [[u8; 4]; 4] = [
    0x3938_3736_u32.to_le_bytes(),
    0x3938_3736_u32.to_be_bytes(),
    OLD_REPLY.to_le_bytes(),
    OLD_REPLY.to_be_bytes(),
];
const OLD_HELLO: u32 = 123_456_789;
const OLD_REPLY: u32 = 987_654_321;

/// Longest wait before the orders are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Longest that a receiver goes on after the order to stop, with what still comes.
const REST: Duration = Duration::from_secs(1);
/// Largest buffer that the kernel hands over at once.
const ROOM: usize = 65_535;
/// Bytes between two additions to the live progress.
const REPORT_BYTES: u64 = 1 << 20;
/// Larger numbers than any test reaches are a lie or no number.
const NUMBER_MAX: u64 = 1 << 56;
const HEADER_BYTES: usize = 16;
const NARROW_HEADER_BYTES: usize = 12;

/// What one end is to do.
#[derive(Clone, Debug)]
pub struct Load {
    pub size_bytes: usize,
    /// `None` is as many as the kernel takes.
    pub packets_per_second: Option<f64>,
    /// Datagrams handed to the kernel together.
    pub batch: u64,
    /// Numbers have 64 bits.
    pub wide: bool,
    pub receive_buffer_bytes: u64,
    pub warm_up: Duration,
    /// When senders stop by themselves.
    pub duration: Option<Duration>,
}

/// What a sender did.
pub struct Sent {
    pub size_bytes: u64,
    pub in_all: u64,
    /// Of them in the part left out.
    pub omitted: u64,
    /// What the kernel refused in the part that counts.
    pub refused: u64,
    pub lateness: Lateness,
    pub ticks: Ticks,
}

/// What a receiver got.
pub struct Received {
    pub account: Account,
    /// The first number that counts, counted from 0.
    pub counted_from: u64,
    /// Of the part that counts, whatever their numbers.
    pub bytes: u64,
    /// By the socket; `None` where the kernel does not tell.
    pub overflowed: Option<u64>,
}

#[derive(Default)]
pub struct Report {
    pub entity: String,
    pub sent: Option<Sent>,
    pub received: Option<Received>,
    pub failure: Option<Failure>,
}

pub struct End<'a> {
    pub load: &'a Load,
    pub control: &'a Control,
}

fn now_ns() -> u64 {
    clock::monotonic().as_ns()
}

impl End<'_> {
    pub fn run(&self, flow: Flow<UdpSocket>) -> Report {
        let Flow { spec, stream: socket } = flow;
        let mut report = Report { entity: spec.entity.clone(), ..Report::default() };
        let done =
            if spec.sends { self.send(&socket, &mut report) } else { self.receive(&socket, &mut report) };
        if let Err(error) = done {
            report.failure = Some(spec.failure(spec.operation(), &error));
        }
        report
    }

    fn warm_ns(&self) -> u64 {
        (self.control.start_at() + self.load.warm_up).as_ns()
    }

    fn send(&self, socket: &UdpSocket, report: &mut Report) -> io::Result<()> {
        let load = self.load;
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(LOOK))?;
        clock::set_timer_slack_least();
        let mut block = payload(load.size_bytes * load.batch as usize);
        let mut batch = Batch {
            size: load.size_bytes,
            wide: load.wide,
            segments: load.batch > 1 && socket::set_datagram_segment(socket.as_fd(), load.size_bytes).is_ok(),
        };
        let start = self.control.start_at();
        let end_ns = load.duration.map_or(u64::MAX, |duration| (start + duration).as_ns());
        let warm_ns = self.warm_ns();
        let ticks_per_second = load.packets_per_second.map(|rate| rate / load.batch as f64);
        let mut sent = Sent {
            size_bytes: load.size_bytes as u64,
            in_all: 0,
            omitted: 0,
            refused: 0,
            lateness: Lateness::default(),
            ticks: Ticks::new(start.as_ns(), ticks_per_second.unwrap_or(1.0)),
        };
        self.control.begin(clock::monotonic());
        let mut failed = None;
        while !self.control.stopping() {
            let now = now_ns();
            if now >= end_ns {
                break;
            }
            let counts = now >= warm_ns;
            if ticks_per_second.is_some() {
                let Some(due) = sent.ticks.take(now) else {
                    wait_until(sent.ticks.next_ns().min(end_ns), sent.ticks.period_ns());
                    continue;
                };
                if let Some(due) = due.counted_from(sent.ticks.first_from(warm_ns)) {
                    sent.lateness.note(&sent.ticks, due, now);
                }
            }
            match batch.hand_over(socket, &mut block, sent.in_all + 1, now) {
                Ok(taken) => {
                    sent.in_all += taken;
                    if counts {
                        sent.refused += load.batch - taken;
                    } else {
                        sent.omitted = sent.in_all;
                    }
                    self.control.send(taken * load.size_bytes as u64);
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        sent.ticks.stop();
        report.sent = Some(sent);
        failed.map_or(Ok(()), |error| {
            let text = format!("datagrams of {} bytes cannot be sent: {error}", load.size_bytes);
            Err(io::Error::new(error.kind(), text))
        })
    }

    /// Receives until told to stop, and then what is there.
    fn receive(&self, socket: &UdpSocket, report: &mut Report) -> io::Result<()> {
        let load = self.load;
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(LOOK))?;
        socket::set_buffer(socket.as_fd(), Buffer::Receive, load.receive_buffer_bytes)?;
        // Where the kernel cannot join them they come one by one.
        let _ = socket::set_datagram_join(socket.as_fd(), true);
        let warm_ns = self.warm_ns();
        let omitting = !load.warm_up.is_zero();
        let mut counting = !omitting;
        let (mut counted_from, mut bytes, mut unreported) = (0, 0, 0);
        let mut account = Account::new(if omitting { u64::MAX } else { 0 })?;
        let mut room = vec![0; ROOM];
        let before = socket::dropped_datagrams(socket.as_fd()).ok();
        let mut stopped = None;
        self.control.begin(clock::monotonic());
        let done = loop {
            match socket.recv(&mut room) {
                Ok(count) => {
                    let now = now_ns();
                    if !counting && now >= warm_ns {
                        counting = true;
                        counted_from = account.begin_counting();
                    }
                    for datagram in room[..count].chunks(load.size_bytes) {
                        let read = read(datagram, load.wide, account.next());
                        let Some((sent_ns, number)) = read else { continue };
                        account.on_datagram(number - 1, sent_ns, now);
                        bytes += if counting { datagram.len() as u64 } else { 0 };
                        unreported += datagram.len() as u64;
                    }
                    if unreported >= REPORT_BYTES {
                        self.control.advance(std::mem::take(&mut unreported));
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if self.control.stopping() {
                        break Ok(());
                    }
                }
                Err(error) if is_peers(&error) => {}
                Err(error) => break Err(error),
            }
            if self.control.is_cut() {
                break Ok(());
            }
            if self.control.stopping() {
                let now = now_ns();
                if now - *stopped.get_or_insert(now) > REST.as_nanos() as u64 {
                    break Ok(());
                }
            }
        };
        self.control.advance(unreported);
        let after = socket::dropped_datagrams(socket.as_fd()).ok();
        let overflowed = after.zip(before).map(|(after, before)| after.saturating_sub(before));
        report.received = Some(Received { account, counted_from, bytes, overflowed });
        done
    }
}

/// Datagrams that go to the kernel with one call where it segments.
struct Batch {
    size: usize,
    wide: bool,
    segments: bool,
}

impl Batch {
    /// Numbers follow each other in what the kernel takes, since a receiver calls every gap a loss. How many it took.
    fn hand_over(
        &mut self,
        socket: &UdpSocket,
        block: &mut [u8],
        first: u64,
        now_ns: u64,
    ) -> io::Result<u64> {
        if self.segments {
            for (number, datagram) in (first..).zip(block.chunks_exact_mut(self.size)) {
                write(datagram, self.wide, number, now_ns);
            }
            match socket.send(block) {
                Ok(sent) => return Ok((sent / self.size) as u64),
                Err(error) if is_refused(&error) => return Ok(0),
                // Larger than the path takes in one piece: only single ones are fragmented.
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    self.segments = false;
                    socket::set_datagram_segment(socket.as_fd(), 0)?;
                }
                Err(error) => return Err(error),
            }
        }
        let mut taken = 0;
        for datagram in block.chunks_exact_mut(self.size) {
            write(datagram, self.wide, first + taken, now_ns);
            match socket.send(datagram) {
                Ok(_) => taken += 1,
                Err(error) if is_refused(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }
}

/// `number` counts from 1; it is cut to 32 bits where it is narrow.
fn write(datagram: &mut [u8], wide: bool, number: u64, now_ns: u64) {
    let (seconds, micros) = ((now_ns / 1_000_000_000) as u32, (now_ns / 1_000 % 1_000_000) as u32);
    datagram[..4].copy_from_slice(&seconds.to_be_bytes());
    datagram[4..8].copy_from_slice(&micros.to_be_bytes());
    if wide {
        datagram[8..HEADER_BYTES].copy_from_slice(&number.to_be_bytes());
    } else {
        datagram[8..NARROW_HEADER_BYTES].copy_from_slice(&(number as u32).to_be_bytes());
    }
}

/// When it was sent, by the sender's clock, and its number, at least 1. Of a narrow number the sender has cut what is above 32
/// bits: it is the one nearest to `largest`, the largest so far.
fn read(datagram: &[u8], wide: bool, largest: u64) -> Option<(u64, u64)> {
    let word = |at: usize| Some(u32::from_be_bytes(datagram.get(at..at + 4)?.try_into().ok()?));
    let (seconds, micros) = (word(0)?, word(4)?);
    let number = if wide {
        u64::from(word(8)?) << 32 | u64::from(word(12)?)
    } else {
        let ahead = word(8)?.wrapping_sub(largest as u32).cast_signed();
        largest.checked_add_signed(i64::from(ahead))?
    };
    let sent_ns = u64::from(seconds) * 1_000_000_000 + u64::from(micros) * 1_000;
    (1..=NUMBER_MAX).contains(&number).then_some((sent_ns, number))
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use proptest::prelude::*;

    // Spec: net-protocol.md#iperf3-7
    #[test]
    fn a_datagram_says_when_it_was_sent_and_which_it_is() {
        for (wide, header) in [(true, HEADER_BYTES), (false, NARROW_HEADER_BYTES)] {
            let mut datagram = [7; 20];
            write(&mut datagram, wide, 0x0102_0304, 5_000_006_789);
            assert_eq!(datagram[..8], [0, 0, 0, 5, 0, 0, 0, 6]);
            assert_eq!(datagram[header - 4..header + 1], [1, 2, 3, 4, 7]);
            assert_eq!(read(&datagram[..header], wide, 0), Some((5_000_006_000, 0x0102_0304)));
            assert_eq!(read(&datagram[..header - 1], wide, 0), None);
        }
        assert_eq!(HELLO[0], *b"9876");
        assert_eq!(REPLY[0], *b"6789");
    }

    // Spec: net-protocol.md#iperf3-7
    #[test]
    fn narrow_numbers_go_on_beyond_32_bits_and_none_is_lost_or_doubled_there() {
        const WRAP: u64 = 1 << 32;
        let mut datagram = [0; NARROW_HEADER_BYTES];
        let mut account = Account::new(WRAP - 5).unwrap();
        let mut told = Vec::new();
        // One comes late across the edge, and one is missing.
        for number in [WRAP - 9, WRAP - 2, WRAP - 1, WRAP + 1, WRAP, WRAP + 3] {
            write(&mut datagram, false, number, 0);
            let largest = if told.is_empty() { WRAP - 10 } else { account.next() };
            let (_, read) = read(&datagram, false, largest).unwrap();
            told.push(read);
            account.on_datagram(read - 1, 0, 0);
        }
        assert_eq!(told, [WRAP - 9, WRAP - 2, WRAP - 1, WRAP + 1, WRAP, WRAP + 3]);
        assert_eq!((account.next(), account.duplicate, account.reordered), (WRAP + 3, 0, 1));
        // Twice around, and what would lie before the first.
        write(&mut datagram, false, 2 * WRAP + 7, 0);
        assert_eq!(read(&datagram, false, 2 * WRAP - 1), Some((0, 2 * WRAP + 7)));
        write(&mut datagram, false, WRAP - 1, 0);
        assert_eq!(read(&datagram, false, 0), None);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_counted_or_passed_over(bytes in prop::collection::vec(any::<u8>(), 0..40), wide in any::<bool>()) {
            let mut account = Account::new(0).unwrap();
            if let Some((sent_ns, number)) = read(&bytes, wide, account.next()) {
                account.on_datagram(number - 1, sent_ns, 5);
                prop_assert_eq!(account.distinct, 1);
            }
        }
    }
}
