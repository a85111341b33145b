//! Addresses as people write them and read them: a link-local one belongs to an interface, which has a name.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use weir_sys::interface;

/// An address with its port; the interface of a link-local one by its name, as `ip address` shows it.
#[derive(Clone, Copy, Debug)]
pub struct Shown(pub SocketAddr);

impl fmt::Display for Shown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => match interface::name_of(v6.scope_id()) {
                Some(name) => write!(out, "[{}%{name}]:{}", v6.ip(), v6.port()),
                None => self.0.fmt(out),
            },
            _ => self.0.fmt(out),
        }
    }
}

/// The same place at another port. What an `IpAddr` forgets stays: the interface of a link-local address.
pub fn at_port(address: SocketAddr, port: u16) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_canonical() {
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, v6.scope_id()).into(),
            ip @ IpAddr::V4(_) => SocketAddr::new(ip, port),
        },
        SocketAddr::V4(v4) => SocketAddr::new((*v4.ip()).into(), port),
    }
}

/// `ADDRESS`, `[ADDRESS]`, `ADDRESS:PORT` and `[ADDRESS]:PORT`, a link-local one with `%` and the name or the index of its
/// interface. `None`: it is no address, so perhaps a name. Errors: what is wrong with it, and what to do.
// Spec: net-protocol.md#address-1
pub fn parse(text: &str, port: u16) -> Option<Result<SocketAddr, String>> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (inside, port) = match bracketed {
        Some((inside, "")) => (inside, port),
        Some((inside, rest)) => match rest.strip_prefix(':').map(str::parse) {
            Some(Ok(port)) => (inside, port),
            _ => return inside_parses(inside).then(|| Err(format!("{text:?}: {rest:?} is no port"))),
        },
        None => match text.parse::<SocketAddr>() {
            Ok(address) => return Some(Ok(address)),
            Err(_) => (text, port),
        },
    };
    let Some((address, zone)) = inside.split_once('%') else {
        let address: IpAddr = inside.parse().ok()?;
        if let IpAddr::V6(v6) = address
            && v6.is_unicast_link_local()
        {
            return Some(Err(format!(
                "{v6} is link-local: say on which interface, as in [{v6}%eth0]:{port} (`ip -6 address` shows them)"
            )));
        }
        return Some(Ok(SocketAddr::new(address, port)));
    };
    let address: Ipv6Addr = address.parse().ok()?;
    let index = match zone.parse() {
        Ok(index) => interface::name_of(index).map(|_| index),
        Err(_) => interface::index_of(zone),
    };
    let index =
        index.ok_or_else(|| format!("{inside:?}: there is no interface {zone:?} here; `ip link` lists them"));
    Some(index.map(|index| SocketAddrV6::new(address, port, 0, index).into()))
}

fn inside_parses(inside: &str) -> bool {
    inside.split('%').next().is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

/// `ADDRESS`, or `ADDRESS%INTERFACE` with the interface's name or its index here.
pub fn at_and_on(text: &str) -> (Option<IpAddr>, Option<String>) {
    let (address, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    let name = |zone: &str| match zone.parse() {
        Ok(index) => interface::name_of(index),
        Err(_) => Some(zone.to_owned()),
    };
    (address.parse().ok(), zone.and_then(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: net-protocol.md#address-1
    #[test]
    fn an_interface_is_given_by_its_name_or_its_index_and_shown_by_its_name() {
        let index = interface::index_of("lo").unwrap();
        for zone in ["lo".to_owned(), index.to_string()] {
            for (text, port) in [
                (format!("fe80::1%{zone}"), 5301),
                (format!("[fe80::1%{zone}]"), 5301),
                (format!("[fe80::1%{zone}]:7"), 7),
            ] {
                let address = parse(&text, 5301).unwrap().unwrap();
                assert_eq!(address, SocketAddrV6::new("fe80::1".parse().unwrap(), port, 0, index).into());
                assert_eq!(Shown(address).to_string(), format!("[fe80::1%lo]:{port}"));
                let moved = at_port(address, 9);
                assert_eq!(Shown(moved).to_string(), "[fe80::1%lo]:9");
            }
        }
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:5".parse().unwrap();
        assert_eq!(at_port(mapped, 6), "10.0.0.1:6".parse().unwrap());
        for (text, shown) in [
            ("::1", "[::1]:5"),
            ("[::1]", "[::1]:5"),
            ("10.0.0.1:6", "10.0.0.1:6"),
            ("10.0.0.1", "10.0.0.1:5"),
        ] {
            assert_eq!(Shown(parse(text, 5).unwrap().unwrap()).to_string(), shown);
        }
    }

    // Spec: net-protocol.md#address-1
    #[test]
    fn what_names_no_interface_is_told_so_and_what_is_no_address_is_left_to_names() {
        let refused = |text| parse(text, 5).unwrap().unwrap_err();
        assert!(refused("[fe80::1%nowhere0]:5301").contains("no interface \"nowhere0\""));
        assert!(refused("fe80::1%4000000000").contains("no interface"));
        assert!(refused("fe80::1").contains("[fe80::1%eth0]:5"));
        assert!(refused("[fe80::1]:7").contains("[fe80::1%eth0]:7"));
        assert!(refused("[::1]:http").contains("is no port"));
        for name in ["there", "there:5301", "a%b", "", "[", "[]", "[there]:5", "fe80::x%lo"] {
            assert!(parse(name, 5).is_none(), "{name}");
        }
    }

    #[test]
    fn a_link_local_address_is_taken_apart_with_the_name_or_the_index_of_its_interface() {
        let at = Some("fe80::1".parse().unwrap());
        let index = interface::index_of("lo").unwrap();
        assert_eq!(at_and_on("fe80::1%lo"), (at, Some("lo".to_owned())));
        assert_eq!(at_and_on(&format!("fe80::1%{index}")), (at, Some("lo".to_owned())));
        assert_eq!(at_and_on("fe80::1%4000000000"), (at, None));
        assert_eq!(at_and_on("10.0.0.1"), (Some("10.0.0.1".parse().unwrap()), None));
        assert_eq!(at_and_on(""), (None, None));
    }
}
