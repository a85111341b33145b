//! The coordinator's view of its agents: one reader thread each, one queue of events.

use crate::message::{self, FROM_AGENT_BYTES_MAX, FromAgent, PROTOCOL, SILENCE_MAX, ToAgent};
use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use thiserror::Error;
use weir_core::Instant;
use weir_seams::launcher::{LaunchError, Launcher, Process};
use weir_sys::clock::monotonic;
use weir_transport::frame::{read_frame, write_frame};

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
}

struct Agent {
    input: Box<dyn Write + Send>,
    process: Box<dyn Process>,
    heard: Instant,
    /// Distinguishes this agent's messages from those of an earlier one on the same host.
    generation: u64,
}

type Tagged = (String, u64, Result<FromAgent, String>);

/// All agents of a lab or of the real hosts, by host name.
pub struct Fleet {
    agents: BTreeMap<String, Agent>,
    events: Receiver<Tagged>,
    events_in: Sender<Tagged>,
    generation: u64,
}

impl Default for Fleet {
    fn default() -> Self {
        let (events_in, events) = channel();
        Fleet { agents: BTreeMap::new(), events, events_in, generation: 0 }
    }
}

impl Fleet {
    /// Starts agents on those of `hosts` that have none and waits for every one's hello.
    ///
    /// Errors: the first host that could not be reached in `limit`, or whose weir is another version.
    pub fn launch(
        &mut self,
        launcher: &dyn Launcher,
        hosts: &[String],
        limit: Duration,
    ) -> Result<(), LaunchError> {
        let missing: Vec<&String> = hosts.iter().filter(|host| !self.agents.contains_key(*host)).collect();
        for host in &missing {
            self.generation += 1;
            let generation = self.generation;
            let launched = launcher.launch(host)?;
            let mut agent =
                Agent { input: launched.input, process: launched.process, heard: monotonic(), generation };
            let hello = ToAgent::Hello {
                protocol: PROTOCOL,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                schema: weir_core::record::SUMMARY_SCHEMA.to_owned(),
                host: (*host).clone(),
            };
            // A failure to write shows as a lost agent below, with its reason.
            let _ = write_frame(&mut agent.input, &hello).and_then(|()| agent.input.flush());
            let (name, events) = ((*host).clone(), self.events_in.clone());
            thread::spawn(move || listen(name, generation, launched.output, &events));
            self.agents.insert((*host).clone(), agent);
        }
        let deadline = monotonic() + limit;
        let mut waiting: Vec<String> = missing.into_iter().cloned().collect();
        while !waiting.is_empty() {
            let Some((host, event)) = self.next(deadline) else {
                let host = waiting.swap_remove(0);
                self.kill(&host);
                return Err(LaunchError { host, text: format!("no hello within {} s", limit.as_secs()) });
            };
            let refused = match event {
                Event::Said(FromAgent::Hello { protocol, version, schema, .. }) => {
                    message::mismatch(protocol, &version, &schema)
                }
                Event::Said(FromAgent::Refused { text }) => Some(text),
                Event::Said(_) => continue,
                Event::Lost(lost) => Some(lost.reason),
            };
            if let Some(text) = refused {
                self.kill(&host);
                return Err(LaunchError { host, text });
            }
            waiting.retain(|name| *name != host);
        }
        Ok(())
    }

    /// The next event of any agent before `deadline`. Agents that fell silent are killed and reported as lost here.
    pub fn next(&mut self, deadline: Instant) -> Option<(String, Event)> {
        loop {
            if let Some(host) = self.silent() {
                self.kill(&host);
                let reason = format!("the agent was silent for {} s and was killed", SILENCE_MAX.as_secs());
                return Some((host.clone(), Event::Lost(AgentLost { host, reason })));
            }
            let now = monotonic();
            let pause = deadline.since(now).min(Duration::from_millis(200));
            match self.events.recv_timeout(pause) {
                Ok((host, generation, said)) => {
                    let Some(agent) =
                        self.agents.get_mut(&host).filter(|agent| agent.generation == generation)
                    else {
                        continue; // the last words of an agent already given up
                    };
                    agent.heard = monotonic();
                    match said {
                        Ok(message) => return Some((host, Event::Said(message))),
                        Err(reason) => {
                            self.kill(&host);
                            return Some((host.clone(), Event::Lost(AgentLost { host, reason })));
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

    fn silent(&self) -> Option<String> {
        let now = monotonic();
        self.agents
            .iter()
            .find(|(_, agent)| now.since(agent.heard) > SILENCE_MAX)
            .map(|(host, _)| host.clone())
    }

    /// Sends an order. An agent that cannot be written to will be reported as lost by `next`.
    pub fn tell(&mut self, host: &str, order: &ToAgent) {
        if let Some(agent) = self.agents.get_mut(host) {
            let _ = write_frame(&mut agent.input, order).and_then(|()| agent.input.flush());
        }
    }

    pub fn is_up(&self, host: &str) -> bool {
        self.agents.contains_key(host)
    }

    /// Host names with the process ids of their agents, for the samplers.
    pub fn processes(&self) -> Vec<(String, u32)> {
        self.agents.iter().map(|(host, agent)| (host.clone(), agent.process.id())).collect()
    }

    /// Resets the silence watch, after a time in which nobody listened.
    pub fn forgive(&mut self) {
        let now = monotonic();
        for agent in self.agents.values_mut() {
            agent.heard = now;
        }
    }

    pub fn kill(&mut self, host: &str) {
        if let Some(mut agent) = self.agents.remove(host) {
            agent.process.kill();
        }
    }

    /// Says goodbye to all and reaps them; those that do not leave are killed.
    pub fn disband(&mut self) {
        for agent in self.agents.values_mut() {
            let _ = write_frame(&mut agent.input, &ToAgent::Bye).and_then(|()| agent.input.flush());
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

fn listen(host: String, generation: u64, output: Box<dyn std::io::Read + Send>, events: &Sender<Tagged>) {
    let mut output = BufReader::with_capacity(1 << 16, output);
    loop {
        let said = match read_frame::<FromAgent>(&mut output, FROM_AGENT_BYTES_MAX) {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err("the agent ended".to_owned()),
            Err(error) => Err(format!("the agent sent what is no message: {error}")),
        };
        let last = said.is_err();
        if events.send((host.clone(), generation, said)).is_err() || last {
            return;
        }
    }
}
