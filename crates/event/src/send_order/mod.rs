//! Which of its fragments a source sends next: one file an order. Rule: `docs/specs/event-building.md#order-1`.

pub mod in_order;

#[cfg(test)]
mod tests;

use weir_seams::Entry;
use weir_seams::send_order::SendOrderEntry;

/// Name of the one that is used unless another is asked for.
pub const DEFAULT: &str = "in-order";

pub static SEND_ORDERS: &[SendOrderEntry] = &[Entry {
    name: "in-order",
    about: "the oldest heartbeat first",
    params: &[],
    needs: &[],
    build: |_values| Box::new(in_order::InOrder::default()),
}];

pub fn entry(name: &str) -> Option<&'static SendOrderEntry> {
    SEND_ORDERS.iter().find(|entry| entry.name == name)
}
