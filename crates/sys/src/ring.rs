//! Reads and writes by io_uring: many under way from one thread, each completion the kernel's own.

use io_uring::types::{Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Files and pieces of memory that one ring registers at most; what is beyond is handed over with each operation.
const FILES_MAX: u32 = 4_096;
const MEMORIES_MAX: u16 = 4_096;
/// Of larger memory, what each operation costs is spread over many pages, and pinning it takes milliseconds.
const MEMORY_BYTES_MAX: usize = 2 << 20;

/// Operations that one call hands over. A device begins with the first of them while the next are prepared; handed over all at once they
/// go and come back together, and the device stands still between (decision 0026).
const AT_ONCE: usize = 4;

static RINGS: AtomicU64 = AtomicU64::new(0);

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
    /// Where the kernel has the file and the memory already.
    pub file_place: Option<u32>,
    pub memory_place: Option<u16>,
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
    number: u64,
    /// Places for files, the next one last; and how many pieces of memory have theirs.
    file_places: Vec<u32>,
    memory_count: u16,
    memory_most: u16,
}

impl Ring {
    /// Room for so many operations under way. Errors: the kernel has none, or forbids it.
    pub fn new(depth: usize) -> io::Result<Ring> {
        let entries = u32::try_from(depth.clamp(1, 4_096)).unwrap_or(4_096).next_power_of_two();
        // A thread that waits for completions anyway needs not be interrupted for them; kernels before 5.19 do that all the same.
        let cooperative = IoUring::builder().setup_clamp().setup_coop_taskrun().build(entries);
        let ring = cooperative.or_else(|_| IoUring::builder().setup_clamp().build(entries))?;
        // Kernels before 5.19 have no tables that are filled later.
        let has_files = ring.submitter().register_files_sparse(FILES_MAX).is_ok();
        let has_memories = ring.submitter().register_buffers_sparse(u32::from(MEMORIES_MAX)).is_ok();
        Ok(Ring {
            ring,
            flights: Vec::new(),
            free: Vec::new(),
            waiting: Vec::new(),
            seen: Vec::new(),
            number: RINGS.fetch_add(1, Ordering::Relaxed),
            file_places: if has_files { (0..FILES_MAX).rev().collect() } else { Vec::new() },
            memory_count: 0,
            memory_most: if has_memories { MEMORIES_MAX } else { 0 },
        })
    }

    /// Which of the rings of this process it is.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Has the kernel hold a file, so that no operation has to look it up. `None`: there is no room, and it goes without.
    pub fn hold_file(&mut self, file: &File) -> Option<u32> {
        let place = self.file_places.pop()?;
        match self.ring.submitter().register_files_update(place, &[file.as_raw_fd()]) {
            Ok(1) => Some(place),
            _ => {
                self.file_places.push(place);
                None
            }
        }
    }

    /// What is under way on it goes on.
    pub fn let_file_go(&mut self, place: u32) {
        if matches!(self.ring.submitter().register_files_update(place, &[-1]), Ok(1)) {
            self.file_places.push(place);
        }
    }

    /// Has the kernel pin memory for as long as the ring is there, so that no operation has to. `None`: there is no room, or the user
    /// may not pin as much, and it goes without. The place is of this memory alone, and of no other that may come to lie at its address.
    pub fn hold_memory(&mut self, memory: &mut [u8]) -> Option<u16> {
        if self.memory_count >= self.memory_most || memory.is_empty() || memory.len() > MEMORY_BYTES_MAX {
            return None;
        }
        let pages = [libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() }];
        // Safety: the range is of one allocation. Its pages are pinned: the kernel writes into them, and into nothing else, even where
        // the memory was given back meanwhile.
        match unsafe {
            self.ring.submitter().register_buffers_update(u32::from(self.memory_count), &pages, None)
        } {
            Ok(()) => {
                self.memory_count += 1;
                Some(self.memory_count - 1)
            }
            Err(_) => {
                // A limit of the user's is not another one for the next piece.
                self.memory_most = self.memory_count;
                None
            }
        }
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

    /// Fills the ring with the next few, as far as it has room.
    fn push(&mut self) {
        for _ in 0..AT_ONCE {
            let Some(slot) = self.waiting.last().copied() else { return };
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
        loop {
            let before = self.waiting.len();
            self.push();
            match self.ring.submit() {
                Ok(_) if self.waiting.is_empty() || self.waiting.len() == before => return Ok(()),
                Ok(_) => {}
                // It has no room for completions before some are taken.
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN | libc::EINTR)) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
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
    let (begin, end) = (asked.from + *moved, asked.from + asked.length_bytes);
    let memory = asked.memory.get_mut(begin..end).unwrap_or_default();
    let (start, length) = (memory.as_mut_ptr(), u32::try_from(memory.len()).unwrap_or(u32::MAX));
    let offset = asked.offset + *moved as u64;
    // The two ways to name a file are types of their own.
    macro_rules! on_file {
        ($build:expr) => {
            match asked.file_place {
                Some(place) => $build(Fixed(place)),
                None => $build(Fd(asked.file.as_raw_fd())),
            }
        };
    }
    match (&asked.kind, asked.memory_place) {
        (Kind::Read, None) => on_file!(|it| opcode::Read::new(it, start, length).offset(offset).build()),
        (Kind::Read, Some(place)) => {
            on_file!(|it| opcode::ReadFixed::new(it, start, length, place).offset(offset).build())
        }
        (Kind::Write, None) => on_file!(|it| opcode::Write::new(it, start, length).offset(offset).build()),
        (Kind::Write, Some(place)) => {
            on_file!(|it| opcode::WriteFixed::new(it, start, length, place).offset(offset).build())
        }
        (Kind::Sync, _) => {
            on_file!(|it| opcode::Fsync::new(it).flags(io_uring::types::FsyncFlags::DATASYNC).build())
        }
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
        let file = Arc::clone(file);
        Asked { tag, kind, file, offset, memory, from: 0, length_bytes, file_place: None, memory_place: None }
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

    // Spec: storage.md#target-3
    #[test]
    fn files_and_memory_that_the_kernel_holds_are_read_and_written_by_their_places_alone() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 8_192]).unwrap();
        let file = Arc::new(file);
        let mut ring = Ring::new(4).unwrap();
        let run = |ring: &mut Ring, asked: Asked| {
            let mut done = Vec::new();
            ring.ask(asked);
            ring.submit().unwrap();
            ring.reap(&mut done, Duration::from_secs(5)).unwrap();
            done.remove(0)
        };
        let mut memory = vec![0; 8_192];
        let (file_place, memory_place) = (ring.hold_file(&file), ring.hold_memory(&mut memory));
        assert!(file_place.is_some() && memory_place.is_some());
        // What the place leads to counts, and not the file that stands beside it.
        let other = Arc::new(File::open("/").unwrap());
        let held = |kind, memory| Asked { file_place, memory_place, ..asked(0, kind, &other, 4_096, memory) };
        let mut read = run(&mut ring, Asked { from: 1_000, length_bytes: 100, ..held(Kind::Read, memory) });
        assert_eq!(*read.result.as_ref().unwrap(), 100);
        let memory = &mut read.asked.memory;
        assert!(memory[1_000..1_100].iter().all(|byte| *byte == 7) && memory[1_100] == 0);
        memory.fill(9);
        let mut write = run(&mut ring, held(Kind::Write, read.asked.memory));
        assert_eq!(*write.result.as_ref().unwrap(), 8_192);
        assert_eq!(file.metadata().unwrap().len(), 4_096 + 8_192);
        assert!(run(&mut ring, held(Kind::Sync, Vec::new())).result.is_ok());
        // Memory that was not held is refused under that number, and so is a file that was let go.
        let stranger = run(&mut ring, held(Kind::Read, vec![0; 8_192]));
        assert_eq!(stranger.result.unwrap_err().raw_os_error(), Some(libc::EFAULT));
        ring.let_file_go(file_place.unwrap());
        write = run(&mut ring, held(Kind::Read, write.asked.memory));
        assert_eq!(write.result.unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(ring.hold_file(&file), file_place);
        assert_eq!(ring.hold_memory(&mut vec![0; MEMORY_BYTES_MAX + 1]), None);
    }
}
