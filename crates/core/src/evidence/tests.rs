//! The choice among what holds; the rules themselves are tested where they are.

use super::*;

fn candidate(factor: &'static Factor) -> Candidate {
    Candidate::new(factor, 0.7, vec![factor.name.to_owned()])
}

// Spec: evidence.md#order-1
#[test]
fn of_candidates_the_one_that_is_asked_first_is_named_whatever_their_order_and_confidence() {
    let name =
        |candidates: &[Candidate]| limiting_factor(&Around::default(), &Load::default(), candidates).name;
    let (loss, link) = (Candidate { confidence: 1.0, ..candidate(&LOSS) }, candidate(&LINK_RATE));
    assert_eq!(name(&[loss.clone(), link.clone()]), "link-rate");
    assert_eq!(name(&[link.clone().ranked(LOSS.rank + 1), loss]), "loss");
    assert_eq!(name(&[]), "unknown");
}

// Spec: evidence.md#path-6
#[test]
fn a_long_queue_is_named_of_a_load_that_fills_nothing_and_of_which_nothing_else_holds() {
    let emulator =
        EmulatorFacts { one_way_seconds: 0.008, machine_idle_ratio: 1.0, ..EmulatorFacts::default() };
    let ports = vec![PortFacts { queue_seconds: 0.05, ..PortFacts::default() }];
    let around = Around { ports, emulator: Some(emulator), ..Around::default() };
    let name = |load: &Load, candidates: &[Candidate]| limiting_factor(&around, load, candidates).name;
    assert_eq!(name(&Load::default(), &[]), "queue");
    assert_eq!(name(&Load::default(), &[candidate(&SENDER_CPU)]), "sender-cpu");
    assert_eq!(name(&Load { fills_path: true, ..Load::default() }, &[]), "unknown");
}
