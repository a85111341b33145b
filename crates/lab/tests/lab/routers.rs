use super::help::{possible, start, two_sites};
use super::transfer::{carried_over, pattern};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;
use weir_core::topology::{Site, Stage, TcpProfile, Topology};
use weir_lab::Lab;
use weir_sys::netns::run_in;

/// left - one - two - right; the link in the middle takes packets of `mtu` bytes.
fn through_two_routers(mtu: u32, replies: bool) -> Topology {
    let mut topology = two_sites(Some(1_000_000_000), Duration::from_millis(2), 1500);
    for name in ["one", "two"] {
        let mut router = Site::new(name, TcpProfile::Stock);
        router.stage = Stage::Router { replies };
        topology.sites.push(router);
    }
    let link = topology.links[0].clone();
    topology.links = [("west", [0, 2], 1500), ("middle", [2, 3], mtu), ("east", [3, 1], 1500)]
        .into_iter()
        .map(|(name, between, mtu)| {
            let mut link = link.clone();
            (link.name, link.between, link.mtu) = (name.to_owned(), between, mtu);
            link
        })
        .collect();
    topology
}

fn ping(lab: &Lab, arguments: &[&str]) -> String {
    let output = run_in(lab.namespace(0), || Command::new("ping").args(arguments).output().unwrap()).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

// Spec: lab.md#lab-18, lab.md#lab-19
// Spec: fabric.md#fabric-30
#[test]
fn a_packet_whose_hop_limit_ends_at_a_router_is_answered_from_there_and_one_that_arrives_has_lost_two() {
    if !possible() {
        return;
    }
    let lab = start(&through_two_routers(1500, true));
    let (v4, v6) = (Topology::ipv4(1).to_string(), Topology::ipv6(1).to_string());
    for (hops, router) in [("1", 2), ("2", 3)] {
        let text = ping(&lab, &["-n", "-c", "1", "-W", "5", "-t", hops, &v4]);
        let from = format!("From {}", Topology::router_ipv4(router));
        assert!(text.contains(&from) && text.contains("Time to live exceeded"), "{text}");
        let text = ping(&lab, &["-6", "-n", "-c", "1", "-W", "5", "-t", hops, &v6]);
        let from = format!("From {}", Topology::router_ipv6(router));
        assert!(text.contains(&from) && text.contains("Hop limit"), "{text}");
    }
    for (arguments, address) in [(vec!["-4"], &v4), (vec!["-6"], &v6)] {
        let text = ping(&lab, &[&arguments[..], &["-n", "-c", "1", "-t", "3", address]].concat());
        assert!(text.contains("ttl=62"), "an echo reply starts at 64: {text}");
    }
}

// Spec: lab.md#lab-19
#[test]
fn a_packet_too_big_for_the_next_link_is_answered_with_its_mtu() {
    if !possible() {
        return;
    }
    let lab = start(&through_two_routers(1400, true));
    let text =
        ping(&lab, &["-n", "-c", "1", "-W", "5", "-M", "do", "-s", "1400", &Topology::ipv4(1).to_string()]);
    let from = format!("From {}", Topology::router_ipv4(2));
    assert!(text.contains(&from) && text.contains("mtu = 1400"), "{text}");
    let text = ping(
        &lab,
        &["-6", "-n", "-c", "1", "-W", "5", "-M", "do", "-s", "1400", &Topology::ipv6(1).to_string()],
    );
    assert!(text.contains("Packet too big: mtu=1400"), "{text}");
}

// Spec: lab.md#lab-19
#[test]
fn tcp_finds_the_path_mtu_over_both_versions_and_its_bytes_are_intact() {
    if !possible() {
        return;
    }
    let lab = start(&through_two_routers(1300, true));
    let sent = pattern(5_000_000);
    for to in [IpAddr::from(Topology::ipv4(1)), Topology::ipv6(1).into()] {
        assert!(carried_over(&lab, to, &sent) == sent, "{to}");
    }
}

/// How many bytes arrive within two seconds of a hundred thousand that were sent.
fn arrived(lab: &Lab) -> usize {
    let to = IpAddr::from(Topology::ipv4(1));
    let listener = run_in(lab.namespace(1), || TcpListener::bind((to, 5001)).unwrap()).unwrap();
    thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            let mut received = Vec::new();
            let _ = stream.read_to_end(&mut received);
            received.len()
        });
        run_in(lab.namespace(0), || {
            let mut stream = TcpStream::connect((to, 5001)).unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
            let _ = stream.write_all(&pattern(100_000));
            thread::sleep(Duration::from_millis(2_100));
        })
        .unwrap();
        receiver.join().unwrap()
    })
}

#[test]
fn a_router_that_answers_nothing_is_a_black_hole_for_large_segments_and_none_for_small_packets() {
    if !possible() {
        return;
    }
    let lab = start(&through_two_routers(1300, false));
    let text = ping(&lab, &["-n", "-c", "1", "-W", "2", &Topology::ipv4(1).to_string()]);
    assert!(text.contains(" 0% packet loss"), "{text}");
    let text = ping(&lab, &["-n", "-c", "1", "-W", "1", "-t", "1", &Topology::ipv4(1).to_string()]);
    assert!(text.contains("100% packet loss") && !text.contains("From"), "{text}");
    assert_eq!(arrived(&lab), 0);
    drop(lab);
    assert_eq!(arrived(&start(&through_two_routers(1300, true))), 100_000, "and with answers it is mended");
}
