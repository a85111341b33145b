//! Addresses and routes of the interfaces of the calling thread's namespace.

use std::ffi::CString;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

/// A network that is reached through an interface without a gateway: address and prefix length. `0.0.0.0/0` and `::/0` are
/// default routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    pub address: IpAddr,
    pub prefix: u8,
}

/// An interface request for the interface of this name.
pub(crate) fn request(name: &str) -> io::Result<libc::ifreq> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is no interface name")));
    }
    // Safety: ifreq is plain data for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// A socket to make interface requests of one family through.
pub(crate) fn control_socket(family: libc::c_int) -> io::Result<OwnedFd> {
    // Safety: no memory is passed.
    let raw = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // Safety: the descriptor is fresh and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Carries out a request that reads or writes at most one `T`.
fn control<T>(socket: &OwnedFd, what: &str, code: libc::c_ulong, request: &mut T) -> io::Result<()> {
    // Safety: the callers pair each code with the structure that the kernel reads or writes for it, which outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), code as _, std::ptr::from_mut(request)) };
    if result < 0 {
        let error = io::Error::last_os_error();
        return Err(io::Error::new(error.kind(), format!("{what}: {error}")));
    }
    Ok(())
}

/// An interface request that reads or writes one `ifreq`.
pub(crate) fn configure(
    socket: &OwnedFd,
    what: &str,
    code: libc::c_ulong,
    request: &mut libc::ifreq,
) -> io::Result<()> {
    control(socket, what, code, request)
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    // Safety: sockaddr is plain data for which all zeros is a valid value.
    let mut generic: libc::sockaddr = unsafe { std::mem::zeroed() };
    generic.sa_family = libc::AF_INET as libc::sa_family_t;
    // sockaddr_in lies over sockaddr: port in bytes 0 and 1 of the data, address in 2 to 5.
    for (to, from) in generic.sa_data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    generic
}

fn in6(address: Ipv6Addr) -> libc::in6_addr {
    libc::in6_addr { s6_addr: address.octets() }
}

/// `struct in6_rtmsg` of `linux/ipv6_route.h`; the one in libc keeps its fields to itself.
#[repr(C)]
struct Ipv6Route {
    destination: libc::in6_addr,
    source: libc::in6_addr,
    gateway: libc::in6_addr,
    kind: u32,
    destination_prefix: u16,
    source_prefix: u16,
    metric: u32,
    info: libc::c_ulong,
    flags: u32,
    interface: libc::c_int,
}

fn index_of(name: &str) -> io::Result<libc::c_int> {
    let text = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // Safety: a valid C string that outlives the call.
    match unsafe { libc::if_nametoindex(text.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index as libc::c_int),
    }
}

/// Takes an interface up.
pub(crate) fn interface_up(name: &str) -> io::Result<()> {
    let socket = control_socket(libc::AF_INET)?;
    let mut up = request(name)?;
    configure(&socket, "reading the interface's flags", libc::SIOCGIFFLAGS as _, &mut up)?;
    // Safety: SIOCGIFFLAGS filled in this member of the union.
    unsafe { up.ifr_ifru.ifru_flags |= (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short };
    configure(&socket, "taking the interface up", libc::SIOCSIFFLAGS as _, &mut up)
}

/// Gives an interface an address that is a network of its own (prefix 32 or 128): nothing else is reached by it.
///
/// Errors: for IPv6 where the kernel has none, or where the interface's MTU is below the 1,280 bytes that IPv6 asks for.
pub fn add(interface: &str, address: IpAddr) -> io::Result<()> {
    match address {
        IpAddr::V4(address) => {
            let socket = control_socket(libc::AF_INET)?;
            let mut change = request(interface)?;
            change.ifr_ifru.ifru_addr = socket_address(address);
            configure(&socket, "setting the address", libc::SIOCSIFADDR as _, &mut change)?;
            change.ifr_ifru.ifru_netmask = socket_address(Ipv4Addr::BROADCAST);
            configure(&socket, "setting the netmask", libc::SIOCSIFNETMASK as _, &mut change)
        }
        IpAddr::V6(address) => {
            let socket = control_socket(libc::AF_INET6)?;
            let mut change = libc::in6_ifreq {
                ifr6_addr: in6(address),
                ifr6_prefixlen: 128,
                ifr6_ifindex: index_of(interface)?,
            };
            control(&socket, "setting the IPv6 address", libc::SIOCSIFADDR as _, &mut change)?;
            until_usable(address)
        }
    }
}

/// The kernel makes a new IPv6 address usable in the background, also where it looks for no duplicates; until then programs
/// cannot bind to it.
fn until_usable(address: Ipv6Addr) -> io::Result<()> {
    const WITHIN: Duration = Duration::from_secs(5);
    let wanted: String = address.octets().iter().map(|byte| format!("{byte:02x}")).collect();
    let until = Instant::now() + WITHIN;
    loop {
        // Address, interface index, prefix length, scope and flags, in hexadecimal.
        let text = fs::read_to_string("/proc/thread-self/net/if_inet6")?;
        let line = text.lines().find(|line| line.starts_with(&wanted));
        let flags = line.and_then(|line| u32::from_str_radix(line.split_whitespace().nth(4)?, 16).ok());
        if flags.is_some_and(|flags| flags & libc::IFA_F_TENTATIVE == 0) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the IPv6 address is not usable after {} s", WITHIN.as_secs()),
            ));
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// Sends a network's packets through an interface, without a gateway. The interface must be up.
pub fn add_route(interface: &str, network: Network) -> io::Result<()> {
    match network.address {
        IpAddr::V4(address) => {
            let socket = control_socket(libc::AF_INET)?;
            let mut device: Vec<libc::c_char> =
                interface.bytes().chain([0]).map(|byte| byte as libc::c_char).collect();
            // Safety: rtentry is plain data for which all zeros is a valid value.
            let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
            let mask = u32::MAX.checked_shl(32 - u32::from(network.prefix.min(32))).unwrap_or(0);
            route.rt_dst = socket_address(address);
            route.rt_genmask = socket_address(Ipv4Addr::from(mask));
            route.rt_flags = libc::RTF_UP;
            route.rt_dev = device.as_mut_ptr(); // `device` outlives the call below
            control(&socket, "setting the route", libc::SIOCADDRT as _, &mut route)
        }
        IpAddr::V6(address) => {
            let socket = control_socket(libc::AF_INET6)?;
            let nobody = in6(Ipv6Addr::UNSPECIFIED);
            let mut route = Ipv6Route {
                destination: in6(address),
                source: nobody,
                gateway: nobody,
                kind: 0,
                destination_prefix: u16::from(network.prefix),
                source_prefix: 0,
                metric: 1,
                info: 0,
                flags: u32::from(libc::RTF_UP),
                interface: index_of(interface)?,
            };
            control(&socket, "setting the IPv6 route", libc::SIOCADDRT as _, &mut route)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_interface_name_is_refused_before_the_kernel_sees_it() {
        for bad in ["", "a-name-of-more-than-fifteen-letters"] {
            assert_eq!(
                request(bad).map(|_| ()).expect_err("must be refused").kind(),
                io::ErrorKind::InvalidInput
            );
        }
        assert!(request("eth0").is_ok());
    }
}
