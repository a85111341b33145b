//! Transport: how bytes travel.

use std::io;
use std::time::Duration;

/// What a transport counted on one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Segments sent again; `None` where the transport does not count them.
    pub retransmitted_segments: Option<u64>,
}

/// What becomes of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// All of it arrives, once and in order, as one stream of bytes.
    Stream,
    /// Each send is a message of at most so many bytes: it arrives whole or not at all, and in any order.
    Messages { bytes_max: usize },
}

/// One end of a connection. Blocking; a time-out bounds every call.
pub trait Connection: Send {
    /// Sends all of `bytes`. Errors: `InvalidInput` for a message too long.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Receives exactly `bytes.len()` bytes; `UnexpectedEof` when the peer ended before. A message of another length is
    /// `InvalidData`.
    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<()>;
    fn set_timeout(&mut self, limit: Option<Duration>) -> io::Result<()>;
    fn counters(&self) -> Counters;
}

pub trait Listener: Send {
    /// `ADDRESS:PORT`, or the transport's own form.
    fn address(&self) -> String;
    /// The next connection, or `TimedOut`.
    fn accept(&mut self, limit: Duration) -> io::Result<Box<dyn Connection>>;
}

pub trait Transport: Sync {
    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>>;
    fn connect(&self, address: &str, limit: Duration) -> io::Result<Box<dyn Connection>>;
    /// What becomes of what is sent.
    fn delivery(&self) -> Delivery {
        Delivery::Stream
    }
}

pub type TransportEntry = crate::Entry<&'static dyn Transport>;

/// Claims every transport must keep.
pub mod conformance {
    use super::{Delivery, TransportEntry};
    use std::io::ErrorKind;
    use std::time::Duration;

    /// What is sent arrives as the transport's delivery says; an end is seen; a silent peer is a time-out and not a hang.
    /// `address` gives each transport an address to listen at.
    pub fn check(entry: &TransportEntry, address: &str) {
        match entry.build.delivery() {
            Delivery::Stream => check_stream(entry, address),
            Delivery::Messages { bytes_max } => check_messages(entry, address, bytes_max),
        }
    }

    /// Messages keep their bounds and are told apart from those too long or of another length. The path loses nothing here.
    fn check_messages(entry: &TransportEntry, address: &str, bytes_max: usize) {
        let name = entry.name;
        let limit = Duration::from_secs(5);
        let mut listener = entry.build.listen(address).expect(name);
        let at = listener.address();
        let far = std::thread::spawn({
            let transport = entry.build;
            move || {
                let mut connection = transport.connect(&at, limit).expect("connects");
                for length in [1, 700, bytes_max] {
                    let message: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
                    connection.send(&message).expect("sends");
                }
                let too_long = connection.send(&vec![0; bytes_max + 1]).unwrap_err();
                assert_eq!(too_long.kind(), ErrorKind::InvalidInput);
                connection.set_timeout(Some(limit)).expect("takes a time-out");
                let mut answer = [0; 3];
                connection.receive(&mut answer).expect("receives");
                assert_eq!(&answer, b"ok!");
                connection.send(b"shorter").expect("sends");
                connection.counters()
            }
        });
        let mut connection = listener.accept(limit).expect(name);
        connection.set_timeout(Some(limit)).expect(name);
        for length in [1, 700, bytes_max] {
            let mut message = vec![0; length];
            connection.receive(&mut message).expect(name);
            assert!(
                message.iter().enumerate().all(|(index, byte)| usize::from(*byte) == index % 251),
                "{name}"
            );
        }
        connection.set_timeout(Some(Duration::from_millis(20))).expect(name);
        assert_eq!(connection.receive(&mut [0; 1]).unwrap_err().kind(), ErrorKind::TimedOut, "{name}");
        connection.send(b"ok!").expect(name);
        connection.set_timeout(Some(limit)).expect(name);
        assert_eq!(connection.receive(&mut [0; 100]).unwrap_err().kind(), ErrorKind::InvalidData, "{name}");
        let counters = far.join().expect("the far end ends well");
        assert_eq!((counters.sent_bytes, counters.received_bytes), (708 + bytes_max as u64, 3), "{name}");
        assert_eq!(connection.receive(&mut [0; 1]).unwrap_err().kind(), ErrorKind::UnexpectedEof, "{name}");
        let nobody = listener.accept(Duration::from_millis(20)).err().expect(name);
        assert_eq!(nobody.kind(), ErrorKind::TimedOut, "{name}");
    }

    fn check_stream(entry: &TransportEntry, address: &str) {
        let name = entry.name;
        let limit = Duration::from_secs(5);
        let mut listener = entry.build.listen(address).expect(name);
        let at = listener.address();
        let far = std::thread::spawn({
            let transport = entry.build;
            move || {
                let mut connection = transport.connect(&at, limit).expect("connects");
                let message: Vec<u8> = (0..100_000u32).map(|index| (index % 251) as u8).collect();
                connection.send(&message).expect("sends");
                let mut answer = [0; 3];
                connection.receive(&mut answer).expect("receives");
                assert_eq!(&answer, b"ok!");
                connection.counters()
            }
        });
        let mut connection = listener.accept(limit).expect(name);
        connection.set_timeout(Some(limit)).expect(name);
        let mut message = vec![0; 100_000];
        connection.receive(&mut message).expect(name);
        for (index, byte) in message.iter().enumerate() {
            assert_eq!(usize::from(*byte), index % 251, "{name}: byte {index}");
        }
        connection.set_timeout(Some(Duration::from_millis(20))).expect(name);
        let silent = connection.receive(&mut [0; 1]).unwrap_err().kind();
        assert!(matches!(silent, ErrorKind::TimedOut | ErrorKind::WouldBlock), "{name}: {silent:?}");
        connection.send(b"ok!").expect(name);
        let counters = far.join().expect("the far end ends well");
        assert_eq!((counters.sent_bytes, counters.received_bytes), (100_000, 3), "{name}");
        connection.set_timeout(Some(limit)).expect(name);
        assert_eq!(connection.receive(&mut [0; 1]).unwrap_err().kind(), ErrorKind::UnexpectedEof, "{name}");
        assert_eq!(
            listener.accept(Duration::from_millis(20)).err().expect(name).kind(),
            ErrorKind::TimedOut,
            "{name}"
        );
    }
}
