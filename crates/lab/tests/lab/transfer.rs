use super::help::{counters, possible, start, two_sites};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;
use weir_core::fabric_page::{LATENESS_BUCKETS, LATENESS_START, header, link};
use weir_core::schedule::{Change, Set};
use weir_core::topology::Topology;
use weir_lab::Lab;
use weir_sys::clock::monotonic;
use weir_sys::netns::run_in;

const PORT: u16 = 5000;

/// Bytes that do not repeat, so that one lost, doubled or moved is seen.
pub fn pattern(bytes: usize) -> Vec<u8> {
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
    carried_over(lab, Topology::ipv4(1).into(), sent)
}

/// The same to one of host 1's addresses.
pub fn carried_over(lab: &Lab, to: IpAddr, sent: &[u8]) -> Vec<u8> {
    let listener = run_in(lab.namespace(1), || TcpListener::bind((to, PORT)).unwrap()).unwrap();
    thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            received
        });
        run_in(lab.namespace(0), || {
            let mut stream = TcpStream::connect((to, PORT)).unwrap();
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
    // Before the clock is read: on a busy machine it takes as long as the outage is away.
    let sent = pattern(50_000_000); // 0.4 s at 1 Gbit/s
    let now = monotonic().as_ns();
    let at = |ms: u64, set| Change { at_ns: now + ms * 1_000_000, link: 4, set };
    lab.schedule(&[at(50, Set::Outage(true)), at(250, Set::Outage(false))]).unwrap();
    assert!(carried(&lab, &sent) == sent);
    let took_ns = monotonic().as_ns() - now;
    assert!(took_ns >= 600_000_000, "0.4 s of sending and 0.2 s of outage took {took_ns} ns");
    thread::sleep(Duration::from_millis(5));
    assert!(counters(&lab, "link.wan.forward")[link::DROPPED_OUTAGE] > 0);
}

// Spec: lab.md#lab-13
#[test]
fn a_hundred_thousand_changes_are_taken_at_once_and_a_line_beyond_the_limit_is_refused_before_it_is_sent() {
    if !possible() {
        return;
    }
    let mut lab = start(&two_sites(Some(1_000_000_000), Duration::from_millis(1), 1500));
    let later = monotonic().as_ns() + 3_600_000_000_000;
    let changes = |count: u64| -> Vec<Change> {
        (0..count).map(|n| Change { at_ns: later + n, link: 4, set: Set::Outage(n % 2 == 0) }).collect()
    };
    lab.schedule(&changes(100_000)).unwrap();
    let refused = lab.schedule(&changes(1_000_000)).unwrap_err().to_string();
    assert!(refused.contains("too many changes of links at once"), "{refused}");
    assert_eq!(lab.failed(), None);
    lab.reset().unwrap();
    let sent = pattern(1_000_000);
    assert!(carried(&lab, &sent) == sent, "it works on");
}

#[test]
fn a_link_that_flaps_a_thousand_times_a_second_loses_what_it_was_cut_for_and_nothing_after() {
    if !possible() {
        return;
    }
    let mut lab = start(&two_sites(Some(1_000_000_000), Duration::from_millis(1), 1500));
    let now = monotonic().as_ns();
    let flaps = (0..1_000_u64).flat_map(|flap| {
        let at_ns = now + flap * 1_000_000;
        [(at_ns, true), (at_ns + 50_000, false)]
    });
    let changes: Vec<Change> =
        flaps.map(|(at_ns, cut)| Change { at_ns, link: 4, set: Set::Outage(cut) }).collect();
    lab.schedule(&changes).unwrap();
    let sent = pattern(10_000_000);
    assert!(carried(&lab, &sent) == sent);
    thread::sleep(Duration::from_millis(5));
    assert!(counters(&lab, "link.wan.forward")[link::DROPPED_OUTAGE] > 0);
    assert_eq!(lab.failed(), None);
}

// Spec: lab.md#lab-7, lab.md#lab-8
#[test]
fn a_host_faster_than_its_link_is_held_back_without_a_drop_and_each_of_its_packets_has_a_lateness() {
    if !possible() {
        return;
    }
    let mut topology = two_sites(Some(100_000_000), Duration::from_millis(1), 1500);
    topology.hosts[0].access.rate = Some(weir_core::BitsPerSecond(50_000_000));
    let lab = start(&topology);
    let receiver = run_in(lab.namespace(1), || UdpSocket::bind((Topology::ipv4(1), PORT)).unwrap()).unwrap();
    let sender = run_in(lab.namespace(0), || UdpSocket::bind(("0.0.0.0", 0)).unwrap()).unwrap();
    // 2 MB, eight times what the fabric takes before it stops reading: 0.32 s of the link. No socket refuses so little.
    let sent = thread::scope(|scope| {
        let counting = scope.spawn(|| {
            receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            let mut buffer = [0; 2_000];
            std::iter::repeat_with(|| receiver.recv(&mut buffer))
                .take_while(Result::is_ok)
                .take(1_500)
                .count()
        });
        for _ in 0..1_500 {
            sender.send_to(&[0; 1_400], (Topology::ipv4(1), PORT)).unwrap();
        }
        counting.join().unwrap()
    });
    assert_eq!(sent, 1_500);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(lab.page().get(header::PACKETS_DROPPED), 0);
    // Beyond what may wait there the packets stayed with the host.
    let most = counters(&lab, "host.left-0.access.forward")[link::QUEUE_BYTES_MAX];
    assert!((200_000..300_000).contains(&most), "{most} bytes waited for the access link");
    let lateness: u64 = lab.page().copy(LATENESS_START, LATENESS_BUCKETS).iter().sum();
    assert_eq!(lateness, lab.page().get(header::PACKETS_OUT));
}
