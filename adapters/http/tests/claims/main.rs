//! The clients against the servers that sites run: packaged nginx, and versitygw.

mod support;

use std::fs;
use std::time::Duration;
use support::{SECRET, Server};
use weir_http::TARGETS;
use weir_seams::target::{
    Answer, Buffer, Mode, Operation, Request, Session, SessionSettings, TargetUrl, ask, ask_with_buffer,
    conformance,
};

const LIMIT: Duration = Duration::from_secs(20);

fn session(url: &str) -> Box<dyn Session> {
    let url = TargetUrl::parse(url).unwrap();
    let (entry, options) = url.resolve(TARGETS).unwrap();
    entry.build.session(&url, &options, SessionSettings { depth: 16, timeout: LIMIT }).unwrap()
}

fn opened(session: &mut dyn Session, path: &str, mode: Mode) -> weir_seams::target::FileId {
    match ask(session, Operation::Open { path: path.to_owned(), mode }, LIMIT) {
        Ok(Answer::Opened { file, .. }) => file,
        other => panic!("open {path}: {other:?}"),
    }
}

// Spec: storage.md#target-1
#[test]
fn packaged_nginx_keeps_the_claims_of_the_seam_as_a_web_server_and_by_webdav() {
    let server = Server::webdav(false);
    for scheme in ["http", "dav"] {
        let folder = server.store().join(scheme);
        fs::create_dir(&folder).unwrap();
        conformance::check(TARGETS, &format!("{scheme}://127.0.0.1:{}/{scheme}", server.port));
    }
}

// Spec: storage.md#target-1 and http.md#s3-1
#[test]
fn versitygw_keeps_the_claims_of_the_seam_and_a_wrong_key_is_told() {
    let server = Server::objects();
    conformance::check(TARGETS, &server.object_url("", SECRET));
    let mut wrong = session(&server.object_url("", "guessed"));
    let error = ask(&mut *wrong, Operation::List { path: String::new() }, LIMIT).unwrap_err();
    assert_eq!(error.code.as_deref(), Some("EACCES"));
    assert!(error.text.contains("SignatureDoesNotMatch"), "{error:?}");
}

// Spec: http.md#tls-1
#[test]
fn tls_trusts_who_is_named_and_nobody_else() {
    let server = Server::webdav(true);
    fs::create_dir(server.store().join("d")).unwrap();
    let url = format!("davs://127.0.0.1:{}/d", server.port);
    let mut stranger = session(&url);
    let error = ask(&mut *stranger, Operation::Stat { path: String::new() }, LIMIT).unwrap_err();
    assert!(error.text.contains("certificate"), "{error:?}");
    conformance::check(TARGETS, &format!("{url}?ca={}", server.authority().display()));
}

// Spec: http.md#write-1
#[test]
fn an_object_in_parts_is_whole_when_it_is_closed_and_a_write_elsewhere_is_refused() {
    let server = Server::objects();
    let mut session = session(&server.object_url("", SECRET));
    let session = &mut *session;
    // Sixteen parts' worth in pieces smaller than a part, and then in pieces that are parts of their own, eight at once.
    for (name, piece) in [("small", 1_usize << 20), ("large", 5 << 20)] {
        let file = opened(session, name, Mode::Create);
        let whole: usize = 40 << 20;
        let byte = |at: usize| (at / 4_096) as u8 ^ at as u8;
        let mut requests: Vec<Request> = (0..whole / piece)
            .map(|index| {
                let mut buffer = Buffer::new(piece);
                buffer.iter_mut().enumerate().for_each(|(at, it)| *it = byte(index * piece + at));
                let offset = (index * piece) as u64;
                Request { tag: index as u64, operation: Operation::Write { file, offset, buffer } }
            })
            .collect();
        let mut done = Vec::new();
        session.submit(&mut requests);
        while done.len() < whole / piece {
            let before = done.len();
            session.reap(&mut done, LIMIT).unwrap();
            assert!(done.len() > before, "{name}: {} pieces", done.len());
        }
        for completion in done {
            assert_eq!(completion.result, Ok(Answer::Moved { bytes: piece as u64 }), "{name}");
            assert!(completion.buffer.is_some(), "{name}");
        }
        let elsewhere = Operation::Write { file, offset: 7, buffer: Buffer::new(10) };
        let refused = ask_with_buffer(session, elsewhere, LIMIT).unwrap_err();
        assert_eq!(refused.code.as_deref(), Some("EOPNOTSUPP"));
        ask(session, Operation::Close { file }, LIMIT).unwrap();
        let file = opened(session, name, Mode::Read);
        let buffer = Buffer::new(whole);
        let (moved, buffer) =
            ask_with_buffer(session, Operation::Read { file, offset: 0, buffer }, LIMIT).unwrap();
        assert_eq!(moved, Answer::Moved { bytes: whole as u64 });
        let wrong = buffer.unwrap().iter().enumerate().position(|(at, it)| *it != byte(at));
        assert_eq!(wrong, None, "{name}");
    }
}

// Spec: http.md#write-2
#[test]
fn parts_of_a_file_whose_session_ends_before_it_is_closed_are_not_kept_by_the_server() {
    let server = Server::objects();
    const PART_BYTES: u64 = 8 << 20;
    let parts = || {
        let mut folders = vec![server.store().parent().unwrap().to_owned()];
        let mut count = 0;
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                match entry.metadata().unwrap() {
                    it if it.is_dir() => folders.push(entry.path()),
                    it => count += usize::from(it.len() >= PART_BYTES),
                }
            }
        }
        count
    };
    let mut session = session(&server.object_url("", SECRET));
    for name in ["one", "two"] {
        let file = opened(&mut *session, name, Mode::Create);
        let buffer = Buffer::new(PART_BYTES as usize);
        ask_with_buffer(&mut *session, Operation::Write { file, offset: 0, buffer }, LIMIT).unwrap();
    }
    assert_eq!(parts(), 2);
    drop(session);
    assert_eq!(parts(), 0);
}

// Spec: http.md#write-1
#[test]
fn what_is_written_anew_replaces_what_was_there_when_it_is_whole() {
    let server = Server::webdav(false);
    fs::write(server.store().join("f"), b"before").unwrap();
    let mut session = session(&format!("http://127.0.0.1:{}/f", server.port));
    let session = &mut *session;
    let file = opened(session, "", Mode::Update);
    for text in ["first", "second"] {
        let mut buffer = Buffer::new(text.len());
        buffer.copy_from_slice(text.as_bytes());
        ask_with_buffer(session, Operation::Write { file, offset: 0, buffer }, LIMIT).unwrap();
    }
    assert_eq!(fs::read(server.store().join("f")).unwrap(), b"first");
    ask(session, Operation::Sync { file }, LIMIT).unwrap();
    assert_eq!(fs::read(server.store().join("f")).unwrap(), b"second");
}
