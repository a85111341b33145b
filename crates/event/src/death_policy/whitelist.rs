//! Channels stay; builders listed as alive are used.

use weir_seams::death_policy::{DeathPolicy, Remedy};
use weir_seams::scheduler::BuilderId;

/// A death changes the list and nothing else. Sources go on trying the channel, so that it may work again before the builder is listed: a
/// return costs no more than that. The price is that they try for as long as the builder is away.
pub struct Whitelist;

impl DeathPolicy for Whitelist {
    fn on_death(&mut self, _id: BuilderId) -> Vec<Remedy> {
        Vec::new()
    }
    fn on_join(&mut self, id: BuilderId, _again: bool) -> Vec<Remedy> {
        vec![Remedy::OpenChannel(id), Remedy::List(id)]
    }
}
