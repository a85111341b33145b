//! UDP packets with a number each, sent at a steady rate or as a burst and received by the same thread.
//!
//! One thread does both and never sleeps: no wake-up and no hand-over between threads is part of a delay, and one CPU is
//! left to the fabric.

use super::pair::Pair;
use std::io::ErrorKind;
use std::thread;
use std::time::Duration;
use weir_core::Instant;
use weir_sys::clock::monotonic;
use weir_sys::process::take_short_turns;

/// Headers of IPv4 and UDP.
pub const HEADER_BYTES: u64 = 28;
/// Receives between two sends: a backlog must not make the sender late for long.
const RECEIVES: usize = 4;
const PACKET_BYTES_MAX: usize = 9_000;

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub count: usize,
    /// Of each packet.
    pub ip_bytes: u64,
    /// Sends are due at the start + n / rate; `None`: one after the other without a pause.
    pub per_second: Option<f64>,
    /// How long to wait for packets after the last was sent.
    pub drain: Duration,
}

#[derive(Clone, Debug, Default)]
pub struct Flights {
    /// `[packet]`: when it was handed to the kernel, in ns of the experiment's clock.
    pub sent_ns: Vec<u64>,
    /// `[packet]`: when it came, 0 if it did not; of copies the first.
    pub received_ns: Vec<u64>,
    /// Numbers in order of arrival.
    pub order: Vec<u32>,
    /// Arrivals whose contents are not what was sent.
    pub damaged: u64,
    /// Sends that the kernel refused.
    pub refused: u64,
}

impl Flights {
    pub fn received(&self) -> usize {
        self.order.len()
    }
    /// Delays of those that arrived, in seconds, in order of sending.
    pub fn delays(&self) -> Vec<f64> {
        let both = self.sent_ns.iter().zip(&self.received_ns).filter(|(_, received)| **received > 0);
        both.map(|(sent, received)| (*received as f64 - *sent as f64) / 1e9).collect()
    }
}

/// The longest that the scheduler lets another program run before this one has its turn.
const TURN: Duration = Duration::from_micros(100);

pub fn run(pair: &Pair, plan: &Plan) -> Result<Flights, String> {
    run_over(&[pair], plan)
}

/// Packet n goes to pair n modulo their number.
pub fn run_over(pairs: &[&Pair], plan: &Plan) -> Result<Flights, String> {
    let work = || {
        // Best effort: without it a thread that never sleeps waits a whole turn of whatever shares its CPU.
        let _ = take_short_turns(TURN);
        probe(pairs, plan)
    };
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn probe(pairs: &[&Pair], plan: &Plan) -> Result<Flights, String> {
    let sockets = pairs.iter().map(|pair| pair.udp()).collect::<Result<Vec<_>, String>>()?;
    let payload_bytes = plan.ip_bytes.checked_sub(HEADER_BYTES).filter(|bytes| *bytes >= 8);
    let payload_bytes = payload_bytes.ok_or("a probe has at least 36 bytes")? as usize;
    let mut packet = vec![0x5a_u8; payload_bytes];
    let mut incoming = [0_u8; PACKET_BYTES_MAX];
    let mut flights = Flights {
        sent_ns: Vec::with_capacity(plan.count),
        received_ns: vec![0; plan.count],
        order: Vec::with_capacity(plan.count),
        ..Flights::default()
    };
    let step_ns = plan.per_second.map_or(0.0, |rate| 1e9 / rate);
    let start = monotonic() + Duration::from_millis(1);
    let mut over = Instant::NEVER;
    loop {
        let now = monotonic();
        let number = flights.sent_ns.len();
        if number < plan.count {
            let due_ns = start.as_ns() + (number as f64 * step_ns) as u64;
            if now.as_ns() >= due_ns {
                packet[..8].copy_from_slice(&(number as u64).to_be_bytes());
                // The time is taken again: receiving may have come between.
                flights.sent_ns.push(monotonic().as_ns());
                if sockets[number % sockets.len()].0.send(&packet).is_err() {
                    flights.refused += 1;
                }
                if number + 1 == plan.count {
                    over = monotonic() + plan.drain;
                }
            }
        } else if now >= over || flights.received() == plan.count {
            return Ok(flights);
        }
        // A burst is sent before anything is read, so that reading does not stretch it.
        if step_ns == 0.0 && flights.sent_ns.len() < plan.count {
            continue;
        }
        for (_, far) in &sockets {
            for _ in 0..RECEIVES {
                match far.recv(&mut incoming) {
                    Ok(bytes) => note(&mut flights, &incoming[..bytes], &packet),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(format!("receiving probes: {error}")),
                }
            }
        }
    }
}

fn note(flights: &mut Flights, bytes: &[u8], sent: &[u8]) {
    let now = monotonic().as_ns();
    let number = bytes.first_chunk().map(|first| u64::from_be_bytes(*first) as usize);
    match number {
        Some(number) if number < flights.sent_ns.len() && bytes[8..] == sent[8..] => {
            if flights.received_ns[number] == 0 {
                flights.received_ns[number] = now;
            }
            flights.order.push(number as u32);
        }
        _ => flights.damaged += 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrival_with_a_changed_byte_or_number_is_damaged_and_not_counted_as_received() {
        let sent = vec![0x5a_u8; 20];
        let mut flights = Flights { sent_ns: vec![1, 1], received_ns: vec![0, 0], ..Flights::default() };
        let with = |number: u64, last: u8| {
            let mut bytes = sent.clone();
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            bytes[19] = last;
            bytes
        };
        for bytes in [with(1, 0x5a), with(0, 0x5b), with(2, 0x5a), vec![1, 2], with(0, 0x5a)] {
            note(&mut flights, &bytes, &sent);
        }
        assert_eq!((flights.order.as_slice(), flights.damaged), ([1, 0].as_slice(), 3));
    }
}
