//! UDP sockets that probe a path: hop limits, packets that must not be cut, and what routers say of them, which Linux keeps for
//! each socket in an error queue (`IP_RECVERR`, ip(7) and ipv6(7)). None of it needs a privilege.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Room for the control messages of one error: `sock_extended_err` and an address.
const CONTROL_BYTES: usize = 256;

/// The version of IP that a socket speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V4,
    V6,
}

impl Version {
    pub fn of(address: IpAddr) -> Version {
        if address.is_ipv4() { Version::V4 } else { Version::V6 }
    }
    /// IP's and UDP's headers together.
    pub fn header_bytes(self) -> usize {
        match self {
            Version::V4 => 28,
            Version::V6 => 48,
        }
    }
    fn level(self) -> libc::c_int {
        match self {
            Version::V4 => libc::IPPROTO_IP,
            Version::V6 => libc::IPPROTO_IPV6,
        }
    }
    fn pick(self, v4: libc::c_int, v6: libc::c_int) -> libc::c_int {
        match self {
            Version::V4 => v4,
            Version::V6 => v6,
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set(socket: BorrowedFd<'_>, version: Version, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // Safety: pointer and length describe `value`, which outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            version.level(),
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
}

/// Prepares a connected socket: errors are queued, and each packet leaves whole, with DF set, whatever is known of the path.
pub fn prepare(socket: BorrowedFd<'_>, version: Version) -> io::Result<()> {
    set(socket, version, version.pick(libc::IP_RECVERR, libc::IPV6_RECVERR), 1)?;
    let discover = version.pick(libc::IP_MTU_DISCOVER, libc::IPV6_MTU_DISCOVER);
    set(socket, version, discover, version.pick(libc::IP_PMTUDISC_PROBE, libc::IPV6_PMTUDISC_PROBE))
}

/// How many routers the packets sent from now on may pass, plus one; `None`: as many as the system's packets do.
pub fn set_hop_limit(socket: BorrowedFd<'_>, version: Version, hops: Option<u8>) -> io::Result<()> {
    let hops = hops.map_or(-1, libc::c_int::from);
    set(socket, version, version.pick(libc::IP_TTL, libc::IPV6_UNICAST_HOPS), hops)
}

/// The largest packet that the kernel holds the connected socket's route to take, in bytes.
pub fn route_mtu(socket: BorrowedFd<'_>, version: Version) -> io::Result<u64> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // Safety: pointer and length describe `value`, which outlives the call.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            version.level(),
            version.pick(libc::IP_MTU, libc::IPV6_MTU),
            (&raw mut value).cast(),
            &raw mut length,
        )
    })?;
    Ok(u64::try_from(value).unwrap_or(0))
}

/// What became of a packet, as somebody on its way says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Its hop limit ended there.
    TimeExceeded,
    /// It is larger than `mtu` bytes, which the next link takes; 0 where the router does not say.
    TooBig {
        mtu: u64,
    },
    /// It cannot be delivered.
    Unreachable,
    Other,
}

/// An error of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathError {
    /// Who says it; `None` is this machine.
    pub from: Option<IpAddr>,
    pub said: Said,
    /// Bytes of the packet's payload that it quotes.
    pub quoted_bytes: usize,
}

/// Takes the oldest error off the socket's queue, and as much of the payload as it quotes. `None`: there is none.
pub fn take_error(socket: BorrowedFd<'_>, payload: &mut [u8]) -> io::Result<Option<PathError>> {
    #[repr(align(8))]
    struct Control([u8; CONTROL_BYTES]);
    let mut control = Control([0; CONTROL_BYTES]);
    let mut slice = libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() };
    // Safety: all zeros is a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut slice;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    // Safety: every pointer in `message` describes a buffer that outlives the call.
    let count = unsafe {
        libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    };
    let Ok(quoted_bytes) = usize::try_from(count) else {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
    };
    // Safety: the kernel filled `message` in, and `control` still holds what it points to.
    let mut entry = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !entry.is_null() {
        // Safety: `entry` is a header within `control`, as CMSG_FIRSTHDR and CMSG_NXTHDR gave it.
        let header = unsafe { std::ptr::read_unaligned(entry) };
        let is_error = (header.cmsg_level, header.cmsg_type) == (libc::IPPROTO_IP, libc::IP_RECVERR)
            || (header.cmsg_level, header.cmsg_type) == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR);
        if is_error {
            // Safety: as for `entry`; the data follows its header.
            let data = unsafe { libc::CMSG_DATA(entry) };
            let offset = data as usize - entry as usize;
            // Safety: the kernel says that so many bytes belong to this entry.
            let bytes = unsafe {
                std::slice::from_raw_parts(data, (header.cmsg_len as usize).saturating_sub(offset))
            };
            return Ok(decode(bytes, quoted_bytes));
        }
        // Safety: as for CMSG_FIRSTHDR.
        entry = unsafe { libc::CMSG_NXTHDR(&raw const message, entry) };
    }
    Ok(Some(PathError { from: None, said: Said::Other, quoted_bytes }))
}

/// Reads `struct sock_extended_err` (`linux/errqueue.h`) and the address behind it. `None` when it is cut.
fn decode(bytes: &[u8], quoted_bytes: usize) -> Option<PathError> {
    const ORIGIN: usize = 4;
    const KIND: usize = 5;
    const INFO: usize = 8;
    const OFFENDER: usize = 16;
    // RFC 792 and RFC 4443: kinds of ICMP and ICMPv6.
    const V4_UNREACHABLE: u8 = 3;
    const V4_TIME_EXCEEDED: u8 = 11;
    const V6_UNREACHABLE: u8 = 1;
    const V6_TOO_BIG: u8 = 2;
    const V6_TIME_EXCEEDED: u8 = 3;
    let number = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (errno, mtu) = (number(0)? as i32, u64::from(number(INFO)?));
    let (origin, kind) = (*bytes.get(ORIGIN)?, *bytes.get(KIND)?);
    let said = match (origin, kind) {
        _ if errno == libc::EMSGSIZE => Said::TooBig { mtu },
        (libc::SO_EE_ORIGIN_ICMP6, V6_TOO_BIG) => Said::TooBig { mtu },
        (libc::SO_EE_ORIGIN_ICMP, V4_TIME_EXCEEDED) | (libc::SO_EE_ORIGIN_ICMP6, V6_TIME_EXCEEDED) => {
            Said::TimeExceeded
        }
        (libc::SO_EE_ORIGIN_ICMP, V4_UNREACHABLE) | (libc::SO_EE_ORIGIN_ICMP6, V6_UNREACHABLE) => {
            Said::Unreachable
        }
        _ => Said::Other,
    };
    let from = if origin == libc::SO_EE_ORIGIN_LOCAL { None } else { address(bytes.get(OFFENDER..)?) };
    Some(PathError { from, said, quoted_bytes })
}

/// A `sockaddr_in` or `sockaddr_in6`; `None` for another family.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let family = i32::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
    match family {
        libc::AF_INET => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?).into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    fn pair() -> (UdpSocket, UdpSocket) {
        let there = UdpSocket::bind("127.0.0.1:0").unwrap();
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        here.connect(there.local_addr().unwrap()).unwrap();
        prepare(here.as_fd(), Version::V4).unwrap();
        (here, there)
    }

    #[test]
    fn a_port_where_nobody_listens_is_said_with_what_was_sent() {
        let (here, there) = pair();
        drop(there);
        let mut payload = [0; 64];
        assert_eq!(take_error(here.as_fd(), &mut payload).unwrap(), None);
        here.send(b"anyone?").unwrap();
        let mut found = None;
        for _ in 0..1000 {
            found = take_error(here.as_fd(), &mut payload).unwrap();
            if found.is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let expected =
            PathError { from: Some("127.0.0.1".parse().unwrap()), said: Said::Unreachable, quoted_bytes: 7 };
        assert_eq!(found, Some(expected));
        assert_eq!(&payload[..7], b"anyone?");
    }

    #[test]
    fn the_routes_mtu_and_the_hop_limit_are_the_kernels() {
        let (here, _there) = pair();
        assert!(route_mtu(here.as_fd(), Version::V4).unwrap() >= 1280);
        set_hop_limit(here.as_fd(), Version::V4, Some(3)).unwrap();
        assert_eq!(here.ttl().unwrap(), 3);
        set_hop_limit(here.as_fd(), Version::V4, None).unwrap();
        assert!(here.ttl().unwrap() > 3);
    }

    #[test]
    fn errors_that_are_cut_or_unknown_are_no_claims() {
        assert_eq!(decode(&[0; 10], 0), None);
        assert_eq!(decode(&[0; 40], 5), Some(PathError { from: None, said: Said::Other, quoted_bytes: 5 }));
    }
}
