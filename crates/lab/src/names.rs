//! The names by which hosts of a lab know each other.

use std::fmt::Write;
use weir_core::topology::{Stage, Topology};

/// What `/etc/hosts` says on every host.
pub fn names(topology: &Topology) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n".to_owned();
    for (index, host) in topology.hosts.iter().enumerate() {
        let name = &host.name;
        let _ = writeln!(text, "{} {name}", Topology::ipv4(index));
        let _ = writeln!(text, "{} {name}.v6", Topology::ipv6(index));
        if topology.auxiliary.is_some() {
            let _ = writeln!(text, "{} {name}.aux", Topology::auxiliary_ipv4(index));
            let _ = writeln!(text, "{} {name}.aux.v6", Topology::auxiliary_ipv6(index));
        }
    }
    // A router is there to be seen, by traceroute for example, not to be reached.
    for (stage, site) in topology.sites.iter().enumerate() {
        if let Stage::Router { .. } = site.stage {
            let _ = writeln!(text, "{} {}", Topology::router_ipv4(stage), site.name);
            let _ = writeln!(text, "{} {}.v6", Topology::router_ipv6(stage), site.name);
        }
    }
    text
}
