//! Child processes that cannot outlive their owner, and what a program may do before it becomes another one.

use crate::control_group;
use crate::holder::{Holder, SEEN, set_namespaces, starting_in};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child as StdChild, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A user a process runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

impl User {
    /// Who this process really runs as.
    pub fn real() -> User {
        // Safety: these calls take nothing and cannot fail.
        unsafe { User { uid: libc::getuid(), gid: libc::getgid() } }
    }
    /// The account of this name; `None` if there is none.
    pub fn named(name: &str) -> Option<User> {
        User::with(|own, _| own == name)
    }
    /// The account of a name, or of a number: one that has no account is alone in a group of its own number.
    pub fn of(name_or_number: &str) -> Option<User> {
        User::named(name_or_number).or_else(|| {
            let uid = name_or_number.parse().ok()?;
            Some(User::with(|_, own| own == uid).unwrap_or(User { uid, gid: uid }))
        })
    }
    /// The first account of whose name and number this is true.
    fn with(is_meant: impl Fn(&str, u32) -> bool) -> Option<User> {
        let accounts = std::fs::read_to_string("/etc/passwd").ok()?;
        accounts.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, uid, gid, ..] = fields.as_slice() else { return None };
            let user = User { uid: uid.parse().ok()?, gid: gid.parse().ok()? };
            is_meant(name, user.uid).then_some(user)
        })
    }
    /// Who asked for this process: the user named by `sudo` if it was root who started us that way, else the real one.
    pub fn invoking() -> User {
        let real = User::real();
        let from_sudo = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
        match (real.uid, from_sudo("SUDO_UID"), from_sudo("SUDO_GID")) {
            (0, Some(uid), Some(gid)) => User { uid, gid },
            _ => real,
        }
    }
}

/// Where a child's standard error goes.
pub enum ErrorsTo {
    /// To ours.
    Inherited,
    Pipe,
    File(File),
}

/// Where a child's standard output goes, and where its input comes from.
pub enum Streams {
    /// To us, and from us.
    Piped,
    /// To the file, and from nowhere.
    Into(File),
}

/// Among which processes a child is.
#[derive(Clone, Copy)]
pub enum Among<'a> {
    Ours,
    /// The first of a PID namespace of its own: when it ends, all that are in it end.
    First,
    /// Those of a holder, whose network, names and files it sees.
    Of(&'a Holder),
}

/// What to start and how.
pub struct Spawn<'a> {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    /// Descriptors the child gets under the same numbers.
    pub inherit: Vec<BorrowedFd<'a>>,
    /// The network namespace it starts in; `None`: ours.
    pub namespace: Option<BorrowedFd<'a>>,
    pub among: Among<'a>,
    /// Files of control groups that it is taken into; among those of a holder also the holder's.
    pub groups: Vec<BorrowedFd<'a>>,
    /// The user it becomes, without new privileges; `None`: as we are.
    pub user: Option<User>,
    /// Steps by which it is nicer than we are.
    pub nicer_by: i32,
    pub streams: Streams,
    pub errors_to: ErrorsTo,
    /// It ends with its holder and not with us.
    pub outlives_us: bool,
}

impl<'a> Spawn<'a> {
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Spawn {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            inherit: Vec::new(),
            namespace: None,
            among: Among::Ours,
            groups: Vec::new(),
            user: None,
            nicer_by: 0,
            streams: Streams::Piped,
            errors_to: ErrorsTo::Inherited,
            outlives_us: false,
        }
    }
    pub fn argument(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Starts the child in a session and process group of its own. When this process ends, in whatever way, the kernel kills the child,
    /// but for one that `outlives_us`.
    pub fn start(self) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        match self.streams {
            Streams::Piped => command.stdin(Stdio::piped()).stdout(Stdio::piped()),
            Streams::Into(file) => command.stdin(Stdio::null()).stdout(Stdio::from(file)),
        };
        command.stderr(match self.errors_to {
            ErrorsTo::Inherited => Stdio::inherit(),
            ErrorsTo::Pipe => Stdio::piped(),
            ErrorsTo::File(file) => Stdio::from(file),
        });
        let holder = match self.among {
            Among::Of(holder) => Some(holder.as_fd().try_clone_to_owned()?),
            Among::Ours | Among::First => None,
        };
        let mut groups: Vec<File> = match self.among {
            Among::Of(holder) => control_group::of_process(holder.id()),
            Among::Ours | Among::First => Vec::new(),
        };
        for group in &self.groups {
            groups.push(group.try_clone_to_owned()?.into());
        }
        let is_first = matches!(self.among, Among::First);
        let childhood = Childhood {
            owner: (!self.outlives_us).then(std::process::id),
            inherit: self.inherit.iter().map(AsRawFd::as_raw_fd).collect(),
            namespace: self.namespace.map(|fd| fd.try_clone_to_owned()).transpose()?,
            holder: holder.as_ref().map(OwnedFd::try_clone).transpose()?,
            groups,
            user: self.user,
            nicer_by: (self.nicer_by, self.nicer_by.to_string()),
        };
        // Safety: the closure runs between fork and exec; it makes system calls on values captured beforehand and allocates
        // nothing unless it fails.
        unsafe {
            command.pre_exec(move || childhood.prepare());
        }
        // The signal at the owner's death is really at the death of the *thread* that forked, so all children are
        // forked by one thread that lives as long as the program.
        let child = in_spawner(move || match (holder, is_first) {
            (None, false) => command.spawn(),
            (holder, _) => starting_in(holder.as_ref().map(AsFd::as_fd), || command.spawn()),
        })?;
        Ok(Child { inner: child, ended: None })
    }
}

/// What a child does before it becomes its program.
struct Childhood {
    /// With whom it ends.
    owner: Option<u32>,
    inherit: Vec<i32>,
    namespace: Option<OwnedFd>,
    holder: Option<OwnedFd>,
    groups: Vec<File>,
    user: Option<User>,
    /// As a number, and as the text that the kernel is told it by.
    nicer_by: (i32, String),
}

impl Childhood {
    fn prepare(&self) -> io::Result<()> {
        check(raw::setsid())?;
        crate::signal::failed_writes_end_the_program();
        // What our own starter left open must not stay open in a child that may outlive us. Before Linux 5.11 it does.
        raw::close_all_on_exec();
        for group in &self.groups {
            control_group::enter(group)?;
        }
        for fd in &self.inherit {
            check(raw::keep_open(*fd))?;
        }
        if let Some(namespace) = &self.namespace {
            check(raw::setns(namespace.as_raw_fd()))?;
        }
        if let Some(holder) = &self.holder {
            check(set_namespaces(holder.as_fd(), SEEN))?;
        }
        if self.nicer_by.0 != 0 {
            raw::be_nicer(self.nicer_by.0, self.nicer_by.1.as_bytes())?;
        }
        if let Some(user) = self.user {
            become_user_raw(user)?;
        }
        if let Some(owner) = self.owner {
            // After the change of user, which clears it.
            check(raw::die_with_parent())?;
            // Seen from a PID namespace below its own, a parent that is there is process 0.
            if ![owner, 0].contains(&raw::parent()) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH)); // it died before we asked
            }
        }
        Ok(())
    }
}

pub(crate) fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// System calls without memory arguments, or with constant ones.
mod raw {
    use std::io;

    /// The thread's own, and its session's where the kernel shares the CPU between sessions first: it has just begun one.
    pub fn be_nicer(by: i32, text: &[u8]) -> io::Result<()> {
        // Safety: takes numbers.
        super::check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, by) })?;
        // Safety: a constant C string, a buffer of the length given, and a descriptor that is ours.
        unsafe {
            let file = libc::open(c"/proc/self/autogroup".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if file >= 0 {
                libc::write(file, text.as_ptr().cast(), text.len());
                libc::close(file);
            }
        }
        Ok(())
    }
    pub fn setsid() -> i32 {
        // Safety: takes nothing.
        unsafe { libc::setsid() }
    }
    pub fn keep_open(fd: i32) -> i32 {
        // Safety: takes numbers; a wrong descriptor is an error.
        unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }
    }
    pub fn close_all_on_exec() -> i32 {
        // Safety: takes numbers; marks descriptors from 3 on, closes none before exec.
        unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) as i32 }
    }
    pub fn setns(fd: i32) -> i32 {
        // Safety: takes numbers; a wrong descriptor is an error.
        unsafe { libc::setns(fd, libc::CLONE_NEWNET) }
    }
    pub fn die_with_parent() -> i32 {
        // Safety: takes numbers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) }
    }
    pub fn end_with_parent() -> i32 {
        // Safety: takes numbers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM as libc::c_ulong) }
    }
    pub fn outlive_parent() -> i32 {
        // Safety: takes numbers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0 as libc::c_ulong) }
    }
    pub fn no_new_privileges() -> i32 {
        // Safety: takes numbers.
        unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as libc::c_ulong, 0, 0, 0) }
    }
    pub fn parent() -> u32 {
        // Safety: takes nothing.
        unsafe { libc::getppid() as u32 }
    }
    pub fn kill(process: i32, signal: i32) -> i32 {
        // Safety: takes numbers.
        unsafe { libc::kill(process, signal) }
    }
}

fn become_user_raw(user: User) -> io::Result<()> {
    act_as(user)?;
    check(raw::no_new_privileges())
}

/// Has the calling thread act as another user, and with it the threads that it starts, until they end: there is no way back. Other
/// threads of the process stay who they are.
///
/// Errors: the kernel does not let us; only root may become others.
pub fn act_as(user: User) -> io::Result<()> {
    if user == User::real() {
        return Ok(());
    }
    // The C library's functions change all threads of a process; the kernel's own calls change the one that makes them. Groups
    // first: once the user has changed we may no longer.
    let (uid, gid) = (user.uid, user.gid);
    // Safety: with a count of one, one gid is read, which outlives the call.
    check(unsafe { libc::syscall(libc::SYS_setgroups, 1, &raw const gid) } as i32)?;
    // Safety: takes numbers.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) } as i32)?;
    // Safety: takes numbers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) } as i32)
}

/// Makes the calling process run as `user`, with that user's own groups, and never gain privileges again (also through
/// set-user-ID programs).
pub fn become_user(user: User) -> io::Result<()> {
    if user != User::real()
        && let Some(name) = user_name(user.uid)
    {
        // Safety: a valid C string; the call reads the group database.
        check(unsafe { libc::initgroups(name.as_ptr(), user.gid) })?;
        // Safety: takes numbers.
        check(unsafe { libc::setresgid(user.gid, user.gid, user.gid) })?;
        // Safety: takes numbers.
        check(unsafe { libc::setresuid(user.uid, user.uid, user.uid) })?;
    }
    become_user_raw(user)
}

fn user_name(uid: u32) -> Option<CString> {
    let mut buffer = vec![0 as libc::c_char; 16 * 1024];
    // Safety: passwd is plain data (pointers and numbers) for which all zeros is a valid value.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found: *mut libc::passwd = std::ptr::null_mut();
    // Safety: all pointers are valid for the call, which writes at most `buffer.len()` bytes of strings.
    let result = unsafe { libc::getpwuid_r(uid, &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) };
    if result != 0 || found.is_null() {
        return None;
    }
    // Safety: the entry was found, so its name is a C string inside `buffer`.
    Some(unsafe { std::ffi::CStr::from_ptr(entry.pw_name) }.to_owned())
}

type Job = Box<dyn FnOnce() + Send>;

fn in_spawner<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    static SPAWNER: OnceLock<Sender<Job>> = OnceLock::new();
    let jobs = SPAWNER.get_or_init(|| {
        let (jobs, queue) = channel::<Job>();
        // If this thread cannot be made, the receiver is gone and the send below says so.
        let _ = thread::Builder::new().name("spawner".to_owned()).spawn(move || {
            for job in queue {
                job();
            }
        });
        jobs
    });
    let (answer, result) = channel();
    let gone = || io::Error::other("the thread that starts processes could not be started");
    jobs.send(Box::new(move || {
        let _ = answer.send(work());
    }))
    .map_err(|_| gone())?;
    result.recv().map_err(|_| gone())?
}

/// A started child. Dropping it kills its process group and reaps it.
pub struct Child {
    inner: StdChild,
    ended: Option<ExitStatus>,
}

impl Child {
    pub fn id(&self) -> u32 {
        self.inner.id()
    }
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.inner.stdin.take()
    }
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.inner.stdout.take()
    }
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.inner.stderr.take()
    }
    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.inner.try_wait().ok().flatten();
        }
        self.ended
    }
    /// Waits up to `limit` for it to end by itself.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= until {
                return None;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
    /// Kills it and the rest of its process group, and reaps it.
    pub fn kill(&mut self) {
        if self.ended().is_none() {
            // Not reaped yet, so its number, and the group's, is still its own.
            raw::kill(-(self.inner.id() as i32), libc::SIGKILL);
            let _ = self.inner.kill();
            self.ended = self.inner.wait().ok();
        }
    }
    /// Lets it live on: it will not be killed when this value goes. It must have asked `outlive_owner` itself.
    pub fn release(self) {
        std::mem::forget(self);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Takes back, for the calling process, that it dies with the process that started it.
pub fn outlive_owner() -> io::Result<()> {
    check(raw::outlive_parent())
}

/// `exited with status 2` or `was killed by signal 9`.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// A signal to end a process, or to have it stand still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Asks it to end.
    Terminate,
    /// Ends it.
    Kill,
    /// Stands still until told to go on.
    Stop,
    Continue,
}

impl Signal {
    fn number(self) -> i32 {
        match self {
            Signal::Terminate => libc::SIGTERM,
            Signal::Kill => libc::SIGKILL,
            Signal::Stop => libc::SIGSTOP,
            Signal::Continue => libc::SIGCONT,
        }
    }
}

/// A process held by a descriptor: its number may become another's, what is signalled stays the same. What is read of the number
/// after `hold` and before a signal that was sent is of this process.
pub struct Held(OwnedFd);

/// `None` if there is no such process. Needs Linux 5.3.
pub fn hold(process: u32) -> Option<Held> {
    hold_descriptor(process).map(Held)
}

pub(crate) fn hold_descriptor(process: u32) -> Option<OwnedFd> {
    // Safety: takes numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    // Safety: the descriptor is fresh and ours alone.
    (fd >= 0).then(|| unsafe { std::os::fd::FromRawFd::from_raw_fd(fd as i32) })
}

impl Held {
    /// True if it was there.
    pub fn signal(&self, signal: Signal) -> bool {
        let none = std::ptr::null::<libc::siginfo_t>();
        // Safety: takes numbers, and no details of the signal.
        let result = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal.number(), none, 0)
        };
        result == 0
    }
}

/// Whether a process of root or of ours runs this subcommand of a program.
pub fn runs_subcommand(process: u32, subcommand: &str) -> bool {
    let owner = std::fs::metadata(format!("/proc/{process}")).map(|about| about.uid());
    let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let second = line.split(|byte| *byte == 0).nth(1);
    // Safety: takes nothing and cannot fail.
    let ours = unsafe { libc::geteuid() };
    owner.is_ok_and(|owner| owner == 0 || owner == ours) && second == Some(subcommand.as_bytes())
}

/// Sends a signal to one process. True if it was there. Process numbers are used again: check what it is first.
pub fn signal(process: u32, signal: Signal) -> bool {
    let number = signal.number();
    // 0 and numbers beyond i32 would mean groups, or everything we may signal.
    match i32::try_from(process) {
        Ok(process) if process > 1 => raw::kill(process, number) == 0,
        _ => false,
    }
}

/// What tells a process from a later one with the same number: its start in clock ticks since boot. `None` if there is no
/// such process, only its remains wait to be reaped, or it has been killed and is on its way out.
pub fn start_ticks(process: u32) -> Option<u64> {
    if is_ending(process) {
        return None;
    }
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may itself hold spaces and parentheses: what follows its end is regular.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
    if matches!(fields.first(), Some(&"Z" | &"X")) {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// State and parent of a process, from `/proc/PID/stat`.
fn state_and_parent(process: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

/// Processes that were started with `name=value` in their environment; those that are about to end are left out.
pub fn with_environment(name: &str, value: &std::ffi::OsStr) -> Vec<u32> {
    let wanted = [name.as_bytes(), b"=", value.as_bytes()].concat();
    let has = |number: &u32| {
        let environment = std::fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == wanted)
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter(has).filter(|number| !is_ending(*number)).collect()
}

/// The processes themselves and all that descend from them, ascending; those that only wait to be reaped are left out.
pub fn with_descendants(processes: &[u32]) -> io::Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if let Some((state, parent)) = state_and_parent(number)
            && !matches!(state, 'Z' | 'X')
        {
            parents.push((number, parent));
        }
    }
    let mut all: std::collections::BTreeSet<u32> = processes.iter().copied().collect();
    loop {
        let before = all.len();
        let more: Vec<u32> =
            parents.iter().filter(|(_, parent)| all.contains(parent)).map(|(number, _)| *number).collect();
        all.extend(more);
        if all.len() == before {
            return Ok(all.into_iter().collect());
        }
    }
}

/// A killed process stays in the tables for some milliseconds: first with the signal pending, then without its program.
fn is_ending(process: u32) -> bool {
    const KILL_BIT: u64 = 1 << (libc::SIGKILL - 1);
    let Ok(status) = std::fs::read_to_string(format!("/proc/{process}/status")) else { return true };
    let pending = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    let without_program = || {
        let program = std::fs::read_link(format!("/proc/{process}/exe"));
        program.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    pending.fold(0, |all, mask| all | mask) & KILL_BIT != 0 || without_program()
}

/// Raises the calling thread's priority by `steps` of nice, and its session's where the kernel shares the CPU between
/// sessions first (`sched_autogroup_enabled`): there nice counts only within a session.
///
/// Errors: `PermissionDenied` without `CAP_SYS_NICE`.
pub fn raise_priority(steps: i32) -> io::Result<()> {
    raise_thread_priority(steps)?;
    match std::fs::write("/proc/self/autogroup", format!("{}", -steps)) {
        // Not a kernel with such groups.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Raises the calling thread's priority by `steps` of nice, and no other's.
///
/// Errors: `PermissionDenied` without `CAP_SYS_NICE`.
pub fn raise_thread_priority(steps: i32) -> io::Result<()> {
    // Safety: takes numbers. Linux takes 0 for the calling thread, not for its process.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -steps) })?;
    Ok(())
}

/// Where a thread may run, by CPU number: `CPU_SETSIZE` (1,024) bits.
#[derive(Clone)]
pub struct Affinity(libc::cpu_set_t);

impl Affinity {
    /// That of the calling thread.
    pub fn current() -> io::Result<Affinity> {
        // Safety: a set of bits; none is set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // Safety: the kernel writes at most the size given.
        check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) })?;
        Ok(Affinity(set))
    }

    /// The first of its CPUs, and the others. `None` if there is only one.
    pub fn split(&self) -> Option<(Affinity, Affinity)> {
        // Safety: numbers below `CPU_SETSIZE` are within the set.
        let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| unsafe { libc::CPU_ISSET(*cpu, &self.0) })?;
        let (mut one, mut others) = (self.clone(), self.clone());
        // Safety: as above.
        unsafe {
            libc::CPU_ZERO(&mut one.0);
            libc::CPU_SET(first, &mut one.0);
            libc::CPU_CLR(first, &mut others.0);
        }
        // Safety: as above.
        (unsafe { libc::CPU_COUNT(&others.0) } > 0).then_some((one, others))
    }

    /// Makes a thread run there only: one of any process by its number, or (0) the calling one. Threads that it begins do the same.
    pub fn apply(&self, thread: u32) -> io::Result<()> {
        // Safety: the kernel reads the size given.
        check(unsafe {
            libc::sched_setaffinity(thread as libc::pid_t, size_of::<libc::cpu_set_t>(), &raw const self.0)
        })
    }
}

/// Asks the scheduler to give the calling thread short turns, soon, instead of long ones: a thread with a short slice
/// preempts one with a long one when it wakes (Linux 6.12 and later; earlier kernels accept and ignore it).
pub fn take_short_turns(slice: Duration) -> io::Result<()> {
    /// `struct sched_attr` of `linux/sched/types.h`, first version.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    // Safety: takes numbers.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime_ns: weir_core::time::nanoseconds(slice),
        deadline_ns: 0,
        period_ns: 0,
    };
    // Safety: the kernel reads `size` bytes of the structure, which outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    check(result as i32)
}

/// Runs a program in the foreground, as the user unless `None`, and waits for its end. What the terminal sends goes to it alone; it is
/// asked to end when this process ends.
///
/// Errors: it could not be started.
pub fn run_in_foreground(
    program: &OsStr,
    arguments: &[OsString],
    user: Option<User>,
) -> io::Result<ExitStatus> {
    crate::signal::failed_writes_end_the_program();
    let mut command = Command::new(program);
    command.args(arguments);
    // Safety: the closure runs between fork and exec in a process with one thread.
    unsafe {
        command.pre_exec(move || {
            if let Some(user) = user {
                become_user(user)?;
            }
            check(raw::end_with_parent())
        });
    }
    let child = command.spawn();
    let mut child = child.inspect_err(|_| crate::signal::failed_writes_are_errors())?;
    crate::signal::ignore_the_terminal();
    child.wait()
}

/// Ends this process as another one ended: by the same signal, or with the same status.
pub fn end_like(status: ExitStatus) -> ! {
    if let Some(number) = status.signal() {
        // Safety: takes numbers; the default action of a signal that ended another process ends this one.
        unsafe {
            libc::signal(number, libc::SIG_DFL);
            libc::raise(number);
        }
    }
    std::process::exit(status.code().unwrap_or(128 + status.signal().unwrap_or(0)))
}

/// Replaces the calling process by `program`. Returns only if that failed.
pub fn replace_by(program: &OsStr, arguments: &[OsString]) -> io::Error {
    crate::signal::failed_writes_end_the_program();
    let error = Command::new(program).args(arguments).exec();
    crate::signal::failed_writes_are_errors();
    error
}

/// Lets the calling process, and what it starts, have as many descriptors open as the machine allows it at most. Shells
/// commonly give 1,024, and a lab needs two a host.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // Safety: fills the struct, which outlives the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // Safety: reads the struct, which outlives the call.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })
}

/// Makes reads and writes of `fd` return instead of waiting.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // Safety: takes numbers.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    check(flags)?;
    // Safety: takes numbers.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })
}

/// Takes over a descriptor that the parent said we inherit. Errors if it is not open.
pub fn take_inherited(number: i32) -> io::Result<OwnedFd> {
    // Safety: takes numbers; answers whether the descriptor is open.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // Safety: it is open, and the caller's contract with its parent is that nobody else here owns it.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_child_echoes_and_is_reaped_when_dropped() {
        let mut child = Spawn::new("/bin/cat").start().unwrap();
        let id = child.id();
        child.take_stdin().unwrap().write_all(b"hello").unwrap();
        let mut said = String::new();
        child.take_stdout().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "hello");
        let mut sleeper = Spawn::new("/bin/sleep").argument("1000").start().unwrap();
        assert_eq!(sleeper.wait(Duration::from_millis(5)), None);
        let sleeper_id = sleeper.id();
        drop(sleeper);
        drop(child);
        assert_eq!((start_ticks(id), start_ticks(sleeper_id)), (None, None));
    }

    // Spec: commands.md#signals-1
    #[test]
    fn failed_writes_are_errors_here_and_signals_again_in_a_child() {
        // By number, SIGPIPE is the 13th and SIGXFSZ the 25th.
        const BOTH: u64 = 1 << 12 | 1 << 24;
        let ignored = |status: &str| {
            let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
            u64::from_str_radix(mask.trim(), 16).unwrap() & BOTH
        };
        crate::signal::failed_writes_are_errors();
        assert_eq!(ignored(&std::fs::read_to_string("/proc/self/status").unwrap()), BOTH);
        let mut child = Spawn::new("/bin/cat").argument("/proc/self/status").start().unwrap();
        let mut said = String::new();
        child.take_stdout().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(ignored(&said), 0);
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let mut child =
            thread::spawn(|| Spawn::new("/bin/sleep").argument("1000").start().unwrap()).join().unwrap();
        assert_eq!(child.wait(Duration::from_millis(30)), None);
        child.kill();
        assert_eq!(child.ended().and_then(|status| status.signal()), Some(libc::SIGKILL));
    }

    #[test]
    fn dangerous_process_numbers_are_never_signalled() {
        assert!(!signal(0, Signal::Terminate));
        assert!(!signal(1, Signal::Terminate));
        assert!(!signal(u32::MAX, Signal::Terminate));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        assert_eq!(Spawn::new("/no/such/program").start().err().unwrap().kind(), io::ErrorKind::NotFound);
    }
}
