//! One job: which operation comes next, and what became of those before. Pure: time comes in, operations come out.

use crate::content::Content;
use crate::plan::{Pattern, Plan, SyncWhen};
use weir_core::seed;
use weir_seams::target::{FileId, Piece};

/// After a failure a job waits before it asks again, so that a target which fails at once is not asked a million times a second.
pub const AFTER_FAILURE_NS: u64 = 10_000_000;

/// An open file of a job.
#[derive(Clone, Debug)]
pub struct JobFile {
    pub id: FileId,
    pub path: String,
    pub size_bytes: u64,
    pub content: Content,
    /// Written since it was last synced.
    pub is_dirty: bool,
    /// Its handle is of no use; it is opened again before the next operation.
    pub is_lost: bool,
}

/// The next operation of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Of the operation among those of its job.
    pub number: u64,
    pub file: usize,
    /// Its first piece, and of most operations the only one.
    pub first: Piece,
    /// Of all its pieces.
    pub length_bytes: u64,
    pub is_read: bool,
    /// When it was to be issued; of a closed loop the moment it could be.
    pub intended_ns: u64,
    /// When it could be issued at the earliest: it was due, and there was room.
    pub possible_ns: u64,
}

/// What a job has done within the time that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub operations: u64,
    pub bytes: u64,
    pub failed: u64,
    pub mismatched: u64,
    pub last_ns: u64,
    /// Longest time without a completion while something was under way.
    pub pause_ns: u64,
}

pub struct Job {
    pub entity: String,
    pub files: Vec<JobFile>,
    pub under_way: u32,
    pub done: Done,
    /// Blocks of each file that are this job's: the first, and how many.
    places: Vec<(u64, u64)>,
    pattern: Pattern,
    size_bytes: u64,
    pieces: u32,
    mix: f64,
    depth: u32,
    seed: u64,
    issued: u64,
    limit: Option<u64>,
    start_ns: u64,
    period_ns: Option<f64>,
    not_before_ns: u64,
    /// Since when there is room for one more.
    room_ns: u64,
    /// Since when something has been under way without a completion.
    waiting_since_ns: u64,
    given_up: bool,
}

impl Job {
    /// `files` in the order of the job's own.
    pub fn new(plan: &Plan, number: u32, files: Vec<JobFile>, seed: u64) -> Job {
        let blocks = |file: &JobFile| match plan.pattern {
            Pattern::Sequential => file.size_bytes.div_ceil(plan.size_bytes),
            // A random operation is never short.
            Pattern::Random => file.size_bytes / plan.size_bytes,
        };
        let place = |file: &JobFile| match (plan.is_shared, plan.pattern) {
            (true, Pattern::Sequential) => {
                let (all, jobs, own) = (u128::from(blocks(file)), u128::from(plan.jobs), u128::from(number));
                let first = (all * own / jobs) as u64;
                (first, (all * (own + 1) / jobs) as u64 - first)
            }
            _ => (0, blocks(file)),
        };
        let places: Vec<(u64, u64)> = files.iter().map(place).collect();
        let once: u64 = places.iter().map(|(_, count)| count).sum();
        let limit = match (plan.count, plan.duration) {
            (Some(count), _) => Some(count),
            (None, Some(_)) => None,
            (None, None) => Some(once),
        };
        Job {
            entity: format!("job-{number}"),
            files,
            under_way: 0,
            done: Done::default(),
            // Without a block of its own it has nothing to do.
            given_up: once == 0,
            places,
            pattern: plan.pattern,
            size_bytes: plan.size_bytes,
            pieces: plan.pieces,
            mix: plan.mix,
            depth: plan.depth,
            seed: seed::split(seed, &format!("job-{number}")),
            issued: 0,
            limit,
            start_ns: 0,
            period_ns: plan.period.map(|period| period.as_secs_f64() * 1e9),
            not_before_ns: 0,
            room_ns: 0,
            waiting_since_ns: 0,
        }
    }

    /// Times of an open loop count from here.
    pub fn starts(&mut self, at_ns: u64) {
        self.start_ns = at_ns;
    }

    /// Nothing more comes of it.
    pub fn is_through(&self) -> bool {
        self.given_up || self.limit.is_some_and(|limit| self.issued >= limit)
    }

    /// It fails as a whole: nothing more is asked.
    pub fn give_up(&mut self) {
        self.given_up = true;
    }

    pub fn has_room(&self) -> bool {
        self.under_way < self.depth
    }

    /// When its next operation may be issued; `None` where none is left.
    pub fn due_ns(&self) -> Option<u64> {
        if self.is_through() {
            return None;
        }
        let intended = self.period_ns.map_or(self.start_ns, |period| self.intended_ns(period));
        Some(intended.max(self.not_before_ns))
    }

    fn intended_ns(&self, period_ns: f64) -> u64 {
        self.start_ns + (self.issued as f64 * period_ns) as u64
    }

    /// The next operation at `now_ns`, if it is due and there is room for it.
    pub fn next(&mut self, now_ns: u64) -> Option<Next> {
        if !self.has_room() || self.due_ns().is_none_or(|due| due > now_ns) {
            return None;
        }
        let number = self.issued;
        let draw = self.draw(number);
        let (file, block) = match self.pattern {
            Pattern::Sequential => {
                let all: u64 = self.places.iter().map(|(_, count)| count).sum();
                let mut left = number % all;
                let file = self.places.iter().position(|(_, count)| {
                    let here = left < *count;
                    left -= if here { 0 } else { *count };
                    here
                })?;
                (file, self.places[file].0 + left)
            }
            Pattern::Random => {
                let file = (draw >> 32) as usize % self.places.len();
                (file, self.drawn_block(draw, file))
            }
        };
        let first = self.block(file, block);
        // Only the last operation of a file in order is shorter, and it is one piece.
        let length_bytes = u64::from(first.length_bytes) * u64::from(self.pieces);
        let share = (seed::split(draw, "kind") >> 11) as f64 / (1_u64 << 53) as f64;
        let is_read = share < self.mix;
        let intended_ns = self.period_ns.map_or(now_ns, |period| self.intended_ns(period));
        self.issued += 1;
        if self.under_way == 0 {
            self.waiting_since_ns = now_ns;
        }
        self.under_way += 1;
        self.files[file].is_dirty |= !is_read;
        let possible_ns = intended_ns.max(self.room_ns).max(self.not_before_ns);
        Some(Next { number, file, first, length_bytes, is_read, intended_ns, possible_ns })
    }

    /// Where an operation goes, piece by piece.
    pub fn pieces(&self, next: Next) -> impl Iterator<Item = Piece> + '_ {
        (0..self.pieces).map(move |index| self.piece(next, index))
    }

    /// The same whenever it is asked. Only operations at random places have more than their first.
    pub fn piece(&self, next: Next, index: u32) -> Piece {
        if index == 0 {
            return next.first;
        }
        let draw = self.draw(next.number).wrapping_add(u64::from(index));
        self.block(next.file, self.drawn_block(draw, next.file))
    }

    fn draw(&self, number: u64) -> u64 {
        seed::split(self.seed.wrapping_add(number), "operation")
    }

    fn drawn_block(&self, draw: u64, file: usize) -> u64 {
        ((u128::from(seed::split(draw, "place")) * u128::from(self.places[file].1)) >> 64) as u64
    }

    fn block(&self, file: usize, block: u64) -> Piece {
        let offset = block * self.size_bytes;
        let length_bytes = self.size_bytes.min(self.files[file].size_bytes - offset) as u32;
        Piece { offset, length_bytes }
    }

    /// An operation has ended, well or not.
    pub fn completed(&mut self, now_ns: u64) {
        if !self.has_room() {
            self.room_ns = now_ns;
        }
        self.under_way -= 1;
        self.done.pause_ns = self.done.pause_ns.max(now_ns.saturating_sub(self.waiting_since_ns));
        self.waiting_since_ns = now_ns;
    }

    /// The next is not asked for at once.
    pub fn failed(&mut self, now_ns: u64) {
        self.done.failed += 1;
        self.not_before_ns = now_ns + AFTER_FAILURE_NS;
    }
}

/// Whether a write is followed by a sync of its own.
pub fn syncs_each(plan: &Plan) -> bool {
    plan.sync == SyncWhen::Each
}
