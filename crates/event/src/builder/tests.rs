//! Claims about a builder alone, among sources that say anything.

use super::*;
use crate::message::{Assignment, Release};
use crate::payload::crc32c;
use crate::sizes::Draws;
use crate::wire::{HEADER_BYTES, Header, HeaderError};
use proptest::prelude::*;

const MEMORY: u64 = 100_000;
const WINDOW: u64 = 40_000;

struct Bench {
    builder: Builder,
    now: Instant,
    said: Vec<Action>,
}

fn welcome(run: &str, deadline: Option<Duration>, partial: bool) -> Message {
    Message::Welcome(Box::new(Welcome {
        run: run.to_owned(),
        slot: 4,
        epoch: 1,
        rate_hz: 100.0,
        probe_ns: 50_000_000,
        detect_ns: 400_000_000,
        grant_window_bytes: WINDOW,
        deadline_ns: deadline.map(|deadline| deadline.as_nanos() as u64),
        partial,
        trigger_at_source: false,
        send_order: String::new(),
        seed: 1,
    }))
}

impl Bench {
    /// A builder in a run of two sources, slots 0 and 2, connected as links 10 and 12.
    fn new() -> Bench {
        Bench::with(None, false)
    }
    fn with(deadline: Option<Duration>, partial: bool) -> Bench {
        Bench::of(MEMORY, deadline, partial)
    }
    fn of(memory_bytes: u64, deadline: Option<Duration>, partial: bool) -> Bench {
        let now = Instant::from_ns(5_000_000_000);
        let settings = Settings {
            name: "b".to_owned(),
            host: "h".to_owned(),
            incarnation: 7,
            memory_bytes,
            data: ([10, 0, 0, 1], 1).into(),
            work: Duration::ZERO,
        };
        let mut bench = Bench { builder: Builder::new(settings, now), now, said: Vec::new() };
        bench.builder.on_wake(now);
        bench.builder.on_connected(now);
        bench.hear(&welcome("one", deadline, partial));
        let sources = vec![(0, "a".to_owned()), (2, "c".to_owned())];
        bench.hear(&Message::Sources(SourceList { version: 1, sources }));
        assert_eq!(bench.builder.on_source(10, 0, now), Ok(()));
        assert_eq!(bench.builder.on_source(12, 2, now), Ok(()));
        bench
    }
    fn hear(&mut self, message: &Message) {
        self.builder.on_message(message, self.now);
    }
    fn assign(&mut self, id: u64, epoch: u32) {
        self.hear(&Message::Assign(vec![Assignment { id, builder: 4, epoch }]));
    }
    fn pass(&mut self, wait: Duration) {
        let until = self.now + wait;
        while self.builder.wake_at() <= until {
            self.now = self.builder.wake_at().max(self.now);
            self.builder.on_wake(self.now);
        }
        self.now = until;
    }
    /// A whole fragment over `link`, in pieces.
    fn fragment(&mut self, link: u64, header: Header, payload: &[u8]) -> Result<(), Cut> {
        let bytes = [&header.encode()[..], payload].concat();
        for piece in bytes.chunks(700) {
            self.builder.on_bytes(link, piece, self.now)?;
            assert!(self.builder.held_bytes() <= MEMORY && self.builder.granted_bytes() <= WINDOW);
        }
        Ok(())
    }
    fn send(&mut self, source: u16, id: u64, epoch: u32, bytes: usize) -> Result<(), Cut> {
        let payload = vec![id as u8; bytes];
        self.fragment(10 + u64::from(source), header(source, id, epoch, &payload), &payload)
    }
    fn said(&mut self) -> &[Action] {
        self.said.clear();
        while let Some(action) = self.builder.poll() {
            self.said.push(action);
        }
        &self.said
    }
    fn done(&mut self) -> Vec<Done> {
        let lists = self.said().iter().filter_map(|action| match action {
            Action::Send(Message::Done(list)) => Some(list.clone()),
            _ => None,
        });
        lists.flatten().collect()
    }
    fn asked(&mut self) -> Vec<(u64, Vec<(u64, u32)>)> {
        let asked = self.said().iter().filter_map(|action| match action {
            Action::SendTo { link, message: Message::Again(list) } => Some((*link, list.clone())),
            _ => None,
        });
        asked.collect()
    }
}

fn header(source: u16, id: u64, epoch: u32, payload: &[u8]) -> Header {
    let bytes = payload.len() as u32;
    Header { source, bytes, id, epoch, payload_crc: crc32c([payload, &[]]), age_ns: 1_000_000 }
}
fn complete(id: u64, epoch: u32) -> Done {
    Done { id, epoch, outcome: Outcome::Complete }
}

// Spec: event-building.md#delivery-2
#[test]
fn fragments_of_many_events_in_any_order_make_each_event_from_its_own() {
    let mut bench = Bench::new();
    for id in 0..4 {
        bench.assign(id, 1);
    }
    for (source, id) in [(0, 3), (2, 0), (0, 1), (2, 2), (0, 0), (2, 1), (2, 3), (0, 2)] {
        assert_eq!(bench.send(source, id, 1, 500), Ok(()));
    }
    assert_eq!(bench.done(), [complete(0, 1), complete(1, 1), complete(3, 1), complete(2, 1)]);
    assert_eq!(bench.builder.held_bytes(), 0);
}

#[test]
fn an_event_that_ends_says_what_is_held_of_others() {
    let mut bench = Bench::new();
    for id in 0..3 {
        bench.assign(id, 1);
    }
    for (source, id) in [(0, 0), (0, 1), (0, 2), (2, 1), (2, 2), (2, 0)] {
        assert_eq!(bench.send(source, id, 1, 500), Ok(()));
    }
    let built = bench.said().iter().filter_map(|action| match action {
        Action::Built(built) => Some((built.id, built.held_bytes)),
        _ => None,
    });
    let fragment = 500 + HEADER_BYTES as u64;
    assert_eq!(built.collect::<Vec<_>>(), [(1, 2 * fragment), (2, fragment), (0, 0)]);
}

// Spec: event-building.md#delivery-4
#[test]
fn a_second_fragment_changes_nothing_and_an_old_epoch_is_stale_and_both_are_counted() {
    let mut bench = Bench::new();
    bench.assign(5, 3);
    assert_eq!(bench.send(0, 5, 3, 100), Ok(()));
    assert_eq!(bench.send(0, 5, 3, 999), Ok(()));
    assert_eq!(bench.send(2, 5, 2, 100), Ok(()), "assigned before, under another epoch");
    assert_eq!(bench.done(), []);
    assert_eq!(bench.send(2, 5, 3, 100), Ok(()));
    assert_eq!(bench.send(0, 5, 3, 100), Ok(()), "after the end");
    assert_eq!(bench.send(0, 5, 2, 100), Ok(()));
    assert_eq!(bench.send(0, 4, 1, 100), Ok(()), "never assigned, and will not be");
    let figures = bench.builder.figures();
    assert_eq!((figures.duplicate, figures.stale, figures.joined, figures.cut), (2, 3, 2, 0));
    assert_eq!(bench.done(), [complete(5, 3)]);
    assert_eq!(bench.builder.held_bytes(), 0);
}

// Spec: event-building.md#delivery-2
#[test]
fn a_fragment_that_overtakes_its_assignment_is_joined_when_that_comes() {
    let mut bench = Bench::new();
    assert_eq!(bench.send(0, 9, 2, 3000), Ok(()));
    assert_eq!(bench.send(2, 9, 2, 3000), Ok(()));
    bench.assign(9, 2);
    assert_eq!(bench.done(), [complete(9, 2)]);
}

// Spec: event-building.md#delivery-6
#[test]
fn what_no_assignment_claims_is_given_up_and_asked_for_again_if_one_comes_after_all() {
    let mut bench = Bench::new();
    assert_eq!(bench.send(0, 9, 2, 3000), Ok(()));
    assert_eq!(bench.builder.held_bytes(), 3040);
    bench.pass(Duration::from_secs(1));
    assert_eq!((bench.builder.held_bytes(), bench.builder.figures().stale), (0, 1));
    bench.assign(9, 2);
    bench.send(2, 9, 2, 10).unwrap();
    bench.said();
    bench.pass(Duration::from_millis(1200));
    let asked = bench.asked();
    assert_eq!(asked.first(), Some(&(10, vec![(9, 2)])), "{asked:?}");
    assert_eq!(bench.send(0, 9, 2, 3000), Ok(()));
    assert_eq!(bench.done(), [complete(9, 2)]);
}

// Spec: event-building.md#delivery-2
#[test]
fn a_fragment_larger_than_its_sources_share_comes_whole_although_it_began_too_early() {
    let mut bench = Bench::new();
    let payload = vec![1; 30_000];
    let bytes = [&header(0, 9, 2, &payload).encode()[..], &payload].concat();
    // As much as was granted at first: half of the window for two.
    let (first, rest) = bytes.split_at(WINDOW as usize / 4);
    assert_eq!(bench.builder.on_bytes(10, first, bench.now), Ok(()));
    let grants = |said: &[Action]| said.iter().any(|one| matches!(one, Action::SendTo { link: 10, .. }));
    bench.said();
    bench.pass(Duration::from_millis(10));
    assert!(!grants(bench.said()), "without an assignment there is no more credit");
    bench.assign(9, 2);
    assert!(grants(bench.said()));
    for piece in rest.chunks(1000) {
        assert_eq!(bench.builder.on_bytes(10, piece, bench.now), Ok(()));
    }
    assert_eq!(bench.send(2, 9, 2, 10), Ok(()));
    assert_eq!(bench.done(), [complete(9, 2)]);
}

// Spec: event-building.md#delivery-3
#[test]
fn a_wrong_payload_is_asked_for_again_once_and_then_the_event_is_dropped() {
    for second_is_right in [true, false] {
        let mut bench = Bench::new();
        bench.assign(5, 1);
        let (right, wrong) = (vec![1; 400], vec![2; 400]);
        let header = header(0, 5, 1, &right);
        assert_eq!(bench.fragment(10, header, &wrong), Ok(()));
        assert_eq!(bench.asked(), [(10, vec![(5, 1)])]);
        assert_eq!(bench.fragment(10, header, if second_is_right { &right } else { &wrong }), Ok(()));
        assert_eq!(bench.send(2, 5, 1, 400), Ok(()));
        let outcome = if second_is_right { Outcome::Complete } else { Outcome::Dropped(Reason::Corrupt) };
        assert_eq!(bench.done(), [Done { id: 5, epoch: 1, outcome }]);
        assert_eq!(bench.builder.figures().corrupt, if second_is_right { 1 } else { 2 });
        assert_eq!(bench.builder.held_bytes(), 0);
    }
}

// Spec: event-building.md#delivery-3
#[test]
fn a_payload_swapped_for_another_fragments_is_not_joined() {
    let block = std::sync::Arc::new(crate::payload::Block::random(0));
    let mut made = crate::payload::Payload::synthetic(&block, crate::sizes::Sizes::Fixed(2000));
    made.seeded(3, "a");
    let mut bench = Bench::new();
    for id in 0..50 {
        bench.assign(id, 1);
    }
    for id in 0..50u64 {
        let (own, other) = (made.window(id), made.window(id + 1));
        let header =
            Header { source: 0, bytes: 2000, id, epoch: 1, payload_crc: block.crc32c(own), age_ns: 0 };
        assert_eq!(bench.fragment(10, header, &block.slices(other).concat()), Ok(()));
    }
    let figures = bench.builder.figures();
    assert_eq!((figures.corrupt, figures.asked_again), (50, 50));
}

/// Sends fragments of 2 kB from a source, from this event on, as long as its grants allow; the first that did not go.
fn send_granted(bench: &mut Bench, granted: &mut BTreeMap<u64, u64>, source: u16, from: u64) -> u64 {
    let (link, whole) = (10 + u64::from(source), 2000 + HEADER_BYTES as u64);
    for id in from..40 {
        for action in bench.said() {
            if let Action::SendTo { link, message: Message::Grant { total_bytes } } = action {
                granted.insert(*link, *total_bytes);
            }
        }
        if (id + 1) * whole > granted[&link] {
            return id;
        }
        assert_eq!(bench.send(source, id, 1, 2000), Ok(()));
    }
    40
}

// Spec: event-building.md#credits-6
#[test]
fn a_source_far_ahead_waits_for_one_that_moves_and_not_for_one_that_stands_still() {
    for other_moves in [true, false] {
        let mut bench = Bench::new();
        let mut granted = BTreeMap::new();
        for id in 0..40 {
            bench.assign(id, 1);
        }
        let first = send_granted(&mut bench, &mut granted, 0, 0);
        let kept = first * (2000 + HEADER_BYTES as u64);
        assert!(kept > WINDOW / 2 && kept <= 3 * WINDOW / 2, "{first} fragments without the other's");
        bench.pass(Duration::from_millis(40));
        assert_eq!(send_granted(&mut bench, &mut granted, 0, first), first);
        if other_moves {
            // What is behind is granted all it needs, and then the first goes on at once.
            assert!(send_granted(&mut bench, &mut granted, 2, 0) >= first);
        } else {
            bench.pass(Duration::from_millis(30));
        }
        assert!(send_granted(&mut bench, &mut granted, 0, first) > first, "{other_moves}");
    }
}

// Spec: event-building.md#credits-6
#[test]
fn a_source_does_not_wait_where_next_to_nothing_of_memory_is_kept() {
    let mut bench = Bench::of(1024 * MEMORY, None, false);
    for id in 0..40 {
        bench.assign(id, 1);
    }
    assert_eq!(send_granted(&mut bench, &mut BTreeMap::new(), 0, 0), 40);
}

// Spec: event-building.md#credits-3
#[test]
fn a_source_that_sends_beyond_its_grant_is_cut_off_and_the_other_goes_on() {
    let mut bench = Bench::new();
    bench.assign(1, 1);
    let flood = header(0, 1, 1, &[3; 90_000]).encode();
    bench.builder.on_bytes(10, &flood, bench.now).unwrap();
    let space = bench.builder.space(10).len();
    assert!(space as u64 > WINDOW);
    assert_eq!(bench.builder.on_filled(10, WINDOW as usize + 1, bench.now), Err(Cut::BeyondGrant));
    assert_eq!((bench.builder.figures().cut, bench.builder.held_bytes()), (1, 0));
    assert_eq!(bench.send(2, 1, 1, 10), Ok(()));
    assert_eq!(bench.builder.on_source(20, 0, bench.now), Ok(()), "it may come again");
    let small = [0; 10];
    assert_eq!(bench.fragment(20, header(0, 1, 1, &small), &small), Ok(()));
    assert_eq!(bench.done(), [complete(1, 1)]);
}

// Spec: event-building.md#delivery-8
#[test]
fn a_source_that_lies_about_sizes_costs_its_event_and_no_memory() {
    let mut bench = Bench::new();
    bench.assign(1, 1);
    bench.assign(2, 1);
    assert_eq!(bench.send(2, 1, 1, 20_000), Ok(()));
    let lie = Header { bytes: u32::MAX, ..header(0, 1, 1, &[]) };
    assert_eq!(bench.builder.on_bytes(10, &lie.encode(), bench.now), Ok(()));
    let dropped = Done { id: 1, epoch: 1, outcome: Outcome::Dropped(Reason::NoCredit) };
    assert_eq!(bench.done(), [dropped]);
    assert_eq!(bench.builder.held_bytes(), 0);
    assert!(bench.builder.buffers().0 < MEMORY * 9 / 8 + 64);
    for _ in 0..200 {
        let space = bench.builder.space(10).len().min(1000);
        assert_eq!(bench.builder.on_filled(10, space, bench.now), Ok(()));
    }
    assert_eq!(bench.send(2, 2, 1, 50), Ok(()), "the other source is not held up");
}

// Spec: event-building.md#delivery-3
#[test]
fn garbage_a_wrong_header_or_anothers_name_ends_the_connection() {
    let own = header(0, 1, 1, &[]).encode();
    let mut damaged = own;
    damaged[9] ^= 1;
    type Wanted = fn(&Cut) -> bool;
    let cases: [([u8; HEADER_BYTES], Wanted); 3] = [
        ([0x5a; HEADER_BYTES], |cut| *cut == Cut::Header(HeaderError::NotAFragment)),
        (damaged, |cut| matches!(cut, Cut::Header(HeaderError::Damaged { .. }))),
        (header(2, 1, 1, &[]).encode(), |cut| *cut == Cut::WrongSource(2)),
    ];
    for (bytes, wanted) in cases {
        let mut bench = Bench::new();
        bench.assign(1, 1);
        let cut = bench.builder.on_bytes(10, &bytes, bench.now).expect_err("cut off");
        assert!(wanted(&cut), "{cut}");
        assert_eq!(bench.builder.space(10).len(), 0);
    }
}

// Spec: event-building.md#delivery-5
#[test]
fn an_event_that_is_too_old_is_partial_or_dropped_and_what_comes_for_it_later_is_late() {
    for partial in [true, false] {
        let mut bench = Bench::with(Some(Duration::from_millis(300)), partial);
        bench.assign(1, 1);
        bench.assign(2, 1);
        assert_eq!(bench.send(0, 1, 1, 100), Ok(()));
        bench.pass(Duration::from_millis(290));
        assert_eq!(bench.done(), []);
        // By its source's word event 1 is a millisecond older than its assignment.
        bench.pass(Duration::from_millis(20));
        let first = if partial { Outcome::Partial } else { Outcome::Dropped(Reason::Deadline) };
        let none = Outcome::Dropped(Reason::Deadline);
        let ends = [Done { id: 1, epoch: 1, outcome: first }, Done { id: 2, epoch: 1, outcome: none }];
        assert_eq!(bench.done(), ends);
        assert_eq!(bench.send(2, 1, 1, 100), Ok(()));
        assert_eq!((bench.builder.figures().late, bench.builder.held_bytes()), (1, 0));
    }
}

// Spec: event-building.md#credits-3
#[test]
fn a_silent_source_keeps_no_other_from_its_half_of_the_window() {
    let mut bench = Bench::new();
    for id in 0..20 {
        bench.assign(id, 1);
    }
    // Source 0 has all it may get and sends nothing; source 2 still gets all of its fragments through, once it does not wait for the other.
    bench.pass(Duration::from_millis(50));
    for id in 0..20 {
        assert_eq!(bench.send(2, id, 1, 4_500), Ok(()));
    }
    assert_eq!(bench.builder.figures().received, 20);
}

// Spec: event-building.md#failure-5
#[test]
fn a_builder_that_joins_again_says_what_it_has_begun_and_ended_until_it_is_taken() {
    let mut bench = Bench::new();
    for id in [3, 4, 7] {
        bench.assign(id, 2);
    }
    for source in [0, 2] {
        bench.send(source, 4, 2, 10).unwrap();
    }
    bench.said();
    bench.builder.on_closed(bench.now);
    bench.pass(Duration::from_millis(200));
    assert_eq!(bench.said(), [Action::Call]);
    bench.builder.on_connected(bench.now);
    let [Action::Send(Message::Join(join))] = bench.said() else { panic!() };
    let known = join.known.clone().unwrap();
    assert_eq!((known.run.as_str(), known.slot, known.epoch), ("one", 4, 2));
    assert_eq!(known.held.iter().collect::<Vec<_>>(), [3, 7]);
    assert_eq!(known.complete, Intervals::of(4, 5));
    bench.hear(&welcome("one", None, false));
    bench.hear(&Message::Release(vec![
        Release { first: 3, count: 1, outcome: None },
        Release { first: 4, count: 1, outcome: Some(Outcome::Complete) },
    ]));
    assert_eq!(bench.builder.held_events(), 1);
    for source in [0, 2] {
        bench.send(source, 7, 2, 10).unwrap();
    }
    assert_eq!(bench.done(), [complete(7, 2)], "the rest goes on");
}

// Spec: event-building.md#ledger-4
#[test]
fn what_is_settled_and_not_open_is_forgotten() {
    let mut bench = Bench::new();
    for id in 1..6 {
        bench.assign(id, 2);
    }
    let settled = Settled { below: 5, open: Intervals::of(2, 3), complete: 4, ..Settled::default() };
    bench.hear(&Message::Settled(settled));
    assert_eq!(bench.builder.events.ids().iter().collect::<Vec<_>>(), [2, 5]);
}

// Spec: event-building.md#names-1
#[test]
fn another_run_leaves_nothing_of_the_one_before_and_a_newer_namesake_ends_the_builder() {
    let mut bench = Bench::new();
    bench.assign(1, 1);
    bench.send(0, 1, 1, 5000).unwrap();
    bench.send(0, 2, 1, 5000).unwrap();
    bench.builder.on_closed(bench.now);
    bench.pass(Duration::from_millis(200));
    bench.builder.on_connected(bench.now);
    bench.said();
    bench.hear(&welcome("two", None, false));
    assert_eq!((bench.builder.held_bytes(), bench.builder.held_events()), (0, 0));
    let cuts =
        bench.said().iter().filter(|one| matches!(one, Action::Cut { why: Cut::OtherRun, .. })).count();
    assert_eq!(cuts, 2);
    assert_eq!(bench.builder.on_source(30, 0, bench.now), Err(Refusal::NotListed));
    let why = "another of its name was started later".to_owned();
    bench.hear(&Message::Refused(crate::message::Refused { why: why.clone(), again: false }));
    assert_eq!(bench.said(), [Action::End(why)]);
    assert_eq!(bench.builder.wake_at(), Instant::NEVER);
}

// Spec: event-building.md#connections-1
#[test]
fn a_source_that_is_not_listed_or_comes_before_the_run_is_told_to_come_again() {
    let mut bench = Bench::new();
    assert_eq!(bench.builder.on_source(11, 1, bench.now), Err(Refusal::NotListed));
    assert_eq!(bench.builder.on_source(11, u32::MAX, bench.now), Err(Refusal::NotListed));
    let fresh = Builder::new(bench.builder.settings.clone(), bench.now).on_source(1, 0, bench.now);
    assert_eq!(fresh, Err(Refusal::NoRun));
    assert_eq!(bench.builder.on_source(20, 0, bench.now), Ok(()));
    let replaced = Action::Cut { link: 10, why: Cut::Replaced };
    assert!(bench.said().contains(&replaced));
}

#[test]
fn receiving_the_same_sizes_over_and_over_makes_no_new_buffers() {
    let mut bench = Bench::new();
    let mut made = 0;
    for id in 0..200 {
        bench.assign(id, 1);
        for source in [0, 2] {
            bench.send(source, id, 1, [10, 2000, 9000][id as usize % 3]).unwrap();
        }
        bench.hear(&Message::Release(vec![Release {
            first: id,
            count: 1,
            outcome: Some(Outcome::Complete),
        }]));
        bench.said();
        if id == 20 {
            made = bench.builder.buffers().1;
        }
    }
    assert_eq!(bench.builder.buffers().1, made);
    assert_eq!(bench.builder.events.slab.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Valid headers of any content, with floods, lies, old epochs, doubled and swapped payloads, and messages of every kind between.
    #[test]
    fn nothing_that_peers_send_makes_a_builder_panic_or_pass_its_memory_or_window(seed: u64) {
        let mut draws = Draws::of(seed, 9);
        let mut below = |limit: u64| draws.next() % limit;
        let mut bench = Bench::with(Some(Duration::from_millis(50 + below(500))), below(2) == 0);
        let mut link = 100;
        for _ in 0..300 {
            let (source, id, epoch) = ([0, 2, 1][below(3) as usize], below(12), 1 + below(4) as u32);
            match below(20) {
                0..=5 => bench.assign(id, epoch),
                6..=14 => {
                    let payload = vec![7; below(9000) as usize];
                    let mut header = header(source, id, epoch, &payload);
                    if below(5) == 0 {
                        header.payload_crc ^= 1;
                    }
                    if below(9) == 0 {
                        header.bytes = below(1 << 32) as u32;
                    }
                    let on = bench.builder.links.iter().find(|(_, slot)| **slot == source).map(|one| *one.0);
                    let Some(on) = on else { continue };
                    let bytes = [&header.encode()[..], &payload].concat();
                    let bytes = &bytes[..bytes.len() - (below(3) / 2 * below(bytes.len() as u64)) as usize];
                    for piece in bytes.chunks(1 + below(3000) as usize) {
                        if bench.builder.on_bytes(on, piece, bench.now).is_err() {
                            break;
                        }
                        prop_assert!(bench.builder.held_bytes() <= MEMORY);
                        prop_assert!(bench.builder.granted_bytes() <= WINDOW);
                    }
                }
                15 => {
                    link += 1;
                    let _ = bench.builder.on_source(link, u32::from(source), bench.now);
                }
                16 => {
                    let outcome = [None, Some(Outcome::Complete), Some(Outcome::Dropped(Reason::Deadline))];
                    let count = below(1 << 32) as u32 >> below(32);
                    let outcome = outcome[below(3) as usize];
                    bench.hear(&Message::Release(vec![Release { first: id, count, outcome }]));
                }
                17 => {
                    let sources = (0..=below(4) as u32).map(|slot| (slot, "x".to_owned())).collect();
                    bench.hear(&Message::Sources(SourceList { version: 2, sources }));
                }
                18 => {
                    let open = Intervals::of(below(6), below(12));
                    bench.hear(&Message::Settled(Settled { below: id, open, ..Settled::default() }));
                }
                _ => bench.pass(Duration::from_millis(below(400))),
            }
            bench.said();
            prop_assert!(bench.builder.held_bytes() <= MEMORY);
            prop_assert!(bench.builder.buffers().0 <= MEMORY * 9 / 8 + 64);
            prop_assert!(bench.builder.granted_bytes() <= WINDOW, "{}", bench.builder.granted_bytes());
        }
        // Whatever has happened, what is left goes with the run.
        bench.builder.stop("over");
        prop_assert_eq!((bench.builder.held_bytes(), bench.builder.granted_bytes()), (0, 0));
    }
}
