//! A stream whose every use ends at one instant: a peer that sends a byte a second, or reads none, costs no more than that.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use weir_sys::poll::{self, Interest};

/// A non-blocking socket read and written until `until`; afterwards every call is `TimedOut`.
pub struct Deadline<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl<'a> Deadline<'a> {
    /// The socket must be non-blocking, or a large write could outlast the deadline.
    pub fn after(stream: &'a TcpStream, limit: Duration) -> Self {
        Deadline { stream, until: Instant::now() + limit }
    }

    fn wait(&self, interest: Interest) -> io::Result<()> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(ErrorKind::TimedOut, "the peer was too slow"));
            }
            if poll::wait(self.stream.as_fd(), interest, left)? {
                return Ok(());
            }
        }
    }
}

fn again(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Read for Deadline<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            self.wait(Interest::Readable)?;
            match self.stream.read(bytes) {
                Err(error) if again(&error) => {}
                other => return other,
            }
        }
    }
}

impl Write for Deadline<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.wait(Interest::Writable)?;
            match self.stream.write(bytes) {
                Err(error) if again(&error) => {}
                other => return other,
            }
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameError, read_frame};
    use std::net::TcpListener;

    #[test]
    fn a_peer_that_sends_a_byte_now_and_then_is_given_up_at_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        let feeding = std::thread::spawn(move || {
            slow.write_all(&1000u32.to_le_bytes()).unwrap();
            while slow.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let result = read_frame::<u32>(&mut Deadline::after(&near, Duration::from_millis(50)), 4096);
        match result {
            Err(FrameError::Io(error)) => assert_eq!(error.kind(), ErrorKind::TimedOut),
            other => panic!("{other:?}"),
        }
        drop(near);
        feeding.join().unwrap();
    }
}
