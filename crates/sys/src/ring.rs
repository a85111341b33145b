//! Reads and writes by io_uring: many under way from one thread, each completion the kernel's own.

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// What is asked for.
pub enum Kind {
    Read,
    Write,
    Sync,
}

/// One operation, which owns its memory until it is done.
pub struct Asked {
    pub tag: u64,
    pub kind: Kind,
    pub file: Arc<File>,
    pub offset: u64,
    pub memory: Vec<u8>,
    /// Of the memory, what is read into or written from: the first byte, and how many.
    pub from: usize,
    pub length_bytes: usize,
}

/// What came of one.
pub struct Done {
    pub asked: Asked,
    /// Bytes moved: fewer than asked for only at the end of a file.
    pub result: io::Result<usize>,
}

struct Flight {
    asked: Asked,
    moved: usize,
}

/// A ring of one thread. Memory of what is under way when it is dropped is never given back: the kernel may still write into it.
pub struct Ring {
    ring: IoUring,
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// Not yet in the ring.
    waiting: Vec<usize>,
    /// Completions that are being looked at: slot and result.
    seen: Vec<(u64, i32)>,
}

impl Ring {
    /// Room for so many operations under way. Errors: the kernel has none, or forbids it.
    pub fn new(depth: usize) -> io::Result<Ring> {
        let entries = u32::try_from(depth.clamp(1, 4_096)).unwrap_or(4_096).next_power_of_two();
        // A thread that waits for completions anyway needs not be interrupted for them; kernels before 5.19 do that all the same.
        let cooperative = IoUring::builder().setup_clamp().setup_coop_taskrun().build(entries);
        let ring = cooperative.or_else(|_| IoUring::builder().setup_clamp().build(entries))?;
        Ok(Ring { ring, flights: Vec::new(), free: Vec::new(), waiting: Vec::new(), seen: Vec::new() })
    }

    /// Takes an operation; `submit` hands it to the kernel.
    pub fn ask(&mut self, asked: Asked) {
        let flight = Some(Flight { asked, moved: 0 });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.flights[slot] = flight;
                slot
            }
            None => {
                self.flights.push(flight);
                self.flights.len() - 1
            }
        };
        self.waiting.push(slot);
    }

    pub fn under_way(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Fills the ring as far as it has room.
    fn push(&mut self) {
        while let Some(slot) = self.waiting.last().copied() {
            let Some(flight) = self.flights[slot].as_mut() else {
                self.waiting.pop();
                continue;
            };
            let entry = entry(flight).user_data(slot as u64);
            // Safety: the memory and the file stay in `flights` until the completion of this entry has been taken.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                return;
            }
            self.waiting.pop();
        }
    }

    /// Hands what was asked to the kernel. Errors: it takes none.
    pub fn submit(&mut self) -> io::Result<()> {
        self.push();
        match self.ring.submit() {
            Ok(_) => Ok(()),
            // It has no room for completions before some are taken.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN | libc::EINTR)) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Appends what is done; where nothing is yet it waits for the first, at most `limit`. Errors: no waiting is possible.
    pub fn reap(&mut self, done: &mut Vec<Done>, limit: Duration) -> io::Result<()> {
        let before = done.len();
        self.take(done);
        if done.len() > before || limit.is_zero() || self.under_way() == 0 {
            return Ok(());
        }
        let time = Timespec::from(limit);
        let arguments = SubmitArgs::new().timespec(&time);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) => {}
            Err(error) => return Err(error),
        }
        self.take(done);
        Ok(())
    }

    fn take(&mut self, done: &mut Vec<Done>) {
        self.seen.clear();
        self.seen.extend(self.ring.completion().map(|it: cqueue::Entry| (it.user_data(), it.result())));
        let mut again = false;
        for (slot, result) in self.seen.iter().copied() {
            let slot = slot as usize;
            let Some(flight) = self.flights.get_mut(slot).and_then(Option::as_mut) else { continue };
            let moved = usize::try_from(result).unwrap_or(0);
            flight.moved += moved;
            let is_short = moved > 0 && flight.moved < flight.asked.length_bytes;
            let is_interrupted = result == -libc::EINTR || result == -libc::EAGAIN;
            if is_short || is_interrupted {
                self.waiting.push(slot);
                again = true;
                continue;
            }
            let Some(Flight { asked, moved }) = self.flights[slot].take() else { continue };
            self.free.push(slot);
            // Of a file that is read around the cache the rest of a piece that ended early cannot be asked for.
            let is_end = moved > 0 && result == -libc::EINVAL;
            let result =
                if result < 0 && !is_end { Err(io::Error::from_raw_os_error(-result)) } else { Ok(moved) };
            done.push(Done { asked, result });
        }
        if again || !self.waiting.is_empty() {
            // What cannot be handed on now is with the next call.
            let _ = self.submit();
        }
    }
}

fn entry(flight: &mut Flight) -> squeue::Entry {
    let Flight { asked, moved } = flight;
    let file = Fd(asked.file.as_raw_fd());
    let (begin, end) = (asked.from + *moved, asked.from + asked.length_bytes);
    let memory = asked.memory.get_mut(begin..end).unwrap_or_default();
    let (start, length) = (memory.as_mut_ptr(), u32::try_from(memory.len()).unwrap_or(u32::MAX));
    let offset = asked.offset + *moved as u64;
    match asked.kind {
        Kind::Read => opcode::Read::new(file, start, length).offset(offset).build(),
        Kind::Write => opcode::Write::new(file, start, length).offset(offset).build(),
        Kind::Sync => opcode::Fsync::new(file).flags(io_uring::types::FsyncFlags::DATASYNC).build(),
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        for flight in self.flights.iter_mut().filter_map(Option::take) {
            std::mem::forget(flight.asked.memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn asked(tag: u64, kind: Kind, file: &Arc<File>, offset: u64, memory: Vec<u8>) -> Asked {
        let length_bytes = memory.len();
        Asked { tag, kind, file: Arc::clone(file), offset, memory, from: 0, length_bytes }
    }

    #[test]
    fn many_more_than_fit_are_all_done_and_a_read_at_the_end_is_short() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        let file = Arc::new(file);
        let mut ring = Ring::new(4).unwrap();
        for tag in 0..100 {
            ring.ask(asked(tag, Kind::Read, &file, tag * 100, vec![0; 150]));
        }
        ring.ask(asked(100, Kind::Sync, &file, 0, Vec::new()));
        let mut done = Vec::new();
        while ring.under_way() > 0 {
            ring.submit().unwrap();
            ring.reap(&mut done, Duration::from_secs(5)).unwrap();
        }
        done.sort_by_key(|done| done.asked.tag);
        assert_eq!(done.len(), 101);
        for done in &done[..100] {
            let expected = 150.min(10_000 - done.asked.tag as usize * 100);
            assert_eq!(*done.result.as_ref().unwrap(), expected, "{}", done.asked.tag);
            assert!(done.asked.memory[..expected].iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn nothing_that_is_under_way_is_waited_for_longer_than_was_said_and_an_error_has_its_number() {
        let (reader, _writer) = io::pipe().unwrap();
        let pipe = Arc::new(File::from(std::os::fd::OwnedFd::from(reader)));
        let mut ring = Ring::new(4).unwrap();
        ring.ask(asked(1, Kind::Read, &pipe, u64::MAX, vec![0; 10]));
        ring.submit().unwrap();
        let mut done = Vec::new();
        let began = std::time::Instant::now();
        ring.reap(&mut done, Duration::from_millis(30)).unwrap();
        assert!(done.is_empty() && began.elapsed() >= Duration::from_millis(20));
        let folder = Arc::new(File::open("/").unwrap());
        ring.ask(asked(2, Kind::Read, &folder, 0, vec![0; 10]));
        ring.submit().unwrap();
        ring.reap(&mut done, Duration::from_secs(5)).unwrap();
        assert_eq!(done[0].result.as_ref().unwrap_err().raw_os_error(), Some(libc::EISDIR));
    }
}
