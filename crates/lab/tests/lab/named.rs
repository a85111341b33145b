use super::help::{exe, possible, two_sites};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};
use weir_lab::named::{self, LabName};
use weir_sys::process::{Signal, signal, start_ticks};

/// A lab under a name of its own, taken down however the test ends.
struct Named {
    name: String,
}

impl Named {
    fn up(label: &str) -> Named {
        let named = Named { name: format!("test-{label}-{}", std::process::id()) };
        let output = named.start().wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        named
    }
    fn start(&self) -> Child {
        let topology = serde_json::to_string(&two_sites(None, Duration::from_millis(1), 1500)).unwrap();
        let mut command = Command::new(exe());
        command
            .args(["up", &self.name, &topology])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
    fn exec(&self, host: &str, command: &[&str]) -> Output {
        // As if started by sudo, by a user without any rights.
        let mut helper = Command::new(exe());
        helper
            .args(["exec", &self.name, host])
            .args(command)
            .env("SUDO_UID", "65534")
            .env("SUDO_GID", "65534");
        helper.output().unwrap()
    }
    fn namespaces(&self) -> Vec<String> {
        let prefix = format!("weir.{}.", self.name);
        let Ok(entries) = std::fs::read_dir("/run/netns") else { return Vec::new() };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(&prefix)).collect()
    }
    fn state(&self) -> Option<named::State> {
        named::list().unwrap().into_iter().find(|state| state.name == self.name)
    }
    fn assert_nothing_is_left(&self) {
        assert_eq!(self.namespaces(), Vec::<String>::new());
        assert!(!Path::new("/run/weir/labs").join(&self.name).exists());
        assert_eq!(self.state(), None);
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Ok(name) = LabName::new(&self.name) {
            let _ = named::down(&name);
        }
    }
}

/// Held by tests that remove dead labs, which are also other tests' dead labs.
static REMOVING: Mutex<()> = Mutex::new(());

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

// Spec: lab.md#lab-16
#[test]
fn a_program_in_a_named_lab_finds_hosts_by_name_and_runs_without_privileges() {
    if !possible() {
        return;
    }
    let lab = Named::up("names");
    let ping = lab.exec("left-0", &["ping", "-c2", "-i0.1", "right-0"]);
    assert!(ping.status.success() && text(&ping.stdout).contains(" 0% packet loss"), "{ping:?}");
    let who = lab
        .exec("left-0", &["sh", "-c", "id -u; id -g; grep NoNewPrivs /proc/self/status; ls /sys/class/net"]);
    assert_eq!(text(&who.stdout), "65534\n65534\nNoNewPrivs:\t1\neth0\nlo\n");
    let mut as_root = Command::new(exe());
    as_root
        .args(["exec", &lab.name, "left-0", "--root", "id", "-u"])
        .env("SUDO_UID", "65534")
        .env("SUDO_GID", "65534");
    assert_eq!(text(&as_root.output().unwrap().stdout), "0\n");
    let unknown = lab.exec("left-0", &["getent", "hosts", "no-such-host"]);
    assert_eq!(unknown.status.code(), Some(2));
}

// Spec: lab.md#lab-16
#[test]
fn the_exit_status_of_exec_is_the_programs_own() {
    if !possible() {
        return;
    }
    let lab = Named::up("status");
    assert_eq!(lab.exec("left-0", &["sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(lab.exec("left-0", &["no-such-program-anywhere"]).status.code(), Some(127));
    assert_eq!(lab.exec("left-0", &["/etc/hosts"]).status.code(), Some(126));
    let killed = lab.exec("left-0", &["sh", "-c", "kill -9 $$"]).status;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&killed), Some(9));
    let nowhere = lab.exec("middle-0", &["true"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(
        text(&nowhere.stderr).contains("has no host \"middle-0\"; it has left-0, right-0"),
        "{nowhere:?}"
    );
}

// Spec: lab.md#lab-17
#[test]
fn down_ends_what_a_command_detached_even_if_it_ignores_being_asked_and_leaves_nothing() {
    if !possible() {
        return;
    }
    let lab = Named::up("down");
    let fabric = lab.state().unwrap().fabric.unwrap();
    let script =
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' >/dev/null 2>&1 & echo $!";
    let detached: u32 = text(&lab.exec("left-0", &["sh", "-c", script]).stdout).trim().parse().unwrap();
    assert!(start_ticks(detached).is_some(), "it lives until the lab is taken down");
    let output = Command::new(exe()).args(["down", &lab.name]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(start_ticks(detached), None);
    assert!(!fabric.is_alive());
    lab.assert_nothing_is_left();
    let again = Command::new(exe()).args(["down", &lab.name]).output().unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).starts_with(&format!("there is no lab {:?}", lab.name)), "{again:?}");
}

// Spec: lab.md#lab-17
#[test]
fn down_ends_what_has_moved_into_a_network_of_its_own_too() {
    if !possible() {
        return;
    }
    let lab = Named::up("shut-in");
    // As a browser's sandbox does; the child ignores being asked, and its parent is gone by then.
    let script = "sh -c 'trap \"\" TERM; unshare --net sh -c \"trap : TERM; while :; do sleep 1; done\" & echo $!; wait' > started 2>/dev/null < /dev/null & sleep 0.5; cat started";
    let mut helper = Command::new(exe());
    let folder = tempfile::tempdir().unwrap();
    helper.args(["exec", &lab.name, "left-0", "--root", "sh", "-c", script]).current_dir(folder.path());
    let output = helper.output().unwrap();
    let moved: u32 = text(&output.stdout).trim().parse().unwrap_or_else(|_| panic!("{output:?}"));
    assert!(start_ticks(moved).is_some(), "it lives until the lab is taken down");
    let output = Command::new(exe()).args(["down", &lab.name]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(start_ticks(moved), None);
    lab.assert_nothing_is_left();
}

// Spec: lab.md#lab-15
#[test]
fn a_second_lab_of_the_same_name_is_refused_and_the_first_lives_on() {
    if !possible() {
        return;
    }
    let lab = Named::up("twice");
    let second = lab.start().wait_with_output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(text(&second.stderr).contains("is up; `weir lab down"), "{second:?}");
    assert!(lab.exec("left-0", &["ping", "-c1", "right-0"]).status.success());
    // Two at once under one free name: one of them gets it.
    let free = Named { name: format!("test-race-{}", std::process::id()) };
    let both = [free.start(), free.start()];
    let won = both.map(|child| child.wait_with_output().unwrap().status.success());
    assert_eq!(won.iter().filter(|won| **won).count(), 1);
    assert!(free.exec("left-0", &["ping", "-c1", "right-0"]).status.success());
}

/// A topology of so many hosts on the left and one on the right, as the helper takes it.
fn topology_of(hosts: usize) -> String {
    let mut topology = two_sites(None, Duration::from_millis(1), 1500);
    let right = topology.hosts.pop().unwrap();
    for number in 1..hosts {
        let mut host = topology.hosts[0].clone();
        host.name = format!("left-{number}");
        topology.hosts.push(host);
    }
    topology.hosts.push(right);
    serde_json::to_string(&topology).unwrap()
}

// Spec: lab.md#lab-24
#[test]
fn a_lab_of_five_hundred_hosts_is_built_whole() {
    if !possible() {
        return;
    }
    let lab = Named { name: format!("test-large-{}", std::process::id()) };
    let output = Command::new(exe()).args(["up", &lab.name, &topology_of(499)]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(lab.namespaces().len(), 500);
    let ping = lab.exec("left-498", &["ping", "-c1", "-W5", "right-0"]);
    assert!(ping.status.success(), "{ping:?}");
}

// Spec: lab.md#lab-24
#[test]
fn a_lab_for_which_descriptors_do_not_suffice_is_refused_and_nothing_of_it_is_left() {
    if !possible() {
        return;
    }
    let lab = Named { name: format!("test-half-{}", std::process::id()) };
    let limited = "ulimit -n 200; exec \"$0\" up \"$1\" \"$2\"";
    let program = exe().display().to_string();
    let output =
        Command::new("sh").args(["-c", limited, &program, &lab.name, &topology_of(150)]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("raise the limit with `ulimit -n`"), "{output:?}");
    lab.assert_nothing_is_left();
}

// Spec: lab.md#lab-15
#[test]
fn a_lab_whose_fabric_was_killed_is_dead_and_only_that_one_is_removed_as_dead() {
    if !possible() {
        return;
    }
    let _alone = REMOVING.lock();
    let (lab, alive) = (Named::up("dead"), Named::up("alive"));
    let fabric = lab.state().unwrap().fabric.unwrap();
    assert!(signal(fabric.pid, Signal::Kill));
    while fabric.is_alive() {
        thread::sleep(Duration::from_millis(2));
    }
    assert!(lab.state().unwrap().is_dead());
    let exec = lab.exec("left-0", &["true"]);
    assert!(text(&exec.stderr).contains("is dead"), "{exec:?}");
    assert!(named::remove_dead().unwrap().contains(&lab.name));
    lab.assert_nothing_is_left();
    assert!(alive.state().unwrap().is_up());
}

// Spec: lab.md#lab-15
#[test]
fn whenever_lab_up_is_killed_what_it_left_is_removed_as_dead() {
    if !possible() {
        return;
    }
    let _alone = REMOVING.lock();
    for delay_ms in [0, 1, 2, 4, 8, 12, 16, 20, 24, 30, 40, 60] {
        let lab = Named { name: format!("test-killed-{delay_ms}-{}", std::process::id()) };
        let mut child = lab.start();
        thread::sleep(Duration::from_millis(delay_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        let state = lab.state();
        if state.as_ref().is_some_and(named::State::is_up) {
            continue; // it was done already
        }
        assert!(state.is_none_or(|state| state.is_dead()));
        named::remove_dead().unwrap();
        lab.assert_nothing_is_left();
    }
}

#[test]
fn a_lab_lives_on_after_the_terminal_that_made_it_is_gone() {
    if !possible() {
        return;
    }
    let lab = Named::up("stays");
    // `up` has closed its streams: output() above would not have returned if the fabric held them.
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        assert!(lab.state().unwrap().is_up());
        thread::sleep(Duration::from_millis(20));
    }
    assert!(lab.exec("right-0", &["ping", "-c1", "left-0"]).status.success());
}
