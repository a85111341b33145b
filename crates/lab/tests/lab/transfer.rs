use super::help::{counters, possible, start, two_sites};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;
use weir_core::fabric_page::{header, link};
use weir_core::schedule::{Change, Set};
use weir_core::topology::Topology;
use weir_lab::Lab;
use weir_sys::clock::monotonic;
use weir_sys::netns::run_in;

const PORT: u16 = 5000;

/// Bytes that do not repeat, so that one lost, doubled or moved is seen.
fn pattern(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    std::iter::repeat_with(next).flat_map(u64::to_le_bytes).take(bytes).collect()
}

/// Sends `sent` from host 0 to host 1 over one TCP connection; what arrived.
fn carried(lab: &Lab, sent: &[u8]) -> Vec<u8> {
    let listener =
        run_in(lab.namespace(1), || TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap()).unwrap();
    thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            received
        });
        run_in(lab.namespace(0), || {
            let mut stream = TcpStream::connect((Topology::ipv4(1), PORT)).unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
            stream.write_all(sent).unwrap();
        })
        .unwrap();
        receiver.join().unwrap()
    })
}

fn assert_intact(mtu: u32, rate: Option<u64>, loss: f64, bytes: usize) {
    if !possible() {
        return;
    }
    let mut topology = two_sites(rate, Duration::from_millis(2), mtu);
    topology.links[0].forward.loss = loss;
    let lab = start(&topology);
    let sent = pattern(bytes);
    let received = carried(&lab, &sent);
    assert_eq!(received.len(), sent.len());
    assert!(
        received == sent,
        "the bytes differ from {:?} on",
        received.iter().zip(&sent).position(|(a, b)| a != b)
    );
    thread::sleep(Duration::from_millis(5)); // the page is as old as a millisecond
    let lost = counters(&lab, "link.wan.forward")[link::DROPPED_LOSS];
    assert_eq!(lost > 0, loss > 0.0, "{lost} segments were lost");
}

// Spec: lab.md#lab-5
#[test]
fn bytes_are_intact_at_mtu_1500_where_super_packets_are_split_and_joined() {
    assert_intact(1500, Some(1_000_000_000), 0.0, 30_000_000);
}

#[test]
fn bytes_are_intact_at_mtu_1500_with_one_segment_in_a_hundred_lost() {
    assert_intact(1500, Some(1_000_000_000), 0.01, 10_000_000);
}

// Spec: lab.md#lab-5
#[test]
fn bytes_are_intact_at_mtu_9000_with_one_segment_in_a_hundred_lost() {
    assert_intact(9000, Some(10_000_000_000), 0.01, 30_000_000);
}

#[test]
fn bytes_are_intact_where_super_packets_pass_whole() {
    assert_intact(9000, None, 0.0, 100_000_000);
}

#[test]
fn a_link_that_loses_everything_drops_every_packet_and_counts_it_until_it_is_reset() {
    if !possible() {
        return;
    }
    let mut lab = start(&two_sites(Some(1_000_000_000), Duration::from_millis(1), 1500));
    let connect = |lab: &Lab| {
        run_in(lab.namespace(0), || {
            TcpStream::connect_timeout(&(Topology::ipv4(1), PORT).into(), Duration::from_millis(300))
        })
        .unwrap()
    };
    let wan = 2 * 2; // after two access links of two directions
    lab.schedule(&[Change { at_ns: monotonic().as_ns(), link: wan, set: Set::Loss(Some(1.0)) }]).unwrap();
    assert_eq!(connect(&lab).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    thread::sleep(Duration::from_millis(5));
    let forward = counters(&lab, "link.wan.forward");
    assert!(forward[link::DROPPED_LOSS] >= 1);
    assert_eq!(forward[link::DROPPED_LOSS], forward[link::PACKETS_SENT]);
    assert_eq!(counters(&lab, "host.right-0.access.backward")[link::PACKETS_IN], 0);
    assert_eq!(lab.page().get(header::PACKETS_DROPPED), forward[link::DROPPED_LOSS]);
    lab.reset().unwrap();
    assert_eq!(connect(&lab).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn an_outage_on_the_schedule_begins_and_ends_by_itself() {
    if !possible() {
        return;
    }
    let mut lab = start(&two_sites(Some(1_000_000_000), Duration::from_millis(2), 1500));
    let now = monotonic().as_ns();
    let at = |ms: u64, set| Change { at_ns: now + ms * 1_000_000, link: 4, set };
    lab.schedule(&[at(50, Set::Outage(true)), at(250, Set::Outage(false))]).unwrap();
    let sent = pattern(50_000_000); // 0.4 s at 1 Gbit/s
    assert!(carried(&lab, &sent) == sent);
    let took_ns = monotonic().as_ns() - now;
    assert!(took_ns >= 600_000_000, "0.4 s of sending and 0.2 s of outage took {took_ns} ns");
    thread::sleep(Duration::from_millis(5));
    assert!(counters(&lab, "link.wan.forward")[link::DROPPED_OUTAGE] > 0);
}
