//! Scheduler: which builder gets an event. It only chooses: credits and the ledger stay in the core, so no scheduler can lose an event.
//! Rules: `docs/specs/event-building.md#choose-1` and those after it.

pub mod conformance;

use weir_core::{Instant, Values};

/// A builder's slot in the run; not used again for another builder. The core gives slots from 0 on and bounds their number: what is kept
/// by slot is as large as the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuilderId(pub u32);

/// What a scheduler may know of a builder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Builder {
    pub id: BuilderId,
    /// Hosts with the same number are one host.
    pub host: u32,
    /// What it can hold.
    pub memory_bytes: u64,
    /// Assigned to it and not done, headers included.
    pub outstanding_bytes: u64,
    pub outstanding_events: u32,
}

impl Builder {
    pub fn free_bytes(&self) -> u64 {
        self.memory_bytes.saturating_sub(self.outstanding_bytes)
    }
    pub fn fits(&self, bytes: u64) -> bool {
        self.free_bytes() >= bytes
    }
}

/// The builders that may be chosen, kept up to date by the core as things change.
#[derive(Clone, Debug, Default)]
pub struct Builders {
    /// By slot; `None` for a builder that is not listed now.
    slots: Vec<Option<Builder>>,
    /// Listed, ascending.
    listed: Vec<BuilderId>,
}

impl Builders {
    /// Ascending by slot.
    pub fn listed(&self) -> &[BuilderId] {
        &self.listed
    }
    /// All that are listed, ascending by slot.
    pub fn iter(&self) -> impl Iterator<Item = &Builder> {
        self.listed.iter().filter_map(|id| self.get(*id))
    }
    /// One more than the highest slot that was ever listed.
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }
    pub fn get(&self, id: BuilderId) -> Option<&Builder> {
        self.slots.get(id.0 as usize)?.as_ref()
    }
    pub fn fits(&self, id: BuilderId, bytes: u64) -> bool {
        self.get(id).is_some_and(|builder| builder.fits(bytes))
    }
    /// Lists a builder; one with its slot is replaced.
    pub fn list(&mut self, builder: Builder) {
        let (id, place) = (builder.id, builder.id.0 as usize);
        if self.slots.len() <= place {
            self.slots.resize(place + 1, None);
        }
        self.slots[place] = Some(builder);
        if let Err(at) = self.listed.binary_search(&id) {
            self.listed.insert(at, id);
        }
    }
    pub fn unlist(&mut self, id: BuilderId) -> Option<Builder> {
        let builder = self.slots.get_mut(id.0 as usize)?.take()?;
        if let Ok(at) = self.listed.binary_search(&id) {
            self.listed.remove(at);
        }
        Some(builder)
    }
    /// An event of `bytes` was assigned to it.
    pub fn charge(&mut self, id: BuilderId, bytes: u64) {
        if let Some(Some(builder)) = self.slots.get_mut(id.0 as usize) {
            builder.outstanding_bytes = builder.outstanding_bytes.saturating_add(bytes);
            builder.outstanding_events = builder.outstanding_events.saturating_add(1);
        }
    }
    /// An event of `bytes` is done or taken from it.
    pub fn discharge(&mut self, id: BuilderId, bytes: u64) {
        if let Some(Some(builder)) = self.slots.get_mut(id.0 as usize) {
            builder.outstanding_bytes = builder.outstanding_bytes.saturating_sub(bytes);
            builder.outstanding_events = builder.outstanding_events.saturating_sub(1);
        }
    }
}

/// The event that wants a builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub heartbeat: u64,
    /// Fragments of all sources, headers included.
    pub bytes: u64,
    /// The host (as in `Builder::host`) that sends most of it.
    pub host: u32,
    /// Counts up with every builder that joins or leaves.
    pub membership_epoch: u32,
}

/// The same order of calls gives the same choices: what is random comes from a seed among the values. `now` never goes back.
///
/// An event costs one choice and two loads, that of its assignment right after the choice; none of them may look at every builder, but once
/// in as many events as there are builders. A change of membership may.
pub trait Scheduler: Send {
    /// A listed builder into which the event fits, or `None` to hold it until something changes. It may hold an event that fits
    /// somewhere only while a listed builder has something outstanding: else nothing would ever change.
    fn choose(&mut self, now: Instant, event: &Wanted, builders: &Builders) -> Option<BuilderId>;
    /// `id` was listed, listed anew with other properties, or unlisted; `builders` is as it is afterwards.
    fn on_membership(&mut self, _id: BuilderId, _builders: &Builders) {}
    /// What is outstanding at `id` has changed, by an assignment (its own choices too) or an end; `builders` is as it is afterwards. `id`
    /// may be unlisted by now.
    fn on_load(&mut self, _id: BuilderId, _builders: &Builders) {}
}

pub type SchedulerEntry = crate::Entry<fn(&Values) -> Box<dyn Scheduler>>;
