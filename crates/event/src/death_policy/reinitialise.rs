//! At a death and at a return all channels are taken down and made anew.

use weir_seams::death_policy::{DeathPolicy, Remedy};
use weir_seams::scheduler::BuilderId;

/// Every death and every return stops all sources until the last of their channels works again, those to healthy builders too. A first
/// joining does not: there is nothing yet to be made anew for it.
pub struct Reinitialise;

impl DeathPolicy for Reinitialise {
    fn on_death(&mut self, id: BuilderId) -> Vec<Remedy> {
        // Closed first: otherwise all would wait for a channel to the dead.
        vec![Remedy::CloseChannel(id), Remedy::ReopenAll]
    }
    fn on_join(&mut self, id: BuilderId, again: bool) -> Vec<Remedy> {
        match again {
            true => vec![Remedy::OpenChannel(id), Remedy::ReopenAll, Remedy::List(id)],
            false => vec![Remedy::OpenChannel(id), Remedy::List(id)],
        }
    }
}
