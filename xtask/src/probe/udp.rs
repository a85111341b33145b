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
    /// From when to when the probe's core stood still, in ns of the experiment's clock: it never sleeps, and no look takes so long.
    pub stood_ns: Vec<(u64, u64)>,
}

impl Flights {
    pub fn received(&self) -> usize {
        self.order.len()
    }
    /// Delays of those that arrived, in seconds, in order of sending.
    pub fn delays(&self) -> Vec<f64> {
        let came = (0..self.sent_ns.len()).filter(|number| self.received_ns[*number] > 0);
        came.map(|number| self.delay(number)).collect()
    }
    /// Of one that arrived, in seconds.
    pub fn delay(&self, number: usize) -> f64 {
        (self.received_ns[number] as f64 - self.sent_ns[number] as f64) / 1e9
    }
    /// Those that came and were not on their way while the probe's core stood still.
    pub fn undisturbed(&self) -> Vec<usize> {
        let calm = |sent: u64, received: u64| {
            // They are in order and apart: of those that began before the arrival the last ends last.
            let begun = self.stood_ns.partition_point(|(from, _)| *from < received);
            self.stood_ns[..begun].last().is_none_or(|(_, until)| *until <= sent)
        };
        let came = |number: &usize| {
            let (sent, received) = (self.sent_ns[*number], self.received_ns[*number]);
            received > 0 && calm(sent, received)
        };
        (0..self.sent_ns.len()).filter(came).collect()
    }
    pub fn undisturbed_delays(&self) -> Vec<f64> {
        self.undisturbed().into_iter().map(|number| self.delay(number)).collect()
    }
    /// The probe's core did not stand still while it sent, nor while most of the packets were on their way.
    pub fn calm(&self) -> bool {
        let ends = self.sent_ns.first().zip(self.sent_ns.last());
        let sending = |(first, last): (&u64, &u64)| {
            self.stood_ns.iter().any(|(from, until)| from < last && until > first)
        };
        !ends.is_some_and(sending) && self.undisturbed().len() * 2 >= self.received()
    }
}

/// A look of the probe's, with a send and a few receives, takes some 10 µs.
pub const LOOK_MAX: Duration = Duration::from_micros(300);

/// The longest that the scheduler lets another program run before this one has its turn.
const TURN: Duration = Duration::from_micros(100);

pub fn run(pair: &Pair, plan: &Plan) -> Result<Flights, String> {
    run_over(&[pair], plan)
}

/// How often a run may be repeated, so that a machine that is never calm is told and not waited for.
const REPETITIONS: usize = 20;

/// The same until it was calm; `repeated` counts the others.
pub fn run_calm(pair: &Pair, plan: &Plan, repeated: &mut usize) -> Result<Flights, String> {
    for _ in 0..=REPETITIONS {
        let flights = run(pair, plan)?;
        if flights.calm() {
            return Ok(flights);
        }
        *repeated += 1;
    }
    Err(format!("the probe's core stood still in each of {} runs: weir doctor", REPETITIONS + 1))
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
    let mut looked = monotonic();
    loop {
        let now = monotonic();
        if now >= looked + LOOK_MAX {
            flights.stood_ns.push((looked.as_ns(), now.as_ns()));
        }
        looked = now;
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
    fn what_was_on_its_way_while_the_core_stood_still_is_left_out() {
        let flights = Flights {
            sent_ns: vec![0, 100, 250, 390, 500],
            received_ns: vec![150, 250, 380, 600, 0],
            stood_ns: vec![(200, 240), (400, 450)],
            ..Flights::default()
        };
        assert_eq!(flights.undisturbed_delays(), [150e-9, 130e-9]);
        assert_eq!(flights.delays().len(), 4);
        assert!(!flights.calm(), "it stood still while it sent");
        let later = Flights { stood_ns: vec![(550, 700)], order: vec![0, 1, 2, 3], ..flights };
        assert!(later.calm());
        let most = Flights {
            sent_ns: vec![0, 1, 2, 590],
            stood_ns: vec![(595, 700)],
            received_ns: vec![600; 4],
            ..later
        };
        assert!(!most.calm(), "all were on their way");
    }

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
