//! How commands end whose standard output or standard error takes nothing.

use crate::support::{Ran, beside, finish_within, load, ran, repository, scenario, stream_step, weir};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, pipe};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// Its number on Linux.
const SIGPIPE: i32 = 13;

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

/// A command line of each command that writes to standard output and needs no lab, run in a folder of its own.
fn each_command(mut look: impl FnMut(&[&str], Command)) {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good.toml");
    fs::write(&good, scenario("rate = \"1Gbit/s\"\nrtt = \"16ms\"", &stream_step(""))).unwrap();
    let bad = folder.path().join("bad.toml");
    fs::write(&bad, "nothing = 1").unwrap();
    let old = repository().join("tests/folders/0.1.0-quickstart");
    let [good, bad, old] = [&good, &bad, &old].map(|path| path.to_str().unwrap().to_owned());
    let all: &[&[&str]] = &[
        &["--help"],
        &["--version"],
        &["net", "stream", "--help"],
        &["list"],
        &["list", "workload", "--json"],
        &["explain"],
        &["explain", "rtt"],
        &["check", &good],
        &["check", &good, "--json"],
        &["check", &bad, "--json"],
        &["run", &good, "--out", "results"],
        &["new", "fresh"],
        &["report", &old, "--out", "page.html"],
        &["export", &old, "--csv", "--out", "tables"],
        &["generate", "completion", "bash"],
        &["lab", "list", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["net", "serve", "--listen", "127.0.0.1:0", "--json"],
    ];
    for arguments in all {
        let _ = fs::remove_file(folder.path().join("fresh.toml"));
        let mut command = weir();
        command.current_dir(folder.path()).args(*arguments).stdin(Stdio::null()).stderr(Stdio::piped());
        look(arguments, command);
    }
    assert!(!folder.path().join("results").exists(), "a run began that could not be announced");
}

fn end(command: &mut Command) -> Ran {
    ran(finish_within(command.spawn().unwrap(), LIMIT))
}

// Spec: commands.md#output-1
#[test]
fn every_command_whose_output_cannot_be_written_says_so_in_one_line_and_ends_with_2() {
    let _turn = beside();
    each_command(|arguments, mut command| {
        let Ran { status, stderr, .. } = end(command.stdout(full()));
        let said = "weir: cannot write standard output: No space left on device";
        assert_eq!(status, 2, "{arguments:?}: {stderr}");
        // A scenario's faults are told besides.
        let last = stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with(said), "{arguments:?}: {stderr}");
        assert!(arguments.contains(&"check") || stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    });
}

// Spec: commands.md#output-1, commands.md#signals-1
#[test]
fn a_limit_of_file_sizes_is_an_error_of_the_write_and_kills_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(folder.path().join("out")).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 0; exec \"$0\" list", env!("CARGO_BIN_EXE_weir")]);
    let Ran { status, stderr, .. } = end(command.stdin(Stdio::null()).stdout(file).stderr(Stdio::piped()));
    assert_eq!(status, 2, "{stderr}");
    assert!(stderr.contains("cannot write standard output: File too large"), "{stderr}");
}

// Spec: commands.md#output-1
#[test]
fn a_measurement_whose_document_cannot_be_written_ends_with_2() {
    let mut server = weir();
    server.args(["net", "serve", "--listen", "127.0.0.1:0", "--json"]);
    let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let listening: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let address = listening["address"].as_str().unwrap().to_owned();
    for form in [&["--json"][..], &[]] {
        let mut command = weir();
        command.args(["net", "latency", &address, "--count", "10"]).args(form);
        let Ran { status, stderr, .. } =
            end(command.stdin(Stdio::null()).stdout(full()).stderr(Stdio::piped()));
        assert_eq!(status, 2, "{stderr}");
        assert!(stderr.contains("cannot write standard output"), "{stderr}");
    }
    // Each session was a line that nobody will read: the server ends by itself, as a filter.
    drop(lines);
    let mut command = weir();
    command.args(["net", "latency", &address, "--count", "10"]);
    assert_eq!(end(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped())).status, 0);
    let output = finish_within(server, LIMIT);
    assert_eq!(output.status.signal(), Some(SIGPIPE), "{output:?}");
}

// Spec: commands.md#output-2
#[test]
fn a_closed_pipe_ends_every_command_quietly_and_as_it_ends_a_filter() {
    let _turn = beside();
    each_command(|arguments, mut command| {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let child = command.stdout(writer).spawn().unwrap();
        drop(command); // and with it our end of the pipe
        let output = finish_within(child, LIMIT);
        assert_eq!(output.status.signal(), Some(SIGPIPE), "{arguments:?}: {output:?}");
        let is_check = arguments.contains(&"check");
        assert!(is_check || output.stderr.is_empty(), "{arguments:?}: {output:?}");
    });
}

// Spec: commands.md#output-3
#[test]
fn a_standard_error_that_takes_nothing_changes_no_exit_status() {
    for (arguments, status) in [
        (&["explain", "no-such-key-at-all"][..], 2),
        (&["no-such-command"], 2),
        (&["check", "/nonexistent.toml"], 2),
        (&["list", "workload"], 0),
        (&["lab", "down", "no-such-lab"], 2),
    ] {
        let mut command = weir();
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(full());
        assert_eq!(end(&mut command).status, status, "{arguments:?}");
    }
}

#[test]
fn arguments_that_are_no_text_are_refused_in_words() {
    let mut command = weir();
    command.arg(OsStr::from_bytes(b"\xff\xfe"));
    let Ran { status, stderr, .. } =
        end(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()));
    assert_eq!(status, 2, "{stderr}");
}

/// A login that runs what it is told on this machine stands in for ssh; each host's agent is a program that is none.
// Spec: commands.md#signals-1, agent-protocol.md#agent-5
#[test]
fn a_run_on_hosts_whose_agent_is_another_program_ends_with_2_and_what_it_said() {
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let program = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    program("ssh", "for COMMAND; do :; done; eval \"$COMMAND\"");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let deaf = program("deaf", "exec <&-; echo I read nothing >&2; exit 5");
    for (agent, said) in [
        ("/nonexistent/weir", "is no program that can be run there"),
        ("/bin/true", "the agent ended: it exited with status 0"),
        ("/bin/cat", "it exited with status 1; it said: "),
        ("/bin/echo", "it printed: agent"),
        (&deaf, "it exited with status 5; it said: I read nothing"),
    ] {
        let file = folder.path().join("far.toml");
        let host = |name: &str| format!("[hosts.{name}]\naddress = \"127.0.0.1\"\nagent = \"{agent}\"\n");
        let text = format!(
            "[scenario]\nname = \"far\"\nabout = \"agents that are none\"\ntrials = 1\n{}{}{}",
            host("left-0"),
            host("right-0"),
            load("duration = \"5s\"")
        );
        fs::write(&file, text).unwrap();
        let mut command = weir();
        command.current_dir(folder.path()).args(["run", "far.toml"]).env("PATH", &path);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let Ran { status, stderr, .. } = end(&mut command);
        assert_eq!(status, 2, "{agent}: {stderr}");
        for name in ["left-0", "right-0"] {
            let whose = format!("host {name}: the agent could not be started: ");
            assert!(stderr.contains(&whose) && stderr.contains(said), "{agent}: {stderr}");
        }
    }
}
