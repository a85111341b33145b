//! What a fresh connection says before it is let in: four fixed-size messages, client first.
//!
//! ```text
//! hello      C→S  64  magic 8 · version u16 · mode u8 · 0 · flow u32 · session token 16 · client nonce 32
//! challenge  S→C  64  magic 8 · version u16 · status u8 · key wanted u8 · 0 × 20 · server nonce 32
//! proof      C→S  32  keyed hash over "client", hello, challenge; zeros where no key is wanted
//! answer     S→C  64  magic 8 · version u16 · status u8 · 0 × 21 · keyed hash over "server", hello, challenge
//! ```
//!
//! Numbers are little-endian. The client proves first, so that a stranger learns nothing from a server; the server's proof
//! comes with its answer, and a client with a key leaves a server that cannot give it. Nothing here allocates.

use crate::key::{self, Key, Nonce, Proof, Role};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use thiserror::Error;
use weir_sys::poll::{self, Interest};

pub const MAGIC: [u8; 8] = *b"weirnet\n";
pub const VERSION: u16 = 1;
pub const HELLO_BYTES: usize = 64;
pub const CHALLENGE_BYTES: usize = 64;
pub const PROOF_BYTES: usize = 32;
pub const ANSWER_BYTES: usize = 64;

/// Names a session on a server; not a secret by itself, since the key is proven too.
pub type Token = [u8; 16];

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// JSON frames follow; the token is all zeros.
    Control,
    /// Payload of one flow of a session follows.
    Data,
}

/// How a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Welcome,
    Version,
    WrongKey,
    Busy,
    UnknownSession,
    UnknownFlow,
}

impl Status {
    const ALL: [Status; 6] = [
        Status::Welcome,
        Status::Version,
        Status::WrongKey,
        Status::Busy,
        Status::UnknownSession,
        Status::UnknownFlow,
    ];
    pub(crate) fn code(self) -> u8 {
        Status::ALL.iter().position(|status| *status == self).unwrap_or(0) as u8
    }
    pub(crate) fn from_code(code: u8) -> Option<Status> {
        Status::ALL.get(usize::from(code)).copied()
    }
    /// What a client makes of it; `None` for a welcome.
    pub(crate) fn refusal(self) -> Option<HandshakeError> {
        match self {
            Status::Welcome => None,
            Status::Version => Some(HandshakeError::Version(VERSION)),
            Status::WrongKey => Some(HandshakeError::WrongKey),
            Status::Busy => Some(HandshakeError::Busy),
            Status::UnknownSession => Some(HandshakeError::UnknownSession),
            Status::UnknownFlow => Some(HandshakeError::UnknownFlow),
        }
    }
}

/// Why a connection was not let in.
#[derive(Debug, Error)]
pub enum HandshakeError {
    #[error("what answers there is not weir")]
    NotWeir,
    #[error(
        "the server speaks version {0} of the protocol, this program {VERSION}; use the same weir at both ends"
    )]
    Version(u16),
    #[error("the server asks for a key; give the same file to both ends with --key-file")]
    KeyWanted,
    #[error(
        "the server has no key although --key-file was given; start it with the same file, or leave the key out here"
    )]
    ServerHasNoKey,
    #[error("the keys at the two ends differ")]
    WrongKey,
    #[error("the server takes no more sessions now; try again later")]
    Busy,
    #[error("the server does not know this session (any more)")]
    UnknownSession,
    #[error("the server does not expect this flow")]
    UnknownFlow,
    #[error("the peer did not finish the opening within {0:?}")]
    TimedOut(Duration),
    #[error("the opening was cut off: {0}")]
    Io(#[from] io::Error),
}

/// The client's first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub mode: Mode,
    /// Index of the flow in its session; 0 for control.
    pub flow: u32,
    pub token: Token,
    pub nonce: Nonce,
}

/// Why bytes are not a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloError {
    NotWeir,
    /// Answered with our own version, so that the other end can say what is wrong.
    Version(u16),
}

impl Hello {
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = match self.mode {
            Mode::Control => 0,
            Mode::Data => 1,
        };
        bytes[12..16].copy_from_slice(&self.flow.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.token);
        bytes[32..].copy_from_slice(&self.nonce);
        bytes
    }

    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, HelloError> {
        if bytes[..8] != MAGIC {
            return Err(HelloError::NotWeir);
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(HelloError::Version(version));
        }
        let mode = match (bytes[10], bytes[11]) {
            (0, 0) => Mode::Control,
            (1, 0) => Mode::Data,
            _ => return Err(HelloError::NotWeir),
        };
        let mut hello = Hello { mode, flow: 0, token: [0; 16], nonce: [0; 32] };
        hello.flow = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        hello.token.copy_from_slice(&bytes[16..32]);
        hello.nonce.copy_from_slice(&bytes[32..]);
        Ok(hello)
    }
}

/// A server's message: the challenge, or with a proof in the nonce's place the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub version: u16,
    pub status: Status,
    pub key_wanted: bool,
    /// Server nonce, or the server's proof.
    pub body: [u8; 32],
}

impl Reply {
    pub fn encode(&self) -> [u8; CHALLENGE_BYTES] {
        let mut bytes = [0; CHALLENGE_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[10] = self.status.code();
        bytes[11] = u8::from(self.key_wanted);
        bytes[32..].copy_from_slice(&self.body);
        bytes
    }

    /// `None`: not a reply of any version.
    pub fn decode(bytes: &[u8; CHALLENGE_BYTES]) -> Option<Reply> {
        if bytes[..8] != MAGIC || bytes[11] > 1 {
            return None;
        }
        let mut body = [0; 32];
        body.copy_from_slice(&bytes[32..]);
        Some(Reply {
            version: u16::from_le_bytes([bytes[8], bytes[9]]),
            status: Status::from_code(bytes[10])?,
            key_wanted: bytes[11] == 1,
            body,
        })
    }
}

fn transcript(hello: &[u8; HELLO_BYTES], challenge: &[u8; CHALLENGE_BYTES]) -> [u8; 128] {
    let mut all = [0; HELLO_BYTES + CHALLENGE_BYTES];
    all[..HELLO_BYTES].copy_from_slice(hello);
    all[HELLO_BYTES..].copy_from_slice(challenge);
    all
}

/// The server's side as a state machine: bytes in, replies out, no I/O and no clock.
pub struct ServerHandshake {
    state: State,
    filled: usize,
    buffer: [u8; HELLO_BYTES],
    nonce: Nonce,
}

enum State {
    Hello,
    Proof { hello: Hello, transcript: [u8; 128] },
    Done,
}

/// What follows from what was received.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    More,
    /// Send this and go on.
    Challenge([u8; CHALLENGE_BYTES]),
    /// Send this and close.
    Refuse([u8; ANSWER_BYTES]),
    /// Close: not our protocol; it is told nothing.
    Close,
    /// The client has proven itself; whoever knows sessions decides, and `answer` says so to it.
    Proven {
        hello: Hello,
        transcript: [u8; 128],
    },
}

impl ServerHandshake {
    /// `nonce` must be fresh and unforeseeable.
    pub fn new(nonce: Nonce) -> Self {
        ServerHandshake { state: State::Hello, filled: 0, buffer: [0; HELLO_BYTES], nonce }
    }

    /// How many bytes it can take now; a caller reads no more than that.
    pub fn wants(&self) -> usize {
        match self.state {
            State::Hello => HELLO_BYTES - self.filled,
            State::Proof { .. } => PROOF_BYTES - self.filled,
            State::Done => 0,
        }
    }

    /// Takes at most `wants()` bytes.
    pub fn on_bytes(&mut self, bytes: &[u8], key: Option<&Key>) -> Step {
        if bytes.len() > self.wants() {
            return Step::Close;
        }
        self.buffer[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
        // Garbage is known by its first eight bytes; no slot is kept for the rest.
        let compared = self.filled.min(MAGIC.len());
        if matches!(self.state, State::Hello) && self.buffer[..compared] != MAGIC[..compared] {
            return Step::Close;
        }
        if self.wants() > 0 {
            return Step::More;
        }
        match std::mem::replace(&mut self.state, State::Done) {
            State::Hello => self.on_hello(key),
            State::Proof { hello, transcript } => {
                let mut proof: Proof = [0; 32];
                proof.copy_from_slice(&self.buffer[..PROOF_BYTES]);
                match key {
                    Some(key) if !key.verify(Role::Client, &transcript, &proof) => {
                        Step::Refuse(refusal(Status::WrongKey))
                    }
                    _ => Step::Proven { hello, transcript },
                }
            }
            State::Done => Step::Close,
        }
    }

    fn on_hello(&mut self, key: Option<&Key>) -> Step {
        match Hello::decode(&self.buffer) {
            Err(HelloError::NotWeir) => Step::Close,
            Err(HelloError::Version(_)) => Step::Refuse(refusal(Status::Version)),
            Ok(hello) => {
                let challenge = Reply {
                    version: VERSION,
                    status: Status::Welcome,
                    key_wanted: key.is_some(),
                    body: self.nonce,
                }
                .encode();
                self.state = State::Proof { hello, transcript: transcript(&self.buffer, &challenge) };
                self.filled = 0;
                Step::Challenge(challenge)
            }
        }
    }
}

fn refusal(status: Status) -> [u8; ANSWER_BYTES] {
    Reply { version: VERSION, status, key_wanted: false, body: [0; 32] }.encode()
}

/// The server's last word. Only a welcome carries its proof.
pub fn answer(status: Status, transcript: &[u8; 128], key: Option<&Key>) -> [u8; ANSWER_BYTES] {
    match (status, key) {
        (Status::Welcome, Some(key)) => {
            Reply { version: VERSION, status, key_wanted: true, body: key.prove(Role::Server, transcript) }
                .encode()
        }
        _ => refusal(status),
    }
}

/// The client's side as a state machine: what to send, how much to read, no I/O and no clock.
pub struct ClientHandshake {
    hello: [u8; HELLO_BYTES],
    transcript: Option<[u8; 128]>,
    filled: usize,
    buffer: [u8; CHALLENGE_BYTES],
}

/// What a client does after it has heard something.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientStep {
    More,
    /// Send this and go on.
    Prove(Proof),
    /// The server has let it in, and has proven itself where there is a key.
    Open,
}

impl ClientHandshake {
    /// `nonce` must be fresh and unforeseeable.
    pub fn new(mode: Mode, token: Token, flow: u32, nonce: Nonce) -> Self {
        let hello = Hello { mode, flow, token, nonce }.encode();
        ClientHandshake { hello, transcript: None, filled: 0, buffer: [0; CHALLENGE_BYTES] }
    }

    /// The first thing to send.
    pub fn hello(&self) -> &[u8; HELLO_BYTES] {
        &self.hello
    }
    /// How many bytes it can take now; a caller reads no more than that.
    pub fn wants(&self) -> usize {
        CHALLENGE_BYTES - self.filled
    }

    /// Takes at most `wants()` bytes.
    pub fn on_bytes(&mut self, bytes: &[u8], key: Option<&Key>) -> Result<ClientStep, HandshakeError> {
        if bytes.len() > self.wants() {
            return Err(HandshakeError::NotWeir);
        }
        self.buffer[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
        let compared = self.filled.min(MAGIC.len());
        if self.buffer[..compared] != MAGIC[..compared] {
            return Err(HandshakeError::NotWeir);
        }
        if self.wants() > 0 {
            return Ok(ClientStep::More);
        }
        self.filled = 0;
        let reply = checked(&self.buffer)?;
        let Some(transcript) = self.transcript else {
            match (reply.key_wanted, key) {
                (true, None) => return Err(HandshakeError::KeyWanted),
                (false, Some(_)) => return Err(HandshakeError::ServerHasNoKey),
                _ => {}
            }
            let transcript = transcript(&self.hello, &self.buffer);
            self.transcript = Some(transcript);
            let proof = key.map_or([0; 32], |key| key.prove(Role::Client, &transcript));
            return Ok(ClientStep::Prove(proof));
        };
        match key {
            Some(key) if !key.verify(Role::Server, &transcript, &reply.body) => Err(HandshakeError::WrongKey),
            _ => Ok(ClientStep::Open),
        }
    }
}

fn checked(bytes: &[u8; CHALLENGE_BYTES]) -> Result<Reply, HandshakeError> {
    let reply = Reply::decode(bytes).ok_or(HandshakeError::NotWeir)?;
    match reply.status {
        _ if reply.version != VERSION => Err(HandshakeError::Version(reply.version)),
        status => status.refusal().map_or(Ok(reply), Err),
    }
}

/// The client's side over a connected socket: lets the server know what the connection is for and makes sure of each
/// other. Bounded by `limit` as a whole. The socket is left without time-outs.
pub fn open(
    stream: &TcpStream,
    mode: Mode,
    token: Token,
    flow: u32,
    key: Option<&Key>,
    limit: Duration,
) -> Result<(), HandshakeError> {
    let deadline = Instant::now() + limit;
    let mut handshake = ClientHandshake::new(mode, token, flow, key::random()?);
    let mut stream = stream;
    // 64 bytes always fit into a fresh socket's buffer.
    stream.write_all(handshake.hello())?;
    let mut bytes = [0; CHALLENGE_BYTES];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(HandshakeError::TimedOut(limit));
        }
        if !poll::wait(stream.as_fd(), Interest::Readable, left)? {
            continue;
        }
        match stream.read(&mut bytes[..handshake.wants()]) {
            // A server that closes at once does not speak this protocol, or could not take us.
            Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
            Ok(count) => match handshake.on_bytes(&bytes[..count], key)? {
                ClientStep::More => {}
                ClientStep::Prove(proof) => stream.write_all(&proof)?,
                ClientStep::Open => return Ok(()),
            },
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello() -> Hello {
        Hello { mode: Mode::Data, flow: 7, token: [3; 16], nonce: [9; 32] }
    }

    #[test]
    fn a_client_with_the_key_is_let_in_and_one_without_is_not() {
        let (right, wrong) = (Key::from_bytes(&[1; 16]).unwrap(), Key::from_bytes(&[2; 16]).unwrap());
        for (client, welcome) in [(&right, true), (&wrong, false)] {
            let mut server = ServerHandshake::new([5; 32]);
            let bytes = hello().encode();
            assert_eq!(server.on_bytes(&bytes[..10], Some(&right)), Step::More);
            let Step::Challenge(challenge) = server.on_bytes(&bytes[10..], Some(&right)) else { panic!() };
            let proof = client.prove(Role::Client, &transcript(&bytes, &challenge));
            match server.on_bytes(&proof, Some(&right)) {
                Step::Proven { hello: heard, transcript } => {
                    assert!(welcome && heard == hello());
                    let answer = Reply::decode(&answer(Status::Welcome, &transcript, Some(&right))).unwrap();
                    assert!(right.verify(Role::Server, &transcript, &answer.body));
                }
                Step::Refuse(bytes) => {
                    assert!(!welcome);
                    assert_eq!(Reply::decode(&bytes).unwrap().status, Status::WrongKey);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    // Spec: net-protocol.md#opening-2
    #[test]
    fn another_version_is_told_ours_and_garbage_is_closed_at_its_first_bytes() {
        let mut bytes = hello().encode();
        bytes[8] = 99;
        let Step::Refuse(reply) = ServerHandshake::new([0; 32]).on_bytes(&bytes, None) else { panic!() };
        let reply = Reply::decode(&reply).unwrap();
        assert_eq!((reply.status, reply.version), (Status::Version, VERSION));
        assert_eq!(ServerHandshake::new([0; 32]).on_bytes(b"GET / HT", None), Step::Close);
        assert_eq!(ServerHandshake::new([0; 32]).on_bytes(b"G", None), Step::Close);
    }

    proptest! {
        #[test]
        fn a_hello_is_read_as_it_was_written(control in any::<bool>(), flow: u32, token: [u8; 16], nonce: [u8; 32]) {
            let mode = if control { Mode::Control } else { Mode::Data };
            let hello = Hello { mode, flow, token, nonce };
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }

        #[test]
        fn no_pieces_of_garbage_open_a_keyed_client_or_make_it_panic(
            honest in 0usize..CHALLENGE_BYTES + 1,
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..8),
        ) {
            let key = Key::from_bytes(&[1; 16]).unwrap();
            let mut client = ClientHandshake::new(Mode::Data, [3; 16], 7, [9; 32]);
            let challenge =
                Reply { version: VERSION, status: Status::Welcome, key_wanted: true, body: [5; 32] }.encode();
            let mut step = client.on_bytes(&challenge[..honest], Some(&key));
            for piece in pieces {
                let opened = matches!(step, Ok(ClientStep::Open));
                prop_assert!(!opened);
                if step.is_err() {
                    break;
                }
                let take = piece.len().min(client.wants());
                step = client.on_bytes(&piece[..take], Some(&key));
            }
        }

        #[test]
        fn a_reply_is_read_as_it_was_written(version: u16, code in 0usize..6, key_wanted: bool, body: [u8; 32]) {
            let reply = Reply { version, status: Status::ALL[code], key_wanted, body };
            prop_assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }

        #[test]
        fn no_pieces_of_garbage_open_a_keyed_server_or_make_it_panic(
            honest in 0usize..HELLO_BYTES + 1,
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
        ) {
            let key = Key::from_bytes(&[1; 16]).unwrap();
            let mut server = ServerHandshake::new([5; 32]);
            server.on_bytes(&hello().encode()[..honest], Some(&key));
            for piece in pieces {
                let take = piece.len().min(server.wants());
                let step = server.on_bytes(&piece[..take], Some(&key));
                let proven = matches!(step, Step::Proven { .. });
                prop_assert!(!proven);
                if matches!(step, Step::Close | Step::Refuse(_)) {
                    break;
                }
            }
        }
    }
}
