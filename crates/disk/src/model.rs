//! What a disk takes for what it is asked: time and request in, time of completion out. Pure, so that its properties are tested in
//! virtual time.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// What a disk reads ahead behind a sequential read, and takes of a sequential write before it is on the platter: who goes on within
/// this, goes on at the disk's rate.
pub const BUFFER_BYTES: u64 = 1 << 20;
/// What the cache keeps at once.
const BLOCK_BYTES: u64 = 64 << 10;

/// What a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    pub size_bytes: u64,
    /// 0: as fast as the machine.
    pub rate_bytes_per_second: u64,
    /// From anywhere to anywhere, rotation included.
    pub position_ns: u64,
    /// Reads of what was read or written lately cost nothing; 0: none.
    pub cache_bytes: u64,
    /// Requests that it positions for at the same time, as an array of so many spindles does; they share the rate.
    pub depth: u32,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub file: u64,
    pub offset: u64,
    pub bytes: u64,
    pub is_write: bool,
}

/// What a disk has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Of the bytes read, those that the cache had.
    pub cached_bytes: u64,
    pub positionings: u64,
    /// Of what its heads and its rate could do since it began, what was asked of whichever was asked more: at one second a second it
    /// can do no more.
    pub busy_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Head {
    free_ns: u64,
    file: u64,
    end: u64,
    has_moved: bool,
}

/// What disks of an array have in common.
#[derive(Debug)]
pub struct Array {
    rate_bytes_per_second: u64,
    free_ns: u64,
    cache: Cache,
}

impl Array {
    pub fn new(settings: &Settings) -> Array {
        Array {
            rate_bytes_per_second: settings.rate_bytes_per_second,
            free_ns: 0,
            cache: Cache::new(settings.cache_bytes / BLOCK_BYTES),
        }
    }

    /// What was read or written before is not in the cache any more.
    pub fn forget(&mut self) {
        self.cache = Cache::new(self.cache.blocks_max);
    }

    fn transfer_ns(&self, bytes: u64, slow: f64) -> u64 {
        match self.rate_bytes_per_second {
            0 => 0,
            rate => (bytes as f64 * 1e9 / rate as f64 * slow).round() as u64,
        }
    }
}

/// One disk. It serves in the order in which it is asked, and does not look ahead in its queue.
#[derive(Debug)]
pub struct Disk {
    settings: Settings,
    heads: Vec<Head>,
    pub counts: Counts,
    heads_ns: u64,
    transfers_ns: u64,
    /// Everything takes so much longer; 1 unless something is wrong with it.
    pub slow: f64,
}

impl Disk {
    pub fn new(settings: Settings) -> Disk {
        let heads = vec![Head::default(); settings.depth.max(1) as usize];
        Disk { settings, heads, counts: Counts::default(), heads_ns: 0, transfers_ns: 0, slow: 1.0 }
    }

    /// When a request that comes now is done. Times never run backwards.
    pub fn request(&mut self, array: &mut Array, now_ns: u64, request: Request) -> u64 {
        match request.is_write {
            true => self.counts.written_bytes += request.bytes,
            false => self.counts.read_bytes += request.bytes,
        }
        if !request.is_write && array.cache.has(&request) {
            self.counts.cached_bytes += request.bytes;
            return now_ns;
        }
        array.cache.put(&request);
        let position_ns = (self.settings.position_ns as f64 * self.slow).round() as u64;
        let way = |head: &Head| {
            let is_before = head.has_moved && head.file == request.file;
            let gap_bytes = request.offset.checked_sub(head.end).filter(|_| is_before)?;
            // What lies between passes below the head at the disk's rate.
            let passing_ns = array.transfer_ns(gap_bytes, self.slow);
            let is_short = array.rate_bytes_per_second > 0 && passing_ns < position_ns;
            (gap_bytes == 0 || is_short).then_some((passing_ns, gap_bytes))
        };
        let nearest = self.heads.iter().enumerate().filter_map(|(index, head)| Some((way(head)?, index)));
        let (index, way_ns, is_sequential) = match nearest.min() {
            Some(((passing_ns, gap_bytes), index)) => (index, passing_ns, gap_bytes == 0),
            None => {
                let first = (0..self.heads.len()).min_by_key(|index| self.heads[*index].free_ns);
                (first.unwrap_or(0), position_ns, false)
            }
        };
        let transfer_ns = array.transfer_ns(request.bytes, self.slow);
        let head = &mut self.heads[index];
        let ready_ns = if is_sequential {
            // The disk went on while nobody asked, as far as its buffer goes.
            head.free_ns.max(now_ns.saturating_sub(array.transfer_ns(BUFFER_BYTES, self.slow)))
        } else {
            self.counts.positionings += 1;
            self.heads_ns += way_ns;
            head.free_ns.max(now_ns) + way_ns
        };
        let end_ns = ready_ns.max(array.free_ns) + transfer_ns;
        self.heads_ns += transfer_ns;
        self.transfers_ns += transfer_ns;
        self.counts.busy_ns = self.transfers_ns.max(self.heads_ns / u64::from(self.settings.depth.max(1)));
        *head = Head {
            free_ns: end_ns,
            file: request.file,
            end: request.offset + request.bytes,
            has_moved: true,
        };
        array.free_ns = end_ns;
        end_ns.max(now_ns)
    }
}

/// Which blocks were used lately.
#[derive(Debug)]
struct Cache {
    blocks_max: u64,
    used: HashMap<(u64, u64), u64>,
    order: BTreeMap<u64, (u64, u64)>,
    clock: u64,
}

fn blocks(request: &Request) -> impl Iterator<Item = (u64, u64)> {
    let last = (request.offset + request.bytes.max(1) - 1) / BLOCK_BYTES;
    let file = request.file;
    (request.offset / BLOCK_BYTES..=last).map(move |block| (file, block))
}

impl Cache {
    fn new(blocks_max: u64) -> Cache {
        Cache { blocks_max, used: HashMap::new(), order: BTreeMap::new(), clock: 0 }
    }

    /// Whether all of it is there; it is used lately then.
    fn has(&mut self, request: &Request) -> bool {
        let is_there = self.blocks_max > 0 && blocks(request).all(|block| self.used.contains_key(&block));
        if is_there {
            self.put(request);
        }
        is_there
    }

    fn put(&mut self, request: &Request) {
        if self.blocks_max == 0 {
            return;
        }
        for block in blocks(request) {
            self.clock += 1;
            if let Some(before) = self.used.insert(block, self.clock) {
                self.order.remove(&before);
            }
            self.order.insert(self.clock, block);
            if self.used.len() as u64 > self.blocks_max
                && let Some((_, oldest)) = self.order.pop_first()
            {
                self.used.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MB: u64 = 1_000_000;
    const MS: u64 = 1_000_000;

    fn disk(depth: u32, cache_bytes: u64) -> (Disk, Array) {
        let settings = Settings {
            size_bytes: 1 << 40,
            rate_bytes_per_second: 100 * MB,
            position_ns: 8 * MS,
            cache_bytes,
            depth,
        };
        (Disk::new(settings), Array::new(&settings))
    }

    fn read(file: u64, offset: u64, bytes: u64) -> Request {
        Request { file, offset, bytes, is_write: false }
    }

    // Spec: disk.md#disk-1
    #[test]
    fn one_reader_from_the_beginning_to_the_end_gets_the_rate_however_late_it_asks_within_the_buffer() {
        // Each time, or now and then for long: what it comes to in the mean is below what a block takes.
        for (late_ns, every) in [(0, 1), (100_000, 1), (900_000, 1), (5 * MS, 10)] {
            let (mut disk, mut array) = disk(1, 0);
            let (mut now, mut end) = (0, 0);
            for block in 0..1_000 {
                end = disk.request(&mut array, now, read(1, block * MB / 10, MB / 10));
                now = end + if block % every == 0 { late_ns } else { 0 };
            }
            // 100 MB at 100 MB/s behind one positioning.
            assert!((1_000 * MS..=1_008 * MS + 1_000).contains(&end), "{late_ns}: {end}");
            assert_eq!(disk.counts.positionings, 1);
        }
    }

    // Spec: disk.md#disk-2
    #[test]
    fn a_reader_that_asks_later_than_the_buffer_lasts_waits_for_the_disk() {
        let (mut disk, mut array) = disk(1, 0);
        let first = disk.request(&mut array, 0, read(1, 0, MB));
        assert_eq!(first, 18 * MS);
        let later = first + 1_000 * MS;
        assert_eq!(disk.request(&mut array, later, read(1, MB, 2 * MB)), later + 20 * MS - BUFFER_BYTES * 10);
    }

    // Spec: disk.md#disk-1 and disk.md#disk-3
    #[test]
    fn random_reads_position_each_time_and_heads_position_at_the_same_time_and_share_the_rate() {
        for (depth, expected_ns) in [(1, 100 * 8_040_960), (4, 25 * 8_040_960)] {
            let (mut disk, mut array) = disk(depth, 0);
            let done =
                (0..100).map(|number| disk.request(&mut array, 0, read(number, 0, 4_096))).max().unwrap();
            assert!(done.abs_diff(expected_ns) < 2 * MS, "{depth}: {done}");
        }
        // Many heads are bound by what they share.
        let (mut disk, mut array) = disk(64, 0);
        let done = (0..640).map(|number| disk.request(&mut array, 0, read(number, 0, MB))).max().unwrap();
        assert!((6_400 * MS..6_500 * MS).contains(&done), "{done}");
    }

    // Spec: disk.md#disk-1
    #[test]
    fn a_short_way_forward_takes_what_lies_between_at_the_rate_and_any_other_a_positioning() {
        let far = MB;
        for (from, to, way_ns) in [
            (0, 100_000, MS),
            (0, 790_000, 7 * MS + 900_000),
            (0, far, 8 * MS),
            (far, far - 2 * 4_096, 8 * MS),
        ] {
            let (mut disk, mut array) = disk(1, 0);
            let first = disk.request(&mut array, 0, read(1, from, 4_096));
            let second =
                disk.request(&mut array, first, read(1, to + if to > from { 4_096 } else { 0 }, 4_096));
            assert_eq!(second - first, way_ns + 40_960, "{from} to {to}");
            // In another file it is any other.
            assert_eq!(
                disk.request(&mut array, second, read(2, to + 8_192, 4_096)) - second,
                8 * MS + 40_960
            );
        }
    }

    // Spec: disk.md#disk-4
    #[test]
    fn what_was_used_lately_costs_nothing_and_what_was_not_costs_all_of_it() {
        let (mut disk, mut array) = disk(1, 10 * BLOCK_BYTES);
        for block in 0..10 {
            disk.request(&mut array, 0, read(1, block * BLOCK_BYTES, BLOCK_BYTES));
        }
        let now = 10_000 * MS;
        assert_eq!(disk.request(&mut array, now, read(1, 100, 9 * BLOCK_BYTES)), now);
        let written = Request { is_write: true, ..read(2, 0, 100) };
        assert!(disk.request(&mut array, now, written) > now, "a write goes to the disk");
        assert_eq!(disk.request(&mut array, now, read(2, 0, 100)), now);
        // The block that was not touched for longest has gone for it, and no other.
        assert_eq!(disk.request(&mut array, now, read(1, 9 * BLOCK_BYTES + 1, 100)), now);
        assert!(disk.request(&mut array, now, read(1, 0, 100)) > now);
        assert!(disk.request(&mut array, now, read(3, 0, 100)) > now);
    }

    // Spec: disk.md#disk-5
    #[test]
    fn disks_of_an_array_share_its_rate_and_its_cache() {
        let (mut one, mut array) = disk(1, 4 * BLOCK_BYTES);
        let (mut other, _) = disk(1, 0);
        let first = one.request(&mut array, 0, read(1, 0, 50 * MB));
        let second = other.request(&mut array, 0, read(2, 0, 50 * MB));
        assert_eq!((first, second), (508 * MS, 1_008 * MS));
    }

    proptest! {
        // Spec: disk.md#disk-1
        #[test]
        fn no_load_goes_faster_than_the_disk_and_no_request_is_done_before_it_came(
            requests in proptest::collection::vec((0_u64..5, 0_u64..64, 1_u64..4, any::<bool>(), 0_u64..20), 1..200),
            depth in 1_u32..8,
        ) {
            let (mut disk, mut array) = disk(depth, 0);
            let (mut now, mut last, mut bytes) = (0, 0, 0);
            for (file, block, blocks, is_write, wait_ms) in requests {
                now += wait_ms * MS;
                let request = Request { file, offset: block * 100_000, bytes: blocks * 100_000, is_write };
                let done = disk.request(&mut array, now, request);
                prop_assert!(done >= now);
                last = last.max(done);
                bytes += request.bytes;
            }
            // What was read ahead while nobody asked is at most the buffer.
            prop_assert!(last + BUFFER_BYTES * 10 >= bytes * 10, "{last} {bytes}");
        }
    }
}
