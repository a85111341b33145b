//! What the clock of one end of a connection shows when that of the other shows something. Where both ends read the same clock
//! there is nothing to find out; else it is estimated from exchanges of four timestamps, of which the shortest is taken
//! (RFC 5905, section 8).

use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use weir_sys::clock;

/// Exchanges made; the first ones wake both ends up.
const EXCHANGES: u64 = 10;
const REQUEST_BYTES: usize = 8;
/// Two timestamps and the name of a clock.
const REPLY_BYTES: usize = 16 + IDENTITY_BYTES;
const IDENTITY_BYTES: usize = 112;

/// The other end's clock minus ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offset {
    pub offset_ns: i64,
    /// The true offset is within so much of it.
    pub uncertainty_ns: u64,
}

impl Offset {
    /// Of one exchange: sent and heard by our clock, received and answered by theirs.
    fn of(sent_ns: u64, received_ns: u64, answered_ns: u64, heard_ns: u64) -> Offset {
        let there = i128::from(received_ns) - i128::from(sent_ns);
        let back = i128::from(answered_ns) - i128::from(heard_ns);
        let away_ns = heard_ns.saturating_sub(sent_ns);
        let held_ns = answered_ns.saturating_sub(received_ns);
        let offset_ns = i64::try_from((there + back) / 2).unwrap_or(0);
        Offset { offset_ns, uncertainty_ns: away_ns.saturating_sub(held_ns).div_ceil(2) }
    }
}

fn identity() -> [u8; IDENTITY_BYTES] {
    let mut bytes = [0; IDENTITY_BYTES];
    let name = clock::identity().unwrap_or_default();
    let length = name.len().min(IDENTITY_BYTES);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    bytes
}

/// Whose clock it is and two times of it: when it was asked, and now.
fn reply(received_ns: u64, mine: &[u8; IDENTITY_BYTES]) -> [u8; REPLY_BYTES] {
    let mut reply = [0; REPLY_BYTES];
    reply[..8].copy_from_slice(&received_ns.to_le_bytes());
    reply[16..].copy_from_slice(mine);
    reply[8..16].copy_from_slice(&clock::monotonic().as_ns().to_le_bytes());
    reply
}

/// The offset that a reply gives which came just now.
fn read_reply(mut stream: &TcpStream, sent_ns: u64, mine: &[u8; IDENTITY_BYTES]) -> io::Result<Offset> {
    let mut reply = [0; REPLY_BYTES];
    stream.read_exact(&mut reply)?;
    let heard_ns = clock::monotonic().as_ns();
    if reply[16..] == *mine && mine[0] != 0 {
        return Ok(Offset::default());
    }
    let at = |from: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&reply[from..from + 8]);
        u64::from_le_bytes(bytes)
    };
    Ok(Offset::of(sent_ns, at(0), at(8), heard_ns))
}

/// Asks the other end, which must `answer`. `moved` is called with each exchange.
pub fn ask(mut stream: &TcpStream, mut moved: impl FnMut()) -> io::Result<Offset> {
    let mine = identity();
    let mut best: Option<Offset> = None;
    for number in 0..EXCHANGES {
        let sent_ns = clock::monotonic().as_ns();
        stream.write_all(&number.to_le_bytes())?;
        let offset = read_reply(stream, sent_ns, &mine)?;
        moved();
        if best.is_none_or(|best| offset.uncertainty_ns < best.uncertainty_ns) {
            best = Some(offset);
        }
        if offset == Offset::default() {
            break;
        }
    }
    best.ok_or_else(|| io::Error::from(ErrorKind::InvalidData))
}

/// Answers until the other end has enough.
pub fn answer(mut stream: &TcpStream, mut moved: impl FnMut()) -> io::Result<()> {
    let mine = identity();
    let mut request = [0; REQUEST_BYTES];
    let mut asked = false;
    loop {
        match stream.read_exact(&mut request) {
            Ok(()) => asked = true,
            // An end without a question is one; a peer that is gone does not hear it.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                if !asked {
                    let _ = stream.write_all(&reply(clock::monotonic().as_ns(), &mine));
                }
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        stream.write_all(&reply(clock::monotonic().as_ns(), &mine))?;
        moved();
    }
}

/// Asks with the end of what is sent, where the other end cannot tell a question from payload: it must `answer_end`. `ended_ns`
/// is when that was said already, by somebody else.
pub fn ask_by_end(stream: &TcpStream, ended_ns: Option<u64>) -> io::Result<Offset> {
    let sent_ns = ended_ns.unwrap_or_else(|| clock::monotonic().as_ns());
    if ended_ns.is_none() {
        stream.shutdown(Shutdown::Write)?;
    }
    read_reply(stream, sent_ns, &identity())
}

/// Answers the end of what the other end sends, if that is it; what comes before it is passed over.
pub fn answer_end(mut stream: &TcpStream) -> io::Result<()> {
    let mine = identity();
    while stream.read(&mut [0; 4096])? > 0 {}
    stream.write_all(&reply(clock::monotonic().as_ns(), &mine))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_ends_with_one_clock_have_no_offset_and_no_doubt() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let answering = std::thread::spawn(move || answer(&far, || ()));
        assert_eq!(ask(&near, || ()).unwrap(), Offset::default());
        drop(near);
        answering.join().unwrap().unwrap();
    }

    // Spec: net-protocol.md#burst-5
    #[test]
    fn the_end_of_what_is_sent_is_a_question_for_the_other_clock_and_is_answered() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = || {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (near, listener.accept().unwrap().0)
        };
        let (mut near, far) = pair();
        let answering = std::thread::spawn(move || answer_end(&far));
        near.write_all(b"half a burst").unwrap();
        assert_eq!(ask_by_end(&near, None).unwrap(), Offset::default());
        answering.join().unwrap().unwrap();
        // Of another clock, two seconds ahead.
        let (near, mut far) = pair();
        let answering = std::thread::spawn(move || {
            assert_eq!(far.read(&mut [0; 1]).unwrap(), 0);
            let ahead = clock::monotonic().as_ns() + 2_000_000_000;
            let mut bytes = reply(ahead, &[7; IDENTITY_BYTES]);
            bytes[8..16].copy_from_slice(&ahead.to_le_bytes());
            far.write_all(&bytes).unwrap();
        });
        let found = ask_by_end(&near, None).unwrap();
        answering.join().unwrap();
        let error = (found.offset_ns - 2_000_000_000).unsigned_abs();
        assert!(found.uncertainty_ns > 0 && error <= found.uncertainty_ns + 1, "{found:?}");
        // A peer that is gone gives none.
        let (near, far) = pair();
        drop(far);
        assert!(ask_by_end(&near, None).is_err());
    }

    proptest! {
        #[test]
        fn the_true_offset_is_within_the_uncertainty(
            offset in -1i64 << 50..1 << 50,
            sent in 1u64 << 52..1 << 53,
            there in 0u64..1 << 35,
            held in 0u64..1 << 30,
            back in 0u64..1 << 35,
        ) {
            let received = sent.checked_add_signed(offset).unwrap() + there;
            let answered = received + held;
            let heard = sent + there + held + back;
            let found = Offset::of(sent, received, answered, heard);
            let error = (found.offset_ns - offset).unsigned_abs();
            prop_assert!(error <= found.uncertainty_ns + 1, "{:?} for {}", found, offset);
        }
    }
}
