//! Starts programs, bounds them in time, and counts the CPU time they used.
//!
//! The count is what the kernel adds up for a child that has been waited for (`wait4`), taken by bash's `time` around the
//! program: user and system time of all its threads, to the millisecond, by the same rule for every program.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(10);
const READY_WITHIN: Duration = Duration::from_secs(10);
const TIMED: &str = "TIMEFORMAT='cpu-seconds %3U %3S'; time \"$@\"";

/// A program with its arguments.
pub type Line = Vec<String>;

#[derive(Debug)]
pub struct Finished {
    pub stdout: String,
    /// User and system, all threads and waited-for children, in seconds.
    pub cpu_seconds: f64,
}

/// A program under way; killed with all its children when dropped.
pub struct Running {
    shell: Child,
    line: Line,
    stdout: PathBuf,
    stderr: PathBuf,
    over: bool,
}

/// Runs to the end, which must be success within `limit`.
pub fn finish(scratch: &Path, line: &Line, limit: Duration) -> Result<Finished, String> {
    start(scratch, line)?.wait(limit, true)
}

pub fn start(scratch: &Path, line: &Line) -> Result<Running, String> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let (stdout, stderr) = (scratch.join(format!("{name}.out")), scratch.join(format!("{name}.err")));
    let file = |path: &Path| File::create(path).map_err(|problem| format!("{}: {problem}", path.display()));
    let shell = Command::new("bash")
        .args(["-c", TIMED, "bash"])
        .args(line)
        .stdin(Stdio::null())
        .stdout(file(&stdout)?)
        .stderr(file(&stderr)?)
        .spawn()
        .map_err(|problem| format!("bash: {problem}"))?;
    Ok(Running { shell, line: line.clone(), stdout, stderr, over: false })
}

impl Running {
    /// Waits for the end. A bad status is an error if `must_succeed`.
    pub fn wait(mut self, limit: Duration, must_succeed: bool) -> Result<Finished, String> {
        let started = Instant::now();
        let status = loop {
            match self.shell.try_wait().map_err(|problem| problem.to_string())? {
                Some(status) => break status,
                None if started.elapsed() > limit => {
                    return Err(format!("{} did not end within {} s", self.line.join(" "), limit.as_secs()));
                }
                None => std::thread::sleep(POLL),
            }
        };
        self.over = true;
        let stdout = std::fs::read_to_string(&self.stdout).map_err(|problem| problem.to_string())?;
        let stderr = std::fs::read_to_string(&self.stderr).unwrap_or_default();
        if must_succeed && !status.success() {
            let said = if stderr.trim().is_empty() { &stdout } else { &stderr };
            return Err(format!("{}: {status}\n{}", self.line.join(" "), tail(said)));
        }
        let cpu_seconds = cpu_seconds(&stderr)
            .ok_or_else(|| format!("{}: no CPU time in {:?}", self.line.join(" "), tail(&stderr)))?;
        Ok(Finished { stdout, cpu_seconds })
    }

    /// Asks the program, not the shell around it, to end, and waits for it.
    pub fn stop(self, limit: Duration) -> Result<Finished, String> {
        self.end("TERM", limit)
    }

    /// Likewise for a program that tells its figures when it is interrupted.
    pub fn interrupt(self, limit: Duration) -> Result<Finished, String> {
        self.end("INT", limit)
    }

    fn end(self, name: &str, limit: Duration) -> Result<Finished, String> {
        for pid in leaves(self.shell.id()) {
            signal(name, pid);
        }
        self.wait(limit, false)
    }

    /// Waits until the program listens on a TCP port, seen in its own network namespace.
    pub fn listening(&mut self, port: u16) -> Result<(), String> {
        let started = Instant::now();
        while started.elapsed() < READY_WITHIN {
            let listens = |pid: u32| {
                ["tcp", "tcp6"].iter().any(|table| {
                    let table =
                        std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
                    has_listener(&table, port)
                })
            };
            if leaves(self.shell.id()).into_iter().any(listens) {
                return Ok(());
            }
            if let Some(status) = self.shell.try_wait().map_err(|problem| problem.to_string())? {
                let said = std::fs::read_to_string(&self.stderr).unwrap_or_default();
                return Err(format!(
                    "{} ended before it listened: {status}\n{}",
                    self.line.join(" "),
                    tail(&said)
                ));
            }
            std::thread::sleep(POLL);
        }
        Err(format!(
            "{} did not listen on port {port} within {} s",
            self.line.join(" "),
            READY_WITHIN.as_secs()
        ))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.over {
            for pid in leaves(self.shell.id()) {
                signal("KILL", pid);
            }
            // The shell ends once its program has; a stuck one is killed too.
            std::thread::sleep(POLL);
            let _ = self.shell.kill();
            let _ = self.shell.wait();
        }
        let _ = std::fs::remove_file(&self.stdout);
        let _ = std::fs::remove_file(&self.stderr);
    }
}

fn signal(name: &str, pid: u32) {
    let _ = Command::new("kill").args([format!("-{name}"), pid.to_string()]).stderr(Stdio::null()).status();
}

/// The descendants of a process that have no children themselves.
fn leaves(pid: u32) -> Vec<u32> {
    let children = children(pid);
    if children.is_empty() {
        return Vec::new();
    }
    children
        .into_iter()
        .flat_map(|child| {
            let below = leaves(child);
            if below.is_empty() { vec![child] } else { below }
        })
        .collect()
}

fn children(pid: u32) -> Vec<u32> {
    let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|other: &u32| parent(*other) == Some(pid))
        .collect()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; what follows the last one does not.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// CPU time of a living process, all threads, in seconds; to the kernel's tick of 10 ms.
pub fn cpu_seconds_of(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(ticks as f64 / 100.0)
}

/// Living processes that run this program.
pub fn running(program: &Path) -> Vec<u32> {
    let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program))
        .collect()
}

/// A line of `/proc/net/tcp` in state LISTEN (0A) on this port.
fn has_listener(table: &str, port: u16) -> bool {
    let wanted = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1).is_some_and(|local| local.ends_with(&wanted)) && fields.get(3) == Some(&"0A")
    })
}

fn cpu_seconds(stderr: &str) -> Option<f64> {
    let line = stderr.lines().rev().find_map(|line| line.strip_prefix("cpu-seconds "))?;
    let (user, system) = line.split_once(' ')?;
    // A locale may write a comma.
    let seconds = |text: &str| text.trim().replace(',', ".").parse::<f64>().ok();
    Some(seconds(user)? + seconds(system)?)
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> Line {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn cpu_time_of_a_busy_program_is_counted_and_of_a_sleeping_one_is_not() {
        let scratch = std::env::temp_dir();
        let limit = Duration::from_secs(20);
        let busy = finish(
            &scratch,
            &line(&["bash", "-c", "for ((i = 0; i < 200000; i++)); do :; done; echo done"]),
            limit,
        )
        .unwrap();
        let idle = finish(&scratch, &line(&["sleep", "0.2"]), limit).unwrap();
        assert_eq!(busy.stdout, "done\n");
        assert!(busy.cpu_seconds > idle.cpu_seconds, "{} {}", busy.cpu_seconds, idle.cpu_seconds);
        assert!(idle.cpu_seconds < 0.1, "{}", idle.cpu_seconds);
    }

    #[test]
    fn a_program_that_fails_or_hangs_is_an_error_that_names_it() {
        let scratch = std::env::temp_dir();
        let failed = finish(
            &scratch,
            &line(&["bash", "-c", "echo no such thing >&2; exit 3"]),
            Duration::from_secs(20),
        );
        assert!(failed.as_ref().unwrap_err().contains("no such thing"), "{failed:?}");
        let hung = finish(&scratch, &line(&["sleep", "60"]), Duration::from_millis(100));
        assert!(hung.as_ref().unwrap_err().contains("sleep 60"), "{hung:?}");
    }

    #[test]
    fn a_stopped_program_still_has_its_cpu_time() {
        let running = start(&std::env::temp_dir(), &line(&["sleep", "60"])).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while leaves(running.shell.id()).is_empty() && Instant::now() < until {
            std::thread::sleep(POLL);
        }
        assert!(running.stop(Duration::from_secs(10)).is_ok());
    }

    #[test]
    fn a_listener_is_told_from_a_connection() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:1451 00000000:0000 0A 00000000\n   1: 0100007F:1452 0100007F:1451 01 0\n";
        assert!(has_listener(table, 5201));
        assert!(!has_listener(table, 5202));
    }
}
