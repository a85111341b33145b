//! DeathPolicy: what the end or the return of a builder means for the scheduler and for the channels between sources and builders.

pub mod conformance;

use crate::scheduler::BuilderId;
use weir_core::Values;

/// What is to be done, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// No more events for it.
    Unlist(BuilderId),
    /// It may be chosen, as soon as every source has a working channel to it.
    List(BuilderId),
    /// Sources take their channel to it down, and make none until told so.
    CloseChannel(BuilderId),
    /// Sources make a channel to it, and keep trying. Where there shall be one already nothing changes.
    OpenChannel(BuilderId),
    /// Sources take every channel down and make all anew that there shall be; nothing is assigned until all of them work.
    ReopenAll,
}

/// Answers come from what happened to one builder alone, so that the order in which several die is no matter.
pub trait DeathPolicy: Send {
    /// A builder has died. `Unlist` is done already.
    fn on_death(&mut self, id: BuilderId) -> Vec<Remedy>;
    /// A builder has joined: for the first time, or again. One that joins again has died before, and the policy was told.
    fn on_join(&mut self, id: BuilderId, again: bool) -> Vec<Remedy>;
}

pub type DeathPolicyEntry = crate::Entry<fn(&Values) -> Box<dyn DeathPolicy>>;
