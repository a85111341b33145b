//! Claims about servers that are none, or mean no good: written by hand, answering what a real one never would.

use super::support::{LIMIT, heard, member, open, readable};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use weir_seams::membership::{Change, Membership, SeatChange};

const ADD_WATCH: i32 = 106;
const GET_DATA: i32 = 4;
const NODE_EXISTS: i32 = -110;

/// A server that handles each connection so, until the test ends.
fn server(
    answer: impl Fn(&mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
) -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let count = Arc::new(AtomicU32::new(0));
    let (counted, answer) = (Arc::clone(&count), Arc::new(answer));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            counted.fetch_add(1, Ordering::Relaxed);
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || answer(&mut stream));
        }
    });
    (address, count)
}

fn frame(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body = vec![0; u32::from_be_bytes(length).min(1 << 20) as usize];
    stream.read_exact(&mut body)?;
    Ok(body)
}

/// Reads the request for a session and grants it.
fn grant(stream: &mut TcpStream) -> std::io::Result<()> {
    frame(stream)?;
    let mut answer = Vec::new();
    answer.extend(37_i32.to_be_bytes());
    answer.extend(0_i32.to_be_bytes());
    answer.extend(5_000_i32.to_be_bytes());
    answer.extend(1_i64.to_be_bytes());
    answer.extend(16_i32.to_be_bytes());
    answer.extend([7; 16]);
    answer.push(0);
    stream.write_all(&answer)
}

fn until(what: &str, reached: impl Fn() -> bool) {
    let until = Instant::now() + LIMIT;
    while !reached() {
        assert!(Instant::now() < until, "not so: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

// Spec: membership.md#membership-6
#[test]
fn a_server_that_answers_nonsense_is_tried_again_and_the_list_is_stale() {
    let nonsense: [&'static [u8]; 4] = [&[], &[0xff; 4096], &[0; 4096], b"HTTP/1.1 400 Bad Request\r\n\r\n"];
    for bytes in nonsense {
        let (address, connections) = server(move |stream| {
            stream.write_all(bytes)?;
            let _ = stream.read(&mut [0; 64]);
            Ok(())
        });
        let service = open(&address, Duration::from_secs(1), "nonsense");
        let mut watch = service.watch().unwrap();
        let mut seat = service.join(&member("b", 1)).unwrap();
        heard(&mut seat, |change| matches!(change, SeatChange::Lapsed(_)));
        until("it is tried again", || connections.load(Ordering::Relaxed) >= 3);
        readable(watch.ready(), LIMIT);
        while let Some(change) = watch.next() {
            assert!(matches!(change, Change::Stale(_)), "{change:?}");
        }
    }
}

// Spec: membership.md#membership-6
#[test]
fn answers_that_break_the_foreign_client_end_neither_the_process_nor_the_trying() {
    let reads = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&reads);
    let (address, _) = server(move |stream| {
        grant(stream)?;
        loop {
            let request = frame(stream)?;
            let Some((xid, kind)) = request.first_chunk::<8>().map(|head| head.split_at(4)) else { continue };
            let kind = i32::from_be_bytes(kind.try_into().expect("four bytes"));
            if kind == GET_DATA {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            // Folders are there, watches are set, and whatever is read is shorter than it may be.
            let error = if matches!(kind, ADD_WATCH | GET_DATA | 11) { 0 } else { NODE_EXISTS };
            let mut answer = Vec::new();
            answer.extend(16_i32.to_be_bytes());
            answer.extend(xid);
            answer.extend(1_i64.to_be_bytes());
            answer.extend(error.to_be_bytes());
            stream.write_all(&answer)?;
        }
    });
    let service = open(&address, Duration::from_secs(5), "broken");
    let mut seat = service.join(&member("b", 1)).unwrap();
    heard(
        &mut seat,
        |change| matches!(change, SeatChange::Lapsed(why) if why.contains("is it a ZooKeeper server?")),
    );
    until("it is tried again", || reads.load(Ordering::Relaxed) >= 3);
}

// Spec: membership.md#zookeeper-5
#[test]
fn a_server_that_ends_each_session_at_once_is_not_asked_for_the_next_without_a_pause() {
    let (address, sessions) = server(|stream| {
        grant(stream)?;
        // The session has expired: an answer with that error to whatever comes.
        let request = frame(stream)?;
        let mut answer = Vec::new();
        answer.extend(16_i32.to_be_bytes());
        answer.extend(&request[..4]);
        answer.extend(1_i64.to_be_bytes());
        answer.extend((-112_i32).to_be_bytes());
        stream.write_all(&answer)
    });
    let service = open(&address, Duration::from_secs(5), "expires");
    let _watch = service.watch().unwrap();
    until("there is a session", || sessions.load(Ordering::Relaxed) >= 1);
    let (from, before) = (Instant::now(), sessions.load(Ordering::Relaxed));
    until("there are more", || sessions.load(Ordering::Relaxed) >= before + 3);
    assert!(from.elapsed() >= Duration::from_millis(400), "three sessions in {:?}", from.elapsed());
}
