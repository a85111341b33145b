//! The coordinator's view of its agents: two threads each, one that speaks and one that listens, and one queue of events.

use crate::clock::{ClockMap, Exchange, Exchanges};
use crate::inputs::{Digests, PIECE_BYTES, PIECES_AHEAD};
use crate::launcher::words::quoted;
use crate::message::{
    self, CLOCK_EVERY, FROM_AGENT_BYTES_MAX, FromAgent, HostReport, PROTOCOL, SILENCE_MAX, ToAgent,
};
use data_encoding::BASE64;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use thiserror::Error;
use weir_core::Instant;
use weir_core::text::{SHOWN_BYTES_MAX, shown};
use weir_seams::launcher::{LaunchError, Launched, Launcher, Process};
use weir_sys::clock::monotonic;
use weir_sys::process::Signal;
use weir_transport::frame::{read_frame, write_frame};

/// Agents that are being launched at the same time: a login takes most of its time waiting.
const LAUNCHES_AT_ONCE: usize = 16;
/// Exchanges with each host before and after a trial; the fastest of so many is close to the fastest there is.
const CLOCK_BURST: u32 = 16;
/// Longest that a burst may take; on a long path it has fewer exchanges.
const CLOCK_BURST_MAX: Duration = Duration::from_secs(1);
/// What a lost agent's process may take to say why.
const LAST_WORDS_MAX: Duration = Duration::from_millis(300);
/// An agent that is given a file says within this time how much it has.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// What is kept of how an agent's stream began.
const BEGINNING_BYTES_MAX: usize = 512;

/// What an agent said, or that it will say no more.
#[derive(Debug)]
pub enum Event {
    Said(FromAgent),
    Lost(AgentLost),
}

/// An agent that cannot be worked with any longer; the run goes on without it until it is launched again.
#[derive(Debug, Clone, Error)]
#[error("host {host}: {reason}")]
pub struct AgentLost {
    pub host: String,
    pub reason: String,
    /// A fault of the scenario killed it.
    pub ordered: bool,
}

struct Agent {
    /// To the thread that speaks to it, so that an agent that does not read holds up nobody else.
    orders: Sender<Order>,
    process: Box<dyn Process>,
    /// When it last said something, by the thread that listens to it: what waits in the queue is not silence, however long
    /// nobody takes it out.
    heard_ns: Arc<AtomicU64>,
    /// Has said its hello. Until then it may be a process that has not got a core yet, and `launch` waits as long as it was told.
    greeted: bool,
    /// Stands still because it was told to: its silence means nothing.
    paused: bool,
    /// Was killed because a fault of the scenario wants it.
    ended: bool,
    /// Distinguishes this agent's messages from those of an earlier one on the same host.
    generation: u64,
    report: HostReport,
    /// Exchanges of the burst under way that are still to come.
    burst_left: u32,
}

enum Order {
    Say(ToAgent),
    AskClock,
}

struct Heard {
    host: String,
    generation: u64,
    /// When the message had been read.
    at: Instant,
    said: Result<FromAgent, String>,
}

/// All agents of a lab or of the real hosts, by host name.
pub struct Fleet {
    agents: BTreeMap<String, Agent>,
    /// Of every host that ever had an agent: what it measured before it was lost still has its times. `None`: it reads the
    /// same clock as we.
    clocks: BTreeMap<String, Option<Exchanges>>,
    events: Receiver<Heard>,
    events_in: Sender<Heard>,
    /// Of every host whose agent is gone, why.
    losses: BTreeMap<String, String>,
    /// What came while clocks were asked.
    held: VecDeque<(String, Event)>,
    generation: u64,
    digests: Digests,
    /// Contents that agents have, by their generation.
    carried: BTreeSet<(u64, String)>,
}

impl Default for Fleet {
    fn default() -> Self {
        let (events_in, events) = channel();
        Fleet {
            agents: BTreeMap::new(),
            clocks: BTreeMap::new(),
            events,
            events_in,
            losses: BTreeMap::new(),
            held: VecDeque::new(),
            generation: 0,
            digests: Digests::default(),
            carried: BTreeSet::new(),
        }
    }
}

impl Fleet {
    /// Starts agents on those of `hosts` that have none and waits for every one's hello, each at most `limit` once its
    /// launcher has given back its streams.
    ///
    /// The hosts that could not be reached, or whose weir is another version; all others have their agent.
    pub fn launch(&mut self, launcher: &dyn Launcher, hosts: &[String], limit: Duration) -> Vec<LaunchError> {
        let missing: Vec<&String> = hosts.iter().filter(|host| !self.agents.contains_key(*host)).collect();
        let mut failed = Vec::new();
        let mut waiting: Vec<String> = Vec::new();
        for some in missing.chunks(LAUNCHES_AT_ONCE) {
            let launched = thread::scope(|scope| {
                let started: Vec<_> =
                    some.iter().map(|host| (*host, scope.spawn(|| launcher.launch(host)))).collect();
                let joined = started.into_iter().map(|(host, thread)| (host, thread.join()));
                joined.collect::<Vec<_>>()
            });
            for (host, result) in launched {
                match result {
                    Ok(Ok(launched)) => {
                        self.add(host, launched, launcher.shares_clock(host));
                        waiting.push(host.clone());
                    }
                    Ok(Err(error)) => failed.push(error),
                    Err(_) => {
                        let text = "the launcher panicked: a bug in weir; please report it".to_owned();
                        failed.push(LaunchError { host: host.clone(), text });
                    }
                }
            }
        }
        let deadline = monotonic() + limit;
        while !waiting.is_empty() {
            let Some((host, event)) = self.next(deadline) else {
                for host in waiting {
                    let words = self.end(&host, Duration::ZERO);
                    let text = format!("no hello within {} s{words}", limit.as_secs());
                    failed.push(LaunchError { host, text });
                }
                break;
            };
            let refused = match event {
                Event::Said(FromAgent::Hello { protocol, version, schema, .. }) => {
                    message::mismatch(protocol, &version, &schema, ["there", "here"])
                }
                Event::Said(FromAgent::Refused { text }) => Some(shown(&text, SHOWN_BYTES_MAX)),
                Event::Said(_) => continue,
                Event::Lost(lost) => Some(lost.reason),
            };
            waiting.retain(|name| *name != host);
            if let Some(text) = refused {
                self.kill(&host);
                failed.push(LaunchError { host, text });
            }
        }
        for error in &failed {
            self.losses.insert(error.host.clone(), format!("the agent could not be started: {}", error.text));
        }
        failed
    }

    fn add(&mut self, host: &str, launched: Launched, shares_clock: bool) {
        self.generation += 1;
        let generation = self.generation;
        let heard_ns = Arc::new(AtomicU64::new(monotonic().as_ns()));
        let (orders, queue) = channel();
        let hello = ToAgent::Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: weir_core::record::SUMMARY_SCHEMA.to_owned(),
            host: host.to_owned(),
        };
        let _ = orders.send(Order::Say(hello)); // the queue is still ours
        let (input, output, events) = (launched.input, launched.output, self.events_in.clone());
        let name = host.to_owned();
        thread::spawn(move || speak(input, &queue, if shares_clock { None } else { Some(CLOCK_EVERY) }));
        let heard = heard_ns.clone();
        thread::spawn(move || listen(name, generation, output, &heard, &events));
        let agent = Agent {
            orders,
            process: launched.process,
            heard_ns,
            greeted: false,
            paused: false,
            ended: false,
            generation,
            report: HostReport::default(),
            burst_left: 0,
        };
        self.clocks.insert(host.to_owned(), (!shares_clock).then(Exchanges::default));
        self.losses.remove(host);
        self.agents.insert(host.to_owned(), agent);
    }

    /// The next event of any agent before `deadline`. Agents that fell silent are killed and reported as lost here; what
    /// they say of their clocks is kept here.
    pub fn next(&mut self, deadline: Instant) -> Option<(String, Event)> {
        match self.held.pop_front() {
            Some(held) => Some(held),
            None => self.next_heard(deadline, false),
        }
    }

    /// With `clocks_only` it also ends when no burst of exchanges is under way any more.
    fn next_heard(&mut self, deadline: Instant, clocks_only: bool) -> Option<(String, Event)> {
        loop {
            if clocks_only && self.agents.values().all(|agent| agent.burst_left == 0) {
                return None;
            }
            if let Some(host) = self.silent() {
                let words = self.end(&host, LAST_WORDS_MAX);
                let reason =
                    format!("the agent was silent for {} s and was killed{words}", SILENCE_MAX.as_secs());
                return Some(self.lost(host, reason, false));
            }
            let now = monotonic();
            let pause = deadline.since(now).min(Duration::from_millis(200));
            match self.events.recv_timeout(pause) {
                Ok(Heard { host, generation, at, said }) => {
                    let Some(agent) =
                        self.agents.get_mut(&host).filter(|agent| agent.generation == generation)
                    else {
                        continue; // the last words of an agent already given up
                    };
                    match said {
                        Ok(FromAgent::Clock { sent_ns, heard_ns, answered_ns }) => {
                            let [sent, heard, answered] =
                                [sent_ns, heard_ns, answered_ns].map(Instant::from_ns);
                            if let Some(Some(clock)) = self.clocks.get_mut(&host)
                                && let Some(exchange) = Exchange::new(sent, heard, answered, at)
                            {
                                clock.add(exchange);
                            }
                            agent.go_on_with_burst();
                        }
                        Ok(message) => {
                            if let FromAgent::Hello { host: report, .. } = &message {
                                (agent.report, agent.greeted) = (report.clone(), true);
                            }
                            return Some((host, Event::Said(message)));
                        }
                        Err(reason) => {
                            let ordered = agent.ended;
                            let reason = format!("{reason}{}", self.end(&host, LAST_WORDS_MAX));
                            return Some(self.lost(host, reason, ordered));
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    if monotonic() >= deadline {
                        return None;
                    }
                }
                // Cannot happen while `events_in` lives in self; treated as a time-out.
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn lost(&mut self, host: String, reason: String, ordered: bool) -> (String, Event) {
        self.losses.insert(host.clone(), reason.clone());
        (host.clone(), Event::Lost(AgentLost { host, reason, ordered }))
    }

    /// Why a host has no agent, if it once had one or should have.
    pub fn why_gone(&self, host: &str) -> Option<&str> {
        self.losses.get(host).map(String::as_str)
    }

    /// Asks every host that has a clock of its own what it says, often enough to know; a second at most.
    pub fn read_clocks(&mut self) {
        let own = |host: &String| matches!(self.clocks.get(host), Some(Some(_)));
        for (_, agent) in self.agents.iter_mut().filter(|(host, _)| own(host)) {
            agent.burst_left = CLOCK_BURST;
            let _ = agent.orders.send(Order::AskClock); // if it is gone, `next` will say so
        }
        let deadline = monotonic() + CLOCK_BURST_MAX;
        while let Some(event) = self.next_heard(deadline, true) {
            self.held.push_back(event);
        }
        for agent in self.agents.values_mut() {
            agent.burst_left = 0;
        }
    }

    /// Forgets what clocks said before `at`.
    pub fn begin_clocks(&mut self, at: Instant) {
        for clock in self.clocks.values_mut().flatten() {
            clock.begin(at);
        }
    }

    /// What is known of a host's clock now; `None` before it was ever read.
    pub fn clock_now(&self, host: &str) -> Option<ClockMap> {
        match self.clocks.get(host)? {
            None => Some(ClockMap::SHARED),
            Some(exchanges) => exchanges.best(monotonic()).map(ClockMap::of),
        }
    }

    /// A host's clock over a trial that has ended; `None` as `clock_now`.
    pub fn clock_over(&self, host: &str, from: Instant, to: Instant) -> Option<ClockMap> {
        match self.clocks.get(host)? {
            None => Some(ClockMap::SHARED),
            Some(exchanges) => exchanges.map(from, to),
        }
    }

    /// What the agent said of its host.
    pub fn report(&self, host: &str) -> Option<&HostReport> {
        self.agents.get(host).map(|agent| &agent.report)
    }

    fn silent(&self) -> Option<String> {
        let now = monotonic();
        let is_silent = |agent: &Agent| {
            let heard = Instant::from_ns(agent.heard_ns.load(Ordering::Relaxed));
            agent.greeted && !agent.paused && now.since(heard) > SILENCE_MAX
        };
        self.agents.iter().find(|(_, agent)| is_silent(agent)).map(|(host, _)| host.clone())
    }

    /// Sends an order. An agent that cannot be written to will be reported as lost by `next`.
    pub fn tell(&mut self, host: &str, order: &ToAgent) {
        if let Some(agent) = self.agents.get(host) {
            let _ = agent.orders.send(Order::Say(order.clone()));
        }
    }

    /// Whether a host's agent is on this machine, and sees its files.
    pub fn is_here(&self, host: &str) -> bool {
        matches!(self.clocks.get(host), Some(None))
    }

    /// Gives a host a copy of a file, unless it has that content; its digest. `stopped`: nobody wants it any more.
    ///
    /// Errors: the file cannot be read, or the host cannot have it, in words.
    pub fn carry(
        &mut self,
        host: &str,
        path: &Path,
        stopped: &mut dyn FnMut() -> bool,
    ) -> Result<String, String> {
        let (digest, bytes) = self.digests.of(path).map_err(|error| error.to_string())?;
        let Some(generation) = self.agents.get(host).map(|agent| agent.generation) else {
            return Err(self.why_gone(host).unwrap_or("it has no agent").to_owned());
        };
        let key = (generation, digest.clone());
        if self.carried.contains(&key) {
            return Ok(digest);
        }
        let mut file = File::open(path).map_err(|error| error.to_string())?;
        self.tell(host, &ToAgent::Input { digest: digest.clone(), bytes });
        let (mut sent, mut have) = (0_u64, None);
        let mut until = monotonic() + ANSWER_MAX;
        while have.is_none_or(|have| have < bytes) {
            // Nothing is sent before the agent has said what it has.
            while have.is_some_and(|have| sent < bytes && sent < have + PIECES_AHEAD * PIECE_BYTES as u64) {
                let mut piece = vec![0; PIECE_BYTES.min((bytes - sent) as usize)];
                file.read_exact(&mut piece)
                    .map_err(|error| format!("it was written to meanwhile: {error}"))?;
                sent += piece.len() as u64;
                self.tell(host, &ToAgent::Piece { digest: digest.clone(), data: BASE64.encode(&piece) });
            }
            if stopped() {
                return Err("interrupted".to_owned());
            }
            match self.next_heard(monotonic() + Duration::from_millis(100), false) {
                Some((of, Event::Said(FromAgent::Input { digest: of_digest, have_bytes, problem })))
                    if of == host && of_digest == digest =>
                {
                    if let Some(problem) = problem {
                        return Err(problem);
                    }
                    have = Some(have_bytes);
                    until = monotonic() + ANSWER_MAX;
                }
                Some((of, Event::Lost(lost))) if of == host => {
                    let reason = lost.reason.clone();
                    self.held.push_back((of, Event::Lost(lost)));
                    return Err(reason);
                }
                Some(event) => self.held.push_back(event),
                None if monotonic() >= until => {
                    return Err(format!("no answer for {} s", ANSWER_MAX.as_secs()));
                }
                None => {}
            }
        }
        self.carried.insert(key);
        Ok(digest)
    }

    pub fn is_up(&self, host: &str) -> bool {
        self.agents.contains_key(host)
    }

    /// Host names with the process ids of their agents, for the samplers.
    pub fn processes(&self) -> Vec<(String, u32)> {
        self.agents.iter().map(|(host, agent)| (host.clone(), agent.process.id())).collect()
    }

    /// Has the agent of a host stand still, go on or end, as a fault of the scenario wants it. True if it was there. Only for
    /// agents on this machine: of others the signal would meet the way there.
    pub fn signal(&mut self, host: &str, signal: Signal) -> bool {
        let Some(agent) = self.agents.get_mut(host) else { return false };
        agent.paused = signal == Signal::Stop;
        agent.ended |= signal == Signal::Kill;
        agent.heard_ns.store(monotonic().as_ns(), Ordering::Relaxed);
        // It is our child and not yet reaped, so the number is still its own.
        weir_sys::process::signal(agent.process.id(), signal)
    }

    /// Starts the agent of a host anew, and does not wait for its hello: `next` gives it.
    pub fn launch_again(&mut self, launcher: &dyn Launcher, host: &str) -> Result<(), LaunchError> {
        self.kill(host);
        let launched = launcher.launch(host)?;
        self.add(host, launched, launcher.shares_clock(host));
        Ok(())
    }

    pub fn kill(&mut self, host: &str) {
        if let Some(mut agent) = self.agents.remove(host) {
            agent.process.kill();
        }
    }

    /// Kills the agent of a host, for a reason that is kept.
    pub fn give_up(&mut self, host: &str, why: &str) {
        self.kill(host);
        self.losses.insert(host.to_owned(), format!("its agent was given up ({why})"));
    }

    /// Takes an agent off; what its process, which may take `limit` to end, has to say about it, after a colon.
    fn end(&mut self, host: &str, limit: Duration) -> String {
        let Some(mut agent) = self.agents.remove(host) else { return String::new() };
        agent.process.wait(limit);
        let words = agent.process.last_words();
        agent.process.kill();
        words.map_or_else(String::new, |words| format!(": {words}"))
    }

    /// Says goodbye to all and reaps them; those that do not leave are killed.
    pub fn disband(&mut self) {
        for agent in self.agents.values() {
            let _ = agent.orders.send(Order::Say(ToAgent::Bye));
        }
        for (_, mut agent) in std::mem::take(&mut self.agents) {
            if !agent.process.wait(Duration::from_millis(500)) {
                agent.process.kill();
            }
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for agent in self.agents.values_mut() {
            agent.process.kill();
        }
    }
}

impl Agent {
    fn go_on_with_burst(&mut self) {
        self.burst_left = self.burst_left.saturating_sub(1);
        if self.burst_left > 0 {
            let _ = self.orders.send(Order::AskClock); // if it is gone, `next` will say so
        }
    }
}

/// Writes orders as they come and, where the host has a clock of its own, asks for it in the pauses between them. Ends when
/// the agent is given up, or cannot be written to; why, its output will show.
fn speak(mut input: Box<dyn Write + Send>, orders: &Receiver<Order>, ask_every: Option<Duration>) {
    let mut said_hello = false;
    loop {
        let order = match ask_every.filter(|_| said_hello) {
            Some(pause) => match orders.recv_timeout(pause) {
                Ok(order) => order,
                Err(RecvTimeoutError::Timeout) => Order::AskClock,
                Err(RecvTimeoutError::Disconnected) => return,
            },
            None => match orders.recv() {
                Ok(order) => order,
                Err(_) => return,
            },
        };
        let message = match order {
            Order::Say(message) => message,
            Order::AskClock => ToAgent::Clock { sent_ns: monotonic().as_ns() },
        };
        if write_frame(&mut input, &message).is_err() {
            return;
        }
        said_hello = true;
    }
}

fn listen(
    host: String,
    generation: u64,
    output: Box<dyn Read + Send>,
    heard_ns: &AtomicU64,
    events: &Sender<Heard>,
) {
    let mut output = BufReader::with_capacity(1 << 16, Beginning { output, first: Vec::new() });
    let mut greeted = false;
    loop {
        let said = match read_frame::<FromAgent>(&mut output, FROM_AGENT_BYTES_MAX) {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err("the agent ended".to_owned()),
            Err(error) => {
                let printed = String::from_utf8_lossy(&output.get_ref().first);
                let quote = quoted(&printed).filter(|_| !greeted);
                let quote = quote.map_or_else(String::new, |quote| format!("; it printed: {quote}"));
                Err(format!("the agent sent what is no message: {error}{quote}"))
            }
        };
        greeted |= said.is_ok();
        let (at, last) = (monotonic(), said.is_err());
        heard_ns.store(at.as_ns(), Ordering::Relaxed);
        if events.send(Heard { host: host.clone(), generation, at, said }).is_err() || last {
            return;
        }
    }
}

/// Remembers how a stream began: a program that is no agent says there what it is.
struct Beginning {
    output: Box<dyn Read + Send>,
    first: Vec<u8>,
}

impl Read for Beginning {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.output.read(buffer)?;
        let room = BEGINNING_BYTES_MAX.saturating_sub(self.first.len());
        self.first.extend_from_slice(&buffer[..count.min(room)]);
        Ok(count)
    }
}
