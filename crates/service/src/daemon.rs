//! A process of a service that stays.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_core::scenario::{Priority, Role};
use weir_sys::directory::Directory;
use weir_sys::holder::Holder;
use weir_sys::process::{
    Among, Child, ErrorsTo, Signal, Spawn, Streams, User, describe, signal, with_descendants,
    with_environment,
};
use weir_sys::socket::connect_named;
use weir_telemetry::service::Counters;
use weir_telemetry::transfers::Transfers;

/// Rounds in which the processes of a daemon are killed.
const KILLS_MAX: usize = 5;
/// What programs find, whatever the caller's environment says.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Processes that a daemon starts and lets go are known by it: no other daemon has the same log.
const MARK: &str = "WEIR_DAEMON_LOG";

/// What is run on a host, and how.
#[derive(Clone, Debug)]
pub struct Order {
    pub run: Vec<String>,
    pub user: Option<User>,
    /// On the machine: what it prints goes there, behind what is there.
    pub log: PathBuf,
    /// In the host.
    pub home: String,
    pub outlives_us: bool,
    /// Unless the scenario says otherwise they give way to what is measured, the fabric and the load. Measured: the generator 0.3 ms late
    /// beside daemons that are nicer by 10, and 2.9 ms beside such that are not.
    pub priority: Priority,
}

impl Order {
    pub fn start(&self, holder: &Holder) -> io::Result<Child> {
        // Looked for here: what is started looks in its own PATH, and the error of a program that is not there names nothing.
        let (program, arguments) = self.run.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let (folder, name) = (self.log.parent(), self.log.file_name().and_then(|name| name.to_str()));
        let log =
            Directory::open(folder.unwrap_or(Path::new("/")))?.append_or_create(name.unwrap_or_default())?;
        let mut spawn = Spawn::new(found(program)?);
        spawn.arguments = arguments.iter().map(OsString::from).collect();
        spawn.environment = vec![
            ("PATH".into(), PATH.into()),
            ("HOME".into(), self.home.clone().into()),
            (MARK.into(), self.log.clone().into()),
        ];
        spawn.among = Among::Of(holder);
        spawn.user = self.user;
        spawn.nicer_by = self.priority.nice();
        spawn.errors_to = ErrorsTo::File(log.try_clone()?);
        spawn.streams = Streams::Into(log);
        spawn.outlives_us = self.outlives_us;
        spawn.start()
    }
}

/// The program's path, as `PATH` leads to it.
pub fn found(program: &str) -> io::Result<PathBuf> {
    // A path stays what it is, whatever it is joined to.
    let folders = if program.contains('/') { "/" } else { PATH };
    let candidates = folders.split(':').map(|folder| PathBuf::from(folder).join(program));
    candidates
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{program} is not installed")))
}

/// A try to connect, or a command that asks, takes no longer.
pub const ASK_WITHIN: Duration = Duration::from_secs(2);
/// What looks whether something is ready again looks after this time.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A daemon that is started again is waited for so long.
const BACK_WITHIN: Duration = Duration::from_secs(20);

/// A question whether something is ready.
pub enum Asked {
    Port(SocketAddr),
    Line { text: String, log: PathBuf },
    Command(Order),
}

impl Asked {
    pub fn holds(&self, holder: &Holder) -> bool {
        match self {
            Asked::Port(address) => {
                let connect = || TcpStream::connect_timeout(address, ASK_WITHIN).is_ok();
                holder.run_in_network(connect).unwrap_or(false)
            }
            Asked::Line { text, log } => {
                let said = fs::read(log).unwrap_or_default();
                String::from_utf8_lossy(&said).contains(text.as_str())
            }
            Asked::Command(order) => {
                let started = order.start(holder);
                started.is_ok_and(|mut child| child.wait(ASK_WITHIN).is_some_and(|status| status.success()))
            }
        }
    }

    pub fn not_yet(&self) -> String {
        match self {
            Asked::Port(address) => format!("does not listen at port {}", address.port()),
            Asked::Line { text, .. } => format!("did not log {text:?}"),
            Asked::Command(order) => format!("is not ready ({} says no)", order.run.join(" ")),
        }
    }
}

/// How a daemon is taken out of service.
pub struct Drain {
    pub(crate) socket: PathBuf,
    pub(crate) out: String,
    pub(crate) back: String,
    pub(crate) is_out: bool,
}

/// A daemon on a host.
pub struct Daemon {
    pub name: String,
    pub role: Role,
    /// By index in the topology.
    pub host: usize,
    pub host_name: String,
    pub order: Order,
    /// What shows that it works.
    pub ready: Vec<Asked>,
    /// Where it says what it counts.
    pub counters: Option<Counters>,
    /// Where it says what is open on it.
    pub transfers: Option<Arc<Transfers>>,
    pub(crate) drain: Option<Drain>,
    /// In its host, where it mounts what it serves.
    pub(crate) mount: Option<String>,
    /// It begins anew where caches are emptied.
    pub(crate) is_cold: bool,
    pub(crate) child: Option<Child>,
    /// It was ended on purpose, and is not missed.
    pub(crate) is_down: bool,
}

impl Daemon {
    /// How it ended, if it has and should not have.
    pub fn failed(&mut self) -> Option<String> {
        if self.is_down {
            return None;
        }
        let ended = self.child.as_mut().and_then(Child::ended)?;
        Some(format!("{} on {} {}", self.name, self.host_name, describe(ended)))
    }

    /// It and what it started, also what it let go and does not wait for.
    pub fn processes(&self) -> Vec<u32> {
        let mut begin: Vec<u32> = self.child.as_ref().map(Child::id).into_iter().collect();
        begin.extend(with_environment(MARK, self.order.log.as_os_str()));
        with_descendants(&begin).unwrap_or_default()
    }

    /// Sends a signal to it and to what it started. Returns how many were there.
    pub fn signal(&self, which: Signal) -> usize {
        self.processes().into_iter().filter(|process| signal(*process, which)).count()
    }

    /// It was ended on purpose.
    pub fn is_down(&self) -> bool {
        self.is_down
    }

    /// It was taken out of service, and not put back.
    pub fn is_drained(&self) -> bool {
        self.drain.as_ref().is_some_and(|drain| drain.is_out)
    }

    /// Takes it out of service, so that nobody new is sent to it, or puts it back; `None`: it has no say in that. Errors: it cannot be
    /// told, for people.
    pub fn drain(&mut self, out: bool) -> Option<Result<(), String>> {
        let drain = self.drain.as_mut()?;
        let lines = if out { &drain.out } else { &drain.back };
        drain.is_out = out;
        let told = connect_named(&drain.socket).and_then(|mut stream| {
            stream.set_write_timeout(Some(ASK_WITHIN))?;
            stream.write_all(lines.as_bytes())
        });
        Some(told.map_err(|error| format!("{} on {} cannot be told: {error}", self.name, self.host_name)))
    }

    /// Ends it at once; `start_again` brings it back. True if it was there.
    pub fn kill(&mut self) -> bool {
        let was_there = self.child.is_some();
        self.is_down = true;
        // What is started meanwhile is found the next time.
        for _ in 0..KILLS_MAX {
            if self.signal(Signal::Kill) == 0 {
                break;
            }
        }
        if let Some(child) = &mut self.child {
            child.kill();
        }
        self.child = None;
        was_there
    }

    /// Starts one that has ended again; returns when it works. Errors: it does not, for people.
    pub(crate) fn bring_back(&mut self, holder: &Holder) -> Result<(), String> {
        let named = |what: &str| format!("{} on {} {what}", self.name, self.host_name);
        let (unstarted, late) = (named("could not be started again"), named("did not come back"));
        self.start_again(holder).map_err(|error| format!("{unstarted}: {error}"))?;
        let until = Instant::now() + BACK_WITHIN;
        // What it logged the first time is still there, and says nothing of this one.
        let asked = self.ready.iter().filter(|asked| !matches!(asked, Asked::Line { .. }));
        for asked in asked {
            while !asked.holds(holder) {
                if Instant::now() >= until {
                    return Err(late);
                }
                std::thread::sleep(LOOK_AGAIN);
            }
        }
        Ok(())
    }

    pub fn start_again(&mut self, holder: &Holder) -> io::Result<()> {
        if let Some(mount) = &self.mount {
            // What was mounted by one that was killed stays there, answers nobody, and another does not mount over it.
            let run = ["umount", "--quiet", "--lazy", mount].map(str::to_owned).to_vec();
            Order { run, user: None, ..self.order.clone() }.start(holder)?.wait(ASK_WITHIN);
        }
        self.child = Some(self.order.start(holder)?);
        self.is_down = false;
        // A new one knows nothing of it.
        if let Some(drain) = &mut self.drain {
            drain.is_out = false;
        }
        Ok(())
    }

    /// Waits for its end after it was asked to end; kills what does not.
    pub(crate) fn end(&mut self, limit: Duration) -> Option<ExitStatus> {
        self.is_down = true;
        let mut child = self.child.take()?;
        let ended = child.wait(limit);
        if ended.is_none() {
            child.kill();
        }
        for process in with_environment(MARK, self.order.log.as_os_str()) {
            signal(process, Signal::Kill);
        }
        ended
    }
}
