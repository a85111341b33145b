//! Who could reach a listening address.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use weir_sys::interface::{HARDWARE_NONE, Interface, interfaces};

/// The interface of a host in a lab, and the first bits of its address (10.64.0.0/10).
const LAB_INTERFACE: &str = "eth0";

/// Whether only this machine or a lab on it can reach `address`; anything else needs a key.
pub fn is_closed(address: &SocketAddr) -> bool {
    address.ip().is_loopback() || interfaces().is_ok_and(|all| in_lab(&all, address.ip()))
}

/// A host of a lab has a TUN device called eth0 with a lab's address, and besides it the loopback interface alone. A
/// machine's own VPN is not called eth0, and a container's eth0 is no TUN device.
fn in_lab(interfaces: &BTreeMap<String, Interface>, address: IpAddr) -> bool {
    let only_these = interfaces.keys().all(|name| name == "lo" || name == LAB_INTERFACE);
    let Some(device) = interfaces.get(LAB_INTERFACE) else { return false };
    let of_lab = device.ipv4.iter().any(|address| {
        let [first, second, ..] = address.octets();
        first == 10 && (64..128).contains(&second)
    });
    let reached_here = match address {
        IpAddr::V4(v4) => v4.is_unspecified() || device.ipv4.contains(&v4),
        IpAddr::V6(_) => true,
    };
    only_these && device.hardware_type == Some(HARDWARE_NONE) && of_lab && reached_here
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
        let mut two = all("eth0", device(HARDWARE_NONE, inside));
        two.insert("eth1".to_owned(), Interface::default());
        assert!(!in_lab(&two, any));
    }
}
