//! The client against a server that is made of bytes, in virtual time: what it says when all is well, and what it does when nothing is.

use crate::client::{Action, Client, Place, Settings};
use crate::wire;
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_seams::target::{Answer, Buffer, Completion, FileId, Mode, Operation, Piece, Request};

const TIMEOUT_NS: u64 = 1_000_000_000;
const SIZE: usize = 100_000;

fn client(pages: bool) -> Client {
    speaking(pages, false)
}

fn speaking(pages: bool, secure: bool) -> Client {
    Client::new(settings(pages, secure))
}

fn settings(pages: bool, secure: bool) -> Settings {
    Settings {
        retries_max: u32::MAX,
        pages,
        secure,
        token: None,
        first: Place { host: "manager".to_owned(), port: 1094 },
        silence_ns: TIMEOUT_NS,
        limit_ns: TIMEOUT_NS * 3,
        base: "/store".to_owned(),
        process: 7,
        user: "u".to_owned(),
        group: "g".to_owned(),
    }
}

/// Answers what is asked of it, as a packaged server does.
#[derive(Default)]
struct Fake {
    /// What of the requests is not whole yet, by connection.
    rest: BTreeMap<usize, Vec<u8>>,
    greeted: BTreeMap<usize, bool>,
    /// What the manager says of where things are.
    located: &'static str,
    is_manager: BTreeMap<usize, bool>,
    /// A manager sends everything to this server.
    redirects_to: Option<&'static str>,
    /// So many pages more have a wrong checksum, or are said to have arrived with one.
    wrong_pages: usize,
    /// What came as proof of who is there.
    shown: Vec<u8>,
    /// What was written with checksums, by offset.
    written: BTreeMap<u64, Vec<u8>>,
}

fn answer(stream: [u8; 2], status: u16, body: &[u8]) -> Vec<u8> {
    [&stream[..], &status.to_be_bytes(), &(body.len() as u32).to_be_bytes(), body].concat()
}

fn content(offset: usize, length: usize) -> Vec<u8> {
    (offset..(offset + length).min(SIZE)).map(|at| (at % 251) as u8).collect()
}

/// A status of release 5, and what follows it.
fn with_status(stream: [u8; 2], number: u16, is_last: bool, offset: u64, follows: &[u8]) -> Vec<u8> {
    let own = [
        &stream[..],
        &[(number - 3000) as u8, u8::from(!is_last), 0, 0, 0, 0],
        &(follows.len() as u32).to_be_bytes(),
        &offset.to_be_bytes(),
    ]
    .concat();
    let checksum = crc_fast::crc32_iscsi(&own);
    [answer(stream, 4007, &[&checksum.to_be_bytes()[..], &own].concat()), follows.to_vec()].concat()
}

impl Fake {
    /// As the bytes of a page, with its checksum before them.
    fn page(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut checksum = crc_fast::crc32_iscsi(bytes);
        if self.wrong_pages > 0 {
            self.wrong_pages -= 1;
            checksum ^= 1;
        }
        [&checksum.to_be_bytes()[..], bytes].concat()
    }

    /// In two parts where there are several pages.
    fn pages(&mut self, stream: [u8; 2], offset: usize, length: usize) -> Vec<u8> {
        let all = content(offset, length);
        let pages: Vec<(usize, usize)> = wire::pages(offset as u64, all.len()).collect();
        let (first, second) = pages.split_at(pages.len() / 2);
        let mut of = |pages: &[(usize, usize)]| -> Vec<u8> {
            pages.iter().flat_map(|(from, length)| self.page(&all[*from..from + length])).collect()
        };
        let (first, second) = (of(first), of(second));
        let part = |is_last, follows: &[u8]| with_status(stream, 3030, is_last, offset as u64, follows);
        match first.is_empty() {
            true => part(true, &second),
            false => [part(false, &first), part(true, &second)].concat(),
        }
    }

    fn take_pages(&mut self, stream: [u8; 2], offset: usize, mut follows: &[u8]) -> Vec<u8> {
        let mut wrong = Vec::new();
        let mut at = offset as u64;
        while !follows.is_empty() {
            let (checksum, rest) = follows.split_at(4);
            let length = (4_096 - at as usize % 4_096).min(rest.len());
            let page = &rest[..length];
            assert_eq!(checksum, crc_fast::crc32_iscsi(page).to_be_bytes());
            if self.wrong_pages > 0 {
                self.wrong_pages -= 1;
                wrong.extend_from_slice(&at.to_be_bytes());
            } else {
                self.written.insert(at, page.to_vec());
            }
            (at, follows) = (at + length as u64, &rest[length..]);
        }
        let said = if wrong.is_empty() { wrong } else { [&[0; 8][..], &wrong].concat() };
        with_status(stream, 3026, true, offset as u64, &said)
    }

    fn answers(&mut self, connection: usize, bytes: &[u8]) -> Vec<u8> {
        let mut rest = self.rest.remove(&connection).unwrap_or_default();
        rest.extend_from_slice(bytes);
        let mut out = Vec::new();
        if !*self.greeted.entry(connection).or_default() {
            if rest.len() < 20 {
                self.rest.insert(connection, rest);
                return out;
            }
            rest.drain(..20);
            self.greeted.insert(connection, true);
            out.extend(answer([0, 0], 0, &[0, 0, 5, 0x11, 0, 0, 0, 1]));
        }
        while let Some(head) = rest.get(..24) {
            let follows = u32::from_be_bytes(head[20..24].try_into().unwrap()) as usize;
            if rest.len() < 24 + follows {
                break;
            }
            let request: Vec<u8> = rest.drain(..24 + follows).collect();
            let stream = [request[0], request[1]];
            let number = u16::from_be_bytes([request[2], request[3]]);
            let offset = u64::from_be_bytes(request[8..16].try_into().unwrap()) as usize;
            let length = u32::from_be_bytes(request[16..20].try_into().unwrap()) as usize;
            let redirects =
                *self.is_manager.get(&connection).unwrap_or(&false) && self.redirects_to.is_some();
            let sent_on = redirects && matches!(number, 3010 | 3017);
            if let Some(host) = self.redirects_to.filter(|_| sent_on) {
                let body = [&1095_i32.to_be_bytes()[..], format!("{host}?token=1").as_bytes()].concat();
                out.extend(answer(stream, 4004, &body));
                continue;
            }
            out.extend(match number {
                3000 => {
                    self.shown.extend_from_slice(&request[24..]);
                    answer(stream, 0, &[])
                }
                3006 => answer(stream, 0, &[0, 0, 5, 0x11, 0, 0, 0, 1]),
                3007 => answer(stream, 0, &[9; 16]),
                3010 => answer(
                    stream,
                    0,
                    &[&[0, 0, 0, 1][..], &[0; 8], format!("1 {SIZE} 48 1 \0").as_bytes()].concat(),
                ),
                3013 => {
                    let all = content(offset, length);
                    let (first, second) = all.split_at(all.len() / 2);
                    [answer(stream, 4000, first), answer(stream, 0, second)].concat()
                }
                3025 => {
                    let piece = |head: &[u8]| {
                        let length = u32::from_be_bytes(head[4..8].try_into().unwrap()) as usize;
                        let offset = u64::from_be_bytes(head[8..16].try_into().unwrap()) as usize;
                        [head, &content(offset, length)].concat()
                    };
                    let all: Vec<u8> = request[24..].chunks(16).flat_map(piece).collect();
                    let (first, second) = all.split_at(all.len() / 3);
                    [answer(stream, 4000, first), answer(stream, 0, second)].concat()
                }
                3026 => self.take_pages(stream, offset, &request[24..]),
                3030 => self.pages(stream, offset, length),
                3017 => answer(stream, 0, format!("1 {SIZE} 48 1 \0").as_bytes()),
                3004 if redirects => {
                    answer(stream, 4003, &[&3011_u32.to_be_bytes()[..], b"no such folder\0"].concat())
                }
                3004 => answer(stream, 0, b"f-0\nf-1\0"),
                3027 => answer(stream, 0, self.located.as_bytes()),
                _ => answer(stream, 0, &[]),
            });
        }
        self.rest.insert(connection, rest);
        out
    }
}

/// Client and server in a room without sockets.
struct Room {
    client: Client,
    server: Fake,
    open: Vec<usize>,
    now_ns: u64,
    done: Vec<Completion>,
    places: Vec<String>,
    /// Times that TLS was begun.
    secured: usize,
}

impl Room {
    fn new() -> Room {
        Room::of(client(false))
    }

    fn of(client: Client) -> Room {
        let (open, done, places) = (Vec::new(), Vec::new(), Vec::new());
        Room { client, server: Fake::default(), open, now_ns: 1, done, places, secured: 0 }
    }

    fn submit(&mut self, tag: u64, operation: Operation) {
        self.client.submit(Request { tag, operation }, self.now_ns);
    }

    /// Lets both speak until neither has anything to say; `spoil` changes what the server says.
    fn settle(&mut self, mut spoil: impl FnMut(&mut Vec<u8>)) {
        for _ in 0..200 {
            let mut quiet = true;
            while let Some(action) = self.client.action() {
                quiet = false;
                match action {
                    Action::Connect { connection, place } => {
                        self.server.is_manager.insert(connection, place.host == "manager");
                        self.places.push(place.host);
                        self.open.push(connection);
                        self.client.connected(connection, self.now_ns);
                    }
                    Action::Secure { connection, .. } => {
                        self.secured += 1;
                        self.client.secured(connection);
                    }
                    Action::Close { connection } => self.open.retain(|open| *open != connection),
                }
            }
            for connection in self.open.clone() {
                let asked = std::mem::take(self.client.outgoing(connection));
                if asked.is_empty() {
                    continue;
                }
                quiet = false;
                let mut said = self.server.answers(connection, &asked);
                spoil(&mut said);
                self.now_ns += 1_000;
                // In pieces, as a network brings it.
                for piece in said.chunks(1_000) {
                    self.client.received(connection, piece, self.now_ns);
                }
            }
            self.client.completions(&mut self.done);
            if quiet {
                return;
            }
        }
    }

    fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        self.client.tick(self.now_ns);
    }

    fn opened(&mut self) -> FileId {
        self.submit(99, Operation::Open { path: "f".to_owned(), mode: Mode::Read });
        self.settle(|_| {});
        match self.done.pop().unwrap().result {
            Ok(Answer::Opened { file, size_bytes }) => {
                assert_eq!(size_bytes, SIZE as u64);
                file
            }
            other => panic!("{other:?}"),
        }
    }
}

fn read(file: FileId, offset: u64) -> Operation {
    Operation::Read { file, offset, buffer: Buffer::new(5_000) }
}

// Spec: xrootd.md#session-1
#[test]
fn a_redirect_is_followed_and_the_file_is_read_where_it_leads() {
    let mut room = Room::new();
    room.server.redirects_to = Some("server");
    let file = room.opened();
    room.submit(1, read(file, 300));
    room.settle(|_| {});
    let completion = room.done.pop().unwrap();
    assert_eq!(completion.result, Ok(Answer::Moved { bytes: 5_000 }));
    assert_eq!(completion.buffer.unwrap()[..], content(300, 5_000)[..]);
    assert_eq!(room.places, ["manager", "server"]);
}

// Spec: xrootd.md#list-1
#[test]
fn behind_a_manager_every_server_is_listed_and_a_name_of_several_is_there_once() {
    let listed = |located: &'static str| {
        let mut room = Room::new();
        (room.server.redirects_to, room.server.located) = (Some("server"), located);
        room.submit(1, Operation::List { path: String::new() });
        room.settle(|_| {});
        (room.done.pop().unwrap().result, room.places)
    };
    let both = Ok(Answer::Names(vec!["f-0".to_owned(), "f-1".to_owned()]));
    let (result, places) = listed("Sr[::ffff:10.0.0.2]:1095 Mr[10.9.9.9]:1 nonsense Sw[fd00::3]:1096\0");
    assert_eq!((result, &places[..]), (both, &["manager", "10.0.0.2", "fd00::3"].map(str::to_owned)[..]));
    // Nobody else may have it: what the manager said of its own is the answer.
    for located in ["", "Sr[]:1 S: Sr[10.0.0.2]:99999"] {
        let (result, _) = listed(located);
        assert!(result.unwrap_err().is_missing(), "{located}");
    }
}

fn read_pieces(file: FileId, count: u64) -> Operation {
    let mut buffer = Buffer::new(300 * count as usize);
    buffer.scatter((0..count).map(|index| Piece { offset: index * 777 % 90_000, length_bytes: 300 }));
    Operation::ReadPieces { file, buffer }
}

// Spec: xrootd.md#vector-1
#[test]
fn pieces_of_one_request_come_to_where_they_belong() {
    let mut room = Room::new();
    let file = room.opened();
    for count in [1, 2, 500] {
        room.submit(1, read_pieces(file, count));
        room.settle(|_| {});
        let completion = room.done.pop().unwrap();
        assert_eq!(completion.result, Ok(Answer::Moved { bytes: 300 * count }));
        let expected: Vec<u8> =
            (0..count as usize).flat_map(|index| content(index * 777 % 90_000, 300)).collect();
        assert_eq!(completion.buffer.unwrap()[..], expected[..]);
    }
    // Another piece than was asked for is believed nowhere.
    room.submit(1, read_pieces(file, 3));
    room.settle(|said| {
        if said.len() > 900 {
            said[8 + 15] ^= 4;
        }
    });
    for _ in 0..40 {
        room.pass(100_000_000);
        room.settle(|said| said.clear());
    }
    room.client.completions(&mut room.done);
    let error = room.done.pop().unwrap().result.unwrap_err();
    assert!(error.text.contains("another piece") || error.retries > 0, "{error:?}");
}

// Spec: xrootd.md#pages-1
#[test]
fn pages_with_a_wrong_checksum_are_asked_for_again_and_given_up_in_the_end() {
    let mut room = Room::of(client(true));
    let file = room.opened();
    for (offset, wrong) in [(0, 0), (100, 0), (4_090, 1), (8_192, 3), (95_900, 2), (99_000, 0)] {
        room.server.wrong_pages = wrong;
        room.submit(1, Operation::Read { file, offset, buffer: Buffer::new(20_000) });
        room.settle(|_| {});
        let completion = room.done.pop().unwrap();
        let expected = content(offset as usize, 20_000);
        assert_eq!(completion.result, Ok(Answer::Moved { bytes: expected.len() as u64 }), "at {offset}");
        assert_eq!(completion.buffer.unwrap()[..expected.len()], expected[..], "at {offset}");
    }
    for (offset, wrong) in [(0_u64, 0), (100, 2), (8_000, 5)] {
        room.server.wrong_pages = wrong;
        room.server.written.clear();
        let mut buffer = Buffer::new(20_000);
        buffer.copy_from_slice(&content(offset as usize, 20_000));
        room.submit(1, Operation::Write { file, offset, buffer });
        room.settle(|_| {});
        assert_eq!(room.done.pop().unwrap().result, Ok(Answer::Moved { bytes: 20_000 }));
        let written: Vec<u8> = room.server.written.values().flatten().copied().collect();
        assert_eq!(written, content(offset as usize, 20_000), "at {offset}");
    }
    room.server.wrong_pages = usize::MAX;
    room.submit(1, read(file, 0));
    room.settle(|_| {});
    let error = room.done.pop().unwrap().result.unwrap_err();
    assert_eq!(error.code.as_deref(), Some("EBADMSG"));
}

// Spec: xrootd.md#session-2
#[test]
fn a_redirect_in_a_circle_ends() {
    let mut room = Room::new();
    room.server.redirects_to = Some("manager");
    // The manager sends to itself, at another port.
    room.submit(1, Operation::Stat { path: "f".to_owned() });
    room.settle(|_| {});
    let error = room.done.pop().unwrap().result.unwrap_err();
    assert_eq!(error.code.as_deref(), Some("ELOOP"));
}

// Spec: xrootd.md#recovery-1
#[test]
fn what_was_under_way_on_a_lost_connection_is_asked_for_again() {
    let mut room = Room::new();
    room.server.redirects_to = Some("server");
    let file = room.opened();
    for tag in 0..10 {
        room.submit(tag, read(file, tag * 5_000));
    }
    let connection = *room.open.last().unwrap();
    room.client.outgoing(connection).clear();
    room.client.lost(connection, "reset", room.now_ns);
    room.pass(400_000_000);
    room.settle(|_| {});
    assert_eq!(room.done.len(), 10);
    for completion in room.done.drain(..) {
        assert_eq!(completion.result, Ok(Answer::Moved { bytes: 5_000 }));
        assert_eq!(completion.buffer.unwrap()[..], content(completion.tag as usize * 5_000, 5_000)[..]);
    }
}

// Spec: xrootd.md#recovery-3
#[test]
fn what_may_not_be_tried_again_fails_with_its_connection_and_its_file_is_open_for_the_next() {
    let mut room = Room::of(Client::new(Settings { retries_max: 0, ..settings(false, false) }));
    room.server.redirects_to = Some("server");
    let file = room.opened();
    room.submit(0, read(file, 0));
    let connection = *room.open.last().unwrap();
    room.client.outgoing(connection).clear();
    room.client.lost(connection, "reset", room.now_ns);
    room.settle(|_| {});
    let error = room.done.pop().unwrap().result.unwrap_err();
    assert_eq!((error.code.as_deref(), error.retries, error.is_lost), (Some("ECONNRESET"), 0, false));
    room.pass(400_000_000);
    room.submit(1, read(file, 5_000));
    room.settle(|_| {});
    assert_eq!(room.done.pop().unwrap().result, Ok(Answer::Moved { bytes: 5_000 }));
}

// Spec: xrootd.md#recovery-2
#[test]
fn a_server_that_says_nothing_more_is_a_failure_in_time() {
    let mut room = Room::new();
    let file = room.opened();
    room.submit(1, read(file, 0));
    for _ in 0..40 {
        room.settle(Vec::clear);
        room.pass(100_000_000);
    }
    room.client.completions(&mut room.done);
    let error = room.done.pop().unwrap().result.unwrap_err();
    assert_eq!(error.code.as_deref(), Some("ETIMEDOUT"));
}

// Spec: xrootd.md#tls-1
#[test]
fn tls_begins_when_a_server_says_so_and_without_it_nothing_is_said_where_it_must_be() {
    // The flags of the server stand in the second answer.
    let flagged = |flag: u8| {
        move |said: &mut Vec<u8>| {
            if said.len() == 32 {
                said[28] = flag;
            }
        }
    };
    let ran = |secure, flag| {
        let mut room = Room::of(speaking(false, secure));
        room.submit(1, Operation::Stat { path: "f".to_owned() });
        room.settle(flagged(flag));
        (room.done.pop().expect("an answer").result, room.secured)
    };
    let found = Ok(Answer::Info { size_bytes: SIZE as u64, is_folder: false });
    assert_eq!(ran(false, 0), (found.clone(), 0));
    for flag in [0xc0, 0xc4, 0x88] {
        assert_eq!(ran(false, flag), (found.clone(), 1), "{flag:x}");
    }
    assert_eq!(ran(true, 0xc0), (found, 1));
    let error = ran(true, 0x88).0.unwrap_err();
    assert!(error.text.contains("no TLS"), "{error:?}");
    // What comes in the clear behind the word that TLS begins may be anybody's.
    let mut room = Room::new();
    room.submit(1, Operation::Stat { path: "f".to_owned() });
    for _ in 0..40 {
        room.settle(|said| {
            if said.len() == 32 {
                said[28] = 0xc0;
                said.extend(answer([0, 0], 0, &[9; 16]));
            }
        });
        room.pass(100_000_000);
    }
    room.client.completions(&mut room.done);
    let error = room.done.pop().expect("an answer").result.unwrap_err();
    assert!(error.text.contains("TLS"), "{error:?}");
}

// Spec: xrootd.md#tls-2
#[test]
fn a_server_that_asks_for_an_authentication_that_is_not_spoken_is_refused_in_words() {
    let mut room = Room::new();
    room.submit(1, Operation::Stat { path: "f".to_owned() });
    room.settle(|said| {
        if said.len() == 24 {
            said.splice(4..8, 27_u32.to_be_bytes());
            said.extend_from_slice(b"&P=gsi,v:1\0");
        }
    });
    let error = room.done.pop().expect("an answer").result.unwrap_err();
    assert!(error.text.contains("gsi"), "{error:?}");
}

// Spec: xrootd.md#tls-2
#[test]
fn a_token_is_shown_over_tls_alone() {
    for (secure, token, said) in
        [(true, Some("a.b.c"), ""), (true, None, "BEARER_TOKEN"), (false, Some("a.b.c"), "ztn")]
    {
        let mut room = Room::of(client(false));
        room.client = Client::new(Settings { token: token.map(str::to_owned), ..settings(false, false) });
        room.submit(1, Operation::Stat { path: "f".to_owned() });
        room.settle(|answer| match answer.len() {
            32 if secure => answer[28] = 0xc0,
            24 => {
                answer.splice(4..8, 31_u32.to_be_bytes());
                answer.extend_from_slice(b"&P=ztn,0:4096:\0");
            }
            _ => {}
        });
        let result = room.done.pop().expect("an answer").result;
        match result {
            Ok(_) => assert!(said.is_empty(), "{secure} {token:?}"),
            Err(error) => assert!(!said.is_empty() && error.text.contains(said), "{error:?}"),
        }
        let shown = room.server.shown.windows(5).any(|part| part == b"a.b.c");
        assert_eq!(shown, said.is_empty(), "{secure} {token:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    // Spec: xrootd.md#hostile-1 and xrootd.md#recovery-2
    #[test]
    fn whatever_a_server_says_every_operation_ends_and_content_is_right_or_refused(
        seed in any::<u64>(), hits in 1_usize..6, every in 1_u64..5, pages in any::<bool>(),
    ) {
        let mut state = seed | 1;
        let mut draw = |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % bound.max(1) as u64) as usize
        };
        let mut room = Room::of(client(pages));
        room.server.redirects_to = (seed % 2 == 0).then_some("server");
        let mut turn = 0;
        let mut spoil = |said: &mut Vec<u8>| {
            turn += 1;
            if turn % every != 0 {
                return;
            }
            for _ in 0..hits {
                if said.is_empty() {
                    return;
                }
                let at = draw(said.len());
                match draw(6) {
                    0 => said.truncate(at),
                    1 => said[at] ^= 1 << draw(8),
                    2 => said[at] = 0xff,
                    3 => { said.insert(at, 0); }
                    4 => { said.remove(at); }
                    _ => said.extend_from_within(..at),
                }
            }
        };
        room.submit(0, Operation::Open { path: "f".to_owned(), mode: Mode::Read });
        room.submit(1, Operation::Stat { path: "f".to_owned() });
        room.submit(2, Operation::List { path: String::new() });
        let mut submitted = 3;
        for round in 0..100 {
            room.settle(&mut spoil);
            room.pass(100_000_000);
            let file = room.done.iter().find_map(|it| match it.result {
                Ok(Answer::Opened { file, .. }) => Some(file),
                _ => None,
            });
            if let Some(file) = file.filter(|_| submitted < 8 && round < 60) {
                let operation = match submitted % 3 {
                    0 => read_pieces(file, submitted),
                    1 => Operation::Write { file, offset: submitted * 100, buffer: Buffer::new(9_000) },
                    _ => read(file, submitted * 100),
                };
                room.submit(submitted, operation);
                submitted += 1;
            }
        }
        room.client.completions(&mut room.done);
        let mut tags: Vec<u64> = room.done.iter().map(|it| it.tag).collect();
        tags.sort_unstable();
        prop_assert_eq!(tags, (0..submitted).collect::<Vec<u64>>());
    }
}
