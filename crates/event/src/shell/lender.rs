//! Large payloads are lent to the kernel: a copy less for every byte.

use crate::payload::{LARGE_BYTES_MIN, Payload};
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::AsFd;
use weir_sys::lent::{memory_file, send_file, send_with_more};

/// Pieces that are not large are written: the call of their own costs more than the copy.
const LENT_BYTES_MIN: usize = LARGE_BYTES_MIN as usize;
/// Slices that are smaller than this, one with another, are put together before they are written: the kernel takes longer to find the next than a copy costs.
const TOGETHER_BYTES_MAX: usize = 512;
/// A larger block, which is a file that is replayed, is not kept a second time.
const BLOCK_BYTES_MAX: usize = 64 << 20;

/// A block's bytes once more, in a file in memory.
pub(super) struct Lender {
    file: File,
    /// Where the block lies in this process.
    addresses: Range<usize>,
}

impl Lender {
    /// `None`: no fragment is large, the block is too large, or the system has no such files; then everything is written.
    pub fn of(payload: &Payload) -> Option<Lender> {
        let bytes = payload.block().bytes();
        if (payload.sizes().bytes_max() as usize) < LENT_BYTES_MIN || bytes.len() > BLOCK_BYTES_MAX {
            return None;
        }
        let start = bytes.as_ptr() as usize;
        Some(Lender { file: memory_file(bytes).ok()?, addresses: start..start + bytes.len() })
    }

    /// Where a slice is in the file, if it is large and of the block.
    fn offset(&self, slice: &[u8]) -> Option<u64> {
        let start = slice.as_ptr() as usize;
        let within = self.addresses.contains(&start) && start + slice.len() <= self.addresses.end;
        (slice.len() >= LENT_BYTES_MIN && within).then(|| (start - self.addresses.start) as u64)
    }
}

fn are_small(slices: &[IoSlice<'_>]) -> bool {
    let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
    slices.len() > 2 && bytes <= TOGETHER_BYTES_MAX * slices.len()
}

/// Sends some of what the slices hold; how much the connection took. `together` is memory for small ones.
pub(super) fn send(
    lender: Option<&Lender>,
    mut stream: &TcpStream,
    slices: &[IoSlice<'_>],
    together: &mut Vec<u8>,
) -> io::Result<usize> {
    let first_large = lender.and_then(|lender| {
        slices.iter().enumerate().find_map(|(at, slice)| Some((at, lender.offset(slice)?, &lender.file)))
    });
    match first_large {
        None if are_small(slices) => {
            together.clear();
            slices.iter().for_each(|slice| together.extend_from_slice(slice));
            stream.write(together)
        }
        None => stream.write_vectored(slices),
        Some((0, offset, file)) => match send_file(stream.as_fd(), file, offset, slices[0].len())? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            sent => Ok(sent),
        },
        Some((at, ..)) => send_with_more(stream.as_fd(), &slices[..at]),
    }
}
