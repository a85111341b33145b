//! SendOrder: which of its fragments a source sends next.

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
pub trait SendOrder: Send {
    fn push(&mut self, fragment: Sendable);
    /// Takes back what was pushed and not yet popped, if it is there.
    fn remove(&mut self, heartbeat: u64) -> Option<Sendable>;
    /// What goes to `builder` next.
    fn peek(&mut self, builder: BuilderId) -> Option<Sendable>;
    fn pop(&mut self, builder: BuilderId) -> Option<Sendable>;
    /// In which order builders have their turn when the source may send to several: the first of `ready`, or another.
    fn turn(&mut self, ready: &[BuilderId]) -> Option<BuilderId>;
    /// Everything for a builder that is gone, taken out.
    fn drain(&mut self, builder: BuilderId) -> Vec<Sendable>;
}

pub type SendOrderEntry = crate::Entry<fn(&Values) -> Box<dyn SendOrder>>;
