//! Blocks of a pcapng file (draft-ietf-opsawg-pcapng), little-endian, appended to a buffer.

/// `LINKTYPE_NULL`: four bytes that say which IP follows. `LINKTYPE_RAW` would need none, but libpcap before 1.10.5 cannot
/// read it from a file with a second interface: it compares the number with its own one for the same thing.
const LINK_TYPE_NULL: u16 = 0;
const FAMILY_BYTES: u32 = 4;
const FAMILY_IPV4: u32 = 2;
/// Of several numbers in use the one that all readers know.
const FAMILY_IPV6: u32 = 24;
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;
const STATISTICS_START: u16 = 2;
const STATISTICS_END: u16 = 3;
const STATISTICS_RECEIVED: u16 = 4;
const STATISTICS_DROPPED: u16 = 5;

/// Time stamps count nanoseconds: ten to the power of minus nine seconds.
const NANOSECONDS: u8 = 9;

/// One packet as it is written.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// In the order of the interface blocks, from 0.
    pub interface: u32,
    pub time_ns: u64,
    /// What is kept of it, in two pieces.
    pub data: [&'a [u8]; 2],
    pub whole_bytes: u32,
    pub comment: Option<&'a str>,
}

/// What is said of an interface at the end.
#[derive(Clone, Copy, Debug)]
pub struct Statistics {
    pub interface: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Packets that were to be captured.
    pub received: u64,
    /// Of these, how many were not.
    pub dropped: u64,
}

fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    pad(out, start);
    let bytes = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&bytes.to_le_bytes());
    out.extend_from_slice(&bytes.to_le_bytes());
}

fn pad(out: &mut Vec<u8>, start: usize) {
    let bytes = (out.len() - start).next_multiple_of(4);
    out.resize(start + bytes, 0);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    // A longer text is cut; ours are all short.
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    let start = out.len();
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, start);
}

fn time(out: &mut Vec<u8>, ns: u64) {
    out.extend_from_slice(&((ns >> 32) as u32).to_le_bytes());
    out.extend_from_slice(&(ns as u32).to_le_bytes());
}

fn time_option(out: &mut Vec<u8>, code: u16, ns: u64) {
    let mut value = Vec::with_capacity(8);
    time(&mut value, ns);
    option(out, code, &value);
}

/// The first block of a file.
pub fn section(out: &mut Vec<u8>, application: &str, comment: &str) {
    block(out, SECTION_HEADER, |out| {
        out.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        out.extend_from_slice(&1_u16.to_le_bytes());
        out.extend_from_slice(&0_u16.to_le_bytes());
        out.extend_from_slice(&u64::MAX.to_le_bytes()); // length of the section: not known
        option(out, OPTION_COMMENT, comment.as_bytes());
        option(out, SECTION_APPLICATION, application.as_bytes());
        option(out, OPTION_END, &[]);
    });
}

/// One for each interface, before its first packet. `snap_bytes` 0: packets are kept whole.
pub fn interface(out: &mut Vec<u8>, name: &str, snap_bytes: u32) {
    block(out, INTERFACE, |out| {
        out.extend_from_slice(&LINK_TYPE_NULL.to_le_bytes());
        out.extend_from_slice(&0_u16.to_le_bytes());
        let snap_bytes = if snap_bytes == 0 { 0 } else { snap_bytes.saturating_add(FAMILY_BYTES) };
        out.extend_from_slice(&snap_bytes.to_le_bytes());
        option(out, INTERFACE_NAME, name.as_bytes());
        option(out, INTERFACE_RESOLUTION, &[NANOSECONDS]);
        option(out, OPTION_END, &[]);
    });
}

/// Returns where in `out` the packet's first byte is.
pub fn packet(out: &mut Vec<u8>, frame: &Frame<'_>) -> usize {
    let mut start = 0;
    block(out, PACKET, |out| {
        out.extend_from_slice(&frame.interface.to_le_bytes());
        time(out, frame.time_ns);
        let [first, second] = frame.data;
        let kept_bytes = (first.len() + second.len()) as u32;
        out.extend_from_slice(&(FAMILY_BYTES + kept_bytes).to_le_bytes());
        out.extend_from_slice(&(FAMILY_BYTES + frame.whole_bytes).to_le_bytes());
        let v6 = first.first().is_some_and(|byte| byte >> 4 == 6);
        out.extend_from_slice(&(if v6 { FAMILY_IPV6 } else { FAMILY_IPV4 }).to_le_bytes());
        start = out.len();
        out.extend_from_slice(first);
        out.extend_from_slice(second);
        pad(out, start);
        if let Some(comment) = frame.comment {
            option(out, OPTION_COMMENT, comment.as_bytes());
            option(out, OPTION_END, &[]);
        }
    });
    start
}

pub fn statistics(out: &mut Vec<u8>, of: &Statistics) {
    block(out, STATISTICS, |out| {
        out.extend_from_slice(&of.interface.to_le_bytes());
        time(out, of.end_ns);
        time_option(out, STATISTICS_START, of.start_ns);
        time_option(out, STATISTICS_END, of.end_ns);
        option(out, STATISTICS_RECEIVED, &of.received.to_le_bytes());
        option(out, STATISTICS_DROPPED, &of.dropped.to_le_bytes());
        option(out, OPTION_END, &[]);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: lab.md#lab-22
    #[test]
    fn a_packet_block_is_as_the_standard_draws_it() {
        let mut out = Vec::new();
        packet(
            &mut out,
            &Frame {
                interface: 2,
                time_ns: 0x1_0000_0002,
                data: [&[0x45, 1], &[2, 3, 4]],
                whole_bytes: 1500,
                comment: Some("lost"),
            },
        );
        let words: Vec<u32> =
            out.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        let comment = u32::from_le_bytes(*b"lost");
        assert_eq!(
            words,
            [6, 56, 2, 1, 2, 9, 1504, FAMILY_IPV4, 0x0302_0145, 4, 0x0004_0001, comment, 0, 56]
        );
    }

    // Spec: lab.md#lab-22
    #[test]
    fn every_block_has_its_length_at_both_ends_and_the_next_one_follows() {
        let mut out = Vec::new();
        section(&mut out, "weir", "odd");
        interface(&mut out, "link.wan.forward", 96);
        packet(
            &mut out,
            &Frame { interface: 0, time_ns: 1, data: [b"abc", b""], whole_bytes: 3, comment: None },
        );
        let of = Statistics { interface: 0, start_ns: 0, end_ns: 9, received: 5, dropped: 4 };
        statistics(&mut out, &of);
        let mut kinds = Vec::new();
        let mut at = 0;
        while at < out.len() {
            let word = |at: usize| u32::from_le_bytes(out[at..at + 4].try_into().unwrap());
            let bytes = word(at + 4) as usize;
            assert_eq!((bytes % 4, word(at + bytes - 4) as usize), (0, bytes));
            kinds.push(word(at));
            at += bytes;
        }
        assert_eq!(kinds, [SECTION_HEADER, INTERFACE, PACKET, STATISTICS]);
    }
}
