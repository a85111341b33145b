//! Addresses of hosts and routers inside a lab.

use super::Topology;
use std::net::{Ipv4Addr, Ipv6Addr};

impl Topology {
    /// The host's IPv4 address inside the lab: 10.64.0.0/10, 4,094 hosts at most.
    /// The same number is the last part of its IPv6 address.
    pub fn ipv4(host: usize) -> Ipv4Addr {
        let number = u32::try_from(host).expect("a lab has at most a few thousand hosts") + 1;
        Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 64, 0, 0)) + number)
    }
    pub fn ipv6(host: usize) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, 0x6569, 0x7200, 0, 0, 0, 0, u16::try_from(host + 1).expect("few hosts"))
    }
    /// The address of the host's auxiliary interface: 10.128.0.0/10.
    pub fn auxiliary_ipv4(host: usize) -> Ipv4Addr {
        Ipv4Addr::from(
            u32::from(Self::ipv4(host)) - u32::from(Ipv4Addr::new(10, 64, 0, 0))
                + u32::from(Ipv4Addr::new(10, 128, 0, 0)),
        )
    }
    pub fn auxiliary_ipv6(host: usize) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, 0x6569, 0x7201, 0, 0, 0, 0, u16::try_from(host + 1).expect("few hosts"))
    }
    /// The address that a router answers from, by its index in `sites`: 10.127.0.0/16, the last part of the hosts' network.
    pub fn router_ipv4(stage: usize) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 127, 0, 1)) + u32::try_from(stage).expect("few stages"))
    }
    pub fn router_ipv6(stage: usize) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, 0x6569, 0x7200, 0, 0, 0, 1, u16::try_from(stage + 1).expect("few stages"))
    }
    /// The host that has this address, if any.
    pub fn host_of_ipv4(&self, address: Ipv4Addr) -> Option<usize> {
        let number = u32::from(address).checked_sub(u32::from(Ipv4Addr::new(10, 64, 0, 1)))? as usize;
        (number < self.hosts.len()).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::sample;
    use std::time::Duration;

    #[test]
    fn an_address_names_its_host_and_no_other() {
        let topology = sample::two_sites(1, Duration::ZERO, 1500);
        assert_eq!(topology.host_of_ipv4(Topology::ipv4(1)), Some(1));
        assert_eq!(topology.host_of_ipv4(Topology::ipv4(2)), None);
        assert_eq!(topology.host_of_ipv4(Ipv4Addr::new(9, 9, 9, 9)), None);
    }
}
