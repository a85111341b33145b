//! Agents on real hosts, through the system's own OpenSSH client: its keys, its known hosts, its configuration.
//!
//! No password is ever asked for, no host key ever taken on trust. The far side runs one small shell script that finds the
//! agent, or takes it from its standard input, and then becomes it.
//! Rules: `docs/specs/agent-protocol.md`.

use super::image::Image;
use super::ssh_words;
use super::words::{self, Words, quoted};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use weir_core::Instant;
use weir_core::scenario::RealHost;
use weir_seams::launcher::{LaunchError, Launched, Launcher, Process};
use weir_sys::clock::monotonic;
use weir_sys::poll::{self, Interest};
use weir_sys::process::{Child, ErrorsTo, Spawn};

/// Seconds until a host that does not answer counts as down.
const CONNECT_SECONDS: u32 = 10;
/// From the start of the client to the first word of our script: connecting, proving keys, and a shell that may be slow.
pub const LOGIN_MAX: Duration = Duration::from_secs(30);
/// Longest pause in which a host takes nothing of a copy.
const COPY_STALL_MAX: Duration = Duration::from_secs(20);
/// What a login's own start-up files may print before our script speaks.
const NOISE_BYTES_MAX: usize = 64 * 1024;
/// A write of so many bytes to a pipe that polls as writable does not block (`PIPE_BUF`).
const PIECE_BYTES: usize = 4096;
/// Begins what our script says, so that it is told from whatever else a login prints, on a line of its own or before it on
/// the same one.
const MARK: &str = "weir-launch ";
/// The same as the script spells it: a login that echoes its orders must not be taken for the script.
const MARK_SPELT: &str = "weir-\"\"launch ";

/// Options that hold whatever the user's configuration says. All are ours: nothing of a scenario is among them.
const OPTIONS: &[&str] = &[
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "UpdateHostKeys=no",
    "NumberOfPasswordPrompts=0",
    "ConnectionAttempts=1",
    // A connection that is shared may be used, but must not be kept open by us.
    "ControlMaster=no",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "EscapeChar=none",
    "LogLevel=ERROR",
];

pub struct SshLauncher {
    /// The client, found by `PATH` if it is a bare name.
    pub client: PathBuf,
    /// Instead of the user's own configuration of the client.
    pub configuration: Option<PathBuf>,
    pub hosts: BTreeMap<String, RealHost>,
    /// The program that is copied where no other is named: this one normally.
    pub program: PathBuf,
    pub login_max: Duration,
    image: OnceLock<Result<Arc<Image>, String>>,
}

impl SshLauncher {
    pub fn new(hosts: &[RealHost], program: PathBuf) -> SshLauncher {
        SshLauncher {
            client: "ssh".into(),
            configuration: None,
            hosts: hosts.iter().map(|host| (host.name.clone(), host.clone())).collect(),
            program,
            login_max: LOGIN_MAX,
            image: OnceLock::new(),
        }
    }

    /// The program to copy, read once and only if some host needs it.
    fn image(&self) -> Result<Arc<Image>, String> {
        self.image.get_or_init(|| Image::read(&self.program).map(Arc::new)).clone()
    }

    /// Everything after the client's name. Texts of a scenario are checked before, and come behind `--` but for the jump
    /// hosts, which are their option's value.
    fn arguments(&self, host: &RealHost, command: &str) -> Vec<String> {
        let mut all: Vec<String> = ["-T", "-a", "-x"].map(str::to_owned).to_vec();
        if let Some(configuration) = &self.configuration {
            all.extend(["-F".to_owned(), configuration.display().to_string()]);
        }
        for option in OPTIONS {
            all.extend(["-o".to_owned(), (*option).to_owned()]);
        }
        all.extend(["-o".to_owned(), format!("ConnectTimeout={CONNECT_SECONDS}")]);
        if let Some(port) = host.port {
            all.extend(["-p".to_owned(), port.to_string()]);
        }
        if let Some(jump) = &host.jump {
            all.extend(["-J".to_owned(), jump.clone()]);
        }
        all.push("--".to_owned());
        all.push(login(host));
        all.push(command.to_owned());
        all
    }
}

/// `USER@HOST`, as people type it.
fn login(host: &RealHost) -> String {
    match &host.user {
        Some(user) => format!("{user}@{}", host.address),
        None => host.address.clone(),
    }
}

/// The program that is to be the agent.
#[derive(Clone, Copy)]
enum Agent<'a> {
    There(&'a str),
    Copied(&'a Image),
}

/// What the far side's shell is told: one line, and no quote of any kind that the login shell could read otherwise.
fn script(agent: Agent<'_>) -> String {
    let lines = match agent {
        Agent::There(path) => format!("echo {MARK_SPELT}start; exec {path} agent"),
        Agent::Copied(image) => {
            let (name, size, sum) = (&image.name, image.bytes.len(), image.sum);
            // Copies that nothing has used for 30 days go when another one comes.
            format!(
                "umask 077; d=${{XDG_CACHE_HOME:-$HOME/.cache}}/weir; f=$d/{name}; t=$d/.{name}.$$; \
                 same() {{ [ -f \"$1\" ] && [ \"$(cksum <\"$1\")\" = \"{sum} {size}\" ]; }}; \
                 if same \"$f\"; then touch \"$f\"; else \
                 echo {MARK_SPELT}need \"$(uname -s)\" \"$(uname -m)\"; \
                 mkdir -p \"$d\" && head -c {size} >\"$t\" && same \"$t\" && chmod 700 \"$t\" && mv -f \"$t\" \"$f\" || \
                 {{ rm -f \"$t\"; echo {MARK_SPELT}failed; exit 3; }}; \
                 find \"$d\" -name \"weir-agent-*\" -mtime +30 -exec rm -f {{}} +; fi; \
                 echo {MARK_SPELT}start; exec \"$f\" agent"
            )
        }
    };
    debug_assert!(!lines.contains('\'') && !lines.contains('\n'));
    format!("exec /bin/sh -c '{lines}'")
}

impl Launcher for SshLauncher {
    fn launch(&self, host: &str) -> Result<Launched, LaunchError> {
        let refuse = |text: String| LaunchError { host: host.to_owned(), text };
        let Some(real) = self.hosts.get(host) else {
            return Err(refuse("[hosts] has no such host".to_owned()));
        };
        real.check().map_err(refuse)?;
        let image = match real.agent {
            Some(_) => None,
            None => Some(self.image().map_err(refuse)?),
        };
        let agent = match (&real.agent, &image) {
            (Some(path), _) => Agent::There(path),
            (None, Some(image)) => Agent::Copied(image),
            (None, None) => return Err(refuse("there is no program to copy".to_owned())),
        };
        let mut spawn = Spawn::new(&self.client);
        for argument in self.arguments(real, &script(agent)) {
            spawn = spawn.argument(argument);
        }
        // Jump hosts are reached by a client of their own, which does not hear `BatchMode`.
        spawn.environment.push(("SSH_ASKPASS_REQUIRE".into(), "never".into()));
        spawn.errors_to = ErrorsTo::Pipe;
        let client = self.client.display();
        let mut child = spawn.start().map_err(|error| {
            refuse(format!("{client}: {error}; install the OpenSSH client (package openssh-client)"))
        })?;
        let streams = (child.take_stdin(), child.take_stdout(), child.take_stderr());
        let (Some(input), Some(output), Some(errors)) = streams else {
            return Err(refuse("the client's standard streams are not pipes".to_owned()));
        };
        let mut process = Ssh { child, words: Words::collect(errors), host: real.clone() };
        let mut login = Login { input, output, printed: Vec::new(), line_from: 0 };
        let until = monotonic() + self.login_max;
        match login.become_agent(image.as_deref(), until, self.login_max) {
            Ok(()) => Ok(Launched {
                input: Box::new(login.input),
                output: Box::new(login.output),
                process: Box::new(process),
            }),
            Err(stop) => Err(refuse(process.why(stop, &login.printed))),
        }
    }

    fn shares_clock(&self, _host: &str) -> bool {
        false
    }
}

/// Why the streams never became the agent's.
enum Stop {
    /// The client or the far side ended; its own words tell.
    Ended,
    Said(String),
}

/// The streams of a client until they are the agent's.
struct Login {
    input: ChildStdin,
    output: ChildStdout,
    /// All that came, so that what a login prints can be shown when nothing comes of it.
    printed: Vec<u8>,
    /// Where in it the line under way begins.
    line_from: usize,
}

impl Login {
    fn become_agent(&mut self, image: Option<&Image>, until: Instant, limit: Duration) -> Result<(), Stop> {
        let mut until = until;
        let mut copied = false;
        loop {
            let Some(line) = self.next_line(until)? else {
                return Err(Stop::Said(if copied {
                    format!("the copied agent was not ready within {} s", limit.as_secs())
                } else {
                    format!(
                        "the login took longer than {} s; try the same by hand and see what its start-up files do",
                        limit.as_secs()
                    )
                }));
            };
            // Whatever a login printed without ending the line stands before it.
            let Some((_, said)) = line.rsplit_once(MARK) else { continue };
            match (said.split_once(' ').unwrap_or((said, "")), image) {
                (("start", _), _) => return Ok(()),
                (("need", machine), Some(image)) if !copied => {
                    image.fits(machine).map_err(Stop::Said)?;
                    self.copy(&image.bytes)?;
                    copied = true;
                    until = monotonic() + limit;
                }
                (("failed", _), _) => {
                    return Err(Stop::Said(
                        "the agent could not be copied to ~/.cache/weir there (is the disk full, or `head` or `cksum` \
                         missing?); install weir there and name it with `agent`"
                            .to_owned(),
                    ));
                }
                _ => return Err(Stop::Said("the login answers in words that weir does not know".to_owned())),
            }
        }
    }

    /// The next whole line, without what ends it; `None` when it has not come by `until`.
    fn next_line(&mut self, until: Instant) -> Result<Option<String>, Stop> {
        loop {
            let left = until.since(monotonic());
            match poll::wait(self.output.as_fd(), Interest::Readable, left) {
                Ok(true) => {}
                Ok(false) if monotonic() >= until => return Ok(None),
                Ok(false) => continue,
                Err(_) => return Err(Stop::Ended),
            }
            // One at a time: what follows the line is the agent's.
            let mut byte = [0];
            match self.output.read(&mut byte) {
                Ok(1) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                _ => return Err(Stop::Ended),
            }
            self.printed.push(byte[0]);
            if self.printed.len() > NOISE_BYTES_MAX {
                return Err(Stop::Said(format!(
                    "the login prints more than {NOISE_BYTES_MAX} bytes before it does what it is told; its start-up \
                     files should be silent when nobody looks"
                )));
            }
            if byte[0] == b'\n' {
                let line = String::from_utf8_lossy(&self.printed[self.line_from..]).trim_end().to_owned();
                self.line_from = self.printed.len();
                return Ok(Some(line));
            }
        }
    }

    fn copy(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        for piece in bytes.chunks(PIECE_BYTES) {
            let until = monotonic() + COPY_STALL_MAX;
            while !poll::wait(self.input.as_fd(), Interest::Writable, until.since(monotonic()))
                .map_err(|_| Stop::Ended)?
            {
                if monotonic() >= until {
                    let seconds = COPY_STALL_MAX.as_secs();
                    return Err(Stop::Said(format!("copying the agent stood still for {seconds} s")));
                }
            }
            // A far side that gave up says why on its standard output.
            if self.input.write_all(piece).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// A client, and behind it an agent.
struct Ssh {
    child: Child,
    /// Its standard error, which the far side's comes through too.
    words: Words,
    host: RealHost,
}

impl Ssh {
    /// One message: what happened, and what to do.
    fn why(&mut self, stop: Stop, printed: &[u8]) -> String {
        let status = self.child.wait(Duration::from_millis(500));
        let by_hand = format!("ssh {}{}", port_option(&self.host), login(&self.host));
        let said = self.words.said();
        let mut text = match stop {
            Stop::Said(text) => match quoted(&said) {
                Some(quote) => format!("{text}\n  it said: {quote}"),
                None => text,
            },
            Stop::Ended => ssh_words::explain(&said, status, &self.host, &by_hand),
        };
        if let Some(quote) = quoted(&String::from_utf8_lossy(printed)) {
            text.push_str(&format!("\n  it printed: {quote}"));
        }
        text
    }
}

fn port_option(host: &RealHost) -> String {
    host.port.map_or_else(String::new, |port| format!("-p {port} "))
}

impl Process for Ssh {
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
        let status = self.child.ended();
        let said = self.words.said();
        let code = status.and_then(|status| status.code());
        if let Some(advice) = ssh_words::agent_advice(&said, code, &self.host)
            && let Some(quote) = quoted(&said)
        {
            return Some(format!("{advice}\n  it said: {quote}"));
        }
        match quoted(&said) {
            // 255 is the client's own; anything else was the agent's.
            None if code == Some(255) => {
                Some("the ssh connection was closed, or a signal killed the agent there".to_owned())
            }
            _ => words::last_words(status, &said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> RealHost {
        RealHost {
            user: Some("daq".to_owned()),
            jump: Some("me@gate:2222".to_owned()),
            port: Some(2200),
            ..RealHost::new("a-0", "10.0.0.1")
        }
    }

    // Spec: agent-protocol.md#ssh-1
    #[test]
    fn what_a_scenario_says_stands_behind_the_dashes_and_no_option_is_its_own() {
        let launcher = SshLauncher::new(&[host()], "/bin/true".into());
        let all = launcher.arguments(&host(), "x");
        let dashes = all.iter().position(|it| it == "--").unwrap();
        assert_eq!(all[dashes + 1..], ["daq@10.0.0.1", "x"]);
        let before = &all[..dashes];
        for option in
            ["BatchMode=yes", "StrictHostKeyChecking=yes", "PermitLocalCommand=no", "RemoteCommand=none"]
        {
            assert!(before.iter().any(|it| it == option), "{option} is missing");
        }
        assert!(before.windows(2).any(|two| two == ["-J", "me@gate:2222"]));
        assert!(before.windows(2).any(|two| two == ["-p", "2200"]));
    }

    // Spec: agent-protocol.md#ssh-1
    #[test]
    fn a_host_made_by_hand_with_hostile_texts_starts_no_process() {
        for spoil in [
            |host: &mut RealHost| host.address = "-oProxyCommand=touch /tmp/x".to_owned(),
            |host: &mut RealHost| host.user = Some("a;b".to_owned()),
            |host: &mut RealHost| host.jump = Some("gate -oProxyCommand=x".to_owned()),
            |host: &mut RealHost| host.agent = Some("x' ; y".to_owned()),
        ] {
            let mut hostile = host();
            spoil(&mut hostile);
            // A client that cannot be started: whoever gets so far fails otherwise.
            let mut launcher = SshLauncher::new(&[hostile], "/bin/true".into());
            launcher.client = "/nonexistent".into();
            let Err(error) = launcher.launch("a-0") else { panic!("it was launched") };
            assert!(!error.text.contains("nonexistent"), "{error}");
        }
    }

    /// A far side that runs `orders` in a shell instead of ssh, in which the script follows as `$COMMAND`.
    fn launched_by(orders: &str) -> Result<Launched, LaunchError> {
        let folder = tempfile::tempdir().unwrap();
        let client = folder.path().join("client");
        let text = format!("#!/bin/sh\nfor COMMAND; do :; done\n{orders}\n");
        std::fs::write(&client, text).unwrap();
        std::fs::set_permissions(&client, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let host = RealHost { agent: Some("/bin/echo".to_owned()), ..RealHost::new("a-0", "far") };
        let mut launcher = SshLauncher::new(&[host], "/bin/true".into());
        launcher.client = client;
        launcher.login_max = Duration::from_secs(5);
        launcher.launch("a-0")
    }

    // Spec: agent-protocol.md#ssh-6
    #[test]
    fn a_login_that_prints_without_ending_its_line_or_echoes_its_orders_is_understood() {
        for noise in [
            "printf '\\033]0;title\\007'",
            "printf 'no newline'",
            "echo \"$COMMAND\"; printf '%s' \"$COMMAND\"",
            "printf 'weir-launch '",
            "printf '\\377\\000'",
        ] {
            let launched = launched_by(&format!("{noise}; eval \"$COMMAND\""));
            let mut launched = launched.unwrap_or_else(|error| panic!("{noise}: {error}"));
            let mut said = String::new();
            launched.output.read_to_string(&mut said).unwrap();
            assert_eq!(said, "agent\n", "{noise}");
        }
    }

    // Spec: agent-protocol.md#ssh-6
    #[test]
    fn what_a_login_printed_is_shown_when_nothing_comes_of_it() {
        let Err(error) = launched_by("printf 'pick a \\033[1mproject: '; echo no >&2; exit 4") else {
            panic!("it was launched");
        };
        assert!(error.text.contains("the ssh client exited with status 4; ssh said: no"), "{error}");
        assert!(error.text.ends_with("it printed: pick a ␛[1mproject:"), "{error}");
    }

    #[test]
    fn the_script_is_one_line_that_any_login_shell_reads_alike() {
        let image = Image { bytes: vec![1; 10], name: "weir-agent-00ff".to_owned(), sum: 7 };
        for agent in [Agent::Copied(&image), Agent::There("~/bin/weir")] {
            let text = script(agent);
            assert_eq!(text.matches('\'').count(), 2, "{text}");
            assert!(!text.contains('\n') && !text.contains('!'), "{text}");
        }
    }
}
