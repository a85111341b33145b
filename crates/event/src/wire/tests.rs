use super::*;
use crate::interval::Intervals;
use crate::ledger::{Reason, Settled};
use crate::message::{
    Answer, BuilderAt, BuilderList, Join, Known, Outcome, Refused, Role, SourceList, Welcome,
};
use proptest::prelude::*;
use std::fmt::Write as _;

const PAGE: &str = include_str!("../../../../docs/specs/event-building.md");

fn bytes_of(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes).unwrap();
    bytes
}

/// All messages in `bytes`, given `cut` bytes at a time.
fn messages_of(mut bytes: &[u8], cut: usize) -> Result<Vec<Message>, WireError> {
    let mut decoder = Decoder::new();
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let (mut now, rest) = bytes.split_at(cut.min(bytes.len()));
        while let Some(message) = decoder.next(&mut now)? {
            messages.push(message);
        }
        assert!(now.is_empty(), "bytes are left and no message came");
        bytes = rest;
    }
    assert!(decoder.is_between_frames());
    Ok(messages)
}

/// The vectors of the page: what each is, and its bytes.
fn vectors() -> Vec<(&'static str, Message)> {
    let done = |id, outcome| Done { id, epoch: 3, outcome };
    let release = |first, count, outcome| Release { first, count, outcome };
    vec![
        ("beats", Message::Beats { first: 7, count: 2, age_ns: 1500 }),
        ("announce", Message::Announce { first: 7, bytes: vec![20_040, 41] }),
        ("assign", Message::Assign(vec![Assignment { id: 7, builder: 2, epoch: 3 }])),
        (
            "release",
            Message::Release(vec![
                release(0, 7, Some(Outcome::Complete)),
                release(7, 1, Some(Outcome::Dropped(Reason::Shutdown))),
                release(8, 1, None),
            ]),
        ),
        ("done", Message::Done(vec![done(7, Outcome::Partial), done(9, Outcome::Dropped(Reason::Corrupt))])),
        ("lost", Message::Lost(vec![(3, 4)])),
        ("probe", Message::Probe(0x0102_0304_0506_0708)),
        (
            "answer",
            Message::Answer(Answer {
                number: 5,
                held_bytes: 1 << 20,
                moved_bytes: 1 << 33,
                held_events: 6,
                stuck: vec![(2, 400_000)],
            }),
        ),
        ("channel", Message::Channel(vec![(2, true), (4, false)])),
        ("start", Message::Start { first: 7, in_ns: 50_000_000 }),
        ("grant", Message::Grant { total_bytes: 1 << 40 }),
        ("again", Message::Again(vec![(7, 3)])),
        ("leave", Message::Leave("stopped".into())),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

// Spec: event-building.md#connections-4
#[test]
fn every_vector_of_the_page_is_what_this_program_says_and_understands() {
    let vector = |name: &str| {
        let line = PAGE.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        let text = line.unwrap_or_else(|| panic!("no vector {name:?} on the page")).replace(' ', "");
        assert!(text.len().is_multiple_of(2), "{name}");
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect::<Vec<u8>>()
    };
    for (name, message) in vectors() {
        assert_eq!(hex(&bytes_of(&message)), hex(&vector(name)), "{name}");
        assert_eq!(messages_of(&vector(name), 1).unwrap(), [message], "{name}");
    }
    let header = Header {
        source: 1,
        bytes: 9,
        id: 7,
        epoch: 3,
        payload_crc: crc_fast::crc32_iscsi(b"123456789"),
        age_ns: 1500,
    };
    // The check value that catalogues of checksums give for CRC32C.
    assert_eq!(header.payload_crc, 0xe306_9283);
    assert_eq!(hex(&header.encode()), hex(&vector("fragment")));
    assert_eq!(Header::decode(&vector("fragment").try_into().unwrap()), Ok(header));
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, 0, 0, 0];
    bytes.extend((body.len() as u32).to_le_bytes());
    bytes.extend(body);
    bytes
}

// Spec: event-building.md#connections-2
#[test]
fn a_frame_that_is_too_long_of_an_unknown_kind_or_of_a_wrong_length_is_refused_before_its_body() {
    let head = |kind: u8, length: u32| [&[kind, 0, 0, 0][..], &length.to_le_bytes()].concat();
    let refused = |bytes: &[u8]| {
        let mut decoder = Decoder::new();
        decoder.next(&mut &bytes[..]).unwrap_err().to_string()
    };
    assert!(refused(&head(kind::JOIN, BODY_BYTES_MAX as u32 + 1)).contains("at most"));
    assert!(refused(&head(kind::ASSIGN, u32::MAX)).contains("at most"));
    for unknown in (0..=255).filter(|kind| body::shape(*kind).is_none()) {
        assert!(refused(&head(unknown, 0)).contains("unknown kind"));
    }
    for (kind, length) in [
        (kind::BEATS, 23),
        (kind::ASSIGN, 17),
        (kind::ANNOUNCE, 12),
        (kind::ANNOUNCE, 18),
        (kind::ANSWER, 36),
        (kind::GRANT, 0),
        (kind::LEAVE, 0),
    ] {
        assert!(refused(&head(kind, length)).contains("must not have"), "{kind} with {length}");
    }
    assert!(refused(&[kind::PROBE, 1, 0, 0, 8, 0, 0, 0]).contains("not zero"));
}

#[test]
fn values_that_no_message_has_are_refused() {
    let le = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    for (kind, body) in [
        (kind::BEATS, le(&[u64::MAX, 2, 0])),
        (kind::BEATS, le(&[0, 1 << 32, 0])),
        (kind::LOST, le(&[u64::MAX - 1, 5])),
        (kind::RELEASE, le(&[0, 1 | 10 << 32])),
        (kind::RELEASE, le(&[0, 1 | 1 << 40])),
        (kind::DONE, le(&[0, 1 | 255 << 32])),
        (kind::CHANNEL, le(&[1 | 2 << 32])),
        (kind::ANNOUNCE, le(&[0, 2, 0])[..20].to_vec()),
        (kind::ANSWER, le(&[0, 0, 0, 2 << 32, 0])),
        (kind::AGAIN, le(&[0, 1 << 32])),
        (kind::WELCOME, b"{}".to_vec()),
        (kind::JOIN, [&b"["[..]; 9000].concat()),
    ] {
        let bytes = frame(kind, &body);
        assert!(Decoder::new().next(&mut &bytes[..]).is_err(), "{kind}: {body:?}");
    }
}

// Spec: event-building.md#connections-2
#[test]
fn memory_grows_with_what_has_come_and_not_with_what_was_announced() {
    let mut decoder = Decoder::new();
    let head = [&[kind::JOIN, 0, 0, 0][..], &(BODY_BYTES_MAX as u32).to_le_bytes()].concat();
    assert!(decoder.next(&mut &head[..]).unwrap().is_none());
    for step in 1..=1000 {
        assert!(decoder.next(&mut &[b' '; 100][..]).unwrap().is_none());
        assert!(decoder.partial.capacity() <= 2 * (FRAME_HEADER_BYTES + step * 100).max(64));
    }
}

#[test]
fn a_vector_that_is_given_back_is_used_again() {
    let mut decoder = Decoder::new();
    let assignment = Assignment { id: 1, builder: 2, epoch: 3 };
    let bytes = bytes_of(&Message::Assign(vec![assignment; 100]));
    let mut places = Vec::new();
    for _ in 0..3 {
        let Some(Message::Assign(list)) = decoder.next(&mut &bytes[..]).unwrap() else {
            panic!("no assignment")
        };
        places.push(list.as_ptr());
        assert_eq!(list, [assignment; 100]);
        decoder.recycle(Message::Assign(list));
    }
    assert_eq!(places, [places[0]; 3]);
}

#[test]
fn a_list_too_long_for_a_frame_is_cut_into_several_and_text_too_long_is_refused() {
    let sizes: Vec<u32> = (0..600_000).collect();
    let bytes = bytes_of(&Message::Announce { first: 5, bytes: sizes.clone() });
    let mut joined = Vec::new();
    for message in messages_of(&bytes, 1 << 16).unwrap() {
        let Message::Announce { first, bytes } = message else { panic!("{message:?}") };
        assert_eq!(first, 5 + joined.len() as u64);
        joined.extend(bytes);
    }
    assert!(joined == sizes);
    let many = vec![Done { id: 1, epoch: 2, outcome: Outcome::Complete }; 200_000];
    let parts = messages_of(&bytes_of(&Message::Done(many)), 1 << 16).unwrap();
    let counts: Vec<usize> =
        parts.iter().map(|part| if let Message::Done(list) = part { list.len() } else { 0 }).collect();
    assert_eq!(counts, [65_536, 65_536, 65_536, 3_392]);

    let mut out = vec![1, 2];
    assert!(encode(&Message::Leave("x".repeat(BODY_BYTES_MAX)), &mut out).is_err());
    assert_eq!(out, [1, 2]);
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    (0u8..10).prop_map(|code| outcome_of(code).unwrap())
}
fn any_range() -> impl Strategy<Value = (u64, u32)> {
    (0..u64::MAX - u64::from(u32::MAX), any::<u32>())
}
fn any_intervals() -> impl Strategy<Value = Intervals> {
    prop::collection::vec((0u64..1000, 1u64..20), 0..6).prop_map(|ranges| {
        let mut set = Intervals::default();
        for (first, count) in ranges {
            set.insert_range(first, first + count);
        }
        set
    })
}
fn any_known() -> impl Strategy<Value = Known> {
    (any_intervals(), any_intervals(), any::<Option<(u64, u64)>>(), any::<(u32, u32)>()).prop_map(
        |(held, complete, last, (slot, epoch))| Known {
            run: "00ff".into(),
            slot,
            epoch,
            last,
            held: held.clone(),
            complete,
            partial: Intervals::default(),
            settled: Settled { below: 9, open: held.clone(), ..Settled::default() },
            dropped: vec![(Reason::NoCredit, held)],
        },
    )
}
fn any_join() -> impl Strategy<Value = Message> {
    let role = prop_oneof![
        (any::<(u64, u64, bool)>()).prop_map(|(buffer_bytes, fragment_bytes_max, fixed)| Role::Source {
            buffer_bytes,
            fragment_bytes_max,
            fixed
        }),
        any::<(u64, u16)>().prop_map(|(memory_bytes, port)| Role::Builder {
            memory_bytes,
            data: ([10, 0, 0, 1], port).into()
        }),
    ];
    (any::<u16>(), ".{0,20}", any::<u64>(), role, prop::option::of(any_known())).prop_map(
        |(version, name, incarnation, role, known)| {
            Message::Join(Box::new(Join { version, host: name.clone(), name, incarnation, role, known }))
        },
    )
}
fn any_message() -> impl Strategy<Value = Message> {
    let assignment =
        any::<(u64, u32, u32)>().prop_map(|(id, builder, epoch)| Assignment { id, builder, epoch });
    let release = (any_range(), prop::option::of(any_outcome()))
        .prop_map(|((first, count), outcome)| Release { first, count, outcome });
    let done =
        (any::<(u64, u32)>(), any_outcome()).prop_map(|((id, epoch), outcome)| Done { id, epoch, outcome });
    let builder = (any::<(u32, u64, bool, Option<u32>)>(), "[a-z]{1,9}").prop_map(
        |((slot, incarnation, listed, channel), name)| BuilderAt {
            slot,
            name,
            address: ([0, 0, 0, 0, 0, 0, 0, 1u16], 9).into(),
            incarnation,
            listed,
            channel,
        },
    );
    let welcome = (any::<(u32, u32, Option<u64>, bool)>(), (1..100_000u32).prop_map(f64::from)).prop_map(
        |((slot, epoch, deadline_ns, partial), rate_hz)| {
            Message::Welcome(Box::new(Welcome {
                run: "ab".into(),
                slot,
                epoch,
                rate_hz,
                probe_ns: 1,
                detect_ns: 2,
                grant_window_bytes: 3,
                deadline_ns,
                partial,
                trigger_at_source: partial,
                send_order: "in-order".into(),
                seed: u64::MAX,
            }))
        },
    );
    let list = 0..40usize;
    prop_oneof![
        any_join(),
        welcome,
        (".{0,30}", any::<bool>()).prop_map(|(why, again)| Message::Refused(Refused { why, again })),
        (any::<u32>(), prop::collection::vec(builder, 0..4))
            .prop_map(|(epoch, builders)| Message::Builders(BuilderList { epoch, builders })),
        (any::<u32>(), prop::collection::vec((any::<u32>(), ".{0,9}".prop_map(String::from)), 0..4))
            .prop_map(|(version, sources)| Message::Sources(SourceList { version, sources })),
        ".{0,30}".prop_map(Message::Leave),
        (any_range(), any::<u64>()).prop_map(|((first, count), age_ns)| Message::Beats {
            first,
            count,
            age_ns
        }),
        (any_range(), prop::collection::vec(any::<u32>(), 1..40))
            .prop_map(|((first, _), bytes)| Message::Announce { first, bytes }),
        prop::collection::vec(assignment, list.clone()).prop_map(Message::Assign),
        prop::collection::vec(release, list.clone()).prop_map(Message::Release),
        prop::collection::vec(done, list.clone()).prop_map(Message::Done),
        prop::collection::vec(any_range(), list.clone()).prop_map(Message::Lost),
        any::<u64>().prop_map(Message::Probe),
        (any::<(u64, u64, u64, u32)>(), prop::collection::vec(any::<(u32, u32)>(), list.clone())).prop_map(
            |((number, held_bytes, moved_bytes, held_events), stuck)| {
                Message::Answer(Answer { number, held_bytes, moved_bytes, held_events, stuck })
            }
        ),
        prop::collection::vec(any::<(u32, bool)>(), list.clone()).prop_map(Message::Channel),
        any::<u64>().prop_map(|total_bytes| Message::Grant { total_bytes }),
        any::<(u64, u64)>().prop_map(|(first, in_ns)| Message::Start { first, in_ns }),
        any_known().prop_map(|known| Message::Settled(known.settled)),
        prop::collection::vec(any::<(u64, u32)>(), list).prop_map(Message::Again),
    ]
}

proptest! {
    // Spec: event-building.md#connections-2
    #[test]
    fn messages_come_out_as_they_went_in_however_they_are_cut(
        messages in prop::collection::vec(any_message(), 0..6),
        cut in 1usize..300,
    ) {
        let mut bytes = Vec::new();
        for message in &messages {
            encode(message, &mut bytes).unwrap();
        }
        prop_assert_eq!(messages_of(&bytes, cut).unwrap(), messages);
    }

    // Spec: event-building.md#connections-2
    #[test]
    fn no_bytes_make_the_decoder_panic_or_keep_more_than_a_frame(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        kind in prop::sample::select(&[1u8, 2, 4, 7, 25, 16, 17, 18, 19, 20, 21, 22, 23, 24, 32, 33][..]),
        length in 0u32..200,
        cut in 1usize..50,
    ) {
        let framed = [&[kind, 0, 0, 0][..], &length.to_le_bytes(), &bytes].concat();
        for bytes in [&bytes, &framed] {
            let mut decoder = Decoder::new();
            'all: for part in bytes.chunks(cut) {
                let mut part = part;
                loop {
                    match decoder.next(&mut part) {
                        Ok(Some(message)) => drop(message),
                        Ok(None) => break,
                        Err(_) => break 'all,
                    }
                }
                prop_assert!(part.is_empty());
                prop_assert!(decoder.partial.len() < FRAME_HEADER_BYTES + BODY_BYTES_MAX);
            }
        }
    }

    // Spec: event-building.md#delivery-3
    #[test]
    fn a_header_with_any_damage_of_up_to_a_byte_is_refused(
        source in any::<u16>(), bytes in any::<u32>(), id in any::<u64>(), at in 0usize..40, flip in 1u8..=255,
    ) {
        let header = Header { source, bytes, id, epoch: 9, payload_crc: bytes ^ 5, age_ns: id / 2 };
        let mut encoded = header.encode();
        prop_assert_eq!(Header::decode(&encoded), Ok(header));
        encoded[at] ^= flip;
        prop_assert!(Header::decode(&encoded).is_err());
    }
}
