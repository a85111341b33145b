//! The client against a server that lies.

use crate::TARGETS;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use weir_seams::target::{
    Answer, Buffer, Completion, Mode, Operation, Request, Session, SessionSettings, TargetError, TargetUrl,
    ask, ask_with_buffer,
};

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

// Spec: http.md#hostile-1
#[test]
fn whatever_a_server_says_every_operation_ends_and_content_is_right_or_refused() {
    const ANSWERS: usize = 10_000;
    let content: Vec<u8> = (0..100).collect();
    let right = content.clone();
    let mut draw = draws(7);
    let url = server(move |_, head| {
        let mut said = match head.split(' ').next() {
            Some("HEAD") => OF_HEAD.as_bytes().to_vec(),
            Some("PROPFIND") => answer(
                "207 M",
                "",
                b"<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>/f</D:href><D:propstat><D:prop><D:getcontentlength>1000</D:getcontentlength></D:prop></D:propstat></D:response></D:multistatus>",
            ),
            _ => answer("206 P", "Content-Range: bytes 0-99/1000\r\n", &content),
        };
        // What the content says is its own: a byte of it that is changed on the way nobody can tell without `--verify`.
        let head_bytes = said.windows(4).position(|it| it == b"\r\n\r\n").map_or(said.len(), |at| at + 4);
        for _ in 0..=draw(3) {
            let at = draw(head_bytes.min(said.len()));
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
    });
    let url = url.replace("http:", "dav:");
    let began = Instant::now();
    let mut session = session(&url, Duration::from_millis(300));
    let (mut ended, mut moved, mut tag) = (0, 0, 0);
    let mut file = None;
    let mut done: Vec<Completion> = Vec::new();
    while ended < ANSWERS {
        assert!(began.elapsed() < Duration::from_secs(120), "{ended} of {ANSWERS} operations ended");
        let mut batch = Vec::new();
        while tag - ended < 64 {
            let operation = match (file, tag % 8) {
                (Some(file), 0..=4) => Operation::Read { file, offset: 0, buffer: Buffer::new(100) },
                (_, 5) => Operation::Stat { path: String::new() },
                (_, 6) => Operation::List { path: String::new() },
                _ => Operation::Open { path: String::new(), mode: Mode::Read },
            };
            batch.push(Request { tag: tag as u64, operation });
            tag += 1;
        }
        session.submit(&mut batch);
        match session.reap(&mut done, Duration::from_millis(100)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => panic!("{error}"),
            _ => {}
        }
        for completion in done.drain(..) {
            ended += 1;
            match completion.result {
                Ok(Answer::Opened { file: opened, .. }) => file = Some(opened),
                Ok(Answer::Moved { bytes }) => {
                    let buffer = completion.buffer.unwrap();
                    moved += usize::from(bytes == 100 && buffer[..] == right[..]);
                }
                _ => {}
            }
        }
    }
    assert!(moved > 0, "no read at all came through");
}
