//! A cluster of the packaged XRootD in a lab, read by `weir io` over its link: a manager, and two servers of the same storage.

use super::support::lab::NamedLab;
use super::support::{
    Ran, beside, eventually, finish_within, need_lab, processes_with, ran, run, start, weir,
};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Child, Command};
use std::time::Duration;
use tempfile::TempDir;

const LAB: &str = r#"
[lab]
[[lab.site]]
name = "store"
hosts = 3
access = { rate = "1Gbit/s", delay = "20us", mtu = 1500 }
[[lab.site]]
name = "user"
hosts = 1
access = { rate = "1Gbit/s", delay = "20us", mtu = 1500 }
[[lab.link]]
name = "wan"
between = ["store", "user"]
rate = "500Mbit/s"
rtt = "4ms"
"#;

/// Whom the package runs its daemons as.
fn account() -> (u32, u32) {
    let accounts = fs::read_to_string("/etc/passwd").unwrap();
    let line = accounts.lines().find(|line| line.starts_with("xrootd:"));
    let line = line.expect("no account xrootd: install the package xrootd-server");
    let mut fields = line.split(':').skip(2).map(|field| field.parse().unwrap());
    (fields.next().unwrap(), fields.next().unwrap())
}

struct Cluster {
    lab: NamedLab,
    folder: TempDir,
    daemons: Vec<Child>,
}

impl Cluster {
    fn start(name: &'static str) -> Cluster {
        let lab = NamedLab::up(name, LAB);
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut cluster = Cluster { lab, folder, daemons: Vec::new() };
        cluster.owned("store");
        for (host, role) in [("store-0", "manager"), ("store-1", "server"), ("store-2", "server")] {
            cluster.owned(host);
            let root = cluster.folder.path().display();
            let text = format!(
                "all.role {role}\nall.manager store-0:1213\nall.export /store\noss.localroot {root}\nxrd.port 1094\n\
                 xrd.port 1213 if exec cmsd\nxrd.network nodnr norpipa\nall.adminpath {root}/{host}\nall.pidpath {root}/{host}\n\
                 cms.delay startup 2 servers 1 lookup 1 drop 10 overload 2\ncms.ping 2 log 10 usage 10\ncms.space min 1% 1g\n"
            );
            fs::write(cluster.folder.path().join(format!("{host}/configuration")), text).unwrap();
            for daemon in ["cmsd", "xrootd"] {
                let child = cluster.daemon(host, daemon);
                cluster.daemons.push(child);
            }
        }
        let known = || {
            let located =
                cluster.lab.exec("user-0", &["timeout", "5", "xrdfs", "store-0", "locate", "-h", "/store"]);
            located.stdout.matches("Server").count() == 2
        };
        eventually("the manager knows both servers", Duration::from_secs(40), known);
        cluster
    }

    /// A folder that is the daemons' own.
    fn owned(&self, name: &str) {
        let path = self.folder.path().join(name);
        fs::create_dir(&path).unwrap();
        let (uid, gid) = account();
        chown(&path, Some(uid), Some(gid)).unwrap();
    }

    fn daemon(&self, host: &str, daemon: &str) -> Child {
        let at = self.folder.path().join(host);
        let (uid, gid) = account();
        let (configuration, log) = (at.join("configuration"), at.join(format!("{daemon}.log")));
        let mut command = weir();
        command.args(["lab", "exec", self.lab.0, host, "--root", "--"]);
        // A daemon asks for the address of its host's name, which in a lab is the lab host's.
        command.args([
            "unshare",
            "--uts",
            "sh",
            "-c",
            "hostname $0 && exec \"$@\"",
            host,
            "setpriv",
            "--clear-groups",
        ]);
        command.args([format!("--reuid={uid}"), format!("--regid={gid}")]);
        command.arg(daemon).args(["-n", host, "-c"]).arg(configuration).arg("-l").arg(log);
        start(&mut command)
    }

    fn io(&self, arguments: &[&str]) -> Child {
        let program = env!("CARGO_BIN_EXE_weir");
        start(weir().args(["lab", "exec", self.lab.0, "user-0", "--", program, "io"]).args(arguments))
    }

    fn io_done(&self, arguments: &[&str]) -> Value {
        let ran = ran(finish_within(self.io(arguments), Duration::from_secs(60)));
        document(&ran)
    }

    /// The host of the server that the user's host is connected to.
    fn in_use(&self) -> Option<&'static str> {
        let user = self.lab.exec("user-0", &["ss", "-tnH", "state", "established"]).stdout;
        let at = |host: &'static str| {
            let address = self.lab.exec("user-0", &["getent", "ahostsv4", host]).stdout;
            let address = address.split_whitespace().next()?.to_owned();
            user.contains(&format!("{address}:1094")).then_some(host)
        };
        ["store-1", "store-2"].into_iter().find_map(at)
    }

    fn kill(&self, host: &str) {
        let mark = format!("xrootd\0-n\0{host}\0");
        let own = self.folder.path().to_str().unwrap().to_owned();
        let processes: Vec<String> = processes_with(&own)
            .into_iter()
            .filter(|process| {
                let line = fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
                line.starts_with(&mark)
            })
            .map(|process| process.to_string())
            .collect();
        assert!(!processes.is_empty(), "no xrootd of {host}");
        assert!(Command::new("kill").arg("-KILL").args(&processes).status().unwrap().success());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        run(&["lab", "down", self.lab.0]);
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn document(ran: &Ran) -> Value {
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

fn figure(summary: &Value, metric: &str, statistic: &str) -> f64 {
    let found = summary["points"][0]["metrics"][metric][statistic].as_f64();
    found.unwrap_or_else(|| panic!("{metric}: {summary:#}"))
}

// Spec: xrootd.md#session-1 and xrootd.md#recovery-1
#[test]
fn a_cluster_in_a_lab_is_read_over_its_link_and_outlives_its_servers_death() {
    need_lab();
    let _turn = beside();
    let cluster = Cluster::start("t-xrootd");
    let url = "root://store-0//store/f";
    let written = cluster.io_done(&[
        "seq",
        url,
        "--file-size",
        "16MiB",
        "--mix",
        "0",
        "--depth",
        "4",
        "--keep",
        "--json",
    ]);
    assert_eq!(figure(&written, "io.failed_operations", "mean"), 0.0);
    assert_eq!(fs::metadata(cluster.folder.path().join("store/f")).unwrap().len(), 16 << 20);
    let read = cluster.io_done(&["seq", url, "--depth", "4", "--verify", "--json"]);
    assert_eq!(figure(&read, "io.mismatched_operations", "mean"), 0.0);
    // The link carries 500 Mbit/s on the wire, headers included.
    assert!(figure(&read, "io.bytes_total_per_second", "mean") < 62.5e6, "{read:#}");

    let reader = cluster.io(&[
        "random",
        url,
        "--depth",
        "8",
        "--size",
        "8KiB",
        "--duration",
        "6s",
        "--timeout",
        "30s",
        "--verify",
        "--json",
    ]);
    let mut used = None;
    eventually("a server is read from", Duration::from_secs(20), || {
        used = cluster.in_use();
        used.is_some()
    });
    std::thread::sleep(Duration::from_secs(1));
    cluster.kill(used.unwrap());
    let summary = document(&ran(finish_within(reader, Duration::from_secs(60))));
    assert_eq!(figure(&summary, "io.failed_operations", "mean"), 0.0, "{summary:#}");
    assert_eq!(figure(&summary, "io.mismatched_operations", "mean"), 0.0);
}
