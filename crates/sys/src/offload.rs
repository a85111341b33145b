//! What an interface does for the kernel (`ethtool -k`), as far as the old one-value requests tell.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `struct ethtool_value` of `linux/ethtool.h`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Name as `ethtool -k` has it, and the request that reads it.
const REQUESTS: [(&str, u32); 6] = [
    ("rx-checksumming", 0x14),
    ("tx-checksumming", 0x16),
    ("scatter-gather", 0x18),
    ("tcp-segmentation-offload", 0x1e),
    ("generic-segmentation-offload", 0x23),
    ("generic-receive-offload", 0x2b),
];

/// Offloads of an interface of the caller's namespace that its driver tells of, and whether each is on. Needs no privilege.
///
/// Errors: the name is none, or no socket could be opened.
pub fn offloads(interface: &str) -> io::Result<Vec<(&'static str, bool)>> {
    if interface.is_empty() || interface.len() >= libc::IFNAMSIZ {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{interface:?} is no interface name"),
        ));
    }
    // Safety: no memory is passed.
    let raw = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // Safety: the descriptor is fresh and ours alone.
    let socket = File::from(unsafe { OwnedFd::from_raw_fd(raw) });
    let mut found = Vec::new();
    for (name, command) in REQUESTS {
        let mut value = Value { command, data: 0 };
        // Safety: ifreq is plain data for which all zeros is a valid value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // Safety: the request names an `ethtool_value` that outlives the call, which is what these commands fill in.
        if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) } == 0 {
            found.push((name, value.data != 0));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_loopback_segments_by_itself_and_what_is_no_interface_has_nothing() {
        let found = super::offloads("lo").unwrap();
        if found.is_empty() {
            eprintln!("skipped: this kernel tells nothing of the loopback interface");
        } else {
            assert!(found.contains(&("generic-segmentation-offload", true)), "{found:?}");
        }
        assert!(super::offloads("nothing-here").unwrap().is_empty());
        assert!(super::offloads("a-name-that-is-much-too-long").is_err());
    }
}
