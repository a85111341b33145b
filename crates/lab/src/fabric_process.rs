//! The process behind the hidden subcommand `fabric-process`: one thread that moves every packet of a lab.

use crate::capture::Captures;
use crate::pace::Pace;
use crate::port;
use crate::protocol::{Answer, Command, LINE_BYTES_MAX, Setup};
use crate::turn::Shell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::time::Duration;
use weir_core::Instant;
use weir_core::fabric_page::{self, header};
use weir_fabric::Fabric;
use weir_sys::clock::{monotonic, set_timer_slack_least};
use weir_sys::epoll::Epoll;
use weir_sys::process::{outlive_owner, raise_priority, set_nonblocking, take_inherited, take_short_turns};
use weir_sys::shared_memory::Page;
use weir_sys::tun::Tun;

const STDIN_TOKEN: u64 = u64::MAX;
/// The fabric is the network: it comes before the programs that load it.
const PRIORITY_STEPS: i32 = 20;
/// The shortest turn that the scheduler grants.
const TURN: Duration = Duration::from_micros(100);
/// While packets move, the owner's commands are looked for this often.
const COMMANDS_LOOKED_FOR_NS: u64 = 1_000_000;

/// Runs until the owner closes our standard input. Returns the exit status: 0, or 2 after an error on standard error.
pub fn main() -> i32 {
    match run() {
        Ok(()) => 0,
        Err(problem) => {
            // The owner may be gone with its end of the pipe; there is nobody else to tell.
            let _ = writeln!(io::stderr(), "weir: fabric: {problem}");
            2
        }
    }
}

fn run() -> Result<(), String> {
    let mut line = String::new();
    // Without the library's buffer behind `io::stdin`, which could hide a command from the wait. The owner says nothing more
    // before it has the answer, so nothing is lost with this buffer either.
    let stdin = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map(File::from)
        .map_err(|error| format!("stdin: {error}"))?;
    let read = BufReader::new(&stdin).take(LINE_BYTES_MAX as u64).read_line(&mut line);
    read.map_err(|error| format!("reading the setup: {error}"))?;
    let setup: Setup =
        serde_json::from_str(&line).map_err(|error| format!("the setup is not understood: {error}"))?;
    let shell = open(setup)?;

    set_timer_slack_least();
    let mut notes = Vec::new();
    if let Err(error) = raise_priority(PRIORITY_STEPS) {
        notes.push(format!(
            "the fabric runs at ordinary priority ({error}), so a busy machine makes it late sooner"
        ));
    }
    // Best effort: without it a woken fabric waits for the end of the running program's turn, some milliseconds.
    let _ = take_short_turns(TURN);
    let mut process = Process::new(shell, stdin)?;
    process.answer(&Answer::Done { notes })?;
    process.run()
}

fn open(setup: Setup) -> Result<Shell, String> {
    let Setup { topology, seed, ports, page, listener } = setup;
    if ports.len() != port::count(&topology) {
        return Err(format!("{} devices for {} hosts", ports.len(), topology.hosts.len()));
    }
    let take =
        |fd| take_inherited(fd).map_err(|error| format!("descriptor {fd} did not come along: {error}"));
    let tuns = ports.iter().map(|fd| Ok(Tun::from_fd(take(*fd)?))).collect::<Result<Vec<_>, String>>()?;
    let page = Page::open(take(page)?).map_err(|error| format!("the page: {error}"))?;
    let links = topology.directed_count();
    if page.words() != fabric_page::words(links) {
        return Err(format!("a page of {} words for {links} links", page.words()));
    }
    page.set(header::LINK_COUNT, links as u64);
    page.set(header::MAGIC, fabric_page::MAGIC);
    let fabric = Fabric::new(&topology, seed);
    let ports = port::open(tuns, &topology, monotonic());
    let listener = listener.map(|fd| Ok::<_, String>(UnixListener::from(take(fd)?))).transpose()?;
    let names = topology.directed_links().into_iter().map(|link| link.name).collect();
    let captures = Captures::start(names, listener, monotonic())
        .map_err(|error| format!("starting the threads for captures: {error}"))?;
    Ok(Shell::new(topology, fabric, ports, captures, page))
}

struct Process {
    shell: Shell,
    epoll: Epoll,
    /// Devices not watched because their host's link holds packets back.
    held: Vec<usize>,
    pace: Pace,
    stdin: File,
    input: Vec<u8>,
    detached: bool,
}

impl Process {
    fn new(mut shell: Shell, stdin: File) -> Result<Self, String> {
        let text = |error: io::Error| format!("watching the devices: {error}");
        let epoll = Epoll::new(shell.ports.len() + 1).map_err(text)?;
        set_nonblocking(stdin.as_fd()).map_err(text)?;
        epoll.add(stdin.as_fd(), STDIN_TOKEN).map_err(text)?;
        for (device, port) in shell.ports.iter_mut().enumerate() {
            port.watch(device, &epoll, true).map_err(text)?;
        }
        let pace = Pace::new();
        Ok(Process { shell, epoll, stdin, pace, held: Vec::new(), input: Vec::new(), detached: false })
    }

    fn run(mut self) -> Result<(), String> {
        let mut ready: Vec<u64> = Vec::new();
        let mut commands_looked_for = monotonic();
        // When the last turn began, if it did nothing but look.
        let mut looked_from: Option<Instant> = None;
        loop {
            let before = monotonic();
            if let Some(begun) = looked_from.take() {
                self.shell.looked(begun, before);
            }
            let (deliver_at, wake_at) = (self.shell.fabric.deliver_at(), self.shell.fabric.wake_at());
            let limit = self.pace.sleep(before, deliver_at, wake_at);
            self.shell.publish(before, before + limit);
            if !limit.is_zero() {
                self.shell.captures.flush(before);
            }
            let waited = self.epoll.wait(Some(limit)).map_err(|error| format!("waiting: {error}"))?;
            ready.clear();
            ready.extend_from_slice(waited);
            // A turn that did not sleep has seen nothing that could excuse it.
            let now = monotonic();
            let woken = if limit.is_zero() { before } else { now };
            if ready.is_empty() && !limit.is_zero() {
                self.pace.slept(before + limit, now);
            }
            // Whether a host may send on depends on what has left since.
            self.shell.fabric.advance(now);
            // Another port comes first each time, so that none is always the last.
            let start = (now.as_ns() >> 10) as usize % ready.len().max(1);
            ready.rotate_left(start);
            let mut commands = false;
            for token in &ready {
                if *token == STDIN_TOKEN {
                    commands = true;
                    continue;
                }
                let device = *token as usize;
                self.shell.read(device, woken);
                self.hold(device)?;
                self.deliver();
            }
            let delivered = self.deliver();
            if limit.is_zero() && ready.is_empty() && !delivered {
                looked_from = Some(before);
            }
            self.unhold()?;
            self.shell.captures.attend(now, &mut self.shell.fabric);
            if let Some(outcome) = self.shell.captures.ended() {
                self.answer(&Answer::Captured(outcome))?;
            }
            if commands && now.as_ns() >= commands_looked_for.as_ns() {
                commands_looked_for = now + Duration::from_nanos(COMMANDS_LOOKED_FOR_NS);
                if !self.serve_commands()? {
                    return Ok(());
                }
            }
        }
    }

    /// Delivers what is due, unless it is to wait for more. Whether anything was delivered.
    fn deliver(&mut self) -> bool {
        let now = monotonic();
        let delivered = !self.pace.pauses(now) && self.shell.carry_out(now);
        if delivered {
            self.pace.delivered(now, self.shell.fabric.deliver_at());
        }
        delivered
    }

    fn hold(&mut self, device: usize) -> Result<(), String> {
        let port = &mut self.shell.ports[device];
        if port.is_watched() && !port.may_read(&self.shell.fabric) {
            port.watch(device, &self.epoll, false)
                .map_err(|error| format!("holding device {device}: {error}"))?;
            self.held.push(device);
        }
        Ok(())
    }

    fn unhold(&mut self) -> Result<(), String> {
        let mut index = 0;
        while index < self.held.len() {
            let device = self.held[index];
            let port = &mut self.shell.ports[device];
            if port.may_read(&self.shell.fabric) {
                port.watch(device, &self.epoll, true)
                    .map_err(|error| format!("resuming device {device}: {error}"))?;
                self.held.swap_remove(index);
            } else {
                index += 1;
            }
        }
        Ok(())
    }

    /// Carries out what the owner asks. False when it is gone and we go with it.
    fn serve_commands(&mut self) -> Result<bool, String> {
        let mut chunk = [0; 64 << 10];
        loop {
            match (&self.stdin).read(&mut chunk) {
                Ok(0) => {
                    if self.detached {
                        let _ = self.epoll.remove(self.stdin.as_fd());
                    }
                    return Ok(self.detached);
                }
                Ok(bytes) => self.input.extend_from_slice(&chunk[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("reading commands: {error}")),
            }
            if self.input.len() > LINE_BYTES_MAX {
                return Err("a command is longer than any can be".to_owned());
            }
        }
        while let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            let answer = match serde_json::from_slice::<Command>(&line) {
                Ok(command) => self.obey(command),
                Err(error) => Some(Answer::Refused(format!("the command is not understood: {error}"))),
            };
            if let Some(answer) = answer {
                self.answer(&answer)?;
            }
        }
        Ok(true)
    }

    /// The answer, unless it is still to come.
    fn obey(&mut self, command: Command) -> Option<Answer> {
        let Shell { fabric, captures, .. } = &mut self.shell;
        let done = Answer::Done { notes: Vec::new() };
        Some(match command {
            Command::Schedule(changes) => {
                fabric.schedule(&changes);
                done
            }
            Command::Reset => {
                fabric.clear_schedule();
                done
            }
            Command::Detach => match self.detach() {
                Ok(()) => done,
                Err(problem) => Answer::Refused(problem),
            },
            Command::Capture { request, file } => {
                match captures.begin(&request, &file, monotonic(), fabric) {
                    Ok(number) => Answer::Capturing(number),
                    Err(problem) => Answer::Refused(problem),
                }
            }
            Command::EndCapture(number) => match captures.end(number, monotonic(), fabric) {
                Ok(()) => return None,
                Err(problem) => Answer::Refused(problem),
            },
        })
    }

    fn detach(&mut self) -> Result<(), String> {
        outlive_owner().map_err(|error| format!("cannot outlive the command that started it: {error}"))?;
        // Nobody shall be kept from unmounting the folder that `lab up` was called in.
        std::env::set_current_dir("/")
            .map_err(|error| format!("cannot leave the folder it was started in: {error}"))?;
        self.detached = true;
        Ok(())
    }

    fn answer(&mut self, answer: &Answer) -> Result<(), String> {
        let mut line = serde_json::to_vec(answer).map_err(|error| format!("an answer: {error}"))?;
        line.push(b'\n');
        let mut out = io::stdout().lock();
        out.write_all(&line).and_then(|()| out.flush()).map_err(|error| format!("answering: {error}"))
    }
}
