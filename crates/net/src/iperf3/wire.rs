//! The control connection: a cookie, states of one byte each, and blobs of JSON behind a big-endian length.

use crate::adhoc::client::CONTROL_SEGMENT_BYTES;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;
use thiserror::Error;
use weir_sys::poll::{self, Interest};
use weir_sys::socket;
use weir_transport::deadline::Deadline;
use weir_transport::key;

/// 36 letters and digits and a NUL: they name the test on every connection of it.
pub const COOKIE_BYTES: usize = 37;
pub type Cookie = [u8; COOKIE_BYTES];
/// Of the 32 characters that stock clients make cookies of.
const COOKIE_LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Largest blob that is read: 256 streams say some 64 KiB.
pub const JSON_BYTES_MAX: u32 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    TestStart,
    TestRunning,
    TestEnd,
    ParameterExchange,
    CreateStreams,
    ServerTerminate,
    ClientTerminate,
    ExchangeResults,
    DisplayResults,
    Done,
    AccessDenied,
    /// Two numbers follow: the error's own and the system's.
    ServerError,
}

const STATES: [(State, i8); 12] = [
    (State::TestStart, 1),
    (State::TestRunning, 2),
    (State::TestEnd, 4),
    (State::ParameterExchange, 9),
    (State::CreateStreams, 10),
    (State::ServerTerminate, 11),
    (State::ClientTerminate, 12),
    (State::ExchangeResults, 13),
    (State::DisplayResults, 14),
    (State::Done, 16),
    (State::AccessDenied, -1),
    (State::ServerError, -2),
];

impl State {
    fn of(byte: i8) -> Option<State> {
        STATES.iter().find(|(_, number)| *number == byte).map(|(state, _)| *state)
    }
    fn byte(self) -> i8 {
        STATES.iter().find(|(state, _)| *state == self).map_or(0, |(_, number)| *number)
    }
}

#[derive(Debug, Error)]
pub enum WireError {
    #[error("it closed the connection")]
    Left,
    #[error("it said nothing for {0:?}")]
    Silent(Duration),
    #[error("it says {0}, which is nothing of iperf3's")]
    Foreign(i8),
    #[error("it says {said:?} where {expected} was expected")]
    OutOfTurn { said: State, expected: String },
    #[error("it announces {0} bytes of JSON; at most {JSON_BYTES_MAX} are read")]
    TooLong(u32),
    #[error("its JSON is not what iperf3 says: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("it is busy with another test, or refuses")]
    Denied,
    #[error("it ended the test")]
    Terminated,
    #[error("it ended the test with error {code}{}", meaning(*code))]
    ServerError { code: u32 },
    #[error(transparent)]
    Io(io::Error),
}

/// The numbers that a stock server gives most often.
fn meaning(code: u32) -> &'static str {
    match code {
        6 => ": too many streams",
        7 => ": too large a buffer",
        8 | 20 => ": block size",
        13 => ": not supported",
        27 => ": more than the server's limit of rate",
        114 => ": it could not read the parameters",
        116 | 118 => ": it could not read our results",
        134 => ": congestion control",
        142 => ": it wants a user name and password",
        144 => ": nothing was received",
        160 => ": the test took too long",
        _ => "",
    }
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::TimedOut => WireError::Silent(super::PATIENCE),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => WireError::Left,
            _ => WireError::Io(error),
        }
    }
}

/// A new one. Errors: the kernel gives no random bytes.
pub fn make_cookie() -> io::Result<Cookie> {
    let random: [u8; COOKIE_BYTES] = key::random()?;
    let mut cookie = random.map(|byte| COOKIE_LETTERS[usize::from(byte) % COOKIE_LETTERS.len()]);
    cookie[COOKIE_BYTES - 1] = 0;
    Ok(cookie)
}

/// Whether bytes may be the beginning of a cookie: other programs say something else from the start.
pub fn may_be_cookie(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(at, byte)| match at {
        at if at < COOKIE_BYTES - 1 => byte.is_ascii_alphanumeric() || *byte == b'-',
        _ => at < COOKIE_BYTES && *byte == 0,
    })
}

/// One end of a control connection. Nothing said or heard on it takes longer than `PATIENCE`.
pub struct Wire {
    stream: TcpStream,
}

impl Wire {
    pub fn new(stream: TcpStream) -> io::Result<Wire> {
        stream.set_nonblocking(true)?;
        // States are single bytes that the other end waits for.
        stream.set_nodelay(true)?;
        // Words and results pass where larger segments vanish; what a kernel refuses is sent as it likes.
        let _ = socket::set_mss(stream.as_fd(), CONTROL_SEGMENT_BYTES);
        Ok(Wire { stream })
    }

    fn write(&self, bytes: &[u8]) -> Result<(), WireError> {
        Ok(Deadline::after(&self.stream, super::PATIENCE).write_all(bytes)?)
    }

    pub fn send_cookie(&self, cookie: &Cookie) -> Result<(), WireError> {
        self.write(cookie)
    }

    pub fn send_state(&self, state: State) -> Result<(), WireError> {
        self.write(&state.byte().to_be_bytes())
    }

    /// `code` is one of iperf3's own.
    pub fn send_error(&self, code: u32) -> Result<(), WireError> {
        let mut bytes = [0; 9];
        bytes[0] = State::ServerError.byte().to_be_bytes()[0];
        bytes[1..5].copy_from_slice(&code.to_be_bytes());
        self.write(&bytes)
    }

    /// Whether the other end says something within `limit`, or has left.
    pub fn speaks(&self, limit: Duration) -> Result<bool, WireError> {
        poll::wait(self.stream.as_fd(), Interest::Readable, limit).map_err(WireError::Io)
    }

    /// The next state; those that end a test are errors.
    pub fn state(&self) -> Result<State, WireError> {
        let mut byte = [0];
        let mut bounded = Deadline::after(&self.stream, super::PATIENCE);
        bounded.read_exact(&mut byte)?;
        match State::of(i8::from_be_bytes(byte)).ok_or(WireError::Foreign(i8::from_be_bytes(byte)))? {
            State::AccessDenied => Err(WireError::Denied),
            State::ServerTerminate | State::ClientTerminate => Err(WireError::Terminated),
            State::ServerError => {
                let mut numbers = [0; 8];
                bounded.read_exact(&mut numbers)?;
                let [a, b, c, d, ..] = numbers;
                Err(WireError::ServerError { code: u32::from_be_bytes([a, b, c, d]) })
            }
            state => Ok(state),
        }
    }

    /// Waits for one state.
    pub fn expect(&self, expected: State) -> Result<(), WireError> {
        match self.state()? {
            state if state == expected => Ok(()),
            said => Err(WireError::OutOfTurn { said, expected: format!("{expected:?}") }),
        }
    }

    pub fn send_json(&self, message: &impl Serialize) -> Result<(), WireError> {
        let mut bytes = vec![0; 4];
        serde_json::to_writer(&mut bytes, message)?;
        let length = u32::try_from(bytes.len() - 4).map_err(|_| WireError::TooLong(u32::MAX))?;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        self.write(&bytes)
    }

    /// Memory grows with what has come, never with what was announced.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, WireError> {
        let mut bounded = Deadline::after(&self.stream, super::PATIENCE);
        let mut length = [0; 4];
        bounded.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length);
        if length > JSON_BYTES_MAX {
            return Err(WireError::TooLong(length));
        }
        let mut bytes = Vec::new();
        bounded.take(u64::from(length)).read_to_end(&mut bytes)?;
        if bytes.len() < length as usize {
            return Err(WireError::Left);
        }
        Ok(serde_json::from_slice(&bytes)?)
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Wire, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Wire::new(listener.accept().unwrap().0).unwrap(), far)
    }

    // Spec: net-protocol.md#iperf3-1
    #[test]
    fn a_cookie_is_36_letters_or_digits_and_a_nul_and_nothing_else_passes_for_one() {
        let cookie = make_cookie().unwrap();
        assert!(may_be_cookie(&cookie));
        assert_ne!(cookie, make_cookie().unwrap());
        assert!(may_be_cookie(&cookie[..5]));
        assert!(!may_be_cookie(b"GET / HTTP/1.1\r\n"));
        assert!(!may_be_cookie(b"weirnet\n"));
        assert!(!may_be_cookie(&[b'a'; COOKIE_BYTES]));
    }

    // Spec: net-protocol.md#iperf3-2
    #[test]
    fn a_length_beyond_the_most_is_refused_before_a_byte_of_it_is_read() {
        let (near, mut far) = pair();
        far.write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert!(matches!(near.json::<serde_json::Value>(), Err(WireError::TooLong(u32::MAX))));
        let (near, mut far) = pair();
        far.write_all(&100u32.to_be_bytes()).unwrap();
        far.write_all(b"{").unwrap();
        drop(far);
        assert!(matches!(near.json::<serde_json::Value>(), Err(WireError::Left)));
    }

    #[test]
    fn states_that_end_a_test_are_errors_with_their_reason() {
        let (near, mut far) = pair();
        far.write_all(&[10, 0xff, 0xfe, 0, 0, 0, 142, 0, 0, 0, 0, 72]).unwrap();
        assert_eq!(near.state().unwrap(), State::CreateStreams);
        assert!(matches!(near.state(), Err(WireError::Denied)));
        let error = near.state().unwrap_err().to_string();
        assert_eq!(error, "it ended the test with error 142: it wants a user name and password");
        assert!(matches!(near.state(), Err(WireError::Foreign(72))));
    }
}
