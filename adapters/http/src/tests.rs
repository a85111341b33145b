//! The client against a server that lies.

use crate::TARGETS;
use crate::connection::Connections;
use crate::exchange::{Asker, Flavour};
use crate::place::Origin;
use crate::session::HttpSession;
use crate::sign::Key;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use weir_seams::target::{
    Answer, Buffer, Completion, Mode, Operation, Request, Session, SessionSettings, TargetError, TargetUrl,
    ask, ask_with_buffer,
};
use weir_transport::tcp_options::TcpOptions;

const LIMIT: Duration = Duration::from_secs(20);

fn session(url: &str, timeout: Duration) -> Box<dyn Session> {
    let url = TargetUrl::parse(url).unwrap();
    let (entry, options) = url.resolve(TARGETS).unwrap();
    entry.build.session(&url, &options, SessionSettings { depth: 16, timeout }).unwrap()
}

/// Reads one request, head and content of the length that it says. `None` when the client has gone.
fn request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4_096];
    loop {
        if let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let said = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if bytes.len() >= end + 4 + said.unwrap_or(0_usize) {
                return Some(head);
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

/// Answers each request with what `answer` makes of it and of its number; an empty answer ends the connection.
fn server(answer: impl FnMut(usize, &str) -> Vec<u8> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = std::sync::Arc::new(std::sync::Mutex::new((0_usize, answer)));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let answer = std::sync::Arc::clone(&answer);
            std::thread::spawn(move || {
                while let Some(head) = request(&mut stream) {
                    let said = {
                        let mut answer = answer.lock().unwrap();
                        answer.0 += 1;
                        let number = answer.0;
                        (answer.1)(number, &head)
                    };
                    if said.is_empty() || stream.write_all(&said).is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("http://{address}/f")
}

fn answer(status: &str, headers: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n", content.len());
    [head.as_bytes(), content].concat()
}

fn read_first(session: &mut dyn Session) -> Result<(Answer, Option<Buffer>), TargetError> {
    let Answer::Opened { file, .. } =
        ask(session, Operation::Open { path: String::new(), mode: Mode::Read }, LIMIT)?
    else {
        panic!("not opened")
    };
    ask_with_buffer(session, Operation::Read { file, offset: 0, buffer: Buffer::new(100) }, LIMIT)
}

const OF_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";

/// What a client makes of `said`, the answer to its first read.
fn read_of(said: &'static [u8], timeout: Duration) -> Result<(Answer, Option<Buffer>), TargetError> {
    let url = server(move |_, head| if head.starts_with("HEAD") { OF_HEAD.into() } else { said.to_vec() });
    read_first(&mut *session(&url, timeout))
}

// Spec: http.md#request-1, http.md#request-3 and http.md#hostile-1
#[test]
fn a_range_that_was_not_asked_for_is_refused_and_a_short_one_is_the_end() {
    let ten = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-9/10\r\nContent-Length: 10\r\n\r\n0123456789";
    let (moved, buffer) = read_of(ten, LIMIT).unwrap();
    assert_eq!((moved, &buffer.unwrap()[..10]), (Answer::Moved { bytes: 10 }, &b"0123456789"[..]));
    let beyond = b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(read_of(beyond, LIMIT).unwrap().0, Answer::Moved { bytes: 0 });
    let cases: [(&[u8], &str); 8] = [
        (b"HTTP/1.1 206 P\r\nContent-Range: bytes 1-10/10\r\nContent-Length: 10\r\n\r\n0123456789", "EPROTO"),
        (b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-100/1000\r\nContent-Length: 101\r\n\r\n", "EPROTO"),
        (b"HTTP/1.1 206 P\r\nContent-Length: 10\r\n\r\n0123456789", "EPROTO"),
        (b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-9/10\r\nContent-Length: 9\r\n\r\n012345678", "EPROTO"),
        (b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-9/10\r\nContent-Length: 11\r\n\r\n01234567890", "EPROTO"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "EOPNOTSUPP"),
        (b"HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 0\r\n\r\n", "ENOSPC"),
        (b"HTTP/1.1 599 What\r\nContent-Length: 0\r\n\r\n", "HTTP-599"),
    ];
    for (said, code) in cases {
        let error = read_of(said, LIMIT).unwrap_err();
        assert_eq!(error.code.as_deref(), Some(code), "{error:?}");
    }
    assert_eq!(read_of(b"220 mail.example ESMTP\r\n", LIMIT).unwrap_err().code.as_deref(), Some("EPROTO"));
}

// Spec: http.md#request-2
#[test]
fn a_server_that_says_nothing_or_stops_within_its_answer_is_a_failure_in_time() {
    for said in [
        &b"HTTP/1.1 206 P"[..],
        b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-9/10\r\nContent-Length: 10\r\n\r\n01",
    ] {
        let began = Instant::now();
        let error = read_of(said, Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.code.as_deref(), Some("ETIMEDOUT"), "{error:?}");
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}

// Spec: http.md#request-2
#[test]
fn redirects_are_followed_and_remembered_and_a_circle_is_told() {
    let there = server(|_, head| {
        assert!(head.starts_with("GET /f ") || head.starts_with("HEAD"), "{head}");
        answer("206 P", "Content-Range: bytes 0-99/1000\r\n", &[7; 100])
    });
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&asked);
    let url = server(move |_, head| {
        if head.starts_with("HEAD") {
            return OF_HEAD.into();
        }
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        answer("307 T", &format!("Location: {there}\r\n"), b"")
    });
    let mut session = session(&url, LIMIT);
    let opened = ask(&mut *session, Operation::Open { path: String::new(), mode: Mode::Read }, LIMIT);
    let Ok(Answer::Opened { file, .. }) = opened else { panic!("{opened:?}") };
    for _ in 0..3 {
        let read = Operation::Read { file, offset: 0, buffer: Buffer::new(100) };
        let (moved, buffer) = ask_with_buffer(&mut *session, read, LIMIT).unwrap();
        assert_eq!((moved, &buffer.unwrap()[..]), (Answer::Moved { bytes: 100 }, &[7; 100][..]));
    }
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1);
    let circle = server(|number, _| answer("302 F", &format!("Location: /f{number}\r\n"), b""));
    let error = read_first(&mut *self::session(&circle, LIMIT)).unwrap_err();
    assert_eq!(error.code.as_deref(), Some("ELOOP"), "{error:?}");
}

// Spec: http.md#request-2
#[test]
fn a_kept_connection_that_ended_costs_no_operation_and_a_server_that_is_busy_is_asked_later() {
    let url = server(|number, head| match number {
        _ if head.starts_with("HEAD") => OF_HEAD.into(),
        // The connection of the second read has served the first.
        3 => Vec::new(),
        4 => answer("503 Busy", "Retry-After: 1\r\n", b""),
        _ => answer("206 P", "Content-Range: bytes 0-99/1000\r\n", &[7; 100]),
    });
    let mut session = session(&url, LIMIT);
    let opened = ask(&mut *session, Operation::Open { path: String::new(), mode: Mode::Read }, LIMIT);
    let Ok(Answer::Opened { file, .. }) = opened else { panic!("{opened:?}") };
    let began = Instant::now();
    for _ in 0..2 {
        let read = Operation::Read { file, offset: 0, buffer: Buffer::new(100) };
        assert_eq!(ask(&mut *session, read, LIMIT), Ok(Answer::Moved { bytes: 100 }));
    }
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

// Spec: http.md#request-2
#[test]
fn a_load_says_how_often_a_request_whose_connection_ended_is_sent_again() {
    for (retries, ended, is_read) in [(0, 1, false), (2, 2, true), (2, 3, false)] {
        let url = server(move |number, head| match number {
            _ if head.starts_with("HEAD") => OF_HEAD.into(),
            // Kept or new, whichever brought the request.
            _ if number <= ended + 1 => Vec::new(),
            _ => answer("206 P", "Content-Range: bytes 0-99/1000\r\n", &[7; 100]),
        });
        let mut session = session(&format!("{url}?retries={retries}"), LIMIT);
        let said = read_first(&mut *session);
        assert_eq!(said.is_ok(), is_read, "{retries} {ended} {said:?}");
        assert!(said.err().is_none_or(|error| error.retries == retries && error.code.is_some()));
    }
}

/// Numbers without end that are the same each time (xorshift).
fn draws(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed | 1;
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound.max(1) as u64) as usize
    }
}

const HOSTILE: usize = 10_000;

/// Damages what a server says somewhere: in its head, or in XML that it says. Of other content a byte that was changed on the way
/// nobody can tell from another without `--verify`.
fn damaged(mut said: Vec<u8>, draw: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    let head_bytes = said.windows(4).position(|it| it == b"\r\n\r\n").map_or(said.len(), |at| at + 4);
    let open = if said[head_bytes..].starts_with(b"<") { said.len() } else { head_bytes };
    for _ in 0..=draw(3) {
        let at = draw(open.min(said.len()));
        match draw(6) {
            0 => said.truncate(at),
            1 if at < said.len() => said[at] ^= 1 << draw(8),
            2 if at < said.len() => said[at] = 0xff,
            3 => said.insert(at, b'0'),
            4 if at < said.len() => {
                said.remove(at);
            }
            _ => said.extend_from_within(..at),
        }
    }
    said
}

fn content() -> Vec<u8> {
    (0..100).collect()
}

/// What came of operations against a server that says anything.
#[derive(Debug, Default)]
struct Ended {
    /// Reads that gave what is there.
    read: usize,
    written: usize,
    /// Writers that were told that all is there.
    whole: usize,
}

/// Ten thousand operations, 64 at a time, each of which ends; `next` gives one for the file that was opened last.
fn all_end(
    session: &mut dyn Session,
    mut next: impl FnMut(Option<weir_seams::target::FileId>, usize) -> Operation,
) -> Ended {
    let began = Instant::now();
    let (mut ended, mut begun, mut file) = (0, 0, None);
    let mut came = Ended::default();
    let mut done: Vec<Completion> = Vec::new();
    while ended < HOSTILE {
        assert!(began.elapsed() < Duration::from_secs(120), "{ended} of {HOSTILE} operations ended");
        let mut batch = Vec::new();
        while begun - ended < 64 {
            // The lowest bits tell what completes.
            let operation = next(file, begun);
            let kind = match &operation {
                Operation::Write { .. } => 1,
                Operation::Sync { .. } | Operation::Close { .. } => 2,
                _ => 0,
            };
            batch.push(Request { tag: (begun * 4 + kind) as u64, operation });
            begun += 1;
        }
        session.submit(&mut batch);
        match session.reap(&mut done, Duration::from_millis(100)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => panic!("{error}"),
            _ => {}
        }
        for completion in done.drain(..) {
            ended += 1;
            match (completion.result, completion.tag % 4) {
                (Ok(Answer::Opened { file: opened, .. }), _) => file = Some(opened),
                (Ok(Answer::Moved { .. }), 1) => came.written += 1,
                (Ok(Answer::Moved { bytes }), _) => {
                    let buffer = completion.buffer.unwrap();
                    came.read += usize::from(bytes == 100 && buffer[..] == content()[..]);
                }
                (Ok(Answer::Done), 2) => came.whole += 1,
                _ => {}
            }
        }
    }
    came
}

// Spec: http.md#hostile-1
#[test]
fn whatever_a_server_says_every_operation_ends_and_content_is_right_or_refused() {
    let mut draw = draws(7);
    let url = server(move |_, head| {
        let said = match head.split(' ').next() {
            Some("HEAD") => OF_HEAD.as_bytes().to_vec(),
            Some("PROPFIND") => answer(
                "207 M",
                "",
                b"<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>/f</D:href><D:propstat><D:prop><D:getcontentlength>1000</D:getcontentlength></D:prop></D:propstat></D:response></D:multistatus>",
            ),
            _ => answer("206 P", "Content-Range: bytes 0-99/1000\r\n", &content()),
        };
        damaged(said, &mut draw)
    });
    let mut session = session(&url.replace("http:", "dav:"), Duration::from_millis(300));
    let came = all_end(&mut *session, |file, number| match (file, number % 8) {
        (Some(file), 0..=4) => Operation::Read { file, offset: 0, buffer: Buffer::new(100) },
        (_, 5) => Operation::Stat { path: String::new() },
        (_, 6) => Operation::List { path: String::new() },
        _ => Operation::Open { path: String::new(), mode: Mode::Read },
    });
    assert!(came.read > 0, "no read at all came through");
}

// Spec: http.md#hostile-1
#[test]
fn whatever_an_object_store_says_reads_writes_and_uploads_in_parts_end() {
    let mut draw = draws(11);
    let url = server(move |_, head| {
        let xml = |text: &str| answer("200 OK", "", format!("<?xml version=\"1.0\"?>{text}").as_bytes());
        let mut words = head.split(' ');
        let said = match (words.next().unwrap_or_default(), words.next().unwrap_or_default()) {
            ("HEAD", _) => OF_HEAD.as_bytes().to_vec(),
            ("GET", at) if at.contains("list-type") => {
                xml("<ListBucketResult><Contents><Key>f</Key></Contents></ListBucketResult>")
            }
            ("GET", _) => answer("206 P", "Content-Range: bytes 0-99/1000\r\n", &content()),
            ("POST", at) if at.contains("uploads") => {
                xml("<InitiateMultipartUploadResult><UploadId>7</UploadId></InitiateMultipartUploadResult>")
            }
            ("POST", _) => {
                xml("<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")
            }
            ("DELETE", _) => answer("204 No Content", "", b""),
            _ => answer("200 OK", "ETag: \"e\"\r\n", b""),
        };
        damaged(said, &mut draw)
    });
    let origin = Origin::parse(url.trim_end_matches("/f")).unwrap();
    let key = Key { name: "k".to_owned(), secret: "s".to_owned(), region: "r".to_owned() };
    let flavour = Flavour::Objects { key, bucket: "b".to_owned(), part_bytes: 100 };
    let connections = Connections::new(TcpOptions::default(), None, false).unwrap();
    let limit = Duration::from_millis(60);
    let asker = Asker::new(vec![origin], String::new(), flavour, (connections, usize::MAX), (limit, None));
    let mut session = HttpSession::new(asker).unwrap();
    let came = all_end(&mut session, |file, number| {
        let path = "f".to_owned();
        match (file, number % 16) {
            (Some(file), 0..=3) => Operation::Read { file, offset: 0, buffer: Buffer::new(100) },
            (Some(file), at @ 4..=6) => {
                Operation::Write { file, offset: (at as u64 - 4) * 100, buffer: Buffer::new(100) }
            }
            (Some(file), 7) => Operation::Sync { file },
            (Some(file), 8) => Operation::Close { file },
            (_, 9) => Operation::Stat { path },
            (_, 10) => Operation::List { path: String::new() },
            (_, 11) => Operation::Remove { path },
            (_, 12) => Operation::Open { path, mode: Mode::Read },
            _ => Operation::Open { path, mode: Mode::Create },
        }
    });
    assert!(came.read > 0 && came.written > 0 && came.whole > 0, "{came:?}");
    let began = Instant::now();
    drop(session);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}
