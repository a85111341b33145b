//! The captures of a running fabric, and the threads that serve them.

use super::client::{Client, REQUEST_BYTES_MAX, Reply};
use super::tap::{Record, Tap, pair};
use super::writer::{Output, Writer};
use super::{Outcome, Request, matching};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_core::Instant;
use weir_fabric::Fabric;

/// A client says at once what it wants.
const ASKED_WITHIN: Duration = Duration::from_secs(5);
/// A client that takes nothing for so long is gone for good.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);
/// So many clients may wait for the fabric to look.
const CLIENTS_WAITING: usize = 16;

/// A capture that its owner ends.
struct Owned {
    number: u64,
    outcome: Arc<Mutex<Option<Outcome>>>,
}

pub(crate) struct Captures {
    /// Of the directed links.
    names: Vec<String>,
    lab_start: Instant,
    taps: Vec<(u64, Tap)>,
    started: u64,
    owned: Vec<Owned>,
    /// The one whose end the owner waits for.
    awaited: Option<u64>,
    writers: Sender<(Writer, Box<dyn Output>)>,
    clients: Receiver<(Request, UnixStream)>,
}

impl Captures {
    /// Starts the threads. They have the priority of the calling thread now, so this comes before the fabric raises its own.
    pub fn start(names: Vec<String>, listener: Option<UnixListener>, now: Instant) -> io::Result<Captures> {
        let (writers, to_start) = channel::<(Writer, Box<dyn Output>)>();
        thread::Builder::new().name("captures".to_owned()).spawn(move || {
            for (writer, output) in to_start {
                // Without a thread the tap finds its channel closed and counts everything as lost.
                let _ = thread::Builder::new().name("capture".to_owned()).spawn(move || writer.run(output));
            }
        })?;
        let (to_fabric, clients) = sync_channel(CLIENTS_WAITING);
        if let Some(listener) = listener {
            thread::Builder::new().name("clients".to_owned()).spawn(move || {
                for stream in listener.incoming() {
                    let Ok(stream) = stream else {
                        thread::sleep(ASKED_WITHIN / 50); // out of descriptors, say
                        continue;
                    };
                    match asked(&stream) {
                        Ok(request) => {
                            if to_fabric.send((request, stream)).is_err() {
                                return;
                            }
                        }
                        Err(problem) => Reply::Refused(problem.to_string()).send(&stream),
                    }
                }
            })?;
        }
        Ok(Captures {
            names,
            lab_start: now,
            taps: Vec::new(),
            started: 0,
            owned: Vec::new(),
            awaited: None,
            writers,
            clients,
        })
    }

    /// Begins a capture into a file for the owner; its number.
    pub fn begin(
        &mut self,
        request: &Request,
        file: &Path,
        now: Instant,
        fabric: &mut Fabric,
    ) -> Result<u64, String> {
        let links = matching(&request.ports, &self.names).map_err(|error| error.to_string())?;
        // The owner has made it.
        let opened = File::options().write(true).open(file);
        let output = opened.map_err(|error| format!("opening {}: {error}", file.display()))?;
        let outcome = Arc::new(Mutex::new(None));
        let number =
            self.tap(request, &links, Box::new(ToFile { output, outcome: outcome.clone() }), now, fabric);
        self.owned.push(Owned { number, outcome });
        Ok(number)
    }

    /// Ends a capture for the owner; `ended` says how it went once its file is complete.
    pub fn end(&mut self, number: u64, now: Instant, fabric: &mut Fabric) -> Result<(), String> {
        if !self.owned.iter().any(|owned| owned.number == number) {
            return Err(format!("there is no capture {number}"));
        }
        if let Some(at) = self.taps.iter().position(|(own, _)| *own == number) {
            self.taps.swap_remove(at).1.end(now);
            self.mark(fabric);
        }
        self.awaited = Some(number);
        Ok(())
    }

    /// How the capture went whose end the owner waits for, once it is known.
    pub fn ended(&mut self) -> Option<Outcome> {
        let at = self.owned.iter().position(|owned| Some(owned.number) == self.awaited)?;
        let outcome = self.owned[at].outcome.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        self.owned.swap_remove(at);
        self.awaited = None;
        Some(outcome)
    }

    /// Begins what clients have asked for since, and ends what is done.
    pub fn attend(&mut self, now: Instant, fabric: &mut Fabric) {
        while let Ok((request, stream)) = self.clients.try_recv() {
            match matching(&request.ports, &self.names) {
                Ok(links) => {
                    let names = links.iter().map(|link| self.names[*link].clone()).collect();
                    Reply::Capturing(names).send(&stream);
                    self.tap(&request, &links, Box::new(Client::new(stream)), now, fabric);
                }
                Err(problem) => Reply::Refused(problem.to_string()).send(&stream),
            }
        }
        let mut any = false;
        let mut index = 0;
        while index < self.taps.len() {
            if self.taps[index].1.is_done() {
                self.taps.swap_remove(index).1.end(now);
                any = true;
            } else {
                index += 1;
            }
        }
        if any {
            self.mark(fabric);
        }
    }

    fn tap(
        &mut self,
        request: &Request,
        links: &[usize],
        output: Box<dyn Output>,
        now: Instant,
        fabric: &mut Fabric,
    ) -> u64 {
        let real_now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let real_now_ns = weir_core::time::nanoseconds(real_now);
        let (tap, writer) = pair(request, links, &self.names, self.lab_start, now, real_now_ns);
        self.started += 1;
        self.taps.push((self.started, tap));
        // The thread at the other end lives as long as this sender.
        let _ = self.writers.send((writer, output));
        self.mark(fabric);
        self.started
    }

    /// Tells the core which links are watched.
    fn mark(&self, fabric: &mut Fabric) {
        for link in 0..self.names.len() {
            fabric.capture(link, self.taps.iter().any(|(_, tap)| tap.takes(link)));
        }
    }

    pub fn record(&mut self, record: &Record<'_>) {
        for (_, tap) in &mut self.taps {
            tap.record(record);
        }
    }

    /// Hands over what has waited for long enough: the fabric is about to sleep.
    pub fn flush(&mut self, now: Instant) {
        for (_, tap) in &mut self.taps {
            tap.flush_old(now);
        }
    }
}

/// What a client wants, from its first line.
fn asked(stream: &UnixStream) -> io::Result<Request> {
    stream.set_read_timeout(Some(ASKED_WITHIN))?;
    stream.set_write_timeout(Some(TAKEN_WITHIN))?;
    let mut line = String::new();
    BufReader::new(stream).take(REQUEST_BYTES_MAX).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(io::Error::from)
}

struct ToFile {
    output: File,
    outcome: Arc<Mutex<Option<Outcome>>>,
}

impl Write for ToFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

impl Output for ToFile {
    fn is_closed(&mut self) -> bool {
        false
    }
    fn finish(self: Box<Self>, outcome: &Outcome) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome.clone());
    }
}
