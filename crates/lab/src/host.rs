//! One emulated host: a network namespace with its kernel settings and its interfaces.

use crate::error::LabError;
use crate::limits::Limits;
use crate::profile;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use weir_core::topology::{AUXILIARY_MTU, Topology};
use weir_sys::address::{self, Network};
use weir_sys::netns;
use weir_sys::sysctl::Sysctls;
use weir_sys::tun::{Interface, Tun};

pub const INTERFACE: &str = "eth0";
/// The interface on the auxiliary network.
pub const AUXILIARY_INTERFACE: &str = "aux0";
/// Super-packets the kernel holds for the fabric. Large, so that a host whose link is busy waits instead of losing packets in
/// its own interface; a TCP sender fills it only as far as its window goes.
const INTERFACE_QUEUE_PACKETS: u32 = 10_000;
/// Below it no interface has IPv6 (RFC 8200 section 5).
const IPV6_MTU_MIN: u32 = 1280;

pub struct HostParts {
    pub namespace: OwnedFd,
    pub tun: Tun,
    /// Where the lab has an auxiliary network.
    pub auxiliary: Option<Tun>,
    pub notes: Vec<String>,
}

/// What tells one of a host's interfaces from the other.
struct Side {
    name: &'static str,
    ipv4: Ipv4Addr,
    ipv6: Ipv6Addr,
    network4: Network,
    network6: Network,
    mtu: u32,
}

/// Makes host number `host`; `limits` are for its TCP profile.
pub fn build(topology: &Topology, host: usize, limits: Limits) -> Result<HostParts, LabError> {
    let name = &topology.hosts[host].name;
    let failed = |what: &str| {
        let what = what.to_owned();
        move |source| LabError::Host { host: name.clone(), what, source }
    };
    let namespace = netns::create().map_err(failed("making its network namespace"))?;
    let parts = netns::run_in(namespace.as_fd(), || {
        let settings = Sysctls::of_this_thread().map_err(failed("its kernel settings"))?;
        let mut notes = Vec::new();
        quiet_ipv6(&settings);
        let tcp_profile = topology.sites[topology.hosts[host].site].tcp_profile;
        profile::set(&settings, tcp_profile, limits, &mut notes);
        netns::loopback_up().map_err(failed("taking its loopback interface up"))?;
        let everywhere = |address: IpAddr| Network { address, prefix: 0 };
        let main = Side {
            name: INTERFACE,
            ipv4: Topology::ipv4(host),
            ipv6: Topology::ipv6(host),
            network4: everywhere(Ipv4Addr::UNSPECIFIED.into()),
            network6: everywhere(Ipv6Addr::UNSPECIFIED.into()),
            mtu: topology.hosts[host].access.mtu,
        };
        let tun = interface(&main, &mut notes).map_err(failed("making its interface"))?;
        let auxiliary = match topology.auxiliary {
            None => None,
            Some(_) => Some(
                interface(&auxiliary_side(host), &mut notes)
                    .map_err(failed("making its interface on the auxiliary network"))?,
            ),
        };
        Ok((tun, auxiliary, notes))
    });
    let (tun, auxiliary, notes) = parts.map_err(failed("entering its network namespace"))??;
    Ok(HostParts { namespace, tun, auxiliary, notes })
}

/// The more specific route keeps the auxiliary network's packets, and only those, off the other interface.
fn auxiliary_side(host: usize) -> Side {
    let (ipv4, ipv6) = (Topology::auxiliary_ipv4(host), Topology::auxiliary_ipv6(host));
    let mut prefix6 = ipv6.segments();
    prefix6[4..].fill(0);
    Side {
        name: AUXILIARY_INTERFACE,
        ipv4,
        ipv6,
        network4: Network { address: Ipv4Addr::new(10, 128, 0, 0).into(), prefix: 10 },
        network6: Network { address: Ipv6Addr::from(prefix6).into(), prefix: 64 },
        mtu: AUXILIARY_MTU,
    }
}

fn interface(side: &Side, notes: &mut Vec<String>) -> io::Result<Tun> {
    let tun = Tun::create(&Interface {
        name: side.name.to_owned(),
        address: side.ipv4,
        network: side.network4,
        mtu: side.mtu,
        queue_packets: INTERFACE_QUEUE_PACKETS,
    })?;
    if side.mtu < IPV6_MTU_MIN {
        notes.push(format!(
            "hosts whose interface has an MTU below {IPV6_MTU_MIN} have no IPv6 address: the kernel gives none"
        ));
        return Ok(tun);
    }
    let added =
        address::add(side.name, side.ipv6.into()).and_then(|()| address::add_route(side.name, side.network6));
    if let Err(error) = added {
        notes.push(format!("hosts have no IPv6 address ({error}); is IPv6 switched off on this machine?"));
    }
    Ok(tun)
}

/// No router solicitations and no addresses of the kernel's own making: the fabric would count them as packets that lead
/// nowhere. A kernel without IPv6 has none of these settings, which is as good.
fn quiet_ipv6(settings: &Sysctls) {
    for (name, value) in [
        ("accept_ra", "0"),
        ("autoconf", "0"),
        ("router_solicitations", "0"),
        ("dad_transmits", "0"),
        ("addr_gen_mode", "1"),
    ] {
        for which in ["all", "default"] {
            let _ = settings.write(&format!("net.ipv6.conf.{which}.{name}"), value);
        }
    }
}
