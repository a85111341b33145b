//! Claims about a source alone, among peers that say anything.

use super::*;
use crate::interval::Intervals;
use crate::ledger::Reason;
use crate::message::{Assignment, BuilderAt, BuilderList, Outcome, Refused, Release};
use crate::payload::Block;
use crate::sizes::{Draws, Sizes, Spec};
use crate::tests::order::ORDERS;
use crate::wire::Header;
use proptest::prelude::*;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

struct Bench {
    source: Source,
    now: Instant,
}

fn settings(buffer_bytes: u64, recover: Recover) -> Settings {
    Settings {
        name: "s".to_owned(),
        host: "h".to_owned(),
        incarnation: 3,
        buffer_bytes,
        recover,
        orders: ORDERS,
    }
}
fn welcome(run: &str, trigger_at_source: bool) -> Message {
    Message::Welcome(Box::new(Welcome {
        run: run.to_owned(),
        slot: 6,
        epoch: 1,
        rate_hz: 100.0,
        probe_ns: 50_000_000,
        detect_ns: 400_000_000,
        grant_window_bytes: 0,
        deadline_ns: None,
        partial: false,
        trigger_at_source,
        send_order: "plain".to_owned(),
        seed: 1,
    }))
}
fn list(channels: &[(u32, Option<u32>)]) -> Message {
    let builders = channels.iter().map(|(slot, channel)| BuilderAt {
        slot: *slot,
        name: format!("b{slot}"),
        address: ([10, 0, 0, *slot as u8], 1).into(),
        incarnation: 1,
        listed: true,
        channel: *channel,
    });
    Message::Builders(BuilderList { epoch: 1, builders: builders.collect() })
}
fn beats(first: u64, count: u32) -> Message {
    Message::Beats { first, count, age_ns: 1000 }
}
fn assign(id: u64, builder: u32, epoch: u32) -> Message {
    Message::Assign(vec![Assignment { id, builder, epoch }])
}
fn release(first: u64, count: u32, outcome: Outcome) -> Message {
    Message::Release(vec![Release { first, count, outcome: Some(outcome) }])
}

impl Bench {
    fn joining(sizes: Sizes, buffer_bytes: u64, recover: Recover) -> Bench {
        let now = Instant::from_ns(7_000_000_000);
        let payload = Payload::synthetic(&Arc::new(Block::random(0)), sizes);
        let mut source = Source::new(settings(buffer_bytes, recover), payload, now);
        source.on_wake(now);
        source.on_connected(now);
        Bench { source, now }
    }
    /// A source of fragments of 1,000 bytes with room for ten, and channels to builders 0 and 1.
    fn new() -> Bench {
        let mut bench = Bench::joining(Sizes::Fixed(960), 10_000, Recover::Remake);
        bench.hear(&welcome("one", false));
        bench.hear(&list(&[(0, Some(1)), (1, Some(1))]));
        bench.open_all();
        bench
    }
    fn hear(&mut self, message: &Message) {
        self.source.on_message(message, self.now);
    }
    fn said(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.source.poll()).collect()
    }
    /// Every channel that is asked for works.
    fn open_all(&mut self) -> Vec<ChannelId> {
        let opened: Vec<ChannelId> = self
            .said()
            .iter()
            .filter_map(|one| match one {
                Action::Open { channel, .. } => Some(*channel),
                _ => None,
            })
            .collect();
        opened.iter().for_each(|channel| self.source.on_channel_open(*channel, self.now));
        opened
    }
    fn channel(&self, builder: u32) -> ChannelId {
        ChannelId { builder, attempt: self.source.channels[&builder].attempt }
    }
    fn grant(&mut self, builder: u32, total_bytes: u64) {
        let channel = self.channel(builder);
        self.source.on_builder_message(channel, &Message::Grant { total_bytes }, self.now);
    }
    /// What goes out, at most `room` bytes, and to whom.
    fn write(&mut self, room: usize) -> Option<(u32, Vec<u8>)> {
        let channel = self.source.turn()?;
        let mut slices = [IoSlice::new(&[]); 8];
        let count = self.source.gather(channel, self.now, &mut slices);
        let mut bytes: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
        bytes.truncate(room);
        self.source.on_written(channel, bytes.len() as u64, self.now);
        Some((channel.builder, bytes))
    }
    /// Writes all that may go, and gives the bytes to each builder.
    fn write_all(&mut self) -> BTreeMap<u32, Vec<u8>> {
        let mut all: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        while let Some((builder, bytes)) = self.write(usize::MAX) {
            all.entry(builder).or_default().extend(bytes);
        }
        all
    }
    fn pass(&mut self, wait: Duration) {
        let until = self.now + wait;
        while self.source.wake_at() <= until {
            self.now = self.source.wake_at().max(self.now);
            self.source.on_wake(self.now);
        }
        self.now = until;
    }
    fn stuck(&mut self) -> Vec<(u32, u32)> {
        self.hear(&Message::Probe(1));
        self.said()
            .into_iter()
            .find_map(|one| match one {
                Action::Send(Message::Answer(answer)) => Some(answer.stuck),
                _ => None,
            })
            .expect("an answer")
    }
    fn ids(&self) -> Vec<u64> {
        self.source.held.iter().map(|(id, _)| id).collect()
    }
}

/// Heartbeats and epochs of the whole fragments in a stream.
fn fragments(bytes: &[u8]) -> Vec<(u64, u32)> {
    let (mut found, mut rest) = (Vec::new(), bytes);
    while let Some((head, behind)) = rest.split_first_chunk::<HEADER_BYTES>() {
        let header = Header::decode(head).expect("the stream is in step");
        let Some((payload, behind)) = behind.split_at_checked(header.bytes as usize) else { break };
        assert_eq!(crate::payload::crc32c([payload, &[]]), header.payload_crc);
        found.push((header.id, header.epoch));
        rest = behind;
    }
    found
}

// Spec: event-building.md#credits-3
#[test]
fn not_a_byte_goes_beyond_the_grant_and_a_grant_said_again_gives_nothing() {
    let mut bench = Bench::new();
    bench.hear(&beats(0, 5));
    for id in 0..5 {
        bench.hear(&assign(id, 0, 1));
    }
    assert_eq!(bench.write_all(), BTreeMap::new());
    bench.grant(0, 1500);
    assert_eq!(bench.write_all()[&0].len(), 1500);
    bench.grant(0, 1500);
    bench.grant(0, 400);
    assert_eq!(bench.write_all(), BTreeMap::new());
    bench.grant(0, 5000);
    assert_eq!(bench.write_all()[&0].len(), 3500);
    assert_eq!(bench.source.figures().sent, 5);
}

// Spec: event-building.md#delivery-7
#[test]
fn a_fragment_begun_is_finished_when_its_event_goes_to_another_builder_and_one_not_begun_is_not_sent() {
    let mut bench = Bench::new();
    bench.hear(&beats(0, 3));
    for id in 0..3 {
        bench.hear(&assign(id, 0, 1));
    }
    bench.grant(0, 10_000);
    bench.grant(1, 10_000);
    let (_, mut stream) = bench.write(300).unwrap();
    for id in 0..2 {
        bench.hear(&assign(id, 1, 2));
    }
    bench.hear(&release(2, 1, Outcome::Complete));
    let rest = bench.write_all();
    stream.extend(&rest[&0]);
    assert_eq!((stream.len(), fragments(&stream)), (1000, vec![(0, 1)]));
    assert_eq!(fragments(&rest[&1]), [(0, 2), (1, 2)]);
}

// Spec: event-building.md#delivery-6
#[test]
fn a_new_channel_gets_all_that_is_assigned_and_not_released_in_whole_fragments() {
    let mut bench = Bench::new();
    bench.hear(&beats(0, 4));
    for id in 0..4 {
        bench.hear(&assign(id, 0, 1));
    }
    bench.grant(0, 2500);
    bench.write_all();
    bench.hear(&release(0, 1, Outcome::Complete));
    let old = bench.channel(0);
    bench.source.on_channel_closed(old, bench.now);
    assert!(bench.said().contains(&Action::Send(Message::Channel(vec![(0, false)]))));
    bench.pass(Duration::from_millis(200));
    assert_eq!(bench.open_all().len(), 1);
    bench.source.on_builder_message(old, &Message::Grant { total_bytes: 9000 }, bench.now);
    assert_eq!(bench.write_all(), BTreeMap::new(), "a grant of the old connection counts no more");
    bench.grant(0, 9000);
    assert_eq!(fragments(&bench.write_all()[&0]), [(1, 1), (2, 1), (3, 1)]);
    assert_eq!(bench.source.figures().again, 1);
}

// Spec: event-building.md#delivery-6
#[test]
fn asked_again_it_sends_what_has_gone_and_nothing_else() {
    let mut bench = Bench::new();
    bench.hear(&beats(0, 3));
    bench.hear(&assign(0, 0, 1));
    bench.grant(0, 100_000);
    bench.write_all();
    let channel = bench.channel(0);
    bench.hear(&assign(1, 1, 1));
    for (id, epoch) in [(0, 1), (0, 2), (1, 1), (2, 1), (77, 1)] {
        bench.source.on_builder_message(channel, &Message::Again(vec![(id, epoch)]), bench.now);
    }
    assert_eq!(fragments(&bench.write_all()[&0]), [(0, 1)]);
}

// Spec: event-building.md#credits-1
#[test]
fn a_beat_that_finds_no_room_is_said_to_be_lost_and_however_many_come_take_no_time() {
    let mut bench = Bench::new();
    bench.hear(&beats(0, 12));
    assert_eq!((bench.source.held_bytes(), bench.ids().len()), (10_000, 10));
    assert!(bench.said().contains(&Action::Send(Message::Lost(vec![(10, 2)]))));
    bench.hear(&beats(0, u32::MAX));
    bench.hear(&release(0, u32::MAX, Outcome::Dropped(Reason::Shutdown)));
    bench.hear(&beats(0, u32::MAX));
    bench.hear(&beats(u64::MAX - 5, 100));
    assert!(bench.source.held_bytes() <= 10_000);
    assert_eq!(bench.ids().last(), Some(&(u64::MAX - 1)), "the largest number is no id");
}

// Spec: event-building.md#delivery-1
#[test]
fn a_restarted_source_makes_what_is_asked_for_again_or_says_that_it_is_lost() {
    for (recover, made) in [(Recover::Remake, vec![3, 4, 5]), (Recover::Lose, vec![5])] {
        let mut bench = Bench::joining(Sizes::Fixed(960), 10_000, recover);
        bench.hear(&welcome("one", false));
        bench.pass(Duration::from_millis(5));
        bench.hear(&assign(3, 0, 4));
        bench.hear(&Message::Beats { first: 4, count: 2, age_ns: 14_000_000 });
        assert_eq!(bench.ids(), made, "{recover:?}");
        let lost = Action::Send(Message::Lost(vec![(3, 2)]));
        assert_eq!(bench.said().contains(&lost), recover == Recover::Lose);
    }
}

// Spec: event-building.md#beats-3
#[test]
fn a_source_with_its_own_clock_makes_fragments_when_they_are_due_and_a_late_beat_adds_none() {
    let mut bench = Bench::joining(Sizes::Fixed(60), 10_000, Recover::Remake);
    bench.hear(&welcome("one", true));
    bench.hear(&Message::Start { first: 0, in_ns: 25_000_000 });
    bench.pass(Duration::from_millis(24));
    assert!(bench.ids().is_empty());
    bench.pass(Duration::from_millis(12));
    assert_eq!(bench.ids(), [0, 1]);
    bench.hear(&beats(0, 2));
    bench.hear(&Message::Start { first: 0, in_ns: 0 });
    assert_eq!(bench.ids(), [0, 1]);
    bench.hear(&assign(2, 0, 1));
    bench.pass(Duration::from_millis(19));
    assert_eq!((bench.ids(), bench.source.figures().made), (vec![0, 1, 2, 3], 4));
}

#[test]
fn sizes_that_differ_are_announced_and_said_again_to_a_scheduler_that_may_have_forgotten() {
    let Ok(Spec::Ready(sizes)) = Spec::parse("uniform:min=0B:max=900B") else { panic!() };
    let mut bench = Bench::joining(sizes, 100_000, Recover::Remake);
    bench.hear(&welcome("one", false));
    bench.said();
    bench.hear(&beats(5, 3));
    let bytes: Vec<u32> = (5..8).map(|id| bench.source.payload.bytes(id) + 40).collect();
    let announce = Action::Send(Message::Announce { first: 5, bytes });
    assert_eq!(bench.said(), std::slice::from_ref(&announce));
    bench.source.on_closed(bench.now);
    bench.pass(Duration::from_millis(200));
    bench.source.on_connected(bench.now);
    let said = bench.said();
    let Some(Action::Send(Message::Join(join))) = said.last() else { panic!("{said:?}") };
    let known = join.known.as_ref().unwrap();
    assert_eq!((known.held.clone(), known.last.unwrap().0), (Intervals::of(5, 8), 7));
    bench.hear(&welcome("one", false));
    assert_eq!(bench.said(), [announce]);
}

// Spec: event-building.md#failure-2
#[test]
fn a_channel_is_stuck_while_bytes_wait_or_are_not_acknowledged_and_only_then() {
    let mut bench = Bench::new();
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.stuck(), [], "nothing to send");
    bench.hear(&beats(0, 2));
    bench.hear(&assign(0, 0, 1));
    bench.grant(0, 10_000);
    bench.pass(Duration::from_millis(60));
    assert_eq!(bench.stuck(), [(0, 60_000)], "not written");
    bench.write_all();
    bench.pass(Duration::from_millis(70));
    assert_eq!(bench.stuck(), [(0, 130_000)], "written, but nobody has it");
    let channel = bench.channel(0);
    assert_eq!(bench.source.unacknowledged().collect::<Vec<_>>(), [channel]);
    bench.source.on_unacknowledged(channel, 400, bench.now);
    bench.pass(Duration::from_millis(55));
    assert_eq!(bench.stuck(), [(0, 55_000)], "some has moved, some has not");
    bench.source.on_unacknowledged(channel, 0, bench.now);
    bench.pass(Duration::from_secs(9));
    assert_eq!(bench.stuck(), []);
    bench.hear(&assign(1, 1, 1));
    bench.pass(Duration::from_millis(500));
    assert_eq!(bench.stuck(), [(1, 500_000)], "a builder that grants nothing");
}

// Spec: event-building.md#failure-6
#[test]
fn channels_follow_the_list_and_what_an_older_attempt_says_changes_nothing() {
    let mut bench = Bench::new();
    let old = bench.channel(0);
    bench.hear(&list(&[(0, Some(2)), (1, None)]));
    let said = bench.said();
    let closed = said.iter().filter(|one| matches!(one, Action::Close(_))).count();
    assert_eq!((closed, bench.source.channels.len()), (2, 1));
    bench.source.on_channel_open(old, bench.now);
    bench.source.on_channel_closed(old, bench.now);
    assert_eq!(bench.said(), []);
    let new = bench.channel(0);
    bench.source.on_channel_open(new, bench.now);
    assert_eq!(bench.said(), [Action::Send(Message::Channel(vec![(0, true)]))]);
    bench.hear(&list(&[(0, Some(2)), (1, None)]));
    assert_eq!(bench.said(), [], "a list that changes nothing");
}

// Spec: event-building.md#ledger-4
#[test]
fn what_is_settled_and_not_open_is_forgotten_and_not_made_again() {
    let mut bench = Bench::new();
    bench.hear(&beats(0, 8));
    bench.hear(&release(0, 2, Outcome::Complete));
    let settled = Settled { below: 6, open: Intervals::of(3, 4), complete: 5, ..Settled::default() };
    bench.hear(&Message::Settled(settled.clone()));
    assert_eq!(bench.ids(), [3, 6, 7]);
    bench.hear(&beats(0, 8));
    bench.hear(&assign(5, 0, 1));
    assert_eq!(bench.ids(), [3, 6, 7]);
    let known = bench.source.join(bench.now).known.unwrap();
    assert_eq!((known.settled, known.complete), (settled, Intervals::default()));
}

// Spec: event-building.md#names-1
#[test]
fn another_run_leaves_nothing_of_the_one_before_and_a_newer_namesake_ends_the_source() {
    let mut bench = Bench::new();
    bench.hear(&beats(0, 8));
    bench.hear(&assign(0, 0, 1));
    bench.source.on_closed(bench.now);
    bench.pass(Duration::from_millis(200));
    bench.source.on_connected(bench.now);
    bench.said();
    bench.hear(&welcome("two", false));
    assert_eq!((bench.source.held_bytes(), bench.source.channels.len()), (0, 0));
    bench.hear(&Message::Refused(Refused { why: "newer".to_owned(), again: false }));
    assert_eq!(bench.said().last(), Some(&Action::End("newer".to_owned())));
    assert_eq!(bench.source.wake_at(), Instant::NEVER);
}

// Spec: event-building.md#connections-3
#[test]
fn it_calls_again_every_200_ms_whether_refused_unanswered_or_cut_off() {
    let mut bench = Bench::joining(Sizes::Fixed(1), 1000, Recover::Remake);
    bench.said();
    bench.hear(&Message::Refused(Refused { why: "full".to_owned(), again: true }));
    assert_eq!(bench.said(), [Action::HangUp]);
    for _ in 0..3 {
        bench.pass(Duration::from_millis(199));
        assert_eq!(bench.said(), []);
        bench.pass(Duration::from_millis(1));
        assert_eq!(bench.said(), [Action::Call]);
        bench.source.on_closed(bench.now);
    }
    bench.pass(Duration::from_millis(200));
    bench.said();
    bench.source.on_connected(bench.now);
    bench.said();
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.said(), [Action::HangUp], "nobody answered the join");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_that_peers_say_makes_a_source_panic_pass_its_buffer_or_write_out_of_step(seed: u64) {
        let mut draws = Draws::of(seed, 9);
        let mut below = |limit: u64| draws.next() % limit;
        let sizes = [Sizes::Fixed(100), Sizes::Fixed(0), Sizes::Drawn { shape: crate::sizes::Shape::Uniform, bytes_min: 0, bytes_max: 3000 }];
        let mut bench = Bench::joining(sizes[below(3) as usize].clone(), 20_000, [Recover::Remake, Recover::Lose][below(2) as usize]);
        bench.hear(&welcome("one", below(2) == 0));
        // Bytes of each attempt at a channel, to see that its stream is in step.
        let mut streams: BTreeMap<ChannelId, Vec<u8>> = BTreeMap::new();
        let mut granted: BTreeMap<ChannelId, u64> = BTreeMap::new();
        for _ in 0..300 {
            let (id, builder, epoch) = (below(40), below(3) as u32, below(6) as u32);
            let count = below(1 << 32) as u32 >> below(32);
            match below(22) {
                0..=2 => bench.hear(&Message::Beats { first: id, count, age_ns: below(1 << 40) }),
                3..=8 => bench.hear(&assign(id, builder, epoch)),
                9 => bench.hear(&release(id, count, Outcome::Complete)),
                10 => bench.hear(&release(id, 2, Outcome::Dropped(Reason::Deadline))),
                11 => bench.hear(&list(&[(builder, Some(epoch)), (1, Some(1))])),
                12 => bench.hear(&Message::Settled(Settled { below: id, open: Intervals::of(below(9), below(30)), ..Settled::default() })),
                13 => {
                    let open: Vec<ChannelId> = bench.source.channels.keys().map(|slot| bench.channel(*slot)).collect();
                    if let Some(channel) = open.first() {
                        bench.source.on_channel_closed(*channel, bench.now);
                    }
                }
                14 => bench.pass(Duration::from_millis(below(300))),
                15 => bench.hear(&Message::Start { first: id, in_ns: below(1 << 30) }),
                16 => {
                    if let Some(channel) = granted.keys().next_back().copied() {
                        bench.source.on_builder_message(channel, &Message::Again(vec![(id, epoch)]), bench.now);
                        bench.source.on_unacknowledged(channel, below(9000), bench.now);
                    }
                    bench.hear(&Message::Probe(1));
                }
                17..=18 => {
                    for channel in granted.keys().copied().collect::<Vec<_>>() {
                        let total_bytes = granted[&channel] + below(4000);
                        granted.insert(channel, total_bytes);
                        bench.source.on_builder_message(channel, &Message::Grant { total_bytes }, bench.now);
                    }
                }
                _ => {
                    while let Some(channel) = bench.source.turn() {
                        let room = below(2500) as usize + 1;
                        let mut slices = [IoSlice::new(&[]); 5];
                        let count = bench.source.gather(channel, bench.now, &mut slices);
                        let mut bytes = slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect::<Vec<u8>>();
                        prop_assert!(!bytes.is_empty(), "a turn without anything to write");
                        bytes.truncate(room);
                        let stream = streams.get_mut(&channel).expect("an open channel");
                        stream.extend(&bytes);
                        prop_assert!(stream.len() as u64 <= granted[&channel]);
                        bench.source.on_written(channel, bytes.len() as u64, bench.now);
                        if below(4) == 0 {
                            break;
                        }
                    }
                }
            }
            for channel in bench.open_all() {
                granted.insert(channel, 0);
                streams.insert(channel, Vec::new());
            }
            prop_assert!(bench.source.held_bytes() <= 20_000);
            let sum: u64 = bench.source.held.iter().map(|(_, held)| u64::from(held.bytes)).sum();
            prop_assert_eq!(sum, bench.source.held_bytes());
        }
        // Each stream is whole fragments, and of the last as much as was granted.
        streams.values().for_each(|stream| drop(fragments(stream)));
        bench.source.stop("over");
        prop_assert_eq!(bench.source.turn(), None);
    }
}
