use super::help::{exe, possible, two_sites};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use weir_lab::named::{self, LabName, Place};
use weir_sys::process::{Signal, signal, start_ticks};

/// A lab at a place of its own, where no other test's and no user's labs are; taken down however the test ends.
struct Named {
    name: String,
    state: tempfile::TempDir,
}

impl Named {
    fn new(label: &str) -> Named {
        let state = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Named { name: format!("test-{label}"), state }
    }
    fn place(&self) -> Place {
        Place::at(self.state.path())
    }
    fn helper(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(exe());
        command.args(arguments).env("WEIR_STATE_DIR", self.state.path());
        command
    }
    fn down(&self) -> Output {
        self.helper(&["down", &self.name]).output().unwrap()
    }
    fn up(label: &str) -> Named {
        let named = Named::new(label);
        let output = named.start().wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        named
    }
    /// With a first process of its own on `left-0`.
    fn up_held(label: &str) -> Named {
        let named = Named::new(label);
        let output = named.start_held().wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        named
    }
    fn start_held(&self) -> Child {
        let mut helper = self.helper(&["up", &self.name, &topology_of(1)]);
        helper.env("WEIR_TEST_HOLD", "1").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
    fn sh_as_root(&self, host: &str, script: &str) -> Output {
        self.helper(&["exec", &self.name, host, "--root", "sh", "-c", script]).output().unwrap()
    }
    fn start(&self) -> Child {
        let topology = serde_json::to_string(&two_sites(None, Duration::from_millis(1), 1500)).unwrap();
        self.helper(&["up", &self.name, &topology])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
    fn exec(&self, host: &str, command: &[&str]) -> Output {
        // As if started by sudo, by a user without any rights.
        let mut helper = self.helper(&["exec", &self.name, host]);
        helper.args(command).env("SUDO_UID", "65534").env("SUDO_GID", "65534");
        helper.output().unwrap()
    }
    fn folder(&self) -> PathBuf {
        self.state.path().join("labs").join(&self.name)
    }
    fn namespaces(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.folder().join("net")) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
    fn state(&self) -> Option<named::State> {
        let listed = named::list(&self.place()).unwrap();
        listed.states.into_iter().find(|state| state.name == self.name)
    }
    fn assert_nothing_is_left(&self) {
        assert!(!self.folder().exists());
        assert_eq!(self.state(), None);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(self.state.path().to_str().unwrap()), "{mounts}");
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Ok(name) = LabName::new(&self.place(), &self.name) {
            let _ = named::down(&name);
        }
    }
}

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
    let mut as_root = lab.helper(&["exec", &lab.name, "left-0", "--root", "id", "-u"]);
    as_root.env("SUDO_UID", "65534").env("SUDO_GID", "65534");
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
    let output = lab.down();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(start_ticks(detached), None);
    assert!(!fabric.is_alive());
    lab.assert_nothing_is_left();
    let again = lab.down();
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
    let folder = tempfile::tempdir().unwrap();
    let mut helper = lab.helper(&["exec", &lab.name, "left-0", "--root", "sh", "-c", script]);
    helper.current_dir(folder.path());
    let output = helper.output().unwrap();
    let moved: u32 = text(&output.stdout).trim().parse().unwrap_or_else(|_| panic!("{output:?}"));
    assert!(start_ticks(moved).is_some(), "it lives until the lab is taken down");
    let output = lab.down();
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
    let free = Named::new("race");
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
    let lab = Named::new("large");
    let output = lab.helper(&["up", &lab.name, &topology_of(499)]).output().unwrap();
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
    let lab = Named::new("half");
    let limited = "ulimit -n 200; exec \"$0\" up \"$1\" \"$2\"";
    let program = exe().display().to_string();
    let output = Command::new("sh")
        .args(["-c", limited, &program, &lab.name, &topology_of(150)])
        .env("WEIR_STATE_DIR", lab.state.path())
        .output()
        .unwrap();
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
    let lab = Named::up("dead");
    let up = lab.helper(&["up", "alive", &topology_of(1)]).output().unwrap();
    assert!(up.status.success(), "{up:?}");
    let fabric = lab.state().unwrap().fabric.unwrap();
    assert!(signal(fabric.pid, Signal::Kill));
    while fabric.is_alive() {
        thread::sleep(Duration::from_millis(2));
    }
    assert!(lab.state().unwrap().is_dead());
    let exec = lab.exec("left-0", &["true"]);
    assert!(text(&exec.stderr).contains("is dead"), "{exec:?}");
    assert_eq!(named::down_dead(&lab.place()).unwrap().names, [lab.name.as_str()]);
    assert_eq!(lab.state(), None);
    let left = named::list(&lab.place()).unwrap().states;
    assert!(left.iter().all(|state| state.name == "alive" && state.is_up()) && left.len() == 1);
    assert_eq!(named::down_all(&lab.place()).unwrap().names, ["alive"]);
    lab.assert_nothing_is_left();
}

// Spec: lab.md#lab-15
#[test]
fn whenever_lab_up_is_killed_what_it_left_is_removed_as_dead() {
    if !possible() {
        return;
    }
    killed_after("killed", [0, 1, 2, 4, 8, 12, 16, 20, 24, 30, 40, 60], Named::start, |_| {});
}

// Spec: lab.md#lab-30
#[test]
fn a_held_host_has_processes_names_and_files_of_its_own_and_shares_what_users_keep() {
    if !possible() {
        return;
    }
    let lab = Named::up_held("held");
    let outside = tempfile::tempdir().unwrap();
    let written = outside.path().join("written");
    let made = lab.sh_as_root(
        "left-0",
        &format!(
            "hostname; mkdir -p /deisa/rzg && echo 1 > /deisa/rzg/f && echo 2 > /etc/weir-held && echo 3 > /var/lib/weir/kept \
             && echo 4 > {} && ls -d /proc/[0-9]* | wc -l && cat /proc/1/cmdline | tr '\\0' ' ' && ping -c1 right-0 >&2",
            written.display()
        ),
    );
    let said = text(&made.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "left-0", "{made:?}");
    assert!(lines[1].parse::<u32>().unwrap() < 8, "{made:?}");
    assert!(lines[2].contains("holder-process") && made.status.success(), "{made:?}");
    // What is the system's stays in the host, what is users' is theirs, what services keep is on the machine's disk.
    assert!(!PathBuf::from("/deisa").exists() && !PathBuf::from("/etc/weir-held").exists());
    assert_eq!(std::fs::read_to_string(&written).unwrap(), "4\n");
    let data = lab.state.path().join("data/labs").join(&lab.name);
    assert_eq!(std::fs::read_to_string(data.join("left-0/data/kept")).unwrap(), "3\n");
    let again = lab.sh_as_root("left-0", "cat /deisa/rzg/f /etc/weir-held /var/lib/weir/kept");
    assert_eq!(text(&again.stdout), "1\n2\n3\n");
    // A host without services is as light as ever.
    let other = lab.sh_as_root("right-0", "test -e /deisa; echo $?; hostname");
    assert_ne!(text(&other.stdout), "0\nright-0\n");
    // As its user, with the status and the signals of the program.
    let who = lab.exec("left-0", &["sh", "-c", "id -u; grep NoNewPrivs /proc/self/status; exit 7"]);
    assert_eq!((text(&who.stdout).as_str(), who.status.code()), ("65534\nNoNewPrivs:\t1\n", Some(7)));
    assert_eq!(lab.exec("left-0", &["no-such-program-anywhere"]).status.code(), Some(127));
    assert_eq!(lab.exec("left-0", &["/etc/hosts"]).status.code(), Some(126));
    assert!(lab.down().status.success());
    assert!(!data.exists());
    lab.assert_nothing_is_left();
}

// Spec: lab.md#lab-30
#[test]
fn a_daemon_on_a_held_host_lives_until_down_and_is_asked_to_end_first() {
    if !possible() {
        return;
    }
    let lab = Named::up_held("daemons");
    let script = "cd /var/lib/weir; (setsid sh -c 'trap \"echo asked > asked; exit\" TERM; echo $$ > pid; while :; do sleep 0.05; done' \
                  </dev/null >/dev/null 2>&1 &) ; (setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' </dev/null >/dev/null 2>&1 &); \
                  while ! test -s pid; do sleep 0.02; done";
    let begun = lab.sh_as_root("left-0", script);
    assert!(begun.status.success(), "{begun:?}");
    let namespace = weir_sys::netns::identity_at(&lab.folder().join("net/left-0")).unwrap();
    let inside = || weir_sys::netns::processes_in(&[namespace]).unwrap();
    assert!(inside().len() >= 3, "{:?}", inside());
    let data = lab.state.path().join("data/labs").join(&lab.name).join("left-0/data");
    let kept = std::fs::File::open(&data).unwrap();
    assert!(lab.down().status.success());
    assert!(inside().is_empty());
    drop(kept);
    lab.assert_nothing_is_left();
}

// Spec: lab.md#lab-30
#[test]
fn whenever_the_making_of_a_held_host_is_killed_what_it_left_is_removed_as_dead() {
    if !possible() {
        return;
    }
    killed_after("killed-held", [4, 8, 12, 16, 20, 25, 30, 35, 40, 50, 60, 80], Named::start_held, |lab| {
        let held = lab.state.path().to_str().unwrap();
        let left = Command::new("grep").args(["-ls", held, "--"]).args(mountinfos()).output().unwrap();
        assert_eq!(text(&left.stdout), "", "a process with mounts of the lab is left");
    });
}

/// Kills `lab up` after each of these times, has what is dead removed, and looks whether nothing is left.
fn killed_after(label: &str, delays_ms: [u64; 12], start: fn(&Named) -> Child, look: impl Fn(&Named)) {
    for delay_ms in delays_ms {
        let lab = Named::new(label);
        let mut child = start(&lab);
        thread::sleep(Duration::from_millis(delay_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        let state = lab.state();
        if state.as_ref().is_some_and(named::State::is_up) {
            continue; // it was done already
        }
        assert!(state.is_none_or(|state| state.is_dead()));
        named::down_dead(&lab.place()).unwrap();
        lab.assert_nothing_is_left();
        look(&lab);
    }
}

fn mountinfos() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter(|entry| entry.file_name().to_str().unwrap().parse::<u32>().is_ok());
    numbers.map(|entry| entry.path().join("mountinfo")).collect()
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

/// In a view of the file system of its own, with an empty `/run`: `$WEIR` is the helper, `$TOPOLOGY` what it makes.
fn with_run_of_its_own(script: &str) -> Output {
    let before = "mount --make-rprivate / && mount -t tmpfs none /run && umask 000 && set -e\n";
    Command::new("unshare")
        .args(["--mount", "sh", "-c", &format!("{before}{script}")])
        .env("WEIR", exe())
        .env("TOPOLOGY", topology_of(1))
        .env_remove("WEIR_STATE_DIR")
        .output()
        .unwrap()
}

// Spec: lab.md#lab-17
#[test]
fn a_lab_comes_down_whatever_was_mounted_over_its_names_and_the_next_of_the_name_comes_up() {
    if !possible() {
        return;
    }
    for meanwhile in [
        "mkdir -p /run/netns; mount --bind /run/netns /run/netns; mount --make-shared /run/netns",
        "mount -t tmpfs none /run/netns",
        "mount --rbind /run /run",
        "mount --rbind /run/weir /run/weir; mount --rbind /run/weir /run/weir",
        "umount /run/weir/labs/a/net/left-0; rm /run/netns/weir.a.left-0",
        "ip netns add b; ip netns del weir.a.right-0; ip netns del b",
    ] {
        let script = format!(
            // Mounts of labs of others lie hidden below.
            "mounts() {{ grep -c /run/weir/labs/ /proc/self/mountinfo || true; }}; before=$(mounts)\n\
             $WEIR up a \"$TOPOLOGY\"; test \"$(ip netns | wc -l)\" = 2\n\
             {meanwhile}\n$WEIR down a; test ! -e /run/weir/labs/a\n\
             $WEIR up a \"$TOPOLOGY\"; $WEIR exec a left-0 ping -c1 right-0; $WEIR down a\n\
             test \"$(mounts)\" = \"$before\""
        );
        let output = with_run_of_its_own(&script);
        assert!(output.status.success(), "{meanwhile}: {output:?}");
    }
}

// Spec: lab.md#lab-28
#[test]
fn nobody_else_may_change_a_lab_or_reach_its_fabric_whatever_the_umask_and_what_others_may_change_is_refused()
{
    if !possible() {
        return;
    }
    let output = with_run_of_its_own(
        "$WEIR up a \"$TOPOLOGY\"; find /run -mindepth 1 ! -type l -perm /022\n\
         stat -c '%a %n' /run/weir/labs.lock /run/weir/labs/a/fabric.sock\n\
         chmod 666 /run/weir/labs/a/lab.json; $WEIR down a || echo refused\n\
         chmod 644 /run/weir/labs/a/lab.json; $WEIR down a",
    );
    assert_eq!(
        text(&output.stdout),
        "600 /run/weir/labs.lock\n600 /run/weir/labs/a/fabric.sock\nrefused\n",
        "{output:?}"
    );
    assert!(output.status.success() && text(&output.stderr).contains("mode 666"), "{output:?}");
}

// Spec: lab.md#lab-27
#[test]
fn labs_of_one_name_in_two_folders_know_nothing_of_each_other_and_have_no_links_beside_them() {
    if !possible() {
        return;
    }
    let (one, other) = (Named::up("twice"), Named::new("twice"));
    let strange = other.exec("left-0", &["true"]);
    assert!(text(&strange.stderr).contains("no lab is up"), "{strange:?}");
    let down = other.down();
    assert!(text(&down.stderr).contains("there is no lab"), "{down:?}");
    assert!(other.start().wait_with_output().unwrap().status.success(), "the name is free there");
    let fabrics = [&one, &other].map(|lab| lab.state().unwrap().fabric.unwrap());
    assert_ne!(fabrics[0], fabrics[1]);
    let link = format!("weir.{}.left-0", one.name);
    assert!(!std::path::Path::new("/run/netns").join(link).is_symlink());
    assert!(fabrics[0].is_alive() && signal(fabrics[1].pid, Signal::Kill));
    while fabrics[1].is_alive() {
        thread::sleep(Duration::from_millis(2));
    }
    assert!(named::down_dead(&one.place()).unwrap().names.is_empty(), "the dead one is elsewhere");
    assert_eq!(named::down_all(&other.place()).unwrap().names, [other.name.as_str()]);
    other.assert_nothing_is_left();
    assert!(one.state().unwrap().is_up() && one.exec("left-0", &["true"]).status.success());
}

// Spec: lab.md#lab-17
#[test]
fn down_takes_the_rest_down_after_each_thing_that_fails_and_tells_them_all() {
    if !possible() {
        return;
    }
    let lab = Named::up("stubborn");
    for name in ["distrusted", "sound"] {
        let up = lab.helper(&["up", name, &topology_of(1)]).output().unwrap();
        assert!(up.status.success(), "{up:?}");
    }
    // What is no mount of ours cannot be unlinked, in the first place of the folder and in the last.
    for odd in ["0-odd", "z-odd"] {
        std::fs::create_dir(lab.folder().join("net").join(odd)).unwrap();
    }
    let labs = lab.state.path().join("labs");
    let open = |mode: u32| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(labs.join("distrusted/lab.json"), mode).unwrap();
    };
    open(0o666);
    let fabric = lab.state().unwrap().fabric.unwrap();
    let down = named::down_all(&lab.place()).unwrap();
    assert_eq!(down.names, ["sound"]);
    let told: Vec<String> = down.problems.iter().map(ToString::to_string).collect();
    for problem in ["distrusted", "net/0-odd", "net/z-odd"] {
        assert_eq!(told.iter().filter(|text| text.contains(problem)).count(), 1, "{problem}: {told:?}");
    }
    assert!(!fabric.is_alive() && !lab.folder().exists(), "all else of it is gone: {told:?}");
    assert!(!labs.join("sound").exists() && labs.join("distrusted").exists());
    open(0o644);
    assert_eq!(named::down_all(&lab.place()).unwrap().names, ["distrusted"]);
    lab.assert_nothing_is_left();
}
