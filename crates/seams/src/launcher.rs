//! Launcher: starts an agent on a host and gives back its standard streams.

use std::io::{Read, Write};
use thiserror::Error;

#[derive(Debug, Error)]
#[error("host {host}: the agent could not be started: {text}")]
pub struct LaunchError {
    pub host: String,
    pub text: String,
}

/// A started agent.
pub struct Launched {
    /// To the agent's standard input.
    pub input: Box<dyn Write + Send>,
    /// From its standard output.
    pub output: Box<dyn Read + Send>,
    pub process: Box<dyn Process>,
}

/// The process behind an agent, local or (through its ssh client) remote.
pub trait Process: Send {
    fn id(&self) -> u32;
    /// Ends it now, and reaps it.
    fn kill(&mut self);
    /// Waits up to `limit` for it to end by itself; true if it did.
    fn wait(&mut self, limit: std::time::Duration) -> bool;
    /// Why it ended, or what it complained about, as far as is known: asked when its agent is lost.
    fn last_words(&mut self) -> Option<String> {
        None
    }
}

/// `Sync`: many hosts are launched at the same time.
pub trait Launcher: Sync {
    /// Returns once the streams are the agent's own, or it is known that they never will be; bounded by the launcher.
    fn launch(&self, host: &str) -> Result<Launched, LaunchError>;
    /// True where the agent reads the same monotonic clock as we.
    fn shares_clock(&self, host: &str) -> bool;
}
