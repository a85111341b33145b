//! A running lab: its namespaces, its fabric process, and what may be asked of them.

use crate::capture::{Outcome, Request};
use crate::data;
use crate::error::LabError;
use crate::holder_process::Held;
use crate::host::{self, HostParts};
use crate::limits::Limits;
use crate::names::names;
use crate::protocol::{Answer, Command, LINE_BYTES_MAX, SUBCOMMAND, Setup};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::thread;
use std::time::{Duration, Instant};
use weir_core::fabric_page;
use weir_core::schedule::Change;
use weir_core::topology::{Host, HostLimits, Topology};
use weir_sys::control_group::{self, ControlGroup};
use weir_sys::epoll::readable_within;
use weir_sys::holder::Holder;
use weir_sys::idle::StayAwake;
use weir_sys::process::{Child, ErrorsTo, Spawn, describe, raise_descriptor_limit, set_nonblocking};
use weir_sys::shared_memory::{Page, PageView};
use weir_sys::tun::Tun;

/// A fabric process that has not answered for so long is not going to.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

pub struct Options {
    /// Every random choice of the fabric follows from it.
    pub seed: u64,
    /// The program whose hidden subcommands call `hidden`; `/proc/self/exe` is weir itself.
    pub exe: PathBuf,
}

/// Namespaces and fabric live as long as this value, or the process that holds it, whichever ends first: namespaces are held
/// by descriptors only, and the kernel kills the fabric with its owner.
pub struct Lab {
    // The fabric goes first: it holds devices in the namespaces.
    fabric: Child,
    input: ChildStdin,
    output: ChildStdout,
    unread: Vec<u8>,
    page: PageView,
    namespaces: Vec<OwnedFd>,
    /// First processes of the hosts that have one, by index.
    holders: BTreeMap<usize, Held>,
    /// What hosts with limits may have together, by index. After the holders: with a group goes what is still in it.
    groups: BTreeMap<usize, ControlGroup>,
    host_names: Vec<String>,
    /// What `/etc/hosts` says.
    names: String,
    exe: PathBuf,
    /// It is left to `lab down` to end it.
    outlives_us: bool,
    notes: Vec<String>,
    failed: Option<String>,
    /// Programs in the lab and the fabric wait for each other: what a sleeping CPU takes to wake would be added to every delay.
    _awake: Option<StayAwake>,
}

impl Lab {
    /// Builds the topology's hosts and starts the fabric between them.
    ///
    /// Errors: without root or `/dev/net/tun`, and whatever the kernel refuses; nothing is left behind then.
    pub fn start(topology: &Topology, options: &Options) -> Result<Lab, LabError> {
        Lab::start_with(topology, options, &data::groups_of_run(), ErrorsTo::Inherited, None)
    }

    /// The same, with what its control groups are called before their host's name, with the fabric's standard error elsewhere than
    /// ours, and a socket at which it takes others' wishes.
    pub(crate) fn start_with(
        topology: &Topology,
        options: &Options,
        groups_of: &str,
        errors_to: ErrorsTo,
        listener: Option<BorrowedFd<'_>>,
    ) -> Result<Lab, LabError> {
        let words = fabric_page::words(topology.directed_count());
        let page = Page::create(words).map_err(LabError::start("making the page of counters"))?;
        let view = page.view().map_err(LabError::start("mapping the page of counters"))?;
        // If it cannot be raised, small labs still work; a large one says that too many files are open.
        let _ = raise_descriptor_limit();
        let groups = limited_hosts(topology, groups_of)?;
        let parts = build_hosts(topology)?;
        let mut notes: Vec<String> = Vec::new();
        for note in parts.iter().flat_map(|part| &part.notes) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }

        let mut spawn = Spawn::new(&options.exe).argument(SUBCOMMAND);
        spawn.errors_to = errors_to;
        // Devices are numbered: each host's own first, then, where there is one, each host's auxiliary one.
        let devices: Vec<BorrowedFd<'_>> = parts
            .iter()
            .map(|part| part.tun.fd())
            .chain(parts.iter().filter_map(|part| part.auxiliary.as_ref()).map(Tun::fd))
            .collect();
        spawn.inherit = devices.iter().copied().chain([page.fd()]).chain(listener).collect();
        let mut fabric = spawn.start().map_err(LabError::start("starting the fabric process"))?;
        let missing = || LabError::Fabric("has no pipes".to_owned());
        let input = fabric.take_stdin().ok_or_else(missing)?;
        let output = fabric.take_stdout().ok_or_else(missing)?;
        set_nonblocking(output.as_fd()).map_err(LabError::start("the fabric's answers"))?;
        let setup = Setup {
            topology: topology.clone(),
            seed: options.seed,
            ports: devices.iter().map(AsRawFd::as_raw_fd).collect(),
            page: page.fd().as_raw_fd(),
            listener: listener.map(|fd| fd.as_raw_fd()),
        };
        let namespaces = parts.into_iter().map(|part| part.namespace).collect();
        let awake = StayAwake::new()
            .inspect_err(|problem| notes.push(format!("idle CPUs may sleep, and wake late: {problem}")))
            .ok();
        let mut lab = Lab {
            fabric,
            input,
            output,
            unread: Vec::new(),
            page: view,
            namespaces,
            holders: BTreeMap::new(),
            groups,
            host_names: topology.hosts.iter().map(|host| host.name.clone()).collect(),
            names: names(topology),
            exe: options.exe.clone(),
            outlives_us: listener.is_some(),
            notes,
            failed: None,
            _awake: awake,
        };
        let more = lab.ask_for_notes(&setup)?;
        lab.notes.extend(more);
        Ok(lab)
    }

    /// The network namespace of a host, to start agents in.
    pub fn namespace(&self, host: usize) -> BorrowedFd<'_> {
        self.namespaces[host].as_fd()
    }
    /// Gives a host, where it has none, processes, names and files of its own: an overlay of `/`, and at `DATA` a folder in `of_lab`
    /// on the machine. All of it ends with the lab.
    ///
    /// Errors: what the kernel refuses; the host is as before then.
    pub fn hold(&mut self, host: usize, of_lab: &Path) -> Result<&Holder, LabError> {
        if self.holders.get_mut(&host).is_some_and(|held| held.failed().is_some()) {
            self.holders.remove(&host);
        }
        if !self.holders.contains_key(&host) {
            let name = &self.host_names[host];
            let failed =
                |source| LabError::Host { host: name.clone(), what: "its folder".to_owned(), source };
            let folder = data::host_folder(of_lab, name).map_err(failed)?;
            let (namespace, names) = (self.namespaces[host].as_fd(), self.names.clone());
            let held = Held::start(
                &self.exe,
                (namespace, self.groups(host)),
                name,
                names,
                &folder,
                self.outlives_us,
            )?;
            self.holders.insert(host, held);
        }
        Ok(&self.holders[&host].holder)
    }

    /// Files that take who enters a host, and has no holder to go by, into what limits it.
    pub fn groups(&self, host: usize) -> &[File] {
        self.groups.get(&host).map_or(&[], ControlGroup::members)
    }

    /// The program whose hidden subcommands call `hidden`.
    pub fn exe(&self) -> &Path {
        &self.exe
    }

    /// Whether programs in it are to live on when this process ends.
    pub fn outlives_us(&self) -> bool {
        self.outlives_us
    }

    /// First processes of hosts that have one, by the host's name.
    pub(crate) fn holder_ids(&self) -> impl Iterator<Item = (&str, u32)> {
        self.holders.iter().map(|(host, held)| (self.host_names[*host].as_str(), held.holder.id()))
    }

    /// The way into a host's own processes, names and files, where it has them.
    pub fn holder(&self, host: usize) -> Option<&Holder> {
        self.holders.get(&host).map(|held| &held.holder)
    }

    /// The fabric's counters, laid out as `weir_core::fabric_page` says.
    pub fn page(&self) -> &PageView {
        &self.page
    }
    pub fn fabric_pid(&self) -> u32 {
        self.fabric.id()
    }
    /// What the machine forbade, for people.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Adds changes of links at absolute times on the experiment's clock. One in the past is carried out at once.
    pub fn schedule(&mut self, changes: &[Change]) -> Result<(), LabError> {
        self.ask_for_notes(&Command::Schedule(changes.to_vec())).map(drop)
    }

    /// Forgets changes still to come and gives every link its own settings back.
    pub fn reset(&mut self) -> Result<(), LabError> {
        self.ask_for_notes(&Command::Reset).map(drop)
    }

    /// Captures what passes the ports into a file, from now until `end_capture`, or until the request's own end. Returns the
    /// capture's number.
    ///
    /// Errors: a port that the lab does not have, or a file that cannot be made.
    pub fn capture(&mut self, request: &Request, file: &Path) -> Result<u64, LabError> {
        match self.ask(&Command::Capture { request: request.clone(), file: file.to_owned() })? {
            Answer::Capturing(number) => Ok(number),
            other => Err(unasked(&other)),
        }
    }

    /// Ends a capture and waits until its file is complete.
    pub fn end_capture(&mut self, number: u64) -> Result<Outcome, LabError> {
        match self.ask(&Command::EndCapture(number))? {
            Answer::Captured(outcome) => Ok(outcome),
            other => Err(unasked(&other)),
        }
    }

    /// How the fabric ended, if it has.
    pub fn failed(&mut self) -> Option<String> {
        if self.failed.is_none() {
            self.failed =
                self.fabric.ended().map(|status| format!("the fabric process {}", describe(status)));
        }
        self.failed.clone()
    }

    /// Lets the fabric live on without this process. What keeps the namespaces is the caller's business.
    pub(crate) fn detach(mut self) -> Result<(), LabError> {
        self.ask_for_notes(&Command::Detach)?;
        self.fabric.release();
        for held in self.holders.into_values() {
            held.release();
        }
        self.groups.into_values().for_each(ControlGroup::release);
        Ok(())
    }

    fn ask_for_notes(&mut self, question: &impl serde::Serialize) -> Result<Vec<String>, LabError> {
        match self.ask(question)? {
            Answer::Done { notes } => Ok(notes),
            other => Err(unasked(&other)),
        }
    }

    fn ask(&mut self, question: &impl serde::Serialize) -> Result<Answer, LabError> {
        let mut line = serde_json::to_vec(question).map_err(|error| LabError::Fabric(error.to_string()))?;
        line.push(b'\n');
        if line.len() > LINE_BYTES_MAX {
            return Err(LabError::Fabric(format!(
                "takes {LINE_BYTES_MAX} B at a time and was to be told {} B: too many changes of links at once",
                line.len()
            )));
        }
        if let Err(error) = self.input.write_all(&line) {
            return Err(self.lost(&format!("does not listen ({error})")));
        }
        let answer = self.answer()?;
        match serde_json::from_slice(&answer) {
            Ok(Answer::Refused(why)) => Err(LabError::Fabric(format!("refused: {why}"))),
            Ok(answer) => Ok(answer),
            Err(error) => Err(LabError::Fabric(format!("answered what is no answer: {error}"))),
        }
    }

    /// The next line from the fabric.
    fn answer(&mut self) -> Result<Vec<u8>, LabError> {
        let until = Instant::now() + ANSWER_WITHIN;
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                return Ok(self.unread.drain(..=end).collect());
            }
            let mut chunk = [0; 4096];
            match self.output.read(&mut chunk) {
                Ok(0) => return Err(self.lost("closed its output")),
                Ok(bytes) => self.unread.extend_from_slice(&chunk[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() || self.unread.len() > LINE_BYTES_MAX {
                        return Err(LabError::Fabric(format!(
                            "has not answered within {} s",
                            ANSWER_WITHIN.as_secs()
                        )));
                    }
                    readable_within(self.output.as_fd(), left)
                        .map_err(LabError::start("waiting for the fabric"))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error.to_string())),
            }
        }
    }

    /// The error for a fabric that is gone or about to be: how it ended says more than how we noticed.
    fn lost(&mut self, noticed: &str) -> LabError {
        match self.fabric.wait(Duration::from_millis(500)) {
            Some(status) => LabError::Fabric(describe(status)),
            None => LabError::Fabric(noticed.to_owned()),
        }
    }
}

fn unasked(answer: &Answer) -> LabError {
    let text = serde_json::to_string(answer).unwrap_or_default();
    LabError::Fabric(format!("answered something else than it was asked: {text}"))
}

/// Groups of the hosts that have limits.
fn limited_hosts(topology: &Topology, groups_of: &str) -> Result<BTreeMap<usize, ControlGroup>, LabError> {
    let limited = topology.hosts.iter().enumerate().filter(|(_, host)| !host.limits.is_none());
    let group = |(index, host): (usize, &Host)| {
        let HostLimits { cpu_cores, memory_bytes } = host.limits;
        let limits = control_group::Limits { cpu_cores, memory_bytes };
        let made = ControlGroup::create(&format!("{groups_of}.{}", host.name), limits);
        let failed = |source| LabError::Host {
            host: host.name.clone(),
            what: "limiting it by a control group".to_owned(),
            source,
        };
        Ok((index, made.map_err(failed)?))
    };
    limited.map(group).collect()
}

/// Hosts in order, built by a few threads: the kernel spends most of the time waiting for its own locks and grace periods.
fn build_hosts(topology: &Topology) -> Result<Vec<HostParts>, LabError> {
    let limits = Limits::of(topology);
    let count = topology.hosts.len();
    let workers = count.clamp(1, 8);
    let built: Vec<Result<Vec<(usize, HostParts)>, LabError>> = thread::scope(|scope| {
        let start = |worker: usize| {
            scope.spawn(move || {
                let own = (worker..count).step_by(workers);
                own.map(|host| Ok((host, host::build(topology, host, limits)?))).collect()
            })
        };
        let threads: Vec<_> = (0..workers).map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut parts = Vec::with_capacity(count);
    for some in built {
        parts.extend(some?);
    }
    parts.sort_by_key(|(host, _)| *host);
    Ok(parts.into_iter().map(|(_, part)| part).collect())
}
