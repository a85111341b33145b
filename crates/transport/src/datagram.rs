//! What UDP carries: the opening, in which a client shows that it hears at its own address before anything else is sent
//! there, and the header of every message after it. Pure: bytes, addresses and a time in, bytes out.
//!
//! ```text
//! opening    136  magic 8 · version u16 · kind u8 · detail u8 · flow u32 · token 16 · client nonce 32 · number u64 · words 32 · proof 32
//!   hello      1  C→S  number, words and proof are zeros: as long as what it is answered with
//!   challenge  2  S→C  detail: key wanted; number: slot of time; words: cookie over all before and the client's address
//!   proof      3  C→S  the challenge with the client's proof
//!   answer     4  S→C  detail: status; number: tag of the association; words: zeros; proof: the server's
//! message     16  tag u64 · number u64, its top byte the kind; payload follows
//! ```
//!
//! A server keeps nothing for a client until the proof has come: the cookie says all it needs, to it alone.

use crate::handshake::{Status, Token, VERSION};
use crate::key::{self, Key, Nonce, Proof, Role};
use std::io;
use std::net::{IpAddr, SocketAddr};

pub const MAGIC: [u8; 8] = *b"weirudp\n";
/// Every datagram of an opening has this size, so that no answer is longer than what asked for it.
pub const OPENING_BYTES: usize = 136;
/// Before the payload of every message.
pub const HEADER_BYTES: usize = 16;
/// A cookie holds in its slot of time and the next.
pub const SLOT_SECONDS: u64 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpeningKind {
    Hello,
    Challenge,
    Proof,
    Answer,
}

impl OpeningKind {
    const ALL: [OpeningKind; 4] =
        [OpeningKind::Hello, OpeningKind::Challenge, OpeningKind::Proof, OpeningKind::Answer];
    fn code(self) -> u8 {
        match self {
            OpeningKind::Hello => 1,
            OpeningKind::Challenge => 2,
            OpeningKind::Proof => 3,
            OpeningKind::Answer => 4,
        }
    }
}

/// A datagram of the opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    pub kind: OpeningKind,
    pub detail: u8,
    pub flow: u32,
    pub token: Token,
    pub nonce: Nonce,
    pub number: u64,
    pub words: [u8; 32],
    pub proof: Proof,
}

impl Opening {
    pub fn hello(token: Token, flow: u32, nonce: Nonce) -> Opening {
        Opening {
            kind: OpeningKind::Hello,
            detail: 0,
            flow,
            token,
            nonce,
            number: 0,
            words: [0; 32],
            proof: [0; 32],
        }
    }

    pub fn encode(&self) -> [u8; OPENING_BYTES] {
        let mut bytes = [0; OPENING_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = self.kind.code();
        bytes[11] = self.detail;
        bytes[12..16].copy_from_slice(&self.flow.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.token);
        bytes[32..64].copy_from_slice(&self.nonce);
        bytes[64..72].copy_from_slice(&self.number.to_le_bytes());
        bytes[72..104].copy_from_slice(&self.words);
        bytes[104..].copy_from_slice(&self.proof);
        bytes
    }

    /// `None` for everything else: another size, another version, garbage. It is told nothing.
    pub fn decode(bytes: &[u8]) -> Option<Opening> {
        let bytes: &[u8; OPENING_BYTES] = bytes.try_into().ok()?;
        if bytes[..8] != MAGIC || u16::from_le_bytes([bytes[8], bytes[9]]) != VERSION {
            return None;
        }
        let kind = *OpeningKind::ALL.iter().find(|kind| kind.code() == bytes[10])?;
        Some(Opening {
            kind,
            detail: bytes[11],
            flow: u32::from_le_bytes(bytes[12..16].try_into().ok()?),
            token: bytes[16..32].try_into().ok()?,
            nonce: bytes[32..64].try_into().ok()?,
            number: u64::from_le_bytes(bytes[64..72].try_into().ok()?),
            words: bytes[72..104].try_into().ok()?,
            proof: bytes[104..].try_into().ok()?,
        })
    }

    /// What both ends prove to have the key over: the challenge as it was sent.
    fn challenge(&self, key_wanted: bool) -> Opening {
        Opening { kind: OpeningKind::Challenge, detail: u8::from(key_wanted), proof: [0; 32], ..*self }
    }
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    Reply,
    /// The sender has said all.
    End,
    /// The end was heard.
    Ended,
    /// One of a stream of messages.
    Message,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Request, Kind::Reply, Kind::End, Kind::Ended, Kind::Message];
    fn code(self) -> u8 {
        match self {
            Kind::Request => 1,
            Kind::Reply => 2,
            Kind::End => 3,
            Kind::Ended => 4,
            Kind::Message => 5,
        }
    }
}

/// The first bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Of the association; a stranger does not know it.
    pub tag: u64,
    pub kind: Kind,
    /// Below 2^56.
    pub number: u64,
}

const NUMBER_MASK: u64 = (1 << 56) - 1;

impl Header {
    /// Writes itself to the beginning of `message`, which has room for it.
    pub fn write(&self, message: &mut [u8]) {
        let number = u64::from(self.kind.code()) << 56 | self.number & NUMBER_MASK;
        message[..8].copy_from_slice(&self.tag.to_le_bytes());
        message[8..HEADER_BYTES].copy_from_slice(&number.to_le_bytes());
    }

    /// `None`: too short, or of no kind there is.
    pub fn read(message: &[u8]) -> Option<Header> {
        let tag = u64::from_le_bytes(message.get(..8)?.try_into().ok()?);
        let number = u64::from_le_bytes(message.get(8..HEADER_BYTES)?.try_into().ok()?);
        let kind = *Kind::ALL.iter().find(|kind| u64::from(kind.code()) == number >> 56)?;
        Some(Header { tag, kind, number: number & NUMBER_MASK })
    }
}

/// What a server does about a datagram at its door.
#[derive(Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Nothing: no byte is sent.
    Nothing,
    /// To where it came from; no longer than it.
    Answer([u8; OPENING_BYTES]),
    /// Whoever is there hears at this address and has the key.
    Proven { token: Token, flow: u32, tag: u64, answer: [u8; OPENING_BYTES] },
}

/// A server's door: stateless, so that strangers cost no memory.
pub struct Door {
    secret: Key,
    key: Option<Key>,
}

impl Door {
    /// `key`: `None` lets anyone in who hears at its address. Errors: no randomness to be had.
    pub fn new(key: Option<Key>) -> io::Result<Door> {
        Ok(Door::with_secret(key, key::random()?))
    }

    fn with_secret(key: Option<Key>, secret: [u8; 32]) -> Door {
        let secret = Key::from_bytes(&secret).expect("32 bytes are enough for a key");
        Door { secret, key }
    }

    /// The address a cookie is for, with all that the client has said.
    fn bound(opening: &Opening, from: &SocketAddr) -> [u8; OPENING_BYTES + 18] {
        let mut bytes = [0; OPENING_BYTES + 18];
        bytes[..OPENING_BYTES].copy_from_slice(&Opening { words: [0; 32], ..*opening }.encode());
        let address = match from.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        bytes[OPENING_BYTES..OPENING_BYTES + 16].copy_from_slice(&address.octets());
        bytes[OPENING_BYTES + 16..].copy_from_slice(&from.port().to_le_bytes());
        bytes
    }

    /// `now_seconds` is any clock that does not run backwards; `expects` says whether a session waits for this flow. Whoever
    /// does not name one gets no byte, and whoever does gets one challenge a hello, of the hello's length.
    pub fn on_datagram(
        &self,
        now_seconds: u64,
        from: &SocketAddr,
        bytes: &[u8],
        expects: impl FnOnce(&Token, u32) -> bool,
    ) -> Reaction {
        let slot = now_seconds / SLOT_SECONDS;
        let Some(opening) = Opening::decode(bytes) else { return Reaction::Nothing };
        match opening.kind {
            OpeningKind::Hello => {
                let blank = Opening::hello(opening.token, opening.flow, opening.nonce);
                if opening != blank || !expects(&opening.token, opening.flow) {
                    return Reaction::Nothing;
                }
                let challenge = Opening { number: slot, ..opening }.challenge(self.key.is_some());
                let words = self.secret.prove(Role::Server, &Door::bound(&challenge, from));
                Reaction::Answer(Opening { words, ..challenge }.encode())
            }
            OpeningKind::Proof => {
                let challenge = opening.challenge(self.key.is_some());
                let fresh = opening.number == slot || opening.number.checked_add(1) == Some(slot);
                if !fresh
                    || opening.detail != challenge.detail
                    || !self.secret.verify(Role::Server, &Door::bound(&challenge, from), &opening.words)
                    || !expects(&opening.token, opening.flow)
                {
                    return Reaction::Nothing;
                }
                self.on_proof(&opening, &challenge)
            }
            OpeningKind::Challenge | OpeningKind::Answer => Reaction::Nothing,
        }
    }

    /// The client has answered the cookie; now whether it has the key.
    fn on_proof(&self, opening: &Opening, challenge: &Opening) -> Reaction {
        let said = challenge.encode();
        let answer = |status: Status, number: u64, proof: Proof| {
            let kind = OpeningKind::Answer;
            Opening { kind, detail: status.code(), number, words: [0; 32], proof, ..*opening }.encode()
        };
        if let Some(key) = &self.key
            && !key.verify(Role::Client, &said, &opening.proof)
        {
            return Reaction::Answer(answer(Status::WrongKey, 0, [0; 32]));
        }
        // The same for the same opening, so that a client that did not hear the answer may ask again.
        let [a, b, c, d, e, f, g, h, ..] = self.secret.prove(Role::Client, &said);
        let tag = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let proof = self.key.as_ref().map_or([0; 32], |key| key.prove(Role::Server, &with_tag(&said, tag)));
        let (token, flow) = (opening.token, opening.flow);
        Reaction::Proven { token, flow, tag, answer: answer(Status::Welcome, tag, proof) }
    }
}

fn with_tag(challenge: &[u8; OPENING_BYTES], tag: u64) -> [u8; OPENING_BYTES + 8] {
    let mut bytes = [0; OPENING_BYTES + 8];
    bytes[..OPENING_BYTES].copy_from_slice(challenge);
    bytes[OPENING_BYTES..].copy_from_slice(&tag.to_le_bytes());
    bytes
}

/// The client's side.
pub struct Knock {
    hello: Opening,
    proof: Option<Opening>,
}

/// What a client has heard.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing that matters.
    Noise,
    /// Send what `to_send` gives now.
    Challenged,
    /// Let in, with the association's tag.
    Open(u64),
    Refused(Refusal),
}

/// Why a client goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    KeyWanted,
    ServerHasNoKey,
    WrongKey,
    Status(Status),
}

impl Knock {
    /// `nonce` must be fresh and unforeseeable.
    pub fn new(token: Token, flow: u32, nonce: Nonce) -> Knock {
        Knock { hello: Opening::hello(token, flow, nonce), proof: None }
    }

    /// What to send, and to send again while nothing is heard.
    pub fn to_send(&self) -> [u8; OPENING_BYTES] {
        self.proof.as_ref().unwrap_or(&self.hello).encode()
    }

    pub fn on_datagram(&mut self, bytes: &[u8], key: Option<&Key>) -> Heard {
        let Some(opening) = Opening::decode(bytes) else { return Heard::Noise };
        let ours = Opening::hello(opening.token, opening.flow, opening.nonce).encode() == self.hello.encode();
        match (ours, opening.kind, &self.proof) {
            (true, OpeningKind::Challenge, None) => {
                match (opening.detail, key) {
                    (0, None) | (1, Some(_)) => {}
                    (0, Some(_)) => return Heard::Refused(Refusal::ServerHasNoKey),
                    (1, None) => return Heard::Refused(Refusal::KeyWanted),
                    _ => return Heard::Noise,
                }
                let said = opening.challenge(key.is_some()).encode();
                let proof = key.map_or([0; 32], |key| key.prove(Role::Client, &said));
                self.proof = Some(Opening { kind: OpeningKind::Proof, proof, ..opening });
                Heard::Challenged
            }
            (true, OpeningKind::Answer, Some(proof)) => {
                let status = Status::from_code(opening.detail);
                match status {
                    Some(Status::Welcome) => {}
                    Some(Status::WrongKey) => return Heard::Refused(Refusal::WrongKey),
                    Some(status) => return Heard::Refused(Refusal::Status(status)),
                    None => return Heard::Noise,
                }
                let said = with_tag(&proof.challenge(key.is_some()).encode(), opening.number);
                match key {
                    // Anyone on the path may say so; only the server can prove it, so the others are not heard.
                    Some(key) if !key.verify(Role::Server, &said, &opening.proof) => Heard::Noise,
                    _ => Heard::Open(opening.number),
                }
            }
            _ => Heard::Noise,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(byte: u8) -> Key {
        Key::from_bytes(&[byte; 16]).unwrap()
    }
    fn door(key: Option<Key>) -> Door {
        Door::with_secret(key, [42; 32])
    }
    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }
    const NEAR: &str = "10.0.0.1:4000";

    /// A hello's challenge and the proof that answers it.
    fn proof(door: &Door, client: &mut Knock, key: Option<&Key>) -> [u8; OPENING_BYTES] {
        let Reaction::Answer(challenge) = door.on_datagram(7, &at(NEAR), &client.to_send(), |_, _| true)
        else {
            panic!("no challenge");
        };
        assert_eq!(client.on_datagram(&challenge, key), Heard::Challenged);
        client.to_send()
    }

    // Spec: net-protocol.md#datagrams-1
    #[test]
    fn a_client_that_answers_the_cookie_and_has_the_key_is_let_in_and_knows_the_server() {
        for key in [None, Some(key(1))] {
            let door = door(key.clone());
            let mut client = Knock::new([3; 16], 9, [8; 32]);
            let proof = proof(&door, &mut client, key.as_ref());
            let reaction =
                door.on_datagram(8, &at(NEAR), &proof, |token, flow| (token, flow) == (&[3; 16], 9));
            let Reaction::Proven { token, flow, tag, answer } = reaction else { panic!("{reaction:?}") };
            assert_eq!((token, flow), ([3; 16], 9));
            assert_eq!(client.on_datagram(&answer, key.as_ref()), Heard::Open(tag));
        }
    }

    // Spec: net-protocol.md#datagrams-2
    #[test]
    fn a_cookie_from_another_address_port_flow_or_time_is_answered_with_nothing() {
        let door = door(None);
        let mut client = Knock::new([3; 16], 9, [8; 32]);
        let proof = proof(&door, &mut client, None);
        let hears = |now, from: &str, bytes: &[u8]| door.on_datagram(now, &at(from), bytes, |_, _| true);
        assert_eq!(hears(8, "10.0.0.2:4000", &proof), Reaction::Nothing);
        assert_eq!(hears(8, "10.0.0.1:4001", &proof), Reaction::Nothing);
        assert_eq!(hears(8, "[::1]:4000", &proof), Reaction::Nothing);
        assert_eq!(hears(15, NEAR, &proof), Reaction::Nothing, "two slots later");
        assert_eq!(hears(2, NEAR, &proof), Reaction::Nothing, "before it was given");
        let opening = Opening::decode(&proof).unwrap();
        let other = Opening { flow: 10, ..opening }.encode();
        assert_eq!(hears(8, NEAR, &other), Reaction::Nothing);
        assert_ne!(hears(8, NEAR, &proof), Reaction::Nothing);
        // A flow that nobody expects (any more) is not answered either: replays end with the session.
        assert_eq!(door.on_datagram(8, &at(NEAR), &proof, |_, _| false), Reaction::Nothing);
        let hello = Knock::new([3; 16], 9, [8; 32]).to_send();
        assert_eq!(door.on_datagram(8, &at(NEAR), &hello, |_, _| false), Reaction::Nothing);
    }

    #[test]
    fn whoever_answers_the_cookie_without_the_key_is_told_and_not_let_in() {
        let door = door(Some(key(1)));
        let mut client = Knock::new([3; 16], 9, [8; 32]);
        let proof = proof(&door, &mut client, Some(&key(2)));
        let Reaction::Answer(answer) = door.on_datagram(8, &at(NEAR), &proof, |_, _| true) else { panic!() };
        assert_eq!(client.on_datagram(&answer, Some(&key(2))), Heard::Refused(Refusal::WrongKey));
    }

    #[test]
    fn a_server_without_the_key_is_not_believed() {
        let mut client = Knock::new([3; 16], 9, [8; 32]);
        let right = key(1);
        let proof = proof(&door(Some(right.clone())), &mut client, Some(&right));
        let opening = Opening::decode(&proof).unwrap();
        let lie = Opening { kind: OpeningKind::Answer, detail: 0, number: 77, ..opening }.encode();
        assert_eq!(client.on_datagram(&lie, Some(&right)), Heard::Noise);
    }

    fn opening() -> impl Strategy<Value = Opening> {
        let parts = (0usize..4, any::<u8>(), any::<u32>(), any::<[u8; 16]>(), any::<[u8; 32]>());
        (parts, any::<u64>(), any::<[u8; 32]>(), any::<[u8; 32]>()).prop_map(
            |((kind, detail, flow, token, nonce), number, words, proof)| Opening {
                kind: OpeningKind::ALL[kind],
                detail,
                flow,
                token,
                nonce,
                number,
                words,
                proof,
            },
        )
    }

    proptest! {
        #[test]
        fn an_opening_is_read_as_it_was_written_and_not_when_it_was_cut(opening in opening(), cut in 0usize..OPENING_BYTES) {
            let bytes = opening.encode();
            prop_assert_eq!(Opening::decode(&bytes), Some(opening));
            prop_assert_eq!(Opening::decode(&bytes[..cut]), None);
        }

        #[test]
        fn a_header_is_read_as_it_was_written(tag: u64, kind in 0usize..5, number in 0u64..1 << 56, more in 0usize..40) {
            let mut message = vec![0xee; HEADER_BYTES + more];
            let header = Header { tag, kind: Kind::ALL[kind], number };
            header.write(&mut message);
            prop_assert_eq!(Header::read(&message), Some(header));
            prop_assert_eq!(Header::read(&message[..HEADER_BYTES - 1]), None);
        }

        // Spec: net-protocol.md#datagrams-3
        #[test]
        fn garbage_at_the_door_is_answered_with_nothing(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(door(None).on_datagram(7, &at(NEAR), &bytes, |_, _| true), Reaction::Nothing);
            let mut client = Knock::new([3; 16], 9, [8; 32]);
            prop_assert_eq!(client.on_datagram(&bytes, None), Heard::Noise);
            let _ = Header::read(&bytes);
        }

        #[test]
        fn a_proof_with_any_bit_turned_is_answered_with_nothing_or_a_refusal(bit in 0usize..OPENING_BYTES * 8) {
            let right = key(1);
            let door = door(Some(right.clone()));
            let mut client = Knock::new([3; 16], 9, [8; 32]);
            let mut bytes = proof(&door, &mut client, Some(&right));
            bytes[bit / 8] ^= 1 << (bit % 8);
            let reaction = door.on_datagram(8, &at(NEAR), &bytes, |_, _| true);
            let proven = matches!(reaction, Reaction::Proven { .. });
            prop_assert!(!proven);
            // Only within the proof itself is the cookie still right.
            prop_assert_eq!(reaction == Reaction::Nothing, bit / 8 < 104);
        }

        #[test]
        fn no_opening_made_up_without_the_servers_secret_is_let_in(opening in opening()) {
            let reaction = door(None).on_datagram(7, &at(NEAR), &opening.encode(), |_, _| true);
            let proven = matches!(reaction, Reaction::Proven { .. });
            prop_assert!(!proven);
        }
    }
}
