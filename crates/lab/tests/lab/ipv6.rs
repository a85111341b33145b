use super::help::{possible, start, two_sites};
use super::transfer::{carried_over, pattern};
use std::process::Command;
use std::time::Duration;
use weir_core::topology::Topology;
use weir_sys::netns::run_in;

// Spec: lab.md#lab-1
#[test]
fn a_host_has_an_ipv6_address_that_others_can_ping() {
    if !possible() {
        return;
    }
    let lab = start(&two_sites(Some(1_000_000_000), Duration::from_millis(2), 1500));
    let address = Topology::ipv6(1).to_string();
    let output = run_in(lab.namespace(0), || {
        Command::new("ping").args(["-6", "-c", "5", "-i", "0.02", "-s", "1400", &address]).output().unwrap()
    });
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(text.contains(" 0% packet loss"), "{text}");
}

// Spec: lab.md#lab-5
#[test]
fn bytes_are_intact_over_ipv6_split_and_whole_and_with_one_segment_in_a_hundred_lost() {
    if !possible() {
        return;
    }
    for (mtu, rate, loss) in
        [(1500, Some(1_000_000_000), 0.0), (9000, None, 0.0), (1500, Some(1_000_000_000), 0.01)]
    {
        let mut topology = two_sites(rate, Duration::from_millis(2), mtu);
        topology.links[0].forward.loss = loss;
        let lab = start(&topology);
        let sent = pattern(8_000_000);
        let received = carried_over(&lab, Topology::ipv6(1).into(), &sent);
        assert!(
            received == sent,
            "{} of {} bytes at MTU {mtu}, {rate:?}, {loss}",
            received.len(),
            sent.len()
        );
    }
}

#[test]
fn a_host_whose_mtu_is_too_small_for_ipv6_still_has_ipv4_and_says_so() {
    if !possible() {
        return;
    }
    let lab = start(&two_sites(None, Duration::from_millis(1), 1000));
    let ping = run_in(lab.namespace(0), || {
        Command::new("ping").args(["-c", "1", "10.64.0.2"]).output().unwrap().status.success()
    });
    assert!(ping.unwrap());
    assert!(lab.notes().iter().any(|note| note.contains("no IPv6 address")), "{:?}", lab.notes());
}
