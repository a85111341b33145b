//! One job of a scripted load: what it is to do, and what it has come to.

use super::{Act, Acts, Cause, Piece, Section};
use crate::content::Content;
use crate::job::Done;
use std::iter::Peekable;
use std::time::Duration;
use weir_seams::target::{FileId, TargetError};

/// Code of what had no answer in time.
pub const LATE: &str = "ETIMEDOUT";

/// What became of one file of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FileFigures {
    pub is_opened: bool,
    /// When it was asked for, and when it was last of any use.
    pub begin_ns: u64,
    pub end_ns: u64,
    pub open_ns: u64,
    /// In reads of it, one beside the other counted each.
    pub read_ns: u64,
    pub close_ns: u64,
    pub reads: u64,
    pub bytes: u64,
    /// Of its fastest read.
    pub best_bytes_per_second: f64,
}

/// What one job came to.
pub struct JobOutcome {
    pub number: u32,
    pub done: Done,
    pub files: Vec<FileFigures>,
    pub sections: Vec<Section>,
    /// As its script said.
    pub drawn: u32,
    pub own: Duration,
}

pub struct File {
    pub path: String,
    pub content: Content,
    pub id: Option<FileId>,
    pub figures: FileFigures,
}

#[derive(Clone, Copy)]
pub enum Waits {
    Nothing,
    Until(u64),
    /// At the barrier of that number.
    Barrier(u64),
}

/// What one job has done in a section, so far.
pub struct Begun {
    pub kind: &'static str,
    pub begin_ns: u64,
    pub bytes: u64,
    /// Where the job says what it wants.
    pub wanted_bytes: Option<u64>,
    pub reads: u64,
    pub thought_ns: u64,
    pub failed: u32,
    pub cause: Option<Cause>,
}

pub struct Job {
    pub number: u32,
    pub files: Vec<File>,
    pub acts: Peekable<Acts>,
    pub under_way: u32,
    pub waits: Waits,
    /// When all were let go at the last barrier.
    pub go_ns: u64,
    /// From which the times of `At` count.
    pub zero_ns: u64,
    /// Since when what was before is done.
    pub free_ns: u64,
    /// The last time for which it is to be woken.
    pub wakes_ns: u64,
    /// When the next operation was to be issued, where that was said.
    pub intended_ns: Option<u64>,
    pub begun: Option<Begun>,
    pub rounds: Vec<(&'static str, u32)>,
    pub done: Done,
    pub sections: Vec<Section>,
    pub drawn: u32,
    pub own: Duration,
}

impl Job {
    pub fn is_through(&mut self) -> bool {
        matches!(self.waits, Waits::Nothing) && self.acts.peek().is_none()
    }

    pub fn outcome(self) -> JobOutcome {
        let Job { number, done, sections, drawn, own, .. } = self;
        JobOutcome {
            number,
            done,
            files: self.files.iter().map(|file| file.figures).collect(),
            sections,
            drawn,
            own,
        }
    }

    pub fn thinks(&mut self, time: Duration) {
        if let Some(begun) = &mut self.begun {
            begun.thought_ns = begun.thought_ns.saturating_add(time.as_nanos() as u64);
        }
    }

    /// What an operation that succeeded is for its file.
    pub fn of_file(&mut self, act: Act, bytes: u64, took_ns: u64, done_ns: u64) {
        let (Act::Open { file, .. } | Act::Close { file } | Act::Read(Piece { file, .. })) = act else {
            return;
        };
        let figures = &mut self.files[file].figures;
        figures.end_ns = figures.end_ns.max(done_ns);
        match act {
            Act::Open { .. } => (figures.is_opened, figures.open_ns) = (true, took_ns),
            Act::Close { .. } => figures.close_ns = took_ns,
            _ => {
                figures.reads += 1;
                figures.bytes += bytes;
                figures.read_ns += took_ns;
                let rate = bytes as f64 * 1e9 / took_ns.max(1) as f64;
                figures.best_bytes_per_second = figures.best_bytes_per_second.max(rate);
            }
        }
    }

    /// It closes what is open and does nothing more.
    pub fn closes(&mut self) {
        let open = (0..self.files.len()).filter(|file| self.files[*file].id.is_some());
        let mut acts: Vec<Act> = open.map(|file| Act::Close { file }).collect();
        acts.push(Act::End);
        let acts: Acts = Box::new(acts.into_iter());
        self.acts = acts.peekable();
        self.waits = Waits::Nothing;
    }
}

pub fn cause_of(act: Act, error: &TargetError) -> Cause {
    match (error.code.as_deref(), act) {
        (Some(LATE), _) => Cause::Late,
        (_, Act::Open { .. }) => Cause::Open,
        _ if error.is_lost => Cause::Gone,
        _ => Cause::Read,
    }
}
