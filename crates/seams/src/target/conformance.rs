//! Claims every target must keep: `docs/specs/storage.md#target-1`.

use super::{
    Answer, Buffer, Completion, FileId, Mode, Operation, Piece, PiecesMax, Request, Session, SessionSettings,
    TargetEntry, TargetUrl, ask, ask_with_buffer,
};
use crate::entry::conformance::variants;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);
const DEPTH: usize = 16;
const BLOCK_BYTES: usize = 8_192;
const BLOCKS: u64 = 40;

/// `url` names a folder of this target that is empty and goes away with the test.
pub fn check(entries: &'static [TargetEntry], url: &str) {
    let url = TargetUrl::parse(url).expect(url);
    let (entry, options) = url.resolve(entries).expect("the URL names a target");
    crate::entry::conformance::check(entry);
    for mut values in variants(entry.params).into_iter().chain([options.clone()]) {
        // What the URL says, without which it may reach nothing.
        for (name, _) in &url.options {
            values.0.extend(options.0.get(name).map(|value| (name.clone(), value.clone())));
        }
        let settings = SessionSettings { depth: DEPTH, timeout: LIMIT };
        let mut session = entry.build.session(&url, &values, settings).expect(entry.name);
        if entry.build.offers().keeps_content {
            keeps_content(&mut *session, entry.name, entry.build.offers().lists);
        }
        if let Some(most) = entry.build.offers().reads_pieces {
            reads_pieces(&mut *session, entry.name, most);
        }
        fails_alone(&mut *session, entry.name);
        completes_all(&mut *session, entry.name);
        answers_within_its_limit(&mut *session, entry.name);
    }
}

fn opened(session: &mut dyn Session, path: &str, mode: Mode) -> (FileId, u64) {
    match ask(session, Operation::Open { path: path.to_owned(), mode }, LIMIT) {
        Ok(Answer::Opened { file, size_bytes }) => (file, size_bytes),
        other => panic!("open {path}: {other:?}"),
    }
}

fn of_block(block: u64) -> Buffer {
    let mut buffer = Buffer::new(BLOCK_BYTES);
    buffer.iter_mut().enumerate().for_each(|(index, byte)| *byte = (block as usize * 31 + index) as u8);
    buffer
}

/// What is written is read again, through the same file and through another; a read at the end is short, and beyond it empty.
fn keeps_content(session: &mut dyn Session, name: &str, lists: bool) {
    let (file, size) = opened(session, "kept", Mode::Create);
    assert_eq!(size, 0, "{name}: a file that was just made");
    let end = BLOCKS * BLOCK_BYTES as u64;
    let mut requests: Vec<Request> = (0..BLOCKS)
        .map(|block| Request {
            tag: block,
            operation: Operation::Write { file, offset: block * BLOCK_BYTES as u64, buffer: of_block(block) },
        })
        .collect();
    for completion in all(session, &mut requests, name) {
        assert_eq!(completion.result, Ok(Answer::Moved { bytes: BLOCK_BYTES as u64 }), "{name}: write");
        assert!(completion.buffer.is_some(), "{name}: the buffer of a write comes back");
    }
    assert_eq!(ask(session, Operation::Sync { file }, LIMIT), Ok(Answer::Done), "{name}: sync");
    assert_eq!(ask(session, Operation::Close { file }, LIMIT), Ok(Answer::Done), "{name}: close");
    let info = ask(session, Operation::Stat { path: "kept".to_owned() }, LIMIT);
    assert_eq!(info, Ok(Answer::Info { size_bytes: end, is_folder: false }), "{name}: stat");
    let (file, size) = opened(session, "kept", Mode::Read);
    assert_eq!(size, end, "{name}: the size at opening");
    let mut requests: Vec<Request> = (0..BLOCKS)
        .rev()
        .map(|block| Request {
            tag: block,
            operation: Operation::Read {
                file,
                offset: block * BLOCK_BYTES as u64,
                buffer: Buffer::new(BLOCK_BYTES),
            },
        })
        .collect();
    for completion in all(session, &mut requests, name) {
        let expected = of_block(completion.tag);
        assert_eq!(completion.result, Ok(Answer::Moved { bytes: BLOCK_BYTES as u64 }), "{name}: read");
        let buffer = completion.buffer.expect("the buffer of a read comes back");
        assert!(buffer[..] == expected[..], "{name}: block {} has another's bytes", completion.tag);
    }
    for (offset, expected) in [(end - 4_096, 4_096), (end, 0), (end + 4_096, 0)] {
        let buffer = Buffer::new(BLOCK_BYTES);
        let read = ask_with_buffer(session, Operation::Read { file, offset, buffer }, LIMIT);
        assert_eq!(
            read.map(|it| it.0),
            Ok(Answer::Moved { bytes: expected }),
            "{name}: read at {offset} of {end}"
        );
    }
    ask(session, Operation::Close { file }, LIMIT).expect(name);
    if lists {
        let listed = ask(session, Operation::List { path: String::new() }, LIMIT);
        assert_eq!(listed, Ok(Answer::Names(vec!["kept".to_owned()])), "{name}: list");
    }
    assert_eq!(
        ask(session, Operation::Remove { path: "kept".to_owned() }, LIMIT),
        Ok(Answer::Done),
        "{name}"
    );
    let gone = ask(session, Operation::Stat { path: "kept".to_owned() }, LIMIT);
    assert!(gone.is_err_and(|error| error.is_missing()), "{name}: what was removed is gone");
}

/// Pieces come in their order, as many as one request may have; one beyond the end fails the whole.
fn reads_pieces(session: &mut dyn Session, name: &str, most: PiecesMax) {
    let (file, _) = opened(session, "pieces", Mode::Create);
    for block in 0..4 {
        let write = Operation::Write { file, offset: block * BLOCK_BYTES as u64, buffer: of_block(block) };
        ask(session, write, LIMIT).expect(name);
    }
    // What is written from its beginning to its end alone is there once it is closed.
    ask(session, Operation::Close { file }, LIMIT).expect(name);
    let (file, _) = opened(session, "pieces", Mode::Read);
    let content: Vec<u8> = (0..4).flat_map(|block| of_block(block).to_vec()).collect();
    let pieces = |count: u32| {
        (0..count).map(|index| {
            let index = u64::from(index);
            Piece { offset: index * 7_919 % (content.len() as u64 - 40), length_bytes: (index % 40) as u32 }
        })
    };
    for count in [1, 2, 512.min(most.count), most.count] {
        let mut buffer = Buffer::new(40 * count as usize);
        buffer.scatter(pieces(count));
        let expected: Vec<u8> = pieces(count)
            .flat_map(|piece| &content[piece.offset as usize..][..piece.length_bytes as usize])
            .copied()
            .collect();
        let read = ask_with_buffer(session, Operation::ReadPieces { file, buffer }, LIMIT);
        let (answer, buffer) = read.expect(name);
        assert_eq!(answer, Answer::Moved { bytes: expected.len() as u64 }, "{name}: {count} pieces");
        assert!(buffer.expect(name)[..] == expected[..], "{name}: {count} pieces have other bytes");
    }
    let mut buffer = Buffer::new(100);
    let beyond = content.len() as u64 + 1_000;
    buffer.scatter([0, beyond].into_iter().map(|offset| Piece { offset, length_bytes: 50 }));
    let read = ask(session, Operation::ReadPieces { file, buffer }, LIMIT);
    assert!(read.is_err(), "{name}: a piece beyond the end: {read:?}");
    ask(session, Operation::Close { file }, LIMIT).expect(name);
    ask(session, Operation::Remove { path: "pieces".to_owned() }, LIMIT).expect(name);
}

/// An operation that fails says why, with a code, and leaves the others alone.
fn fails_alone(session: &mut dyn Session, name: &str) {
    let closed = FileId(u32::MAX);
    let read = || Operation::Read { file: closed, offset: 0, buffer: Buffer::new(BLOCK_BYTES) };
    let failed = ask_with_buffer(session, read(), LIMIT).expect_err("a read of a file that is not open");
    assert!(failed.is_lost && failed.code.is_some() && !failed.text.is_empty(), "{name}: {failed:?}");
    for path in ["../outside", "/etc/hostname", "a/../../b"] {
        let operation = Operation::Open { path: path.to_owned(), mode: Mode::Create };
        let refused = ask(session, operation, LIMIT).expect_err("a path that leaves the target");
        assert!(refused.text.contains("outside"), "{name}: {refused:?}");
    }
}

/// Many more operations than its depth at once: each completes once, with its own tag and its buffer, at a time that has passed.
fn completes_all(session: &mut dyn Session, name: &str) {
    let (file, _) = opened(session, "many", Mode::Create);
    let mut requests: Vec<Request> = (0..DEPTH as u64 * 8)
        .map(|tag| Request {
            tag,
            operation: Operation::Write { file, offset: tag * BLOCK_BYTES as u64, buffer: of_block(tag) },
        })
        .collect();
    let mut tags: Vec<u64> = all(session, &mut requests, name)
        .iter()
        .map(|completion| {
            assert!(0 < completion.first_byte_ns && completion.first_byte_ns <= completion.done_ns, "{name}");
            completion.tag
        })
        .collect();
    tags.sort_unstable();
    assert!(tags.iter().copied().eq(0..DEPTH as u64 * 8), "{name}: {tags:?}");
    ask(session, Operation::Close { file }, LIMIT).expect(name);
    ask(session, Operation::Remove { path: "many".to_owned() }, LIMIT).expect(name);
}

/// Nobody is waited for longer than was said.
fn answers_within_its_limit(session: &mut dyn Session, name: &str) {
    let began = Instant::now();
    let mut completions = Vec::new();
    session.reap(&mut completions, Duration::from_millis(20)).expect(name);
    assert!(completions.is_empty(), "{name}: {completions:?} from nowhere");
    assert!(began.elapsed() < Duration::from_secs(5), "{name}: waited {:?}", began.elapsed());
}

fn all(session: &mut dyn Session, requests: &mut Vec<Request>, name: &str) -> Vec<Completion> {
    let (count, mut done) = (requests.len(), Vec::new());
    let mut waiting = std::mem::take(requests).into_iter();
    let mut batch = Vec::new();
    while done.len() < count {
        let under_way = count - waiting.len() - done.len();
        batch.extend(waiting.by_ref().take(DEPTH - under_way.min(DEPTH)));
        session.submit(&mut batch);
        assert!(batch.is_empty(), "{name}: a session takes all that is submitted");
        let before = done.len();
        session.reap(&mut done, LIMIT).expect(name);
        assert!(done.len() > before, "{name}: nothing completes within {LIMIT:?}");
    }
    done
}
