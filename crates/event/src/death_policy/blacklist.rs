//! The channel of a dead builder is taken down, and made anew when it returns.

use weir_seams::death_policy::{DeathPolicy, Remedy};
use weir_seams::scheduler::BuilderId;

/// Sources hold nothing for a dead builder and do not try to reach it; the channels to the others are not touched. Its return costs the
/// making of one channel at each source.
pub struct Blacklist;

impl DeathPolicy for Blacklist {
    fn on_death(&mut self, id: BuilderId) -> Vec<Remedy> {
        vec![Remedy::CloseChannel(id)]
    }
    fn on_join(&mut self, id: BuilderId, _again: bool) -> Vec<Remedy> {
        vec![Remedy::OpenChannel(id), Remedy::List(id)]
    }
}
