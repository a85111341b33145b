use super::help::{exe, possible, start, two_sites};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use weir_core::fabric_page::header;
use weir_core::topology::{Host, Topology};
use weir_sys::netns::{identity, processes_in};
use weir_sys::process::{Signal, signal, start_ticks};

fn round_trip() -> Duration {
    Duration::from_millis(2)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "not within 10 s: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

// Spec: lab.md#lab-11
#[test]
fn a_dropped_lab_leaves_no_process() {
    if !possible() {
        return;
    }
    let lab = start(&two_sites(None, round_trip(), 1500));
    let fabric = lab.fabric_pid();
    assert!(start_ticks(fabric).is_some());
    drop(lab);
    assert_eq!(start_ticks(fabric), None);
}

#[test]
fn a_fabric_that_was_killed_is_reported_with_how_it_ended() {
    if !possible() {
        return;
    }
    let mut lab = start(&two_sites(None, round_trip(), 1500));
    assert_eq!(lab.failed(), None);
    assert!(signal(lab.fabric_pid(), Signal::Kill));
    until("the lab says that its fabric is gone", || lab.failed().is_some());
    assert_eq!(lab.failed().unwrap(), "the fabric process was killed by signal 9");
    assert_eq!(lab.reset().unwrap_err().to_string(), "the fabric process was killed by signal 9");
}

// Spec: lab.md#lab-12
#[test]
fn two_labs_with_the_same_addresses_do_not_meet() {
    if !possible() {
        return;
    }
    let topology = two_sites(None, round_trip(), 1500);
    let (one, other) = (start(&topology), start(&topology));
    let namespaces: BTreeSet<_> = [&one, &other]
        .into_iter()
        .flat_map(|lab| [0, 1].map(|host| identity(lab.namespace(host)).unwrap()))
        .collect();
    assert_eq!(namespaces.len(), 4);
    let ping = weir_sys::netns::run_in(one.namespace(0).as_fd(), || {
        Command::new("ping")
            .args(["-c", "2", "-i", "0.01", "10.64.0.2"])
            .stdout(Stdio::null())
            .status()
            .unwrap()
    });
    assert!(ping.unwrap().success());
    thread::sleep(Duration::from_millis(200)); // longer than the heartbeat of an idle fabric
    assert_eq!((one.page().get(header::PACKETS_IN), other.page().get(header::PACKETS_IN)), (4, 0));
}

/// Tells this test binary to be a process that has a lab and waits.
const HOLD: &str = "WEIR_LAB_TEST_HOLD";

#[test]
fn hold() {
    if std::env::var_os(HOLD).is_none() {
        return;
    }
    let lab = start(&two_sites(None, round_trip(), 1500));
    println!("fabric {}", lab.fabric_pid());
    thread::sleep(Duration::from_secs(60));
}

/// A process that has a lab and nothing else, killed when dropped, and its lab's fabric.
struct Owner {
    process: Child,
    fabric: u32,
}

impl Owner {
    fn start() -> Owner {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "lab::life::hold"])
            .env(HOLD, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let fabric = lines.map_while(Result::ok).find_map(|said| said.rsplit_once("fabric ")?.1.parse().ok());
        Owner { fabric: fabric.expect("the owner ended early"), process }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

// Spec: lab.md#lab-11
#[test]
fn a_killed_owner_leaves_no_process_and_no_namespace() {
    if !possible() {
        return;
    }
    let owner = Owner::start();
    let fabric = owner.fabric;
    assert!(start_ticks(fabric).is_some());
    drop(owner);
    until("the fabric dies with its owner", || start_ticks(fabric).is_none());
}

// Spec: lab.md#lab-26
#[test]
fn the_owner_of_a_lab_keeps_cpus_awake_and_what_it_starts_does_not() {
    if !possible() {
        return;
    }
    let device = Path::new("/dev/cpu_dma_latency");
    let can_be_asked = weir_sys::idle::StayAwake::new().is_ok();
    let keeps_awake = |process: u32| {
        let files = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        files.flatten().any(|file| std::fs::read_link(file.path()).is_ok_and(|target| target == device))
    };
    let owner = Owner::start();
    assert_eq!(keeps_awake(owner.process.id()), can_be_asked);
    assert!(!keeps_awake(owner.fabric));
    // In a lab whose CPUs cannot be kept awake that is said.
    let lab = start(&two_sites(None, round_trip(), 1500));
    let said = lab.notes().iter().any(|note| note.contains("idle CPUs may sleep"));
    assert_eq!(said, !can_be_asked, "{:?}", lab.notes());
}

#[test]
fn a_lab_whose_fabric_cannot_be_started_is_an_error_and_leaves_nothing() {
    if !possible() {
        return;
    }
    let options = weir_lab::Options { seed: 1, exe: "/no/such/weir".into() };
    let error = weir_lab::Lab::start(&two_sites(None, round_trip(), 1500), &options).err().unwrap();
    assert!(
        error.to_string().starts_with("the lab cannot be built: starting the fabric process: "),
        "{error}"
    );
    let options = weir_lab::Options { seed: 1, exe: "/bin/false".into() };
    let error = weir_lab::Lab::start(&two_sites(None, round_trip(), 1500), &options).err().unwrap();
    assert_eq!(error.to_string(), "the fabric process exited with status 1");
}

#[test]
fn processes_are_found_by_their_namespace() {
    if !possible() {
        return;
    }
    let lab = start(&two_sites(None, round_trip(), 1500));
    let of_host = [identity(lab.namespace(0)).unwrap()];
    assert_eq!(processes_in(&of_host).unwrap(), Vec::<u32>::new());
    let mut spawn = weir_sys::process::Spawn::new("/bin/sleep").argument("100");
    spawn.namespace = Some(lab.namespace(0));
    let child = spawn.start().unwrap();
    assert_eq!(processes_in(&of_host).unwrap(), vec![child.id()]);
    assert!(exe().exists());
}

// Spec: lab.md#lab-1
#[test]
fn a_lab_of_many_hosts_carries_packets_between_the_first_and_the_last() {
    if !possible() {
        return;
    }
    let mut topology = two_sites(None, round_trip(), 1500);
    let host = topology.hosts[0].clone();
    let many = (0..600).map(|number| Host { name: format!("h-{number}"), site: number % 2, ..host.clone() });
    topology.hosts = many.collect();
    let lab = start(&topology);
    let ping = weir_sys::netns::run_in(lab.namespace(0), || {
        let last = Topology::ipv4(599).to_string();
        Command::new("ping").args(["-c", "1", &last]).stdout(Stdio::null()).status().unwrap()
    });
    assert!(ping.unwrap().success());
}
