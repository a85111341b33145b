//! What a wire does to segments beside carrying them: loss, corruption, jitter, reordering, and what rules add.

use crate::action::DropReason;
use crate::chance::{self, Chance, Generator};
use crate::packet::Packet;
use crate::rules::{Rules, Verdict};
use rand_core::Rng;
use weir_core::topology::{BurstLoss, DirectedLink};

/// Each kind draws from a generator of its own.
#[derive(Debug)]
pub(crate) struct Hazards {
    loss: Chance,
    loss_generator: Generator,
    burst: Option<Burst>,
    corrupt: Chance,
    corrupt_generator: Generator,
    jitter: Option<Jitter>,
    reorder: Option<Reorder>,
    pub(crate) rules: Rules,
}

/// After Gilbert and Elliott: the state moves, then decides.
#[derive(Debug)]
struct Burst {
    bad: bool,
    enter: Chance,
    leave: Chance,
    loss: Chance,
    generator: Generator,
}

#[derive(Debug)]
struct Jitter {
    by_ns: u64,
    reorder: bool,
    generator: Generator,
}

#[derive(Debug)]
struct Reorder {
    share: Chance,
    by_ns: u64,
    generator: Generator,
}

/// What becomes of a segment on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Lost(DropReason),
    /// Among those in order.
    Arrives(u64),
    /// Others may overtake it.
    ArrivesLate(u64),
}

impl Hazards {
    pub(crate) fn new(own: &DirectedLink, run_seed: u64) -> Self {
        let generator = |cause: &str| chance::generator(run_seed, &format!("{}.{cause}", own.name));
        let impairments = &own.impairments;
        Hazards {
            loss: Chance::of(own.loss),
            loss_generator: chance::generator(run_seed, &own.name),
            burst: impairments.burst_loss.map(|burst| Burst::new(burst, generator("burst-loss"))),
            corrupt: Chance::of(impairments.corrupt),
            corrupt_generator: generator("corrupt"),
            jitter: impairments.jitter.filter(|jitter| jitter.by_ns > 0).map(|jitter| Jitter {
                by_ns: jitter.by_ns,
                reorder: jitter.reorder,
                generator: generator("jitter"),
            }),
            reorder: impairments.reorder.map(|reorder| Reorder {
                share: Chance::of(reorder.share),
                by_ns: reorder.by_ns,
                generator: generator("reorder"),
            }),
            rules: Rules::default(),
        }
    }

    pub(crate) fn set_loss(&mut self, ratio: f64) {
        self.loss = Chance::of(ratio);
    }
    pub(crate) fn set_corrupt(&mut self, ratio: f64) {
        self.corrupt = Chance::of(ratio);
    }

    /// Nothing happens to what is sent but its delay.
    pub(crate) fn are_none(&self) -> bool {
        self.loss.is_none()
            && self.burst.is_none()
            && self.corrupt.is_none()
            && self.jitter.is_none()
            && self.reorder.is_none()
            && self.rules.is_empty()
    }

    /// Decides for a segment sent at `now_ns` that takes `delay_ns`; `last_arrival_ns` is that of the one sent before, of those
    /// in order. May invert a bit of it.
    pub(crate) fn decide(
        &mut self,
        packet: &mut Packet,
        now_ns: u64,
        delay_ns: u64,
        last_arrival_ns: &mut u64,
    ) -> Fate {
        if !self.loss.is_none() && self.loss.hits(&mut self.loss_generator) {
            return Fate::Lost(DropReason::Loss);
        }
        if self.burst.as_mut().is_some_and(Burst::loses) {
            return Fate::Lost(DropReason::BurstLoss);
        }
        if !self.corrupt.is_none() && self.corrupt.hits(&mut self.corrupt_generator) {
            packet.invert(self.corrupt_generator.next_u64());
        }
        let mut in_order_ns = now_ns.saturating_add(delay_ns);
        let mut in_order = true;
        if let Some(Jitter { by_ns, reorder, generator }) = &mut self.jitter {
            in_order_ns = in_order_ns.saturating_add(chance::up_to(*by_ns, generator));
            in_order = !*reorder;
        }
        if in_order {
            in_order_ns = in_order_ns.max(*last_arrival_ns);
            *last_arrival_ns = in_order_ns;
        }
        let mut arrival_ns = in_order_ns;
        if !self.rules.is_empty() {
            match self.rules.judge(packet, in_order_ns) {
                Verdict::Lost => return Fate::Lost(DropReason::Rule),
                Verdict::Arrives(at_ns) => arrival_ns = at_ns,
            }
        }
        if let Some(Reorder { share, by_ns, generator }) = &mut self.reorder
            && share.hits(generator)
        {
            arrival_ns = arrival_ns.saturating_add(*by_ns);
        }
        if in_order && arrival_ns == in_order_ns {
            Fate::Arrives(arrival_ns)
        } else {
            Fate::ArrivesLate(arrival_ns)
        }
    }
}

impl Burst {
    fn new(burst: BurstLoss, mut generator: Generator) -> Self {
        // In the long run as many stays begin as end: good · enter = bad · leave.
        let leave = 1.0 / burst.length_packets.max(1.0);
        let enter = if burst.bad < 1.0 { burst.bad * leave / (1.0 - burst.bad) } else { 1.0 };
        Burst {
            bad: Chance::of(burst.bad).hits(&mut generator),
            enter: Chance::of(enter),
            leave: if burst.bad < 1.0 { Chance::of(leave) } else { Chance::of(0.0) },
            loss: Chance::of(burst.loss),
            generator,
        }
    }

    #[inline]
    fn loses(&mut self) -> bool {
        let moves = if self.bad { self.leave } else { self.enter };
        self.bad ^= moves.hits(&mut self.generator);
        self.bad && self.loss.hits(&mut self.generator)
    }
}
