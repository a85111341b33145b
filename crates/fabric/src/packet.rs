//! What the fabric knows of a packet: sizes and destination, never its bytes.

/// What the shell learned from the headers of one buffer: a plain packet (`segments` is 1) or a super-packet (TSO, USO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketMeta {
    /// Destination, an index into `Topology::hosts`.
    pub to: usize,
    /// IP and transport header, repeated in each segment.
    pub header_bytes: u16,
    /// Payload of each segment but the last.
    pub segment_bytes: u16,
    /// Payload of the whole buffer.
    pub payload_bytes: u32,
    /// At least 1; 0 counts as 1.
    pub segments: u16,
    /// Hash of the flow.
    pub flow: u32,
}

/// A run of `count` consecutive segments of one buffer, from segment `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The shell's token, returned as it was given.
    pub buffer: u32,
    /// Index of the run's first segment in its buffer.
    pub first: u16,
    /// Segments in the run, at least 1.
    pub count: u16,
    /// Destination host.
    pub to: u32,
    pub flow: u32,
    /// IP bytes of every segment of the run but its last.
    pub segment_ip_bytes: u32,
    /// IP bytes of the run's last segment.
    pub last_ip_bytes: u32,
}

impl Packet {
    /// The run of all segments of a buffer.
    pub(crate) fn whole(buffer: u32, meta: &PacketMeta) -> Packet {
        let count = meta.segments.max(1);
        let before_last = u32::from(meta.segment_bytes).saturating_mul(u32::from(count - 1));
        Packet {
            buffer,
            first: 0,
            count,
            to: u32::try_from(meta.to).unwrap_or(u32::MAX),
            flow: meta.flow,
            segment_ip_bytes: u32::from(meta.header_bytes) + u32::from(meta.segment_bytes),
            last_ip_bytes: u32::from(meta.header_bytes)
                .saturating_add(meta.payload_bytes.saturating_sub(before_last)),
        }
    }

    /// IP bytes of all segments of the run.
    pub fn ip_bytes(&self) -> u64 {
        u64::from(self.count - 1) * u64::from(self.segment_ip_bytes) + u64::from(self.last_ip_bytes)
    }

    /// Bytes on a wire that adds `framing_bytes` to each segment.
    pub fn wire_bytes(&self, framing_bytes: u32) -> u64 {
        self.ip_bytes() + u64::from(self.count) * u64::from(framing_bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_run_are_those_of_its_segments_wherever_it_is_cut() {
        let meta = PacketMeta {
            to: 1,
            header_bytes: 52,
            segment_bytes: 1448,
            payload_bytes: 10_000,
            segments: 7,
            flow: 0,
        };
        let whole = Packet::whole(9, &meta);
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
}
