//! `weir lab`: what wires do to packets, as foreign programs and the kernels at both ends see it.

use crate::support::lab::{NamedLab, over};
use crate::support::{beside, finish_within, need_lab, ran, start, turn, weir};
use std::time::Duration;

/// The link that is misused here, with these keys.
fn wire(keys: &str) -> String {
    over(&format!("rate = \"1Gbit/s\"\ndelay = \"2ms\"\n{keys}"))
}

/// Sequence numbers of the echoes, in the order of their arrival.
fn arrivals(text: &str) -> Vec<u32> {
    text.lines().filter_map(|line| line.split("icmp_seq=").nth(1)?.split(' ').next()?.parse().ok()).collect()
}

/// A counter of the host's kernel since it began.
fn counter(lab: &NamedLab, host: &str, name: &str) -> u64 {
    let text = lab.exec(host, &["nstat", "-asz", name]).stdout;
    let line =
        text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_link_that_reorders_lets_echoes_overtake_each_other_and_one_that_does_not_keeps_their_order() {
    need_lab();
    let _turn = beside();
    let ping = ["ping", "-c", "300", "-i", "0.002", "-W", "1", "right-0"];
    let steady = NamedLab::up("t-steady", &wire("jitter = \"10ms\""));
    let seen = arrivals(&steady.exec("left-0", &ping).stdout);
    assert_eq!(seen.len(), 300);
    assert!(seen.is_sorted(), "jitter alone keeps the order: {seen:?}");
    drop(steady);
    let lab = NamedLab::up("t-reorder", &wire("forward = { reorder = { share = 0.3, by = \"20ms\" } }"));
    let seen = arrivals(&lab.exec("left-0", &ping).stdout);
    assert_eq!(seen.len(), 300);
    // Of 300 a share of 0.3 was late by ten others; sd = √(300·0.3·0.7) ≈ 8.
    let overtaken = (0..seen.len()).filter(|at| seen[..*at].iter().any(|before| before > &seen[*at])).count();
    assert!((50..130).contains(&overtaken), "{overtaken} of 300 were overtaken");
}

#[test]
fn bursty_loss_loses_as_much_as_it_says_and_in_bursts() {
    need_lab();
    let _turn = beside();
    let lab =
        NamedLab::up("t-burst", &wire("forward = { burst_loss = { bad = 0.1, length = 8, loss = 1.0 } }"));
    let ping = lab.exec("left-0", &["ping", "-c", "4000", "-i", "0.002", "-W", "1", "right-0"]);
    let seen: std::collections::BTreeSet<u32> = arrivals(&ping.stdout).into_iter().collect();
    let lost: Vec<u32> = (1..=4000).filter(|number| !seen.contains(number)).collect();
    let bursts = lost.iter().filter(|number| !lost.contains(&(**number - 1))).count();
    let length = lost.len() as f64 / bursts as f64;
    // 400 of 4,000 in about 50 bursts of geometric length with mean 8: the sum's sd is about 400·√(2·8/400) ≈ 80, the mean
    // length's 8/√50 ≈ 1.1.
    assert!((160..640).contains(&lost.len()), "{} lost", lost.len());
    assert!((4.0..13.0).contains(&length), "{length} a burst in {bursts} bursts");
}

const RECEIVER: &str = "
import hashlib, socket
connection, _ = socket.create_server(('', 5003)).accept()
digest = hashlib.sha256()
while data := connection.recv(65536):
    digest.update(data)
print(digest.hexdigest())
";
const SENDER: &str = "
import hashlib, random, socket, time
data = random.Random(7).randbytes(4000000)
for _ in range(100):
    try:
        connection = socket.create_connection(('right-0', 5003))
        break
    except OSError:
        time.sleep(0.1)
connection.sendall(data)
connection.close()
print(hashlib.sha256(data).hexdigest())
";

// Spec: lab.md#lab-20
#[test]
fn what_a_wire_corrupts_is_caught_by_the_receivers_kernel_and_counted() {
    need_lab();
    let _turn = turn();
    let lab = NamedLab::up("t-corrupt", &wire("forward = { corrupt = \"1%\" }"));
    // The same random bytes at both ends, and the digest of what arrived.
    let server = start(weir().args([
        "lab",
        "exec",
        "t-corrupt",
        "right-0",
        "--",
        "timeout",
        "30",
        "python3",
        "-c",
        RECEIVER,
    ]));
    let client = lab.exec("left-0", &["timeout", "30", "python3", "-c", SENDER]);
    let received = ran(finish_within(server, Duration::from_secs(40)));
    assert_eq!(client.stdout.trim().len(), 64, "{}{}", client.stdout, client.stderr);
    assert_eq!(received.stdout, client.stdout, "{}", received.stderr);
    let wrong = counter(&lab, "right-0", "TcpInCsumErrors");
    assert!(wrong > 0, "no wrong checksum was counted");
}
