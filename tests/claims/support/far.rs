//! Hosts that only ssh reaches: a lab whose hosts run real OpenSSH servers, and a client inside it.
//!
//! Servers run as root in their host's namespace and let one user in, made for these tests and without any privilege; its
//! key, the servers' key and all configuration live in a folder of the fixture. The machine's own sshd, known hosts and keys
//! are not touched. Everything is ended by the process ids that the fixture or the lab knows.

use crate::support::lab::bring_up;
use crate::support::lanes::Sharing;
use crate::support::{eventually, finish_within, need_lab, run, start, state_folder, weir};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_agent::launcher::SshLauncher;
use weir_core::scenario::RealHost;

pub const USER: &str = "weir-ssh-test";
pub const SSHD: &str = "/usr/sbin/sshd";

/// Where the coordinator is, two ends of a slow path, and short ways from the one to the others.
pub const LAB: &str = r#"
[lab]
[[lab.site]]
name = "near"
hosts = 1
[[lab.site]]
name = "left"
hosts = 1
[[lab.site]]
name = "right"
hosts = 1
[[lab.link]]
name = "wan"
between = ["left", "right"]
rate = "100Mbit/s"
rtt = "10ms"
[[lab.link]]
name = "to-left"
between = ["near", "left"]
rtt = "1ms"
[[lab.link]]
name = "to-right"
between = ["near", "right"]
rtt = "1ms"
"#;

pub struct Far {
    lab: &'static str,
    folder: tempfile::TempDir,
    servers: Vec<Child>,
    made_user: bool,
}

/// The machine has one user of that name, with one home.
#[expect(dead_code, reason = "held, not read")]
pub struct FarUser(MutexGuard<'static, ()>, Sharing);

/// Waits until no other test has the user. To be had before a turn: who waits for him with a part of the machine would keep it from
/// the test that has him and needs all of it.
pub fn far_user() -> FarUser {
    static HAD: Mutex<()> = Mutex::new(());
    let sharing = Sharing::begin();
    FarUser(HAD.lock().unwrap_or_else(PoisonError::into_inner), sharing)
}

/// Runs a command that must succeed.
fn must(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let done = done.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        done.status.success(),
        "{program} {arguments:?}: {}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

fn user_exists() -> bool {
    Command::new("id").arg(USER).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

impl Far {
    /// The lab and the user; no server yet.
    pub fn up(_: &FarUser, lab: &'static str) -> Far {
        need_lab();
        assert!(Path::new(SSHD).exists(), "these tests need {SSHD} (package openssh-server)");
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let made_user = !user_exists();
        if made_user {
            // A password that nothing matches, since sshd lets no locked account in.
            must("useradd", &["--create-home", "--shell", "/bin/sh", "--password", "*", USER]);
        }
        // What a test that was killed left behind.
        let _ = fs::remove_dir_all(format!("/home/{USER}/.cache/weir"));
        let far = Far { lab, folder, servers: Vec::new(), made_user };
        fs::write(far.path("lab.toml"), LAB).unwrap();
        bring_up(&far.text("lab.toml"), lab);
        for key in ["host_key", "id", "other_key"] {
            must("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", key, "-f", &far.text(key)]);
        }
        fs::copy(far.path("id.pub"), far.path("authorized_keys")).unwrap();
        far.know("host_key");
        let configuration = format!(
            "Host *\n IdentityFile {}\n IdentitiesOnly yes\n UserKnownHostsFile {}\n GlobalKnownHostsFile /dev/null\n \
             User {USER}\n",
            far.text("id"),
            far.text("known_hosts")
        );
        fs::write(far.path("ssh_config"), configuration).unwrap();
        let client = format!(
            "#!/bin/sh\nWEIR_STATE_DIR={} exec {} lab exec {lab} near-0 --root -- ssh \"$@\"\n",
            state_folder().display(),
            env!("CARGO_BIN_EXE_weir")
        );
        far.script("client", &client);
        fs::create_dir_all("/run/sshd").unwrap();
        far
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub fn script(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), Permissions::from_mode(0o755)).unwrap();
        self.text(name)
    }

    /// The one host key that is known for every host.
    pub fn know(&self, key: &str) {
        let public = fs::read_to_string(self.path(&format!("{key}.pub"))).unwrap();
        fs::write(self.path("known_hosts"), format!("* {public}")).unwrap();
    }

    /// Starts a server on a host; `before` is a command that runs it, such as one that gives it another clock.
    pub fn serve(&mut self, host: &str, port: u16, more: &str, before: &[&str]) {
        let name = format!("sshd-{host}-{port}");
        let configuration = format!(
            "Port {port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin no\nUseDNS no\n{more}\n",
            self.text("host_key"),
            self.text("authorized_keys")
        );
        fs::write(self.path(&name), configuration).unwrap();
        let file = self.text(&name);
        let mut command = weir();
        command.args(["lab", "exec", self.lab, host, "--root", "--"]).args(before);
        command.args([SSHD, "-D", "-e", "-f", &file]);
        let log = fs::File::create(self.path(&format!("{name}.log"))).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.servers.push(command.spawn().unwrap());
        eventually(&format!("sshd of {host} listens"), Duration::from_secs(10), || {
            let listed = self.exec(host, &["ss", "-Hltn", &format!("sport = :{port}")]);
            !listed.trim().is_empty()
        });
    }

    /// What a command on a host of the lab prints.
    pub fn exec(&self, host: &str, command: &[&str]) -> String {
        self.exec_for(host, command, Duration::from_secs(20))
    }

    pub fn exec_for(&self, host: &str, command: &[&str], limit: Duration) -> String {
        let mut all = vec!["lab", "exec", self.lab, host, "--root", "--"];
        all.extend(command);
        let done = finish_within(start(weir().args(&all)), limit);
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    pub fn host(&self, name: &str) -> RealHost {
        RealHost::new(name, name)
    }

    pub fn launcher(&self, hosts: &[RealHost]) -> SshLauncher {
        let mut launcher = SshLauncher::new(hosts, env!("CARGO_BIN_EXE_weir").into());
        launcher.client = self.path("client");
        launcher.configuration = Some(self.path("ssh_config"));
        launcher
    }

    /// Copies of the program in the user's cache: name, length and inode.
    pub fn copies(&self) -> Vec<(String, u64, u64)> {
        let folder = format!("/home/{USER}/.cache/weir");
        let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
        let mut all: Vec<(String, u64, u64)> = entries
            .map(|entry| {
                let entry = entry.unwrap();
                let about = entry.metadata().unwrap();
                (entry.file_name().to_string_lossy().into_owned(), about.len(), about.ino())
            })
            .collect();
        all.sort();
        all
    }

    /// Agents that run on a host now, with their parents.
    pub fn agents_on(&self, host: &str) -> Vec<(u32, u32)> {
        let namespace =
            fs::metadata(state_folder().join("labs").join(self.lab).join("net").join(host)).unwrap().ino();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
            let line = String::from_utf8_lossy(&read("cmdline")).into_owned();
            let of_host = fs::read_link(entry.path().join("ns/net"))
                .is_ok_and(|link| link.to_string_lossy() == format!("net:[{namespace}]"));
            if !of_host || !line.ends_with("\0agent\0") || line.contains("sh\0-c") {
                continue;
            }
            let stat = String::from_utf8_lossy(&read("stat")).into_owned();
            let Some(parent) =
                stat.rsplit(')').next().and_then(|rest| rest.split_ascii_whitespace().nth(1)?.parse().ok())
            else {
                continue;
            };
            found.push((id, parent));
        }
        found
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        // Ends whatever is left in its hosts, sessions included.
        run(&["lab", "down", self.lab]);
        if self.made_user {
            let _ = Command::new("userdel").args(["--remove", USER]).stderr(Stdio::null()).status();
        }
    }
}
