//! Whose address it is.

use std::net::{IpAddr, Ipv4Addr};
use weir_core::topology::Topology;

/// What has an address in a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Station {
    /// A host's interface on the lab's network.
    Host(usize),
    /// A host's second interface.
    Auxiliary(usize),
    /// A router, by its index in `Topology::sites`.
    Router(usize),
}

impl Station {
    /// `None` if the address is nobody's. Whether the topology has such a host or router is not asked here.
    fn numbered(address: IpAddr) -> Option<Station> {
        match address {
            IpAddr::V4(address) => {
                let beyond = |base: Ipv4Addr| u32::from(address).checked_sub(u32::from(base));
                // The bases in falling order: each one's numbers end where the next one begins.
                if let Some(number) = beyond(Topology::auxiliary_ipv4(0)) {
                    return Some(Station::Auxiliary(number as usize));
                }
                if let Some(number) = beyond(Topology::router_ipv4(0)) {
                    return Some(Station::Router(number as usize));
                }
                beyond(Topology::ipv4(0)).map(|number| Station::Host(number as usize))
            }
            IpAddr::V6(address) => {
                let segments = address.segments();
                let number = usize::from(segments[7]).checked_sub(1)?;
                let same = |base: std::net::Ipv6Addr| base.segments()[..7] == segments[..7];
                if same(Topology::ipv6(0)) {
                    Some(Station::Host(number))
                } else if same(Topology::auxiliary_ipv6(0)) {
                    Some(Station::Auxiliary(number))
                } else {
                    same(Topology::router_ipv6(0)).then_some(Station::Router(number))
                }
            }
        }
    }

    /// Whose address this is in the lab, if anybody's.
    pub fn of(topology: &Topology, address: IpAddr) -> Option<Station> {
        Self::numbered(address).filter(|station| match *station {
            Station::Host(host) => host < topology.hosts.len(),
            Station::Auxiliary(host) => topology.auxiliary.is_some() && host < topology.hosts.len(),
            Station::Router(stage) => topology.sites.get(stage).is_some_and(is_router),
        })
    }
}

fn is_router(site: &weir_core::topology::Site) -> bool {
    matches!(site.stage, weir_core::topology::Stage::Router { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::topology::{Access, Auxiliary, Host, Site, Stage, TcpProfile};

    // Spec: lab.md#lab-1
    #[test]
    fn every_address_of_a_lab_is_one_stations_and_the_next_one_is_nobodys() {
        let access = Access::default();
        let mut router = Site::new("r", TcpProfile::Stock);
        router.stage = Stage::Router { replies: true };
        let mut topology = Topology {
            sites: vec![Site::new("a", TcpProfile::Stock), router],
            hosts: (0..3).map(|n| Host::new(&format!("a-{n}"), 0, access.clone())).collect(),
            links: Vec::new(),
            auxiliary: None,
        };
        let of = |topology: &Topology, address: IpAddr| Station::of(topology, address);
        for host in 0..3 {
            assert_eq!(of(&topology, Topology::ipv4(host).into()), Some(Station::Host(host)));
            assert_eq!(of(&topology, Topology::ipv6(host).into()), Some(Station::Host(host)));
            assert_eq!(of(&topology, Topology::auxiliary_ipv4(host).into()), None);
        }
        for nobody in [
            IpAddr::from(Topology::ipv4(3)),
            Topology::ipv6(3).into(),
            Topology::router_ipv4(0).into(),
            Topology::router_ipv6(0).into(),
            Topology::router_ipv4(2).into(),
            Ipv4Addr::new(10, 64, 0, 0).into(),
            Ipv4Addr::BROADCAST.into(),
            "ff02::2".parse().unwrap(),
            "fd77:6569:7200::".parse().unwrap(),
        ] {
            assert_eq!(of(&topology, nobody), None, "{nobody}");
        }
        assert_eq!(of(&topology, Topology::router_ipv4(1).into()), Some(Station::Router(1)));
        assert_eq!(of(&topology, Topology::router_ipv6(1).into()), Some(Station::Router(1)));
        topology.auxiliary = Some(Auxiliary { rate: None, delay_ns: 0 });
        for host in 0..3 {
            let auxiliary = Some(Station::Auxiliary(host));
            assert_eq!(of(&topology, Topology::auxiliary_ipv4(host).into()), auxiliary);
            assert_eq!(of(&topology, Topology::auxiliary_ipv6(host).into()), auxiliary);
        }
        assert_eq!(of(&topology, Topology::auxiliary_ipv4(3).into()), None);
    }
}
