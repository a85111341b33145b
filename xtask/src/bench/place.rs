//! Where a comparison runs: loopback, a veth pair between two namespaces, or a lab of weir. Gone when dropped.

use super::Settings;
use super::process::Line;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Two ends, and how a program is started at each.
pub struct Place {
    server_prefix: Line,
    client_prefix: Line,
    /// The server as the client calls it.
    pub server: String,
    /// What the server listens on.
    pub listen: String,
    undo: Vec<Line>,
}

impl Place {
    pub fn at_server(&self, line: Line) -> Line {
        [self.server_prefix.clone(), line].concat()
    }

    pub fn at_client(&self, line: Line) -> Line {
        [self.client_prefix.clone(), line].concat()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for line in &self.undo {
            if let Err(problem) = command(line, Duration::from_secs(30)) {
                eprintln!("xtask: {problem}");
            }
        }
    }
}

pub fn loopback() -> Place {
    let here = "127.0.0.1".to_owned();
    Place { server_prefix: vec![], client_prefix: vec![], server: here.clone(), listen: here, undo: vec![] }
}

/// Two namespaces of this run's own, joined by a veth pair with the kernel's defaults (MTU 1500, offloads on).
pub fn veth() -> Result<Place, String> {
    remove_orphans();
    let [near, far] = ["a", "b"].map(|end| format!("weir-bench-{}-{end}", std::process::id()));
    let inside = |name: &str| ["ip", "netns", "exec", name].map(str::to_owned).to_vec();
    let mut place = Place {
        server_prefix: inside(&near),
        client_prefix: inside(&far),
        server: "198.18.0.1".to_owned(),
        listen: "198.18.0.1".to_owned(),
        undo: vec![],
    };
    for name in [&near, &far] {
        ip(&format!("netns add {name}"))?;
        place.undo.push(words(&format!("ip netns del {name}")));
    }
    ip(&format!("-n {near} link add veth0 type veth peer name veth0 netns {far}"))?;
    for (name, address) in [(&near, "198.18.0.1/30"), (&far, "198.18.0.2/30")] {
        ip(&format!("-n {name} addr add {address} dev veth0"))?;
        ip(&format!("-n {name} link set lo up"))?;
        ip(&format!("-n {name} link set veth0 up"))?;
    }
    Ok(place)
}

/// Namespaces of a bench that was killed: theirs carry its process number.
fn remove_orphans() {
    let Ok(all) = std::fs::read_dir("/run/netns") else { return };
    for name in all.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
        let pid =
            name.strip_prefix("weir-bench-").and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
            && let Err(problem) = ip(&format!("netns del {name}"))
        {
            eprintln!("xtask: {problem}");
        }
    }
}

/// A lab of two hosts from `bench/labs`, taken down when dropped. `server` and `client` are host names.
pub fn lab(settings: &Settings, file: &str, server: &str, client: &str) -> Result<Place, String> {
    let name = format!("bench-{}", std::process::id());
    let weir = settings.weir.to_string_lossy().into_owned();
    let inside = |host: &str| [&weir, "lab", "exec", &name, host, "--"].map(str::to_owned).to_vec();
    let place = Place {
        server_prefix: inside(server),
        client_prefix: inside(client),
        server: server.to_owned(),
        listen: "0.0.0.0".to_owned(),
        undo: vec![[&weir, "lab", "down", &name].map(str::to_owned).to_vec()],
    };
    lab_up(settings, file, &name)?;
    Ok(place)
}

/// How long `weir lab up` took, in seconds.
pub fn lab_up(settings: &Settings, file: &str, name: &str) -> Result<f64, String> {
    let path = lab_file(settings, file);
    let line = [&*settings.weir.to_string_lossy(), "lab", "up", &path.to_string_lossy(), "--name", name]
        .map(str::to_owned);
    let started = Instant::now();
    command(&line, Duration::from_secs(60))?;
    Ok(started.elapsed().as_secs_f64())
}

pub fn lab_down(settings: &Settings, name: &str) -> Result<(), String> {
    command(
        &[&*settings.weir.to_string_lossy(), "lab", "down", name].map(str::to_owned),
        Duration::from_secs(60),
    )
}

pub fn lab_file(settings: &Settings, file: &str) -> PathBuf {
    settings.workspace.join("bench/labs").join(file)
}

fn words(text: &str) -> Line {
    text.split_whitespace().map(str::to_owned).collect()
}

fn ip(arguments: &str) -> Result<(), String> {
    command(&words(&format!("ip {arguments}")), Duration::from_secs(10))
}

/// Runs a short command that must succeed within `limit`. What it says goes to a file: a daemon that it leaves behind may
/// keep a pipe open, and reading that to its end would wait for the daemon.
fn command(line: &[String], limit: Duration) -> Result<(), String> {
    let said = std::env::temp_dir().join(format!("weir-bench-{}.err", std::process::id()));
    let file = File::create(&said).map_err(|problem| format!("{}: {problem}", said.display()))?;
    let status = Command::new("timeout")
        .args(["-k", "5", &limit.as_secs().to_string()])
        .args(line)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .status()
        .map_err(|problem| format!("timeout: {problem}"))?;
    let text = std::fs::read_to_string(&said).unwrap_or_default();
    let _ = std::fs::remove_file(&said);
    if status.success() { Ok(()) } else { Err(format!("{}: {status}\n{}", line.join(" "), text.trim())) }
}
