//! What the fabric knows of a packet: sizes, destination and what routers and rules look at, never its bytes.

use std::num::NonZeroU32;
use weir_core::schedule::Protocol;

/// No host: who sends a router's answer.
const NOBODY: u16 = u16::MAX;

/// Hop limit that routers give their answers.
pub const ANSWER_HOP_LIMIT: u8 = 64;

/// Which of its two interfaces a host sends by or receives at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Network {
    #[default]
    Data,
    /// `Topology::auxiliary`.
    Auxiliary,
}

/// What the shell learned from the headers of one buffer: a plain packet (`segments` is 1) or a super-packet (TSO, USO).
/// Sizes saturate at 65,535 bytes a segment, the largest IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketMeta {
    /// Destination, an index into `Topology::hosts`, or, of a single ICMP echo request to a router, `Fabric::router`.
    pub to: usize,
    pub network: Network,
    /// IP and transport header, repeated in each segment.
    pub header_bytes: u16,
    /// Payload of each segment but the last.
    pub segment_bytes: u16,
    /// Payload of the whole buffer.
    pub payload_bytes: u32,
    /// At least 1; 0 counts as 1.
    pub segments: u16,
    /// Hop limit (IPv6) or time to live (IPv4) as the host sent it.
    pub hop_limit: u8,
    /// `None`: none that a rule can name.
    pub protocol: Option<Protocol>,
    /// Source and destination port of TCP and UDP; 0 where there is none, a fragment for example.
    pub ports: [u16; 2],
    /// Decides how long a router's answer is.
    pub ipv6: bool,
    /// Whether a router may answer it: no ICMP error, no fragment but the first, sent to one host (RFC 1122, section 3.2.2;
    /// RFC 4443, section 2.4).
    pub answerable: bool,
}

/// A run of `count` consecutive segments of one buffer, from segment `first` on, or a router's answer to one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The shell's token, returned as it was given.
    pub buffer: u32,
    /// Index of the run's first segment in its buffer.
    pub first: u16,
    /// Segments in the run, at least 1.
    pub count: u16,
    /// Sending host, or `NOBODY`.
    from: u16,
    /// Destination host, or router by its number in `Routes`.
    to: u16,
    /// IP bytes of every segment of the run but its last.
    segment_ip_bytes: u16,
    /// IP bytes of the run's last segment.
    last_ip_bytes: u16,
    content: Content,
    hop_limit: u8,
    protocol: Option<Protocol>,
    marks: u8,
    /// One more than the bit that is to be inverted; 0: none. Only single segments have one.
    inverted: u32,
}

const AUXILIARY: u8 = 1;
const IPV6: u8 = 2;
const ANSWERABLE: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Segments { ports: [u16; 2] },
    TimeExceeded { stage: u16 },
    TooBig { stage: u16, mtu: u16 },
    Echo { stage: u16 },
}

/// What a router sends of its own to the sender of a segment. `stage` is the router, an index into `Topology::sites`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An ICMP error: it did not forward the segment.
    Refused { stage: usize, why: Refusal },
    /// The reply to an echo request to its own address, as long as the request.
    Echo { stage: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its hop limit ended here.
    TimeExceeded,
    /// Larger than the next link's `mtu`, in bytes.
    TooBig { mtu: u16 },
}

impl Packet {
    /// The run of all segments of a buffer that host `from` sent.
    pub(crate) fn whole(buffer: u32, from: usize, meta: &PacketMeta) -> Packet {
        let count = meta.segments.max(1);
        let before_last = u32::from(meta.segment_bytes).saturating_mul(u32::from(count - 1));
        let last_bytes =
            u32::from(meta.header_bytes).saturating_add(meta.payload_bytes.saturating_sub(before_last));
        let mark = |mark: u8, on: bool| if on { mark } else { 0 };
        Packet {
            buffer,
            first: 0,
            count,
            from: number(from),
            to: number(meta.to),
            segment_ip_bytes: meta.header_bytes.saturating_add(meta.segment_bytes),
            last_ip_bytes: u16::try_from(last_bytes).unwrap_or(u16::MAX),
            content: Content::Segments { ports: meta.ports },
            hop_limit: meta.hop_limit,
            protocol: meta.protocol,
            marks: mark(AUXILIARY, meta.network == Network::Auxiliary)
                | mark(IPV6, meta.ipv6)
                | mark(ANSWERABLE, meta.answerable),
            inverted: 0,
        }
    }

    /// The answer of the router at `stage` to this single segment, on its way back; `None` if it may not be answered. As long as
    /// the headers and what they leave for the quoted segment: in all 576 bytes at most for IPv4 (RFC 1812, section 4.3.2.3),
    /// 1,280 for IPv6 (RFC 4443, section 2.4).
    pub(crate) fn answered(self, stage: usize, why: Refusal) -> Option<Packet> {
        if self.marks & ANSWERABLE == 0 {
            return None;
        }
        let (headers_bytes, bytes_max) = if self.marks & IPV6 == 0 { (20 + 8, 576) } else { (40 + 8, 1280) };
        let stage = number(stage);
        Some(Packet {
            last_ip_bytes: self.last_ip_bytes.saturating_add(headers_bytes).min(bytes_max),
            ..self.turned_round(match why {
                Refusal::TimeExceeded => Content::TimeExceeded { stage },
                Refusal::TooBig { mtu } => Content::TooBig { stage, mtu },
            })
        })
    }

    /// The reply of the router at `stage` to this single segment, an echo request to it.
    pub(crate) fn echoed(self, stage: usize) -> Packet {
        self.turned_round(Content::Echo { stage: number(stage) })
    }

    /// On its way back from a router, with what the router made of it.
    fn turned_round(self, content: Content) -> Packet {
        Packet {
            from: NOBODY,
            to: self.from,
            content,
            hop_limit: ANSWER_HOP_LIMIT,
            protocol: Some(Protocol::Icmp),
            marks: self.marks & !ANSWERABLE,
            inverted: 0,
            ..self
        }
    }

    /// IP bytes of all segments of the run.
    #[inline]
    pub fn ip_bytes(&self) -> u64 {
        u64::from(self.count - 1) * u64::from(self.segment_ip_bytes) + u64::from(self.last_ip_bytes)
    }

    /// Bytes on a wire that adds `framing_bytes` to each segment.
    #[inline]
    pub fn wire_bytes(&self, framing_bytes: u32) -> u64 {
        self.ip_bytes() + u64::from(self.count) * u64::from(framing_bytes)
    }

    /// The network it travels on.
    #[inline]
    pub fn network(&self) -> Network {
        if self.marks & AUXILIARY == 0 { Network::Data } else { Network::Auxiliary }
    }

    /// What is left of the hop limit: the shell writes it into what it delivers.
    pub fn hop_limit(&self) -> u8 {
        self.hop_limit
    }

    /// The bit that a wire has inverted, counted from the first of the segment's IP packet; `None`: none.
    pub fn inverted_bit(&self) -> Option<u32> {
        NonZeroU32::new(self.inverted).map(|bit| bit.get() - 1)
    }

    /// What this answers to the sender of segment `first`; `None`: it is no answer but the segments themselves.
    pub fn answer(&self) -> Option<Answer> {
        let (stage, why) = match self.content {
            Content::Segments { .. } => return None,
            Content::TimeExceeded { stage } => (stage, Refusal::TimeExceeded),
            Content::TooBig { stage, mtu } => (stage, Refusal::TooBig { mtu }),
            Content::Echo { stage } => return Some(Answer::Echo { stage: usize::from(stage) }),
        };
        Some(Answer::Refused { stage: usize::from(stage), why })
    }

    /// Sending host; `None` of an answer.
    #[inline]
    pub(crate) fn from(&self) -> Option<u32> {
        (self.from != NOBODY).then_some(u32::from(self.from))
    }
    #[inline]
    pub(crate) fn to(&self) -> usize {
        usize::from(self.to)
    }
    pub(crate) fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }
    pub(crate) fn ports(&self) -> [u16; 2] {
        match self.content {
            Content::Segments { ports } => ports,
            Content::TimeExceeded { .. } | Content::TooBig { .. } | Content::Echo { .. } => [0; 2],
        }
    }
    #[inline]
    pub(crate) fn segment_ip_bytes(&self) -> u16 {
        self.segment_ip_bytes
    }
    #[inline]
    pub(crate) fn last_ip_bytes(&self) -> u16 {
        self.last_ip_bytes
    }

    /// One hop less is left of the hop limit; false if none was.
    #[inline]
    pub(crate) fn spend_hop(&mut self) -> bool {
        // A packet that arrives with 1 has no hop left (RFC 1812, section 5.3.1).
        if self.hop_limit <= 1 {
            return false;
        }
        self.hop_limit -= 1;
        true
    }

    /// Inverts a bit of a single segment; one more replaces the first. `draw` chooses it evenly.
    pub(crate) fn invert(&mut self, draw: u64) {
        let bits = u128::from(self.ip_bytes().max(1)) * 8;
        // Less than 2^19 of 2^64 bits, so the product's upper half is less than that too.
        self.inverted = ((u128::from(draw) * bits) >> 64) as u32 + 1;
    }

    /// Cuts the first `count` segments off; what is left keeps the rest. `None` is left when all were asked for.
    #[inline]
    pub(crate) fn cut(self, count: u16) -> (Packet, Option<Packet>) {
        if count >= self.count {
            return (self, None);
        }
        let head = Packet { count, last_ip_bytes: self.segment_ip_bytes, ..self };
        let rest = Packet { first: self.first + count, count: self.count - count, ..self };
        (head, Some(rest))
    }
}

/// Hosts and stages are a few thousand at most; what is none becomes `NOBODY`, which nothing leads to.
fn number(index: usize) -> u16 {
    u16::try_from(index).unwrap_or(NOBODY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::lab::meta;

    #[test]
    fn the_bytes_of_a_run_are_those_of_its_segments_wherever_it_is_cut() {
        let whole = Packet::whole(9, 0, &meta(1, 7, 1448, 1312));
        assert_eq!(whole.ip_bytes(), 7 * 52 + 10_000);
        assert_eq!(whole.wire_bytes(38), 7 * 90 + 10_000);
        for at in 1..7 {
            let (head, rest) = whole.cut(at);
            let rest = rest.unwrap();
            assert_eq!((head.first, head.count, rest.first, rest.count), (0, at, at, 7 - at));
            assert_eq!(head.ip_bytes(), u64::from(at) * 1500);
            assert_eq!(head.ip_bytes() + rest.ip_bytes(), whole.ip_bytes());
        }
        assert_eq!(whole.cut(7), (whole, None));
    }

    #[test]
    fn a_packet_fits_half_a_cache_line() {
        assert_eq!(size_of::<Packet>(), 32);
    }

    // Spec: fabric.md#fabric-18
    #[test]
    fn an_answer_is_as_long_as_the_standards_allow_and_is_not_answered_itself() {
        let bytes = |ipv6, payload| {
            let meta = PacketMeta { ipv6, ..meta(1, 1, payload, payload) };
            let answer = Packet::whole(9, 5, &meta).answered(3, Refusal::TooBig { mtu: 1400 }).unwrap();
            assert_eq!(
                answer.answer(),
                Some(Answer::Refused { stage: 3, why: Refusal::TooBig { mtu: 1400 } })
            );
            assert_eq!((answer.to(), answer.from(), answer.buffer), (5, None, 9));
            assert_eq!(answer.answered(3, Refusal::TimeExceeded), None);
            answer.ip_bytes()
        };
        assert_eq!([bytes(false, 8), bytes(false, 1448)], [28 + 60, 576]);
        assert_eq!([bytes(true, 8), bytes(true, 1448)], [48 + 60, 1280]);
        let silent = PacketMeta { answerable: false, ..meta(1, 1, 8, 8) };
        assert_eq!(Packet::whole(0, 0, &silent).answered(0, Refusal::TimeExceeded), None);
    }

    // Spec: fabric.md#fabric-22
    #[test]
    fn every_bit_of_a_segment_may_be_inverted_and_none_beyond() {
        let mut packet = Packet::whole(0, 0, &meta(1, 1, 8, 8));
        assert_eq!(packet.inverted_bit(), None);
        for bit in 0..480_u64 {
            packet.invert((u128::from(bit) * (1 << 64) / 480 + 1) as u64);
            assert_eq!(packet.inverted_bit(), Some(bit as u32));
        }
        packet.invert(u64::MAX);
        assert_eq!(packet.inverted_bit(), Some(479));
    }
}
