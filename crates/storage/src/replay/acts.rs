//! What one job does, act by act: made as it goes, since 1,100 jobs with 25,000 reads each are many.

use super::Own;
use super::choice::Order;
use crate::script::{Act, Piece};
use crate::trace::{Cursor, Record, Trace};
use std::collections::VecDeque;
use std::time::Duration;
use weir_seams::target::Mode;

/// What a job does after each read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Think {
    Wait(Duration),
    /// With a core for it.
    Burn(Duration),
}

impl Think {
    pub fn time(self) -> Duration {
        match self {
            Think::Wait(time) | Think::Burn(time) => time,
        }
    }
    pub fn burns(self) -> bool {
        matches!(self, Think::Burn(time) if !time.is_zero())
    }
    fn acts(self, reads: u32) -> Option<Act> {
        let time = self.time().saturating_mul(reads);
        (!time.is_zero()).then_some(match self {
            Think::Wait(_) => Act::Wait(time),
            Think::Burn(_) => Act::Burn(time),
        })
    }
}

/// Names of a job's sections.
pub const OPEN: &str = "open";
pub const TRANSFER: &str = "transfer";
pub const CLOSE: &str = "close";

/// The acts of one job.
pub struct Replaying {
    cursor: Cursor,
    /// Each record is of one file, and not of all.
    names_files: bool,
    sizes: Vec<u64>,
    /// Of each file, what is there already because it was read ahead.
    ahead: Vec<(u64, u64)>,
    read_ahead: u64,
    think: Think,
    speed: Option<f64>,
    vector: usize,
    /// Reads that the job may still have.
    left: u64,
    /// Records that are asked for together of each file, and where in them the job is.
    block: Vec<Record>,
    file: usize,
    at: usize,
    /// Reads since the job last thought.
    unthought: u32,
    is_through: bool,
    queue: VecDeque<Act>,
}

impl Replaying {
    /// Errors: the trace cannot be read any more, in words.
    /// `seed`: of the order, where that is the job's own.
    pub fn new(trace: &Trace, sizes: Vec<u64>, own: &Own, seed: u64) -> Result<Replaying, String> {
        let files = sizes.len();
        let mut queue = VecDeque::with_capacity(files + 6);
        queue.extend([Act::Barrier, Act::Begin(OPEN)]);
        queue.extend((0..files).map(|file| Act::Open { file, mode: Mode::Read }));
        queue.extend([Act::End, Act::Zero, Act::Begin(TRANSFER)]);
        Ok(Replaying {
            cursor: match trace.shuffled(seed).filter(|_| own.order == Order::Random) {
                Some(shuffled) => shuffled,
                None => trace.cursor().map_err(|error| error.to_string())?,
            },
            names_files: !trace.files.is_empty(),
            ahead: vec![(0, 0); if own.read_ahead > 0 { files } else { 0 }],
            sizes,
            read_ahead: own.read_ahead,
            think: own.think,
            speed: own.speed,
            vector: own.vector as usize,
            left: own.reads.unwrap_or(u64::MAX),
            block: Vec::with_capacity(own.vector as usize),
            file: 0,
            at: 0,
            unthought: 0,
            is_through: false,
            queue,
        })
    }

    /// The next block of records that are read, if there is one.
    fn refill(&mut self) -> bool {
        self.block.clear();
        (self.file, self.at) = (0, 0);
        let reads = self.cursor.by_ref().filter(|record| !record.is_write);
        self.block.extend(reads.take(self.vector));
        if self.names_files && self.vector > 1 {
            self.block.sort_by_key(|record| record.file);
        }
        !self.block.is_empty()
    }

    /// The next read of the job: which file, which record, and whether it is the last that is asked for together.
    fn next_read(&mut self) -> Option<(usize, Record, bool)> {
        if self.left == 0 {
            return None;
        }
        if self.at == self.block.len() {
            self.at = 0;
            self.file += 1;
            let of_block = if self.names_files { 1 } else { self.sizes.len() };
            if (self.file >= of_block || self.block.is_empty()) && !self.refill() {
                return None;
            }
        }
        self.left -= 1;
        let record = self.block[self.at];
        self.at += 1;
        let next = self.block.get(self.at);
        let file = if self.names_files { record.file as usize } else { self.file };
        let is_last = next.is_none_or(|next| self.names_files && next.file != record.file) || self.left == 0;
        Some((file, record, is_last))
    }

    /// Puts what a read is into the queue.
    fn read(&mut self, file: usize, record: Record) {
        if let Some(speed) = self.speed {
            self.queue.push_back(Act::At(Duration::from_nanos((record.at_ns as f64 / speed) as u64)));
        }
        let wanted = u64::from(record.length_bytes);
        let mut piece = Piece { file, offset: record.offset, length_bytes: wanted };
        if let Some((begin, end)) = self.ahead.get_mut(file) {
            self.queue.push_back(Act::Wants(record.length_bytes));
            if record.offset >= *begin && record.offset + wanted <= *end {
                return;
            }
            let most = self.sizes[file].saturating_sub(record.offset);
            piece.length_bytes = wanted.max(self.read_ahead.min(most));
            (*begin, *end) = (record.offset, record.offset + piece.length_bytes);
        }
        self.queue.push_back(Act::Read(piece));
    }
}

impl Iterator for Replaying {
    type Item = Act;
    fn next(&mut self) -> Option<Act> {
        while self.queue.is_empty() && !self.is_through {
            match self.next_read() {
                Some((file, record, is_last)) => {
                    self.read(file, record);
                    self.unthought += 1;
                    if is_last {
                        self.queue.extend(self.think.acts(self.unthought));
                        self.unthought = 0;
                    }
                }
                None => {
                    self.is_through = true;
                    self.queue.extend([Act::End, Act::Begin(CLOSE)]);
                    self.queue.extend((0..self.sizes.len()).map(|file| Act::Close { file }));
                    self.queue.push_back(Act::End);
                }
            }
        }
        self.queue.pop_front()
    }
}
