//! The queues of the message library, as accounts of what waits in them.

use super::frame;
use std::collections::VecDeque;

/// Fragments for one builder, all of one length. What waits is numbers; bytes are made as they are sent.
#[derive(Clone, Debug)]
pub struct SendQueue {
    ids: VecDeque<u64>,
    message_bytes: u64,
    bytes_max: u64,
    messages_max: u64,
    /// Of the first one.
    sent_bytes: u64,
    waiting_bytes_max: u64,
}

impl SendQueue {
    pub fn new(message_bytes: u64, bytes_max: u64, messages_max: u64) -> SendQueue {
        // Invariant: memory for all that may wait is taken once; 8 bytes a message.
        let most = messages_max.min(bytes_max / message_bytes.max(1));
        SendQueue {
            ids: VecDeque::with_capacity(usize::try_from(most).unwrap_or(0).min(1 << 20)),
            message_bytes,
            bytes_max,
            messages_max,
            sent_bytes: 0,
            waiting_bytes_max: 0,
        }
    }

    /// Whether one more would be taken.
    pub fn has_room(&self) -> bool {
        let (waiting, count) = (self.waiting_bytes(), self.ids.len() as u64);
        count < self.messages_max && waiting + self.message_bytes <= self.bytes_max
    }

    /// Puts a fragment behind the others; false where there is no room for it.
    pub fn push(&mut self, id: u64) -> bool {
        let room = self.has_room();
        if room {
            self.ids.push_back(id);
            self.waiting_bytes_max = self.waiting_bytes_max.max(self.waiting_bytes());
        }
        room
    }

    /// The fragment that is being sent, and how many of its bytes are gone.
    pub fn first(&self) -> Option<(u64, u64)> {
        self.ids.front().map(|id| (*id, self.sent_bytes))
    }

    /// So many more bytes of the first are gone; its heartbeat when these were the last.
    pub fn advance(&mut self, bytes: u64) -> Option<u64> {
        self.sent_bytes += bytes;
        assert!(self.sent_bytes <= self.message_bytes, "more bytes were sent than a message has");
        if self.sent_bytes < self.message_bytes {
            return None;
        }
        self.sent_bytes = 0;
        self.ids.pop_front()
    }

    /// The connection is gone, and with it what of the first was sent: true where it was cut. The others wait.
    pub fn cut(&mut self) -> bool {
        let cut = self.sent_bytes > 0;
        if cut {
            self.ids.pop_front();
        }
        self.sent_bytes = 0;
        cut
    }

    pub fn messages(&self) -> u64 {
        self.ids.len() as u64
    }
    /// With what goes before each part; without what is gone of the first.
    pub fn waiting_bytes(&self) -> u64 {
        self.messages() * self.message_bytes - self.sent_bytes
    }
    pub fn waiting_bytes_max(&self) -> u64 {
        self.waiting_bytes_max
    }
}

/// Messages for one connection of the scheduler: small ones, so their bytes wait.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
    /// Where each waiting message ends in `bytes`.
    ends: VecDeque<usize>,
}

impl Outbox {
    /// Appends one message of these parts, unless `messages_max` wait: then false.
    pub fn push(&mut self, parts: &[&[u8]], messages_max: u64) -> bool {
        if self.ends.len() as u64 >= messages_max {
            return false;
        }
        for (index, part) in parts.iter().enumerate() {
            frame::put(&mut self.bytes, part, index + 1 < parts.len());
        }
        self.ends.push_back(self.bytes.len());
        true
    }

    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn advance(&mut self, count: usize) {
        self.sent += count;
        while self.ends.front().is_some_and(|end| *end <= self.sent) {
            self.ends.pop_front();
        }
        if self.ends.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        } else if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.ends.iter_mut().for_each(|end| *end -= self.sent);
            self.sent = 0;
        }
    }

    /// A new connection begins with a whole message: what was cut is gone, what waits stays if it is `kept`.
    pub fn reconnect(&mut self, kept: bool) {
        if !kept {
            self.bytes.clear();
            self.ends.clear();
            self.sent = 0;
        }
        let whole = self.sent;
        let first = self.ends.front().copied();
        if whole > 0
            && let Some(end) = first
        {
            self.advance(end - whole);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Spec: event-original.md#send-1
    #[test]
    fn a_queue_takes_fragments_until_either_bound_and_drops_only_then() {
        let mut queue = SendQueue::new(1_000, 3_500, 1_000);
        assert_eq!([(); 5].map(|()| queue.push(0)), [true, true, true, false, false]);
        assert_eq!(queue.waiting_bytes(), 3_000);
        // Half a message gone makes room for one more.
        assert_eq!(queue.advance(500), None);
        assert!(queue.push(1) && !queue.push(2));
        assert_eq!(queue.waiting_bytes_max(), 3_500);
        let mut queue = SendQueue::new(1_000, 250_000_000, 2);
        assert_eq!([(); 3].map(|()| queue.push(0)), [true, true, false]);
    }

    #[test]
    fn a_cut_connection_costs_the_message_on_its_way_and_no_other() {
        let mut queue = SendQueue::new(100, 1_000, 10);
        assert!(queue.push(7) && queue.push(8));
        assert!(!queue.cut());
        queue.advance(1);
        assert!(queue.cut());
        assert_eq!((queue.first(), queue.messages()), (Some((8, 0)), 1));
        assert_eq!(queue.advance(100), Some(8));
        assert_eq!(queue.first(), None);
    }

    // Spec: event-original.md#broadcast-1
    #[test]
    fn an_outbox_drops_what_finds_it_full_and_keeps_what_waits() {
        let mut outbox = Outbox::default();
        assert_eq!([(); 3].map(|()| outbox.push(&[&[1, 2, 3]], 2)), [true, true, false]);
        outbox.advance(5);
        assert!(outbox.push(&[&[4]], 2));
        assert_eq!(outbox.waiting(), [0, 3, 1, 2, 3, 0, 1, 4]);
        // The first byte of the second message was sent when the connection broke.
        outbox.advance(1);
        let mut kept = outbox.clone();
        kept.reconnect(true);
        assert_eq!(kept.waiting(), [0, 1, 4]);
        outbox.reconnect(false);
        assert!(outbox.is_empty() && outbox.waiting().is_empty());
    }

    proptest! {
        #[test]
        fn an_outbox_gives_its_messages_in_order_however_they_are_sent(steps in prop::collection::vec(0usize..40, 1..200)) {
            let (mut outbox, mut all, mut sent) = (Outbox::default(), Vec::new(), Vec::new());
            for (index, step) in steps.iter().enumerate() {
                let body = vec![index as u8; *step];
                if outbox.push(&[&body, &[9]], 20) {
                    frame::put(&mut all, &body, true);
                    frame::put(&mut all, &[9], false);
                }
                let count = (*step).min(outbox.waiting().len());
                sent.extend_from_slice(&outbox.waiting()[..count]);
                outbox.advance(count);
            }
            sent.extend_from_slice(outbox.waiting());
            prop_assert_eq!(sent, all);
        }
    }
}
