//! Who could reach a listening address.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use weir_sys::interface::{HARDWARE_NONE, Interface, interfaces};

/// The interfaces of a host in a lab, with the first address of each one's network (/10): the second where the lab has an
/// auxiliary network.
const LAB_INTERFACES: [(&str, [u8; 2]); 2] = [("eth0", [10, 64]), ("aux0", [10, 128])];

/// Whether only this machine or a lab on it can reach `address`; anything else needs a key.
pub fn is_closed(address: &SocketAddr) -> bool {
    address.ip().is_loopback() || interfaces().is_ok_and(|all| in_lab(&all, address.ip()))
}

/// A host of a lab has a TUN device called eth0 with a lab's address, perhaps one called aux0 with an auxiliary address, and
/// besides them the loopback interface alone is up. A machine's own VPN is not called so, and a container's eth0 is no TUN
/// device. What is down counts for nothing: some kernels put a `tunl0` or `sit0` into every namespace.
fn in_lab(interfaces: &BTreeMap<String, Interface>, address: IpAddr) -> bool {
    let of_lab = |name: &str, device: &Interface| {
        let network = LAB_INTERFACES.iter().find(|(known, _)| *known == name).map(|(_, network)| *network);
        let inside = |address: &std::net::Ipv4Addr| {
            let [first, second, ..] = address.octets();
            Some([first, second & 0xc0]) == network
        };
        device.hardware_type == Some(HARDWARE_NONE) && device.ipv4.iter().any(inside)
    };
    let mut devices = interfaces.iter().filter(|(name, device)| name.as_str() != "lo" && device.up);
    let only_these = devices.clone().all(|(name, device)| of_lab(name, device));
    let reached_here = match address {
        IpAddr::V4(v4) => v4.is_unspecified() || devices.any(|(_, device)| device.ipv4.contains(&v4)),
        IpAddr::V6(_) => true,
    };
    only_these && interfaces.get(LAB_INTERFACES[0].0).is_some_and(|device| device.up) && reached_here
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    // Spec: net-protocol.md#keys-3
    #[test]
    fn only_a_labs_tun_device_passes_for_a_lab() {
        let inside = Ipv4Addr::new(10, 64, 0, 1);
        let device = |hardware, address| Interface {
            hardware_type: Some(hardware),
            up: true,
            ipv4: vec![address],
            ..Interface::default()
        };
        let all = |name: &str, device| {
            BTreeMap::from([("lo".to_owned(), Interface::default()), (name.to_owned(), device)])
        };
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        assert!(in_lab(&all("eth0", device(HARDWARE_NONE, inside)), any));
        assert!(in_lab(&all("eth0", device(HARDWARE_NONE, inside)), inside.into()));
        assert!(!in_lab(&all("eth0", device(1, inside)), any), "a container");
        assert!(!in_lab(&all("tun0", device(HARDWARE_NONE, inside)), any), "a VPN");
        assert!(!in_lab(&all("eth0", device(HARDWARE_NONE, Ipv4Addr::new(10, 0, 0, 1))), any));
        let beside = Ipv4Addr::new(10, 128, 0, 1);
        let with = |name: &str, second: Interface| {
            let mut two = all("eth0", device(HARDWARE_NONE, inside));
            two.insert(name.to_owned(), second);
            two
        };
        assert!(!in_lab(&with("eth1", Interface { up: true, ..Interface::default() }), any));
        assert!(in_lab(&with("sit0", Interface::default()), any), "a tunnel that is down");
        let down = Interface { up: false, ..device(HARDWARE_NONE, inside) };
        assert!(!in_lab(&all("eth0", down), any));
        assert!(!in_lab(&with("aux0", device(1, beside)), any), "a real interface of that name");
        assert!(!in_lab(&with("aux0", device(HARDWARE_NONE, inside)), any), "not on an auxiliary network");
        let lab = with("aux0", device(HARDWARE_NONE, beside));
        assert!(in_lab(&lab, any) && in_lab(&lab, inside.into()) && in_lab(&lab, beside.into()));
        assert!(!in_lab(&lab, Ipv4Addr::new(10, 64, 0, 9).into()), "another host's");
        assert!(!in_lab(&all("aux0", device(HARDWARE_NONE, beside)), any));
    }
}
