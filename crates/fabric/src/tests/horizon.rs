//! A shell that wakes only for deliveries misses none.

use super::lab::*;
use crate::{Action, Fabric};
use proptest::prelude::*;
use weir_core::Instant;

/// Wakes for deliveries alone until `until`; each must be learned of at its own instant.
fn wake_for_deliveries(fabric: &mut Fabric, until: Instant) -> Result<(), TestCaseError> {
    while let Some(at) = fabric.deliver_at().filter(|at| *at <= until) {
        fabric.advance(at);
        while let Some(action) = fabric.poll() {
            if let Action::Deliver { planned, .. } = action {
                prop_assert_eq!(planned, at);
            }
        }
        prop_assert!(fabric.deliver_at().is_none_or(|next| next > at), "no way forward at {at:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    // Spec: fabric.md#fabric-16
    #[test]
    fn who_wakes_only_when_something_may_be_delivered_is_late_for_nothing(scene in any_scene()) {
        let mut fabric = Fabric::new(&scene.topology, scene.seed);
        fabric.schedule(&scene.changes);
        for (buffer, sent) in scene.traffic.iter().enumerate() {
            let now = Instant::from_ns(sent.at_ns);
            wake_for_deliveries(&mut fabric, now)?;
            fabric.ingress(sent.from, buffer as u32, sent.meta, now);
            while let Some(action) = fabric.poll() {
                if let Action::Deliver { planned, .. } = action {
                    prop_assert_eq!(planned, now);
                }
            }
        }
        wake_for_deliveries(&mut fabric, Instant::NEVER)?;
        fabric.advance(Instant::NEVER);
        let late = std::iter::from_fn(|| fabric.poll()).find(|action| matches!(action, Action::Deliver { .. }));
        prop_assert_eq!(late, None);
        prop_assert_eq!(fabric.queued_segments(), 0);
    }
}

// Spec: fabric.md#fabric-16
#[test]
fn a_lone_packet_between_two_hosts_needs_one_wake_a_serialiser_and_none_for_delays() {
    let mut topology = pair(access(Some(1_000_000_000), 20_000), direction(None, 8_000_000));
    let mut fabric = Fabric::new(&topology, 0);
    fabric.ingress(0, 0, meta(1, 1, 1448, 1448), Instant::ZERO);
    // 1538 B take 12,304 ns on each access link.
    assert_eq!(fabric.wake_at(), Some(Instant::from_ns(12_304)));
    assert_eq!(fabric.deliver_at(), Some(Instant::from_ns(12_304 + 20_000 + 8_000_000 + 20_000)));
    fabric.advance(fabric.deliver_at().unwrap());
    assert_eq!(fabric.deliver_at(), Some(Instant::from_ns(2 * 12_304 + 8_040_000)));
    fabric.advance(fabric.deliver_at().unwrap());
    assert_eq!(
        fabric.deliver_at(),
        Some(Instant::from_ns(2 * 12_304 + 8_040_000)),
        "it is still to be polled"
    );
    assert!(matches!(fabric.poll(), Some(Action::Deliver { host: 1, .. })));
    assert_eq!(fabric.deliver_at(), None);

    // A nearer host elsewhere, and one behind the sender's own switch: what may be for them cannot wait as long.
    let mut near = topology.hosts[0].clone();
    near.access.delay_ns = 500;
    topology.hosts.push(near);
    let mut fabric = Fabric::new(&topology, 0);
    fabric.ingress(0, 0, meta(1, 1, 1448, 1448), Instant::ZERO);
    assert_eq!(fabric.deliver_at(), Some(Instant::from_ns(12_304 + 20_000 + 500)));
}
