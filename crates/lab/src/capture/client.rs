//! Capturing in a lab that another process started: a socket in the lab's folder, a line with the request, a line with the
//! answer, then the file in chunks (a length of four bytes and as many bytes; length 0 ends it), then a line with the outcome.

use super::writer::Output;
use super::{Outcome, Request};
use crate::error::LabError;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The longest request.
pub(super) const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// The longest answer: names of a few thousand ports.
const REPLY_BYTES_MAX: u64 = 4 << 20;
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// An idle fabric looks at its clients ten times a second.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reply {
    /// The names of the ports, as interfaces of the file.
    Capturing(Vec<String>),
    Refused(String),
}

impl Reply {
    pub(super) fn send(&self, mut stream: &UnixStream) {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        // A client that is gone already needs no answer.
        let _ = stream.write_all(&line);
    }
}

/// The fabric's end.
pub(super) struct Client {
    stream: UnixStream,
}

impl Client {
    pub(super) fn new(stream: UnixStream) -> Client {
        Client { stream }
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(CHUNK_BYTES_MAX)];
        if !bytes.is_empty() {
            self.stream.write_all(&(bytes.len() as u32).to_le_bytes())?;
            self.stream.write_all(bytes)?;
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Client {
    /// A client says that it has enough by closing its side.
    fn is_closed(&mut self) -> bool {
        let _ = self.stream.set_read_timeout(Some(Duration::from_millis(1)));
        matches!((&self.stream).read(&mut [0; 64]), Ok(0))
    }
    fn finish(mut self: Box<Self>, outcome: &Outcome) {
        let mut end = vec![0; 4];
        end.extend(serde_json::to_vec(outcome).unwrap_or_default());
        end.push(b'\n');
        let _ = self.stream.write_all(&end);
    }
}

/// A capture in a lab of another process, seen from the process that asked for it.
#[derive(Debug)]
pub struct Capturing {
    stream: BufReader<UnixStream>,
    /// The ports, as interfaces of the file.
    pub ports: Vec<String>,
}

/// Ends a capture from another thread.
#[derive(Debug)]
pub struct Stop(UnixStream);

impl Stop {
    /// What was captured until now still comes.
    pub fn stop(&self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

/// Asks the fabric that listens at `socket` for a capture.
///
/// Errors: nobody listens there, or a port that the lab does not have.
pub fn open(socket: &Path, request: &Request) -> Result<Capturing, LabError> {
    let failed = || LabError::state(format!("asking the fabric at {}", socket.display()));
    let stream = UnixStream::connect(socket).map_err(failed())?;
    stream.set_read_timeout(Some(ANSWERED_WITHIN)).map_err(failed())?;
    let mut line = serde_json::to_vec(request).map_err(io::Error::from).map_err(failed())?;
    line.push(b'\n');
    (&stream).write_all(&line).map_err(failed())?;
    let mut stream = BufReader::new(stream);
    let mut reply = String::new();
    stream.by_ref().take(REPLY_BYTES_MAX).read_line(&mut reply).map_err(failed())?;
    match serde_json::from_str(&reply).map_err(io::Error::from).map_err(failed())? {
        Reply::Refused(why) => Err(LabError::Usage(why)),
        Reply::Capturing(ports) => {
            stream.get_ref().set_read_timeout(None).map_err(failed())?;
            Ok(Capturing { stream, ports })
        }
    }
}

impl Capturing {
    /// What ends it before its time.
    pub fn stop(&self) -> io::Result<Stop> {
        self.stream.get_ref().try_clone().map(Stop)
    }

    /// Copies the file to `to` until the capture ends.
    ///
    /// Errors: `to` cannot be written (the capture is given up), or the fabric went away.
    pub fn copy_to(mut self, to: &mut dyn Write) -> Result<Outcome, LabError> {
        let gone = |error: io::Error| LabError::Fabric(format!("went away while it captured ({error})"));
        let mut chunk = Vec::new();
        loop {
            let mut length = [0; 4];
            self.stream.read_exact(&mut length).map_err(gone)?;
            let length = u32::from_le_bytes(length) as usize;
            if length == 0 {
                break;
            }
            if length > CHUNK_BYTES_MAX {
                return Err(LabError::Fabric(format!("sent a chunk of {length} B")));
            }
            chunk.resize(length, 0);
            self.stream.read_exact(&mut chunk).map_err(gone)?;
            to.write_all(&chunk).map_err(LabError::state("writing what was captured"))?;
        }
        to.flush().map_err(LabError::state("writing what was captured"))?;
        let mut line = String::new();
        self.stream.take(REPLY_BYTES_MAX).read_line(&mut line).map_err(gone)?;
        serde_json::from_str(&line).map_err(|error| gone(error.into()))
    }
}
