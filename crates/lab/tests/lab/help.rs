use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_core::fabric_page::{LINK_WORDS, link_start};
use weir_core::topology::{Access, Direction, Host, Link, Queue, Site, TcpProfile, Topology};
use weir_core::{BitsPerSecond, Bytes};
use weir_lab::{Lab, Options};

/// True if labs can be built here; says so if not.
pub fn possible() -> bool {
    let root = weir_sys::process::User::real().uid == 0;
    let possible = root && Path::new("/dev/net/tun").exists();
    if !possible {
        eprintln!("SKIPPED: labs need root and /dev/net/tun");
    }
    possible
}

pub fn exe() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_weir-lab-test"))
}

pub fn start(topology: &Topology) -> Lab {
    Lab::start(topology, &Options { seed: 7, exe: exe() }).unwrap()
}

/// Two sites with one host each, 10 Gbit/s access with 20 µs, one link between.
pub fn two_sites(rate: Option<u64>, rtt: Duration, mtu: u32) -> Topology {
    let access = Access { rate: rate.map(BitsPerSecond), mtu, ..Access::default() };
    let direction = Direction {
        rate: rate.map(BitsPerSecond),
        delay_ns: rtt.as_nanos() as u64 / 2,
        queue: Queue::drop_tail(Some(Bytes(4 << 20)), None),
        ..Direction::default()
    };
    let site = |name: &str| Site::new(name, TcpProfile::Modern);
    let host = |name: &str, site| Host::new(name, site, access.clone());
    Topology {
        sites: vec![site("left"), site("right")],
        hosts: vec![host("left-0", 0), host("right-0", 1)],
        links: vec![Link {
            name: "wan".to_owned(),
            between: [0, 1],
            forward: direction.clone(),
            backward: direction,
            mtu,
        }],
        auxiliary: None,
    }
}

/// The block of words of a directed link, by name. The lab's topology is that of `two_sites`.
pub fn counters(lab: &Lab, name: &str) -> Vec<u64> {
    counters_of(lab, &two_sites(None, Duration::ZERO, 1500), name)
}

/// The block of words of a directed link of a topology, by name.
pub fn counters_of(lab: &Lab, topology: &Topology, name: &str) -> Vec<u64> {
    let links = topology.directed_links();
    let index = links.iter().position(|link| link.name == name).unwrap();
    lab.page().copy(link_start(index), LINK_WORDS)
}
