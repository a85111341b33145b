//! Operations that are under way, by the tag that comes back with their completion.

/// By slot. A slot's generation tells a completion that comes after its operation was given up.
pub struct Flights<F> {
    slots: Vec<(u32, Option<F>)>,
    free: Vec<u32>,
}

impl<F> Default for Flights<F> {
    fn default() -> Self {
        Flights { slots: Vec::new(), free: Vec::new() }
    }
}

impl<F> Flights<F> {
    pub fn add(&mut self, flight: F) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (generation, there) = &mut self.slots[slot as usize];
        *there = Some(flight);
        u64::from(*generation) << 32 | u64::from(slot)
    }

    pub fn take(&mut self, tag: u64) -> Option<F> {
        let (slot, generation) = (tag as u32, (tag >> 32) as u32);
        let (current, there) = self.slots.get_mut(slot as usize)?;
        let flight = there.take_if(|_| *current == generation)?;
        *current = current.wrapping_add(1);
        self.free.push(slot);
        Some(flight)
    }

    pub fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Tags of those of which `is` holds.
    pub fn where_is(&self, is: impl Fn(&F) -> bool) -> Vec<u64> {
        let wanted = |(slot, (generation, flight)): (usize, &(u32, Option<F>))| {
            flight.as_ref().is_some_and(&is).then_some(u64::from(*generation) << 32 | slot as u64)
        };
        self.slots.iter().enumerate().filter_map(wanted).collect()
    }
}
