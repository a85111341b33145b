//! SendOrder: which of its fragments a source sends next.

pub mod conformance;

use crate::scheduler::BuilderId;
use weir_core::Values;

/// A fragment that could be sent now: it is assigned and its builder's channel works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sendable {
    pub heartbeat: u64,
    pub builder: BuilderId,
    pub bytes: u32,
}

/// Keeps what may be sent to each builder and says what goes next there. Sources send to several builders at once, each as its
/// grant and its connection allow.
///
/// It holds what was pushed and nothing else, so whoever pushes bounds it: builders that have a channel, fragments within the source's
/// `buffer`. A heartbeat is with one builder at a time: it is taken back before it is pushed for another.
pub trait SendOrder: Send {
    /// A heartbeat that is there already for the same builder is replaced.
    fn push(&mut self, fragment: Sendable);
    /// Takes back what was pushed and not yet popped, if it is there.
    fn remove(&mut self, heartbeat: u64) -> Option<Sendable>;
    /// What goes to `builder` next.
    fn peek(&mut self, builder: BuilderId) -> Option<Sendable>;
    /// Takes what `peek` shows.
    fn pop(&mut self, builder: BuilderId) -> Option<Sendable>;
    /// Whose turn it is when the source may send to several: one of `ready` that has something to be sent, `None` if none of them has.
    fn turn(&mut self, ready: &[BuilderId]) -> Option<BuilderId>;
    /// Everything for a builder that is gone, taken out.
    fn drain(&mut self, builder: BuilderId) -> Vec<Sendable>;
}

pub type SendOrderEntry = crate::Entry<fn(&Values) -> Box<dyn SendOrder>>;
