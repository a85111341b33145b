//! The process behind the hidden subcommand `holder-process`: process 1 of a host on which services live.

use crate::data::shared_folder;
use crate::error::LabError;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_sys::epoll::readable_within;
use weir_sys::holder::{Holder, View, hold_until_empty, take_view};
use weir_sys::process::{Among, Child, ErrorsTo, Spawn, describe};

pub const SUBCOMMAND: &str = "holder-process";
/// Where a host has the folder of what its services keep.
pub const DATA: &str = "/var/lib/weir";
/// Where all such hosts of a lab have one folder, as they would a disk array that they share.
pub const SHARED: &str = "/var/lib/weir-shared";
/// Where such a host has the disks of its services.
pub const DISKS: &str = "/var/lib/weir-disks";
/// Mounts take milliseconds, and more on a machine that is busy with others' mounts.
const READY_WITHIN: Duration = Duration::from_secs(20);
const READY: &str = "ready\n";
const SETUP_BYTES_MAX: u64 = 16 << 20;

#[derive(Serialize, Deserialize)]
struct Setup {
    host: String,
    hosts: String,
    folder: PathBuf,
    binds: Vec<(PathBuf, PathBuf)>,
}

/// A host's first process, and the way into its namespaces.
pub struct Held {
    /// Before the child: what is entered goes before what is killed.
    pub holder: Holder,
    child: Child,
}

impl Held {
    /// Starts it in a host's network, and in the control groups of these files. `folder` is the host's own on the machine: in it are `view`, which becomes the place of its
    /// overlay, and `data`, which the host has at `DATA`.
    pub fn start(
        exe: &Path,
        (namespace, groups): (BorrowedFd<'_>, &[File]),
        host: &str,
        hosts: String,
        folder: &Path,
        outlives_us: bool,
    ) -> Result<Held, LabError> {
        let failed = |what: &'static str| {
            move |source| LabError::Host { host: host.to_owned(), what: what.to_owned(), source }
        };
        let mut spawn = Spawn::new(exe).argument(SUBCOMMAND);
        spawn.namespace = Some(namespace);
        spawn.among = Among::First;
        spawn.groups = groups.iter().map(AsFd::as_fd).collect();
        spawn.outlives_us = outlives_us;
        spawn.errors_to = ErrorsTo::Pipe;
        let mut child = spawn.start().map_err(failed("starting its first process"))?;
        let setup = Setup {
            host: host.to_owned(),
            hosts,
            folder: folder.join("view"),
            binds: vec![
                (folder.join("data"), PathBuf::from(DATA)),
                (shared_folder(folder), PathBuf::from(SHARED)),
            ],
        };
        let mut line = serde_json::to_vec(&setup).map_err(|error| LabError::Fabric(error.to_string()))?;
        line.push(b'\n');
        let pipes = (child.take_stdin(), child.take_stdout(), child.take_stderr());
        let (Some(mut input), Some(mut output), Some(mut errors)) = pipes else {
            return Err(failed("its first process")(io::Error::other("it has no pipes")));
        };
        let mut said = String::new();
        let told = input.write_all(&line).and_then(|()| {
            if readable_within(output.as_fd(), READY_WITHIN)? {
                output.by_ref().take(READY.len() as u64).read_to_string(&mut said)?;
            }
            Ok(())
        });
        if said != READY {
            let how = child.wait(Duration::from_millis(200)).map_or("has not answered".to_owned(), describe);
            child.kill();
            let mut text = String::new();
            let _ = errors.by_ref().take(4096).read_to_string(&mut text);
            let text = match (text.trim(), told) {
                ("", Err(error)) => format!("its first process {how}: {error}"),
                ("", Ok(())) => format!("its first process {how}"),
                (text, _) => text.to_owned(),
            };
            return Err(failed("its view of the machine")(io::Error::other(text)));
        }
        let holder = Holder::of(child.id()).map_err(failed("holding its first process"))?;
        Ok(Held { holder, child })
    }

    /// How it ended, if it has: with it all that ran on the host.
    pub fn failed(&mut self) -> Option<String> {
        self.child.ended().map(describe)
    }

    /// Lets it live on without this process.
    pub fn release(self) {
        self.child.release();
    }
}

/// Runs until it is asked to end and nothing else is left on the host. Returns the exit status: 0, or 2 after an error on standard error.
pub fn main() -> i32 {
    match run() {
        Ok(()) => 0,
        Err(problem) => {
            let _ = writeln!(io::stderr(), "{problem}");
            2
        }
    }
}

fn run() -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(io::stdin()).take(SETUP_BYTES_MAX).read_line(&mut line)?;
    let Setup { host, hosts, folder, binds } = serde_json::from_str(&line)?;
    take_view(&View { host, hosts, folder, binds })?;
    io::stdout().write_all(READY.as_bytes())?;
    io::stdout().flush()?;
    hold_until_empty()
}
