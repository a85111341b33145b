//! Traces that are made from a description and a seed: the worst case, and what analyses do.

use super::Record;
use weir_core::seed;

/// A file with fewer bytes has no places worth telling apart.
pub const FILE_BYTES_LEAST: u64 = 65_536;
/// Operations of a trace of document 003.
pub const RECORDS: u32 = 5_000;

/// How the operations of a trace are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pattern {
    /// Anywhere, any length up to the largest: the worst case (document 003).
    Random { largest_bytes: u32 },
    /// As an analysis reads columns of events: a header and the list of what is where, then group after group of events the
    /// columns that it uses, in the order in which it uses them.
    Analysis {
        columns: u32,
        /// Of the columns, and of the groups of events, that it reads.
        columns_share: f64,
        groups_share: f64,
    },
}

/// A trace that has a name.
pub struct Made {
    pub name: &'static str,
    pub about: &'static str,
    pattern: Pattern,
}

const RANDOM: Pattern = Pattern::Random { largest_bytes: 32_768 };
const ANYWHERE: &str = "reads of 1 B to 32 KiB anywhere in the file";

const fn analysis(
    name: &'static str,
    about: &'static str,
    columns: u32,
    columns_share: f64,
    groups_share: f64,
) -> Made {
    Made { name, about, pattern: Pattern::Analysis { columns, columns_share, groups_share } }
}

const fn random(name: &'static str) -> Made {
    Made { name, about: ANYWHERE, pattern: RANDOM }
}

/// The ten of document 003: five as analyses read, five at random.
pub static ALL: [Made; 10] = [
    analysis("analysis-1", "all events, a fifth of 100 columns", 100, 0.2, 1.0),
    analysis("analysis-2", "all events, half of 40 columns", 40, 0.5, 1.0),
    analysis("analysis-3", "a tenth of the events, all of 60 columns", 60, 1.0, 0.1),
    analysis("analysis-4", "a third of the events, a tenth of 300 columns", 300, 0.1, 0.33),
    analysis("analysis-5", "all events, two of 80 columns", 80, 0.025, 1.0),
    random("random-1"),
    random("random-2"),
    random("random-3"),
    random("random-4"),
    random("random-5"),
];

pub fn named(name: &str) -> Option<&'static Made> {
    ALL.iter().find(|made| made.name == name)
}

/// Evenly spread numbers, the same of the same seed.
struct Draws {
    seed: u64,
    count: u64,
}

impl Draws {
    /// From 0 to `below`, without it.
    fn below(&mut self, below: u64) -> u64 {
        self.count += 1;
        let draw = seed::split(self.seed.wrapping_add(self.count), "trace");
        ((u128::from(draw) * u128::from(below)) >> 64) as u64
    }
}

impl Made {
    /// So many reads of a file with `file_bytes`, or of several alike.
    pub fn records(&self, file_bytes: u64, records: u32, seed: u64) -> Vec<Record> {
        let draws = Draws { seed: seed::split(seed, self.name), count: 0 };
        match self.pattern {
            Pattern::Random { largest_bytes } => anywhere(draws, file_bytes, records, largest_bytes),
            Pattern::Analysis { columns, columns_share, groups_share } => {
                by_columns(draws, file_bytes, records, columns, (columns_share, groups_share))
            }
        }
    }
}

fn read(offset: u64, length_bytes: u64) -> Record {
    Record { offset, length_bytes: length_bytes as u32, ..Record::default() }
}

fn anywhere(mut draws: Draws, file_bytes: u64, records: u32, largest_bytes: u32) -> Vec<Record> {
    let one = |_| {
        let length = 1 + draws.below(u64::from(largest_bytes).min(file_bytes));
        read(draws.below(file_bytes - length + 1), length)
    };
    (0..records).map(one).collect()
}

fn by_columns(
    mut draws: Draws,
    file_bytes: u64,
    records: u32,
    columns: u32,
    (columns_share, groups_share): (f64, f64),
) -> Vec<Record> {
    // Columns differ in width a hundredfold.
    let widths: Vec<u64> = (0..columns).map(|_| 1 + draws.below(10) * draws.below(10)).collect();
    let all: u64 = widths.iter().sum();
    let begins: Vec<u64> =
        widths.iter().scan(0, |sum, width| Some(std::mem::replace(sum, *sum + width))).collect();
    let used = ((f64::from(columns) * columns_share).round() as usize).max(1);
    let mut order: Vec<usize> = (0..columns as usize).collect();
    for index in 0..used {
        let other = index + draws.below((order.len() - index) as u64) as usize;
        order.swap(index, other);
    }
    // The header, where the list is, and the list itself at the end of the file.
    let mut out = vec![read(0, 512), read(file_bytes - 512, 512), read(file_bytes - 16_384, 15_872)];
    out.truncate(records as usize);
    let groups_read = (u64::from(records).saturating_sub(out.len() as u64)).div_ceil(used as u64).max(1);
    let groups = ((groups_read as f64 / groups_share).round() as u64).max(groups_read);
    let (from, to) = (512, file_bytes - 16_384);
    for number in 0..groups_read {
        // Of each stretch of groups one is read, any of them.
        let (first, next) = (number * groups / groups_read, (number + 1) * groups / groups_read);
        let group = first + draws.below(next - first);
        let begin = from + (to - from) * group / groups;
        let bytes = ((to - from) / groups).max(1);
        for column in &order[..used] {
            if out.len() == records as usize {
                return out;
            }
            let offset = begin + bytes * begins[*column] / all;
            let length = (bytes * widths[*column] / all).max(1);
            out.push(read(offset, length.min(to - offset)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Totals;

    // Spec: replay.md#trace-5
    #[test]
    fn made_traces_are_the_same_of_the_same_seed_and_lie_within_their_file() {
        for made in &ALL {
            for (file_bytes, records) in [(FILE_BYTES_LEAST, 40), (40_000_000, 5_000), (1 << 40, 3)] {
                let first = made.records(file_bytes, records, 7);
                assert_eq!(first.len(), records as usize, "{}", made.name);
                assert_eq!(first, made.records(file_bytes, records, 7));
                assert!(Totals::of(&first).end <= file_bytes, "{}", made.name);
                assert!(first.iter().all(|record| record.length_bytes > 0), "{}", made.name);
            }
            assert_ne!(made.records(40_000_000, 50, 1), made.records(40_000_000, 50, 2), "{}", made.name);
        }
        let ascending = |name: &str| {
            let records = named(name).unwrap().records(40_000_000, 5_000, 1);
            records.windows(2).filter(|pair| pair[1].offset > pair[0].offset).count() as f64 / 5_000.0
        };
        assert!((0.47..0.53).contains(&ascending("random-1")));
        // Columns of a group in any order, but group after group.
        assert!(ascending("analysis-5") > 0.5);
    }
}
