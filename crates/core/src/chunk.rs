//! Fine series in compact stretches: what a long watch hands on as it goes, what `chunks.jsonl` keeps a line each. A stretch
//! stands alone, so that of a series that was cut off everything before the cut can be read.

mod text;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Most fields of a set: one bit each.
pub const FIELDS_MAX: usize = 64;
/// Most bytes that one sample takes: two times, two masks, and ten bytes a field.
pub const SAMPLE_BYTES_MAX: usize = 20 + 20 + 10 * FIELDS_MAX;
/// Most samples of one chunk; what says more is no chunk.
pub const SAMPLES_MAX: u32 = 1 << 20;

/// One field of a sample, a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// With its unit as the last word: `rtt_us`.
    pub name: &'static str,
    /// True for counters that only grow.
    pub cumulative: bool,
}

/// What each sample of a chunk holds, in order: of a flow that is watched, or of each operation. Declared by the workload that
/// records them. A set is never changed, only followed by another with the next number.
#[derive(Debug, PartialEq, Eq)]
pub struct FieldSet {
    /// `WHAT/1`
    pub name: &'static str,
    /// What one sample is, for the caption of its picture.
    pub about: &'static str,
    pub fields: &'static [Field],
    /// The field that the report draws against time; of a set without one it draws nothing.
    pub shown: Option<&'static str>,
}

pub const fn gauge(name: &'static str) -> Field {
    Field { name, cumulative: false }
}

pub const fn counter(name: &'static str) -> Field {
    Field { name, cumulative: true }
}

/// A field set as it travels with the results, in `records.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldSetRecord {
    pub name: String,
    pub about: String,
    pub fields: Vec<FieldRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldRecord {
    pub name: String,
    pub cumulative: bool,
}

impl From<&FieldSet> for FieldSetRecord {
    fn from(set: &FieldSet) -> FieldSetRecord {
        let record =
            |field: &Field| FieldRecord { name: field.name.to_owned(), cumulative: field.cumulative };
        FieldSetRecord {
            name: set.name.to_owned(),
            about: set.about.to_owned(),
            fields: set.fields.iter().map(record).collect(),
            shown: set.shown.map(str::to_owned),
        }
    }
}

/// What the receiving program had got.
pub static RECEIVED: FieldSet = FieldSet {
    name: "received/1",
    about: "what the receiving program had got",
    fields: &[counter("received_bytes")],
    shown: None,
};

/// `TCP_INFO` of the sending end, as `struct tcp_info` of `linux/tcp.h` has it.
pub static TCP_INFO: FieldSet = FieldSet {
    name: "tcp-info/1",
    about: "what the sending end's kernel said of the flow",
    shown: None,
    fields: &[
        gauge("snd_cwnd_segments"),
        gauge("snd_ssthresh_segments"),
        gauge("unacked_segments"),
        gauge("rtt_us"),
        gauge("rttvar_us"),
        gauge("min_rtt_us"),
        gauge("snd_mss_bytes"),
        gauge("rcv_mss_bytes"),
        gauge("advmss_bytes"),
        counter("total_retrans_segments"),
        gauge("pacing_bytes_per_second"),
        gauge("max_pacing_bytes_per_second"),
        counter("bytes_acked_bytes"),
        counter("bytes_received_bytes"),
        counter("segs_out_segments"),
        gauge("notsent_bytes"),
        counter("data_segs_out_segments"),
        gauge("delivery_rate_bytes_per_second"),
        counter("busy_us"),
        counter("rwnd_limited_us"),
        counter("sndbuf_limited_us"),
        counter("bytes_sent_bytes"),
        counter("bytes_retrans_bytes"),
        counter("dsack_dups_count"),
        counter("reord_seen_count"),
        gauge("snd_wnd_bytes"),
        gauge("rcv_wnd_bytes"),
        gauge("application_limited_flag"),
    ],
};

/// Those of folders that do not say theirs.
pub static SETS: &[&FieldSet] = &[&RECEIVED, &TCP_INFO];

impl FieldSet {
    pub fn position(&self, field: &str) -> Option<usize> {
        self.fields.iter().position(|known| known.name == field)
    }
}

/// A stretch of the samples of one entity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    pub entity: String,
    /// Name of a set.
    pub fields: String,
    /// When the first sample was taken: on the host's clock while it travels, from the trial's start in the folder.
    pub start_ns: i64,
    pub count: u32,
    /// The samples, packed (`results.md`, chunk-2), as text.
    #[serde(with = "text")]
    pub data: Vec<u8>,
}

/// One chunk of one step of one trial: a line of `chunks.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChunkRecord {
    pub point: String,
    pub trial: u32,
    pub step: String,
    #[serde(flatten)]
    pub chunk: Chunk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("its samples are damaged")]
pub struct Damaged;

/// Packs samples one by one into room that was taken before.
#[derive(Debug)]
pub struct Packer {
    set: &'static FieldSet,
    bytes: Vec<u8>,
    count: u32,
    start_ns: u64,
    last_ns: u64,
    last_step_ns: i64,
    present: u64,
    values: [u64; FIELDS_MAX],
}

impl Packer {
    /// `room` is used as it is, emptied; it grows only where it has less than a chunk needs.
    pub fn new(set: &'static FieldSet, mut room: Vec<u8>) -> Packer {
        assert!(set.fields.len() <= FIELDS_MAX);
        room.clear();
        Packer {
            set,
            bytes: room,
            count: 0,
            start_ns: 0,
            last_ns: 0,
            last_step_ns: 0,
            present: 0,
            values: [0; FIELDS_MAX],
        }
    }

    pub fn count(&self) -> u32 {
        self.count
    }
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes a sample; `values` in the order of the set, `None` where the kernel does not say. False, and nothing is taken, when
    /// other fields are there than before: the sample belongs into another chunk.
    pub fn push(&mut self, at_ns: u64, values: &[Option<u64>]) -> bool {
        let present = values
            .iter()
            .enumerate()
            .fold(0_u64, |mask, (index, value)| mask | (u64::from(value.is_some()) << index));
        if self.count == 0 {
            (self.start_ns, self.last_ns, self.present) = (at_ns, at_ns, present);
            put(&mut self.bytes, present);
        } else if present != self.present || self.count == SAMPLES_MAX {
            return false;
        }
        let step_ns = at_ns.wrapping_sub(self.last_ns) as i64;
        put(&mut self.bytes, folded(step_ns.wrapping_sub(self.last_step_ns)));
        (self.last_ns, self.last_step_ns) = (at_ns, step_ns);
        let mut changed = 0_u64;
        for (index, value) in values.iter().enumerate() {
            changed |= u64::from(value.is_some_and(|value| value != self.values[index])) << index;
        }
        put(&mut self.bytes, changed);
        for (index, value) in values.iter().enumerate() {
            if changed >> index & 1 == 1
                && let Some(value) = value
            {
                put(&mut self.bytes, folded(value.wrapping_sub(self.values[index]) as i64));
                self.values[index] = *value;
            }
        }
        self.count += 1;
        true
    }

    /// The samples so far; goes on with a new chunk in `room`.
    pub fn take(&mut self, room: Vec<u8>) -> (u64, u32, Vec<u8>) {
        let fresh = Packer::new(self.set, room);
        let full = std::mem::replace(self, fresh);
        (full.start_ns, full.count, full.bytes)
    }
}

impl Chunk {
    /// Hands over every sample: its time and its values in the order of its set, which has `field_count`. Errors: what is no packed
    /// sample of so many; what came before was handed over.
    pub fn unpack(
        &self,
        field_count: usize,
        mut keep: impl FnMut(i64, &[Option<u64>]),
    ) -> Result<(), Damaged> {
        if field_count > FIELDS_MAX {
            return Err(Damaged);
        }
        if self.count == 0 || self.count > SAMPLES_MAX {
            return Err(Damaged);
        }
        let mut rest = self.data.as_slice();
        let mut next = || take(&mut rest).ok_or(Damaged);
        let known = if field_count == 64 { u64::MAX } else { (1 << field_count) - 1 };
        let present = next()?;
        if present & !known != 0 {
            return Err(Damaged);
        }
        let mut values = [None; FIELDS_MAX];
        for (index, value) in values.iter_mut().enumerate() {
            *value = (present >> index & 1 == 1).then_some(0_u64);
        }
        let (mut at_ns, mut step_ns) = (self.start_ns, 0_i64);
        for _ in 0..self.count {
            step_ns = step_ns.wrapping_add(unfolded(next()?));
            at_ns = at_ns.wrapping_add(step_ns);
            let changed = next()?;
            if changed & !present != 0 {
                return Err(Damaged);
            }
            for (index, value) in values.iter_mut().enumerate() {
                if changed >> index & 1 == 1
                    && let Some(value) = value
                {
                    *value = value.wrapping_add(unfolded(next()?) as u64);
                }
            }
            keep(at_ns, &values[..field_count]);
        }
        if rest.is_empty() { Ok(()) } else { Err(Damaged) }
    }
}

/// Small whole numbers of either sign to small ones without.
fn folded(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unfolded(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Seven bits a byte, the lowest first; the top bit says that more follow.
fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f).checked_shl(shift)?;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Sample = (u64, Vec<Option<u64>>);

    fn packed(samples: &[Sample]) -> Chunk {
        let mut packer = Packer::new(&TCP_INFO, Vec::new());
        for (at, values) in samples {
            assert!(packer.push(*at, values));
        }
        let (start_ns, count, data) = packer.take(Vec::new());
        Chunk {
            entity: "flow.a.b.0".to_owned(),
            fields: TCP_INFO.name.to_owned(),
            start_ns: start_ns as i64,
            count,
            data,
        }
    }

    fn unpacked(chunk: &Chunk) -> Result<Vec<Sample>, Damaged> {
        let mut all = Vec::new();
        chunk.unpack(TCP_INFO.fields.len(), |at, values| all.push((at as u64, values.to_vec()))).map(|()| all)
    }

    proptest! {
        // Spec: results.md#chunk-2
        #[test]
        fn what_is_packed_comes_out_the_same_through_text_too(
            present in 0_u64..1 << 28,
            times in proptest::collection::vec(any::<u32>(), 1..40),
            values in proptest::collection::vec(any::<u64>(), 28),
        ) {
            let mut at = 1 << 40;
            let samples: Vec<Sample> = times.iter().enumerate().map(|(turn, step)| {
                at += u64::from(*step);
                let of = |index: usize| values[index].rotate_left(turn as u32 * (index as u32 % 3));
                (at, (0..28).map(|index| (present >> index & 1 == 1).then(|| of(index))).collect())
            }).collect();
            let chunk = packed(&samples);
            prop_assert!(chunk.data.len() <= samples.len() * SAMPLE_BYTES_MAX);
            let text = serde_json::to_string(&chunk).unwrap();
            let back: Chunk = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(unpacked(&back).unwrap(), samples);
        }

        #[test]
        fn bytes_that_are_no_samples_are_refused_and_never_a_panic(
            data in proptest::collection::vec(any::<u8>(), 0..200), count in 0_u32..50,
        ) {
            let chunk = Chunk { fields: RECEIVED.name.to_owned(), count, data, ..Chunk::default() };
            let _ = unpacked(&chunk);
        }
    }

    #[test]
    fn a_chunk_that_lost_a_byte_or_has_one_too_many_is_damaged() {
        let whole = packed(&[(5, vec![Some(1); 28]), (9, vec![Some(2); 28])]);
        for data in [&whole.data[..whole.data.len() - 1], &[whole.data.as_slice(), &[0]].concat()] {
            let damaged = Chunk { data: data.to_vec(), ..whole.clone() };
            assert_eq!(unpacked(&damaged), Err(Damaged));
        }
        assert_eq!(whole.unpack(27, |_, _| {}), Err(Damaged), "of a set with fewer fields");
    }

    #[test]
    fn a_sample_with_other_fields_belongs_into_another_chunk() {
        let mut packer = Packer::new(&RECEIVED, Vec::new());
        assert!(packer.push(1, &[Some(5)]));
        assert!(!packer.push(2, &[None]));
        assert_eq!(packer.count(), 1);
    }
}
