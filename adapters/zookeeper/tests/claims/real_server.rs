//! Claims about membership with a real ZooKeeper server. Each has a server of its own: some take it down.

use super::support::server::Server;
use super::support::{Follower, LIMIT, Process, Raw, heard, member, open, readable};
use std::cell::Cell;
use std::time::{Duration, Instant};
use weir_seams::membership::conformance::{Trial, check, check_entries};
use weir_seams::membership::{Change, Liveness, Membership, SeatChange};
use weir_sys::clock::process_cpu_time;

/// Where no session is to end by itself, however busy the machine is.
const LONG: Duration = Duration::from_secs(60);

// Spec: membership.md#membership-2, membership.md#membership-3, membership.md#membership-4, membership.md#membership-5
#[test]
fn zookeeper_keeps_the_claims_of_the_seam() {
    check_entries(weir_zookeeper::MEMBERSHIPS);
    let server = Server::start();
    // The claims follow each other in one group.
    let open = || Box::new(open(&server.address(), LONG, "seam")) as Box<dyn Membership>;
    check(&Trial {
        name: "zookeeper",
        open: &open,
        names: ["b-0", "b-1"],
        readable: &readable,
        limit: LIMIT,
    });
}

// Spec: membership.md#membership-8, membership.md#zookeeper-1
#[test]
fn a_member_that_is_killed_or_stopped_is_gone_after_its_session_time_out_and_comes_back_when_it_runs_again() {
    let server = Server::start();
    let timeout = Duration::from_secs(2);
    let service = open(&server.address(), LONG, "silence");
    let mut watch = Follower::of(&service);
    let killed = Process::start(&server.address(), timeout, "silence", "killed", 1);
    let stopped = Process::start(&server.address(), timeout, "silence", "stopped", 2);
    watch.sees(&[("killed", 1), ("stopped", 2)]);
    let raw = Raw::connect(&server.address());
    let nodes = ["/weir/silence/builders/killed", "/weir/silence/builders/stopped"];
    assert!(nodes.iter().all(|node| raw.read(node).is_some_and(|(_, ephemeral)| ephemeral)));
    let from = Instant::now();
    killed.signal("-KILL");
    stopped.signal("-STOP");
    watch.until("one is gone", |watch| watch.members.len() < 2);
    // A client says something every 3/20 of its time-out, and the server counts from the last it heard.
    assert!(from.elapsed() > timeout / 2, "gone after {:?}: not by its time-out", from.elapsed());
    watch.sees(&[]);
    assert_eq!(nodes.map(|node| raw.read(node)), [None, None]);
    eprintln!("gone after {:?} with a session time-out of {timeout:?}", from.elapsed());
    stopped.signal("-CONT");
    stopped.says("lapsed");
    stopped.says("held");
    watch.sees(&[("stopped", 2)]);
}

// Spec: membership.md#membership-2, membership.md#zookeeper-2
#[test]
fn of_two_processes_with_one_name_the_later_incarnation_stays_and_the_older_is_told_even_after_a_sleep() {
    let server = Server::start();
    let timeout = Duration::from_secs(2);
    let service = open(&server.address(), LONG, "names");
    let mut watch = Follower::of(&service);
    let mut older = Process::start(&server.address(), timeout, "names", "b", 10);
    watch.sees(&[("b", 10)]);
    older.says("held");
    older.signal("-STOP");
    watch.sees(&[]);
    let later = Process::start(&server.address(), LONG, "names", "b", 11);
    later.says("held");
    watch.sees(&[("b", 11)]);
    // The later one has gone too when the older wakes: the name is free, and still not for it.
    drop(later);
    older.signal("-CONT");
    older.says("fenced 11");
    assert_eq!(older.ended(), Some(1));
}

// Spec: membership.md#membership-3, membership.md#membership-5, membership.md#zookeeper-2
#[test]
fn who_is_fenced_while_the_server_is_away_is_told_when_it_is_back() {
    let mut server = Server::start();
    let (near, far) = (open(&server.address(), LONG, "fence"), open(&server.address(), LONG, "fence"));
    let mut watch = Follower::of(&near);
    let mut seat = far.join(&member("b", 10)).unwrap();
    watch.sees(&[("b", 10)]);
    server.kill();
    near.fence("b", 20).unwrap();
    assert!(server.again());
    heard(&mut seat, |change| matches!(change, SeatChange::Fenced { by: 20, .. }));
    watch.sees(&[]);
}

// Spec: membership.md#membership-6
#[test]
fn a_server_that_comes_back_with_its_data_finds_all_members_in_their_sessions() {
    let mut server = Server::start();
    let (near, far) = (open(&server.address(), LONG, "restart"), open(&server.address(), LONG, "restart"));
    let mut watch = Follower::of(&near);
    let mut seat = far.join(&member("b-0", 10)).unwrap();
    watch.sees(&[("b-0", 10)]);
    heard(&mut seat, |change| *change == SeatChange::Held);
    watch.told.clear();
    server.kill();
    watch.until("the list is stale", |watch| matches!(watch.told.last(), Some(Change::Stale(_))));
    heard(&mut seat, |change| matches!(change, SeatChange::Lapsed(_)));
    // What is asked for meanwhile is done later.
    let mut other = far.join(&member("b-1", 11)).unwrap();
    watch.told.clear();
    assert!(server.again());
    heard(&mut seat, |change| *change == SeatChange::Held);
    heard(&mut other, |change| *change == SeatChange::Held);
    watch.sees(&[("b-0", 10), ("b-1", 11)]);
    watch.until("the list is whole", |watch| watch.told.contains(&Change::Current));
    let left = watch.told.iter().find(|change| matches!(change, Change::Left { .. }));
    assert_eq!(left, None, "nobody was gone");
}

// Spec: membership.md#membership-7
#[test]
fn after_a_server_that_forgot_everything_members_are_back_by_themselves_and_none_was_said_to_have_left() {
    let mut server = Server::start();
    // Not to end by itself while the server runs; short enough to wait for.
    let timeout = Duration::from_secs(8);
    let near = open(&server.address(), timeout, "forgets");
    let mut watch = Follower::of(&near);
    let service = open(&server.address(), timeout, "forgets");
    let mut seat = service.join(&member("b-0", 10)).unwrap();
    let dies = Process::start(&server.address(), timeout, "forgets", "dies", 12);
    watch.sees(&[("b-0", 10), ("dies", 12)]);
    heard(&mut seat, |change| *change == SeatChange::Held);
    // It cannot come back before the list is whole again.
    dies.signal("-STOP");
    server.kill();
    server.forget();
    watch.until("the list is stale", |watch| matches!(watch.told.last(), Some(Change::Stale(_))));
    watch.told.clear();
    assert!(server.again());
    let anew = Cell::new(false);
    let said = heard(&mut seat, |change| {
        // Lapsed, and held again in another session.
        anew.set(anew.get() || matches!(change, SeatChange::Lapsed(_)));
        anew.get() && *change == SeatChange::Held
    });
    assert!(said.len() >= 2, "{said:?}");
    // Nobody is taken off for not being on the first list of the new session.
    watch.until("the list is whole", |watch| watch.told.contains(&Change::Current));
    assert!(!watch.told.iter().any(|change| matches!(change, Change::Left { .. })), "{:?}", watch.told);
    // Who does not come back is at last; who does was never off.
    watch.sees(&[("b-0", 10)]);
    let left: Vec<&Change> =
        watch.told.iter().filter(|change| matches!(change, Change::Left { .. })).collect();
    assert_eq!(left, [&Change::Left { name: "dies".to_owned(), incarnation: 12 }]);
    // And the node is there: one who never saw the old server finds it.
    let fresh = open(&server.address(), LONG, "forgets");
    Follower::of(&fresh).sees(&[("b-0", 10)]);
}

// Spec: membership.md#zookeeper-5
#[test]
fn while_the_server_is_away_a_member_and_a_watch_cost_next_to_nothing() {
    let mut server = Server::start();
    let service = open(&server.address(), Duration::from_secs(1), "idle");
    let mut watch = Follower::of(&service);
    let mut seat = service.join(&member("b", 1)).unwrap();
    watch.sees(&[("b", 1)]);
    server.kill();
    heard(&mut seat, |change| matches!(change, SeatChange::Lapsed(_)));
    // Other tests of this process run beside this one: each waits for what a server says, as this does.
    let before = process_cpu_time();
    std::thread::sleep(Duration::from_secs(4));
    let spent = process_cpu_time().since(before);
    let spent = spent.user + spent.system;
    assert!(spent < Duration::from_secs(2), "{spent:?} in 4 s");
    assert!(server.again());
    heard(&mut seat, |change| *change == SeatChange::Held);
}

// Spec: membership.md#zookeeper-3
#[test]
fn what_stands_in_the_folder_and_is_no_member_is_named_and_left_out() {
    let server = Server::start();
    let service = open(&server.address(), LONG, "odd");
    let mut watch = Follower::of(&service);
    // A folder where a member's node could be: another group's members are below this one's.
    let below = weir_zookeeper::ZooKeeper::open(
        &server.address(),
        LONG,
        "/weir/odd/builders",
        &weir_seams::membership::Group { run: "x".to_owned(), role: "sources".to_owned() },
    )
    .unwrap();
    let mut seat = below.join(&member("s", 1)).unwrap();
    heard(&mut seat, |change| *change == SeatChange::Held);
    let odd = |change: &Change| matches!(change, Change::Odd(what) if what.contains("\"x\" is no member"));
    watch.until("it is named", |watch| watch.told.iter().any(odd));
    let mut own = service.join(&member("b", 2)).unwrap();
    heard(&mut own, |change| *change == SeatChange::Held);
    watch.sees(&[("b", 2)]);
    // Nor can a member take such a name; it is told what to do.
    let mut blocked = service.join(&member("x", 3)).unwrap();
    heard(
        &mut blocked,
        |change| matches!(change, SeatChange::Lapsed(why) if why.contains("remove them there")),
    );
}

// Spec: membership.md#zookeeper-4
#[test]
fn what_the_server_grants_is_known_and_said_when_it_is_not_what_was_asked_for() {
    let server = Server::start();
    // Less than the server's minimum of 200 ms.
    let service = open(&server.address(), Duration::from_millis(100), "granted");
    assert_eq!(service.liveness(), Liveness::Silence(Duration::from_millis(100)));
    let mut watch = Follower::of(&service);
    watch.until("the difference is named", |watch| {
        watch
            .told
            .iter()
            .any(|change| matches!(change, Change::Odd(what) if what.contains("200ms where 100ms was asked")))
    });
    assert_eq!(service.liveness(), Liveness::Silence(Duration::from_millis(200)));
}

// Spec: membership.md#zookeeper-1, membership.md#zookeeper-2
#[test]
fn what_another_client_does_to_the_nodes_of_a_living_member_is_mended() {
    let server = Server::start();
    let service = open(&server.address(), LONG, "mended");
    let mut watch = Follower::of(&service);
    let mut seat = service.join(&member("b", 7)).unwrap();
    heard(&mut seat, |change| *change == SeatChange::Held);
    let raw = Raw::connect(&server.address());
    let (node, fence) = ("/weir/mended/builders/b", "/weir/mended/builders.fences/b");
    let written = r#"{"name":"b","incarnation":7,"address":"192.0.2.1:7","details":null}"#;
    let stands = || {
        raw.read(node) == Some((written.to_owned(), true)) && raw.read(fence) == Some(("7".to_owned(), false))
    };
    assert!(stands(), "{:?} {:?}", raw.read(node), raw.read(fence));
    let mended = |what: &str| {
        let until = Instant::now() + LIMIT;
        while !stands() {
            assert!(Instant::now() < until, "{what}: {:?} {:?}", raw.read(node), raw.read(fence));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    raw.write(node, "nonsense");
    mended("other data");
    raw.remove(node);
    mended("no node");
    raw.remove("/weir/mended");
    mended("nothing at all");
    watch.sees(&[("b", 7)]);
    // Whoever raises the fence by hand ends the member by removing its node.
    raw.write(fence, "8");
    raw.remove(node);
    heard(&mut seat, |change| matches!(change, SeatChange::Fenced { by: 8, .. }));
    watch.sees(&[]);
}
