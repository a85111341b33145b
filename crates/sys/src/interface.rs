//! The network interfaces of the namespace the caller is in.

use crate::address::{configure, control_socket, request};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

/// `ARPHRD_NONE`: no link-layer addresses; TUN devices have it.
pub const HARDWARE_NONE: u16 = 0xfffe;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// `ARPHRD_…`; `None` when the kernel did not tell.
    pub hardware_type: Option<u16>,
    /// Whether anything can come by it.
    pub up: bool,
    pub ipv4: Vec<Ipv4Addr>,
    pub ipv6: Vec<Ipv6Addr>,
}

/// Its index in this namespace; `None` where there is none of the name.
pub fn index_of(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // Safety: `name` is a C string that outlives the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// Its name; `None` where there is none of the index.
pub fn name_of(index: u32) -> Option<String> {
    let mut name: [libc::c_char; libc::IF_NAMESIZE] = [0; libc::IF_NAMESIZE];
    // Safety: `name` has the room that the call asks for, and is a C string when it succeeds.
    let known = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if known.is_null() {
        return None;
    }
    // Safety: the call has put a C string there.
    Some(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

/// All interfaces by name.
pub fn interfaces() -> io::Result<BTreeMap<String, Interface>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // Safety: the pointer is valid for the call, which stores a list there that `freeifaddrs` takes back below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut all: BTreeMap<String, Interface> = BTreeMap::new();
    let mut next = first;
    while !next.is_null() {
        // Safety: `next` is an element of the list, which lives until it is freed below.
        let entry = unsafe { &*next };
        // Safety: the name is a C string of the same list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        let interface = all.entry(name).or_default();
        interface.up = entry.ifa_flags & libc::IFF_UP as libc::c_uint != 0;
        if !entry.ifa_addr.is_null() {
            // Safety: every address starts with its family.
            match i32::from(unsafe { (*entry.ifa_addr).sa_family }) {
                libc::AF_INET => {
                    // Safety: the family says that it is a `sockaddr_in`; it may not be aligned as one.
                    let v4: libc::sockaddr_in = unsafe { std::ptr::read_unaligned(entry.ifa_addr.cast()) };
                    interface.ipv4.push(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()));
                }
                libc::AF_INET6 => {
                    // Safety: the family says that it is a `sockaddr_in6`; it may not be aligned as one.
                    let v6: libc::sockaddr_in6 = unsafe { std::ptr::read_unaligned(entry.ifa_addr.cast()) };
                    interface.ipv6.push(Ipv6Addr::from(v6.sin6_addr.s6_addr));
                }
                _ => {}
            }
        }
        next = entry.ifa_next;
    }
    // Safety: `first` came from `getifaddrs` and nothing of the list is used after this.
    unsafe { libc::freeifaddrs(first) };
    // Asked for by itself: `getifaddrs` tells it beside a link-layer address only, and a TUN device has none.
    let socket = control_socket(libc::AF_INET)?;
    for (name, interface) in &mut all {
        interface.hardware_type = hardware_type(&socket, name).ok();
    }
    Ok(all)
}

fn hardware_type(socket: &OwnedFd, name: &str) -> io::Result<u16> {
    let mut asked = request(name)?;
    configure(socket, "reading the interface's type", libc::SIOCGIFHWADDR as _, &mut asked)?;
    // Safety: SIOCGIFHWADDR filled in this member of the union.
    Ok(unsafe { asked.ifr_ifru.ifru_hwaddr.sa_family })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_address_and_is_no_tun_device() {
        let all = interfaces().unwrap();
        let Some(lo) = all.get("lo").filter(|lo| !lo.ipv4.is_empty()) else {
            eprintln!("skipped: the loopback interface is down here");
            return;
        };
        assert!(lo.ipv4.contains(&Ipv4Addr::LOCALHOST) && lo.up);
        assert_eq!(lo.hardware_type, Some(libc::ARPHRD_LOOPBACK));
    }
}
