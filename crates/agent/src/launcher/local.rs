//! Agents on this machine, in its own network: what the control plane costs without a lab.

use super::words::{Words, last_words};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;
use weir_seams::launcher::{LaunchError, Launched, Launcher, Process};
use weir_sys::process::{Child, ErrorsTo, Spawn};

pub struct LocalLauncher {
    /// The program, this one normally, that is told to be an agent.
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

impl Launcher for LocalLauncher {
    fn launch(&self, host: &str) -> Result<Launched, LaunchError> {
        let mut spawn = Spawn::new(&self.program);
        for argument in &self.arguments {
            spawn = spawn.argument(argument);
        }
        start(spawn, host)
    }

    fn shares_clock(&self, _host: &str) -> bool {
        true
    }
}

/// Starts a prepared agent and takes its streams.
pub(super) fn start(mut spawn: Spawn<'_>, host: &str) -> Result<Launched, LaunchError> {
    let refuse = |text: String| LaunchError { host: host.to_owned(), text };
    let program = spawn.program.display().to_string();
    spawn.errors_to = ErrorsTo::Pipe;
    let mut child = spawn.start().map_err(|error| refuse(format!("{program}: {error}")))?;
    let streams = (child.take_stdin(), child.take_stdout(), child.take_stderr());
    let (Some(input), Some(output), Some(errors)) = streams else {
        return Err(refuse("its standard streams are not pipes".to_owned()));
    };
    let input: Box<dyn Write + Send> = Box::new(input);
    let output: Box<dyn Read + Send> = Box::new(output);
    Ok(Launched { input, output, process: Box::new(Local { child, words: Words::collect(errors) }) })
}

struct Local {
    child: Child,
    words: Words,
}

impl Process for Local {
    fn id(&self) -> u32 {
        self.child.id()
    }
    fn kill(&mut self) {
        self.child.kill();
    }
    fn wait(&mut self, limit: Duration) -> bool {
        self.child.wait(limit).is_some()
    }
    fn last_words(&mut self) -> Option<String> {
        last_words(self.child.ended(), &self.words.said())
    }
}
