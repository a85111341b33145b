use super::help::{possible, start, two_sites};
use super::transfer::{carried_over, pattern};
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;
use weir_core::topology::Topology;
use weir_lab::Lab;
use weir_sys::netns::run_in;

/// A count of the host's kernel, as in `/proc/net/snmp` (`Tcp InCsumErrors`) and `/proc/net/snmp6` (`Udp6InCsumErrors`).
fn count(lab: &Lab, host: usize, group: &str, name: &str) -> u64 {
    let text = run_in(lab.namespace(host), || {
        ["snmp", "snmp6", "netstat"]
            .map(|file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap())
            .concat()
    })
    .unwrap();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(value) = line.strip_prefix(name).filter(|_| group.is_empty()) {
            return value.trim().parse().unwrap();
        }
        let Some(names) = line.strip_prefix(&format!("{group}: ")) else { continue };
        let values = lines.next().unwrap();
        let at = names.split(' ').position(|known| known == name).unwrap();
        return values.split(' ').nth(at + 1).unwrap().parse().unwrap();
    }
    panic!("no {group} {name} in {text}");
}

// Spec: lab.md#lab-20
// Spec: fabric.md#fabric-30
#[test]
fn tcp_over_a_corrupting_link_delivers_what_was_sent_and_its_kernel_counts_wrong_checksums() {
    if !possible() {
        return;
    }
    let mut topology = two_sites(Some(1_000_000_000), Duration::from_millis(1), 1500);
    topology.links[0].forward.impairments.corrupt = 0.01;
    let lab = start(&topology);
    let sent = pattern(3_000_000);
    for to in [IpAddr::from(Topology::ipv4(1)), Topology::ipv6(1).into()] {
        let before = count(&lab, 1, "Tcp", "InCsumErrors");
        assert!(carried_over(&lab, to, &sent) == sent, "{to}");
        assert!(count(&lab, 1, "Tcp", "InCsumErrors") > before, "{to}");
    }
}

// Spec: lab.md#lab-20
#[test]
fn no_corrupted_datagram_reaches_a_program() {
    if !possible() {
        return;
    }
    let mut topology = two_sites(None, Duration::ZERO, 1500);
    topology.links[0].forward.impairments.corrupt = 0.5;
    let lab = start(&topology);
    let sent = pattern(1_000);
    for (to, group, name) in [
        (IpAddr::from(Topology::ipv4(1)), "Udp", "InCsumErrors"),
        (Topology::ipv6(1).into(), "", "Udp6InCsumErrors"),
    ] {
        let receiver = run_in(lab.namespace(1), || UdpSocket::bind((to, 5002)).unwrap()).unwrap();
        let any: IpAddr = if to.is_ipv6() { "::".parse().unwrap() } else { "0.0.0.0".parse().unwrap() };
        let sender = run_in(lab.namespace(0), || UdpSocket::bind((any, 0)).unwrap()).unwrap();
        let (mut intact, mut buffer) = (0, [0; 2_000]);
        // A few at a time, so that none is lost in the receiver's socket.
        for _ in 0..40 {
            for _ in 0..10 {
                sender.send_to(&sent, (to, 5002)).unwrap();
            }
            receiver.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            while let Ok(bytes) = receiver.recv(&mut buffer) {
                assert!(buffer[..bytes] == sent, "a datagram of {bytes} bytes is not what was sent to {to}");
                intact += 1;
            }
        }
        // 200 of 400 have one bit inverted, of which most meet UDP's checksum; sd = 10.
        assert!((140..260).contains(&intact), "{intact} of 400 arrived at {to}");
        let wrong = count(&lab, 1, group, name);
        assert!(wrong > 100, "{wrong} wrong checksums at {to}");
    }
}
