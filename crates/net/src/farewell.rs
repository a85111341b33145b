//! How the ends of an association part: the sending one says that no more will come until it has been heard, and the other one
//! listens a while longer for those who say it again.

use std::io;
use std::time::Duration;
use weir_seams::workload::Control;
use weir_sys::clock;
use weir_transport::datagram::Kind;
use weir_transport::udp::{Association, DATAGRAM_BYTES_MAX};

/// First pause before an end that was not heard is said again; it doubles up to the second.
const AGAIN_FIRST: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_millis(800);
/// How often the end is said before the other end is left to its own clock.
const SAID_MAX: u32 = 8;
/// How long an end hears repeated words after the first.
pub const LINGER: Duration = Duration::from_millis(300);
/// How long after the planned end of the sending end the other one gives up waiting for its word.
pub const GRACE: Duration = Duration::from_secs(3);

/// Tells the other end that no more will come, with a `number` it may want, until it has heard it or does not answer.
pub fn say(association: &Association, number: u64, control: &Control) -> io::Result<()> {
    let socket = &association.socket;
    socket.set_nonblocking(false)?;
    let mut pause = AGAIN_FIRST;
    let mut bytes = vec![0; DATAGRAM_BYTES_MAX + 1];
    for _ in 0..SAID_MAX {
        // If it cannot be said now, perhaps the next time.
        let _ = association.send_bare(Kind::End, number);
        let until = clock::monotonic() + pause;
        loop {
            if control.is_cut() {
                return Ok(());
            }
            let left = until.since(clock::monotonic());
            if left.is_zero() {
                break;
            }
            socket.set_read_timeout(Some(left))?;
            if let Ok(count) = socket.recv(&mut bytes)
                && association.header(&bytes[..count]).is_some_and(|header| header.kind == Kind::Ended)
            {
                return Ok(());
            }
        }
        pause = (pause * 2).min(AGAIN_MAX);
    }
    Ok(())
}
