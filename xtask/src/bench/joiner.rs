//! The least that joining large fragments to events costs: no scheduler, no heartbeats, no credits, no headers, no acknowledgements. What
//! is left is what an event builder can not do without: each fragment has memory of its own until its event is whole, and a checksum.

use super::bare::number;
use crc_fast::{CrcAlgorithm, Digest};
use std::hint::black_box;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use weir_sys::epoll::Epoll;
use weir_sys::socket;

/// A source that is this many fragments ahead of another is not read.
const AHEAD_MAX: u64 = 4;

/// `builder PORT SOURCES BYTES SECONDS`: joins fragments of so many bytes, one of each source, and prints what came a second.
/// `source BYTES ADDRESS…`: sends to all of them until they close.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let text = |problem: io::Error| format!("bare joiner: {problem}");
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["builder", port, sources, bytes, seconds] => {
            let mut builder =
                Builder::accept(number(port)?, number(sources)?, number(bytes)?).map_err(text)?;
            let rate = builder.run(Duration::from_secs(number(seconds)?)).map_err(text)?;
            println!("{rate}");
            Ok(())
        }
        ["source", bytes, ref addresses @ ..] => send(number(bytes)?, addresses).map_err(text),
        _ => Err("bare-joiner builder PORT SOURCES BYTES SECONDS | source BYTES ADDRESS…".to_owned()),
    }
}

struct Lane {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
    digest: Digest,
    /// Whole fragments whose events are not.
    waiting: Vec<Vec<u8>>,
    fragments: u64,
    paused: bool,
}

struct Builder {
    lanes: Vec<Lane>,
    bytes: usize,
    idle: Vec<Vec<u8>>,
    epoll: Epoll,
    received_bytes: u64,
}

impl Builder {
    fn accept(port: u16, sources: usize, bytes: usize) -> io::Result<Builder> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        let epoll = Epoll::new(sources)?;
        let mut lanes = Vec::new();
        // Whoever only looks whether somebody listens is gone again before it says a word.
        while lanes.len() < sources {
            let (mut stream, _) = listener.accept()?;
            if stream.read(&mut [0]).is_ok_and(|count| count == 1) {
                stream.set_nonblocking(true)?;
                epoll.add(stream.as_fd(), lanes.len() as u64)?;
                lanes.push(Lane {
                    stream,
                    buffer: vec![0; bytes],
                    filled: 0,
                    digest: Digest::new(CrcAlgorithm::Crc32Iscsi),
                    waiting: Vec::new(),
                    fragments: 0,
                    paused: false,
                });
            }
        }
        Ok(Builder { lanes, bytes, idle: Vec::new(), epoll, received_bytes: 0 })
    }

    /// Payload bits a second over so much time, after a tenth of it.
    fn run(&mut self, duration: Duration) -> io::Result<f64> {
        let mut started = Instant::now();
        let (warm, mut from) = (duration / 10, None);
        loop {
            if from.is_none() && started.elapsed() >= warm {
                (from, started) = (Some(self.received_bytes), Instant::now());
            }
            if let Some(from) = from.filter(|_| started.elapsed() >= duration) {
                return Ok((self.received_bytes - from) as f64 * 8.0 / started.elapsed().as_secs_f64());
            }
            let ready: Vec<u64> = self.epoll.wait(Some(Duration::from_millis(10)))?.to_vec();
            for lane in ready {
                self.read(lane as usize)?;
            }
            self.join()?;
        }
    }

    fn read(&mut self, at: usize) -> io::Result<()> {
        let lane = &mut self.lanes[at];
        let count = match lane.stream.read(&mut lane.buffer[lane.filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        lane.digest.update(&lane.buffer[lane.filled..lane.filled + count]);
        lane.filled += count;
        self.received_bytes += count as u64;
        if lane.filled == self.bytes {
            black_box(lane.digest.finalize());
            lane.digest.reset();
            let next = self.idle.pop().unwrap_or_else(|| vec![0; self.bytes]);
            lane.waiting.push(std::mem::replace(&mut lane.buffer, next));
            lane.filled = 0;
            lane.fragments += 1;
        }
        Ok(())
    }

    /// Events of which every source's fragment is there leave their memory to the next.
    fn join(&mut self) -> io::Result<()> {
        while self.lanes.iter().all(|lane| !lane.waiting.is_empty()) {
            for lane in &mut self.lanes {
                self.idle.extend(lane.waiting.pop());
            }
        }
        let last = self.lanes.iter().map(|lane| lane.fragments).min().unwrap_or(0);
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            let pause = lane.fragments >= last + AHEAD_MAX;
            if pause && !lane.paused {
                self.epoll.remove(lane.stream.as_fd())?;
            } else if !pause && lane.paused {
                self.epoll.add(lane.stream.as_fd(), at as u64)?;
            }
            lane.paused = pause;
        }
        Ok(())
    }
}

fn send(bytes: usize, addresses: &[&str]) -> io::Result<()> {
    let (payload, mut epoll) = (vec![0x5a; bytes], Epoll::new(addresses.len())?);
    let mut lanes = Vec::new();
    for address in addresses {
        let mut stream = TcpStream::connect(address)?;
        socket::set_congestion(stream.as_fd(), super::tools::CONGESTION)?;
        stream.write_all(&[0])?;
        stream.set_nonblocking(true)?;
        epoll.add_writable(stream.as_fd(), lanes.len() as u64)?;
        lanes.push((stream, 0));
    }
    let mut open = lanes.len();
    while open > 0 {
        let ready: Vec<u64> = epoll.wait(None)?.to_vec();
        for lane in ready {
            let (stream, sent) = &mut lanes[lane as usize];
            match stream.write(&payload[*sent..]) {
                Ok(count) => *sent = (*sent + count) % bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // That builder has what it wants.
                Err(_) => {
                    epoll.remove(stream.as_fd())?;
                    open -= 1;
                }
            }
        }
    }
    Ok(())
}
