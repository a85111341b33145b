use super::help::{counters_of, possible, start, two_sites};
use std::process::Command;
use std::thread;
use std::time::Duration;
use weir_core::BitsPerSecond;
use weir_core::fabric_page::link;
use weir_core::topology::{Auxiliary, Topology};
use weir_sys::netns::run_in;

// Spec: lab.md#lab-21
#[test]
fn the_auxiliary_network_has_its_own_delay_and_none_of_its_packets_pass_the_other_one() {
    if !possible() {
        return;
    }
    let mut topology = two_sites(Some(1_000_000_000), Duration::from_millis(40), 1500);
    topology.auxiliary = Some(Auxiliary { rate: Some(BitsPerSecond(1_000_000_000)), delay_ns: 500_000 });
    let lab = start(&topology);
    for address in [Topology::auxiliary_ipv4(1).to_string(), Topology::auxiliary_ipv6(1).to_string()] {
        let output = run_in(lab.namespace(0), || {
            Command::new("ping").args(["-n", "-c", "5", "-i", "0.02", &address]).output().unwrap()
        });
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let least: f64 = text
            .lines()
            .find_map(|line| line.strip_prefix("rtt min/avg/max/mdev = "))
            .and_then(|line| line.split('/').next())
            .unwrap_or_else(|| panic!("{text}"))
            .parse()
            .unwrap();
        // Four times half a millisecond; over the other network it were 40 ms and more.
        assert!((2.0..20.0).contains(&least), "{text}");
    }
    thread::sleep(Duration::from_millis(200));
    let sent = |name: &str| counters_of(&lab, &topology, name)[link::PACKETS_SENT];
    assert_eq!(sent("host.left-0.auxiliary.forward"), 10);
    assert_eq!(sent("host.left-0.auxiliary.backward"), 10);
    assert_eq!(sent("host.left-0.access.forward") + sent("link.wan.forward"), 0);
}
