//! What a role hears from whoever started it.

use weir_seams::workload::Control;

/// Asked at every turn of a role's loop.
pub trait Order {
    /// Whether the role should come to its end.
    fn stopping(&self) -> bool;
    /// How far it is, in fragments or events.
    fn report(&self, done: u64);
    /// Something is not as it should be, and the role goes on.
    fn warn(&self, _what: &str) {}
}

impl Order for Control {
    fn stopping(&self) -> bool {
        Control::stopping(self)
    }
    fn report(&self, done: u64) {
        let before = self.progress();
        self.advance(done.saturating_sub(before));
    }
}
