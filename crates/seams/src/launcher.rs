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
}

pub trait Launcher {
    fn launch(&self, host: &str) -> Result<Launched, LaunchError>;
}
