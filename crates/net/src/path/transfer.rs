//! The transfer over the connection: what TCP makes of the path by itself.

use super::found::Carried;
use crate::stream::engine::payload;
use crate::threads::Guard;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use weir_seams::workload::Control;
use weir_sys::path_probe::Version;
use weir_sys::poll::{self, Interest};
use weir_sys::tcp_info::TcpInfo;
use weir_sys::{clock, socket};

const BLOCK_BYTES: usize = 64 * 1024;
/// Longest wait before the orders are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Without progress for so long, or in all, the transfer is given up.
const STALL: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(20);
/// Options that segments with time stamps carry: RFC 7323 and two bytes of filling.
const TIMESTAMP_BYTES: u64 = 12;
/// The receiver's word that all is there.
const GOT_ALL: u8 = 1;

/// Sends `bytes` and says what TCP came to. What is not carried is said in the result, and no error.
pub fn send(
    stream: &TcpStream,
    version: Version,
    bytes: u64,
    control: &Control,
    guard: &Guard,
) -> io::Result<Carried> {
    stream.set_nonblocking(true)?;
    let block = payload(BLOCK_BYTES);
    let began = clock::monotonic();
    let (mut left, mut acknowledged, mut moved_at, mut complete) = (bytes, 0, began, false);
    let mut info = TcpInfo::read(stream.as_fd())?;
    // Words that are still under way are not of the transfer.
    let before = info.bytes_acked.unwrap_or(0) + socket::unacknowledged_bytes(stream.as_fd())?;
    let (mut out, mut back) = (stream, stream);
    loop {
        let now = clock::monotonic();
        info = TcpInfo::read(stream.as_fd()).unwrap_or(info);
        let by_now = info.bytes_acked.unwrap_or(0).saturating_sub(before);
        if by_now > acknowledged {
            (acknowledged, moved_at) = (by_now, now);
            guard.moved(acknowledged);
        }
        if now.since(moved_at) >= STALL || now.since(began) >= LIMIT || control.stopping() {
            break;
        }
        let interest = if left > 0 { Interest::Either } else { Interest::Readable };
        if !poll::wait(stream.as_fd(), interest, LOOK)? {
            continue;
        }
        match back.read(&mut [0; 1]) {
            Ok(1) => {
                complete = left == 0;
                break;
            }
            // The other end has left; what was counted by then stands.
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        if left == 0 {
            continue;
        }
        match out.write(&block[..block.len().min(left as usize)]) {
            Ok(count) => {
                left -= count as u64;
                if left == 0 {
                    stream.shutdown(Shutdown::Write)?;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => break,
        }
    }
    info = TcpInfo::read(stream.as_fd()).unwrap_or(info);
    let mss = u64::from(info.snd_mss_bytes);
    let headers = version.header_bytes() as u64 - 8 + 20 + if info.timestamps { TIMESTAMP_BYTES } else { 0 };
    Ok(Carried {
        mss_bytes: mss,
        packet_bytes: mss + headers,
        round_trip_us: info.min_rtt_us.filter(|us| *us != u32::MAX),
        retransmitted: info.total_retrans_segments,
        reordering: info.reordering_segments,
        reordering_events: info.reord_seen,
        duplicates: info.dsack_dups,
        acknowledged_bytes: acknowledged,
        complete,
    })
}

/// Reads what comes, at most `bytes`, and says so. The segments that came out of order, where the kernel counts them.
/// Errors: more comes than was agreed.
pub fn receive(stream: &TcpStream, bytes: u64, guard: &Guard) -> io::Result<Option<u32>> {
    let mut block = vec![0; BLOCK_BYTES];
    let (mut input, mut output) = (stream, stream);
    let mut received = 0;
    loop {
        match input.read(&mut block) {
            Ok(0) => break,
            Ok(count) => {
                received += count as u64;
                guard.moved(received);
                if received > bytes {
                    let text = format!("{received} bytes came where {bytes} were agreed");
                    return Err(io::Error::new(ErrorKind::InvalidData, text));
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The sending end has given up, and says why itself.
            Err(_) => break,
        }
    }
    let out_of_order = TcpInfo::read(stream.as_fd()).ok().and_then(|info| info.rcv_ooopack);
    let _ = output.write_all(&[GOT_ALL]);
    Ok(out_of_order)
}
