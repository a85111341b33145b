//! The client against the packaged server.

mod support;

use std::fs;
use std::time::{Duration, Instant};
use support::server::Server;
use weir_seams::target::{
    Answer, Buffer, Completion, Mode, Operation, Request, Session, SessionSettings, TargetUrl, ask,
    conformance,
};
use weir_xrootd::TARGETS;

const LIMIT: Duration = Duration::from_secs(30);

// Spec: storage.md#target-1
#[test]
fn a_packaged_server_keeps_the_claims_of_the_seam() {
    let server = Server::start();
    fs::create_dir(server.store().join("empty")).unwrap();
    server.give(&server.store().join("empty"));
    conformance::check(TARGETS, &server.url("empty"));
}

fn session(url: &str, timeout: Duration) -> Box<dyn Session> {
    let url = TargetUrl::parse(url).unwrap();
    let (entry, options) = url.resolve(TARGETS).unwrap();
    let settings = SessionSettings { depth: 16, timeout };
    entry.build.session(&url, &options, settings).unwrap()
}

/// Reads block after block, sixteen at a time, until `until` says stop; gives the longest time without an answer.
fn read_on(session: &mut dyn Session, content: &[u8], mut until: impl FnMut() -> bool) -> Duration {
    let opened = ask(session, Operation::Open { path: String::new(), mode: Mode::Read }, LIMIT);
    let Ok(Answer::Opened { file, .. }) = opened else { panic!("{opened:?}") };
    const BLOCK: usize = 8_192;
    let blocks = content.len() / BLOCK;
    let read = |block: usize, buffer| Request {
        tag: block as u64,
        operation: Operation::Read { file, offset: (block * BLOCK) as u64, buffer },
    };
    let mut next = 16;
    session.submit(&mut (0..16).map(|block| read(block, Buffer::new(BLOCK))).collect());
    let (mut under_way, mut longest, mut last) = (16, Duration::ZERO, Instant::now());
    while under_way > 0 {
        let mut done: Vec<Completion> = Vec::new();
        session.reap(&mut done, Duration::from_millis(50)).unwrap();
        assert!(last.elapsed() < LIMIT, "no answer for {LIMIT:?}");
        let stop = until();
        for completion in done {
            longest = longest.max(last.elapsed());
            last = Instant::now();
            under_way -= 1;
            let at = completion.tag as usize * BLOCK;
            assert_eq!(completion.result, Ok(Answer::Moved { bytes: BLOCK as u64 }));
            assert!(
                completion.buffer.as_ref().unwrap()[..] == content[at..at + BLOCK],
                "wrong bytes at {at}"
            );
            if !stop {
                session.submit(&mut vec![read(next % blocks, completion.buffer.unwrap())]);
                next += 1;
                under_way += 1;
            }
        }
    }
    longest
}

// Spec: xrootd.md#recovery-1
#[test]
fn a_server_that_stands_still_for_longer_than_its_silence_costs_no_read() {
    let server = Server::start();
    let content = vec![7; 1 << 20];
    let file = server.store().join("f");
    fs::write(&file, &content).unwrap();
    server.give(&file);
    // Two seconds of silence are too long, nine of everything.
    let mut session = session(&server.url("f"), Duration::from_secs(6));
    let began = Instant::now();
    let (mut stopped, mut goes_on) = (false, false);
    let longest = read_on(&mut *session, &content, || {
        let elapsed = began.elapsed();
        if !stopped && elapsed > Duration::from_millis(300) {
            server.signal("-STOP");
            stopped = true;
        }
        if !goes_on && elapsed > Duration::from_secs(3) {
            server.signal("-CONT");
            goes_on = true;
        }
        elapsed > Duration::from_secs(6)
    });
    assert!(longest > Duration::from_secs(2), "{longest:?}");
}

// Spec: xrootd.md#recovery-2
#[test]
fn nobody_there_is_a_failure_within_the_limit_and_a_server_that_comes_back_is_used() {
    let server = Server::start();
    fs::write(server.store().join("f"), "content").unwrap();
    let stat = |session: &mut dyn Session| ask(session, Operation::Stat { path: String::new() }, LIMIT);
    let mut of_it = session(&server.url("f"), Duration::from_secs(3));
    assert_eq!(stat(&mut *of_it), Ok(Answer::Info { size_bytes: 7, is_folder: false }));
    let (stopped, began) = (server.stop(), Instant::now());
    let failed = stat(&mut *of_it).unwrap_err();
    assert_eq!(failed.code.as_deref(), Some("ETIMEDOUT"));
    assert!(failed.text.contains("connect") && failed.retries > 0, "{failed:?}");
    assert!(began.elapsed() < Duration::from_secs(6));
    let _again = stopped.start();
    assert_eq!(stat(&mut *of_it), Ok(Answer::Info { size_bytes: 7, is_folder: false }));
}

// Spec: xrootd.md#tls-1 and xrootd.md#tls-2
#[test]
fn a_packaged_server_is_spoken_to_over_tls_from_the_word_that_it_says() {
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    for own in ["xrootd.tls all\n", "xrootd.tls session\n", "xrootd.tls capable all\n"] {
        let server = Server::start_secure(own);
        let file = server.store().join("f");
        fs::write(&file, &content).unwrap();
        server.give(&file);
        let plain = server.url("f");
        let options = format!("?ca={}", server.authority().display());
        for url in [format!("{plain}{options}"), format!("{}{options}", plain.replace("root:", "roots:"))] {
            if own.contains("session") && url.starts_with("roots") {
                continue; // it speaks without TLS until after the login
            }
            let began = Instant::now();
            let mut session = session(&url, Duration::from_secs(6));
            read_on(&mut *session, &content, || began.elapsed() > Duration::from_millis(300));
        }
        // Nobody vouches for it.
        let mut session = session(&plain.replace("root:", "roots:"), Duration::from_secs(3));
        let error = ask(&mut *session, Operation::Stat { path: String::new() }, LIMIT).unwrap_err();
        assert!(error.text.contains("TLS"), "{own}{error:?}");
    }
}
