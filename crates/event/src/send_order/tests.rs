use super::{DEFAULT, SEND_ORDERS, entry};
use weir_core::Values;
use weir_seams::scheduler::BuilderId;
use weir_seams::send_order::{SendOrder, Sendable, conformance};

// Spec: event-building.md#order-1
#[test]
fn every_send_order_keeps_the_claims_of_the_seam() {
    weir_seams::entry::conformance::check_all(SEND_ORDERS);
    SEND_ORDERS.iter().for_each(conformance::check);
}

fn in_order(pushed: &[(u64, u32)]) -> Box<dyn SendOrder> {
    let mut order = (entry(DEFAULT).expect(DEFAULT).build)(&Values::default());
    for (heartbeat, slot) in pushed {
        order.push(Sendable { heartbeat: *heartbeat, builder: BuilderId(*slot), bytes: 1 });
    }
    order
}

// Spec: event-building.md#order-2
#[test]
fn in_order_sends_the_oldest_first_whatever_order_fragments_come_in() {
    let mut order = in_order(&[(5, 0), (6, 1), (9, 0), (2, 0), (3, 1), (7, 0)]);
    let ready = [BuilderId(1), BuilderId(0)];
    let mut sent = Vec::new();
    while let Some(builder) = order.turn(&ready) {
        sent.extend(order.pop(builder).map(|fragment| fragment.heartbeat));
    }
    assert_eq!(sent, [2, 3, 5, 6, 7, 9]);
}

// Spec: event-building.md#order-2
#[test]
fn in_order_passes_over_a_builder_that_is_not_ready() {
    let mut order = in_order(&[(1, 0), (2, 1)]);
    assert_eq!(order.turn(&[BuilderId(1), BuilderId(7)]), Some(BuilderId(1)));
    assert_eq!(order.turn(&[]), None);
}
