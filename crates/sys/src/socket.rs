//! Sockets with options that must be set before they are connected, and what the kernel granted.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::poll;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A TCP socket of the address's family, not bound, not connected, closed on exec.
pub fn tcp_socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    open(family, libc::SOCK_STREAM)
}

/// A UDP socket of the address's family, not bound, not connected, closed on exec.
pub fn udp_socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    open(family, libc::SOCK_DGRAM)
}

fn open(family: libc::c_int, kind: libc::c_int) -> io::Result<OwnedFd> {
    // Safety: no pointers.
    let fd = check(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) })?;
    // Safety: `fd` was just opened and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A kernel address of either family with its length.
struct RawAddress {
    storage: libc::sockaddr_storage,
    length: libc::socklen_t,
}

impl RawAddress {
    fn new(address: &SocketAddr) -> RawAddress {
        // Safety: all zeros is a valid `sockaddr_storage`.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let length = match address {
            SocketAddr::V4(v4) => {
                let raw = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // Safety: `sockaddr_storage` is at least as large and as aligned as `sockaddr_in`.
                unsafe { std::ptr::write((&raw mut storage).cast(), raw) };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // Safety: `sockaddr_storage` is at least as large and as aligned as `sockaddr_in6`.
                unsafe { std::ptr::write((&raw mut storage).cast(), raw) };
                size_of::<libc::sockaddr_in6>()
            }
        };
        RawAddress { storage, length: length as libc::socklen_t }
    }
    fn pointer(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }
}

/// Who else may have the port of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody.
    None,
    /// For a TCP listener: old connections that still wait in TIME_WAIT. The kernel has no two listeners at a port.
    OldConnections,
    /// Sockets of the same user that say so too (`SO_REUSEPORT`). Not `SO_REUSEADDR`: for UDP that lets in anybody who sets it.
    SameUser,
}

/// Binds the socket.
pub fn bind(socket: BorrowedFd<'_>, address: &SocketAddr, sharing: Sharing) -> io::Result<()> {
    match sharing {
        Sharing::None => {}
        Sharing::OldConnections => set_int(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?,
        Sharing::SameUser => set_int(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?,
    }
    let raw = RawAddress::new(address);
    // Safety: pointer and length describe `raw`, which outlives the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), raw.pointer(), raw.length) }).map(drop)
}

pub fn listen(socket: BorrowedFd<'_>, backlog: i32) -> io::Result<()> {
    // Safety: no pointers.
    check(unsafe { libc::listen(socket.as_raw_fd(), backlog) }).map(drop)
}

/// Connects within `limit`; the socket is blocking afterwards. Errors: `TimedOut`, or the kernel's reason.
pub fn connect(socket: BorrowedFd<'_>, address: &SocketAddr, limit: Duration) -> io::Result<()> {
    if !begin_connect(socket, address)? {
        if !poll::wait(socket, poll::Interest::Writable, limit)? {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no answer from {address} within {limit:?}"),
            ));
        }
        pending_error(socket)?;
    }
    set_nonblocking(socket, false)
}

/// Connects a blocking socket; its time-out for sending bounds the wait. Fewer calls than `connect`, for who makes many.
pub fn connect_waiting(socket: BorrowedFd<'_>, address: &SocketAddr) -> io::Result<()> {
    let raw = RawAddress::new(address);
    // Safety: pointer and length describe `raw`, which outlives the call.
    match check(unsafe { libc::connect(socket.as_raw_fd(), raw.pointer(), raw.length) }) {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer from {address}")))
        }
        Err(error) => Err(no_port_left(error)),
    }
}

/// Says what is short where the kernel finds no local port for a connection or a datagram socket.
pub fn no_port_left(error: io::Error) -> io::Error {
    if !matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse) {
        return error;
    }
    const RANGE: &str = "net.ipv4.ip_local_port_range";
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let range: Vec<&str> = range.split_whitespace().collect();
    let text = format!(
        "no local port is left ({error}): {RANGE} is {} here, and the end that closes first keeps its port for a minute (TIME-WAIT)",
        range.join(" to ")
    );
    io::Error::new(io::ErrorKind::AddrNotAvailable, text)
}

/// Makes the socket non-blocking and begins to connect it. True when it is connected already; else it becomes writable when
/// it is or has failed, and `pending_error` says which.
pub fn begin_connect(socket: BorrowedFd<'_>, address: &SocketAddr) -> io::Result<bool> {
    set_nonblocking(socket, true)?;
    let raw = RawAddress::new(address);
    // Safety: pointer and length describe `raw`, which outlives the call.
    match check(unsafe { libc::connect(socket.as_raw_fd(), raw.pointer(), raw.length) }) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(false),
        Err(error) => Err(no_port_left(error)),
    }
}

/// The error a socket has met since it was last asked (`SO_ERROR`), as an error.
pub fn pending_error(socket: BorrowedFd<'_>) -> io::Result<()> {
    match get_int(socket, libc::SOL_SOCKET, libc::SO_ERROR)? {
        0 => Ok(()),
        pending => Err(io::Error::from_raw_os_error(pending)),
    }
}

pub fn set_nonblocking(socket: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    // Safety: no pointers.
    let flags = check(unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_GETFL) })?;
    let wanted = if on { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
    // Safety: no pointers.
    check(unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFL, wanted) }).map(drop)
}

/// The local address of a bound socket.
pub fn local_address(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    // Safety: all zeros is a valid `sockaddr_storage`.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // Safety: pointer and length describe `storage`, which outlives the call.
    check(unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut storage).cast(), &mut length) })?;
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // Safety: the kernel filled in a `sockaddr_in`, as the family says; the storage is aligned for it.
            let raw: libc::sockaddr_in = unsafe { std::ptr::read((&raw const storage).cast()) };
            let address = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Ok(SocketAddr::V4(SocketAddrV4::new(address, u16::from_be(raw.sin_port))))
        }
        libc::AF_INET6 => {
            // Safety: the kernel filled in a `sockaddr_in6`, as the family says; the storage is aligned for it.
            let raw: libc::sockaddr_in6 = unsafe { std::ptr::read((&raw const storage).cast()) };
            let address = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            let port = u16::from_be(raw.sin6_port);
            Ok(SocketAddr::V6(SocketAddrV6::new(address, port, raw.sin6_flowinfo, raw.sin6_scope_id)))
        }
        family => Err(io::Error::new(io::ErrorKind::Unsupported, format!("address family {family}"))),
    }
}

fn set_int(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // Safety: pointer and length describe `value`, which outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    })
    .map(drop)
}

fn get_int(socket: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // Safety: pointer and length describe `value`, which outlives the call.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &mut length)
    })?;
    Ok(value)
}

fn clamp_int(value: u64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// Longest name of a congestion control, `TCP_CA_NAME_MAX`.
const CONGESTION_NAME_BYTES: usize = 16;

/// Chooses the congestion control. Errors: `NotFound` when the kernel does not have it, `PermissionDenied` when it is
/// not among `tcp_allowed_congestion_control` and the caller lacks CAP_NET_ADMIN.
pub fn set_congestion(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    if name.is_empty() || name.len() >= CONGESTION_NAME_BYTES {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    // Safety: pointer and length describe `name`, which outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// The congestion control in force.
pub fn congestion(socket: BorrowedFd<'_>) -> io::Result<String> {
    let mut name = [0u8; CONGESTION_NAME_BYTES];
    let mut length = CONGESTION_NAME_BYTES as libc::socklen_t;
    // Safety: pointer and length describe `name`, which outlives the call.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &mut length,
        )
    })?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// Which of a socket's two buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    Send,
    Receive,
}

/// Asks for a buffer of `bytes`, beyond the system's limit where the caller may (`SO_SNDBUFFORCE`), and returns what
/// was granted. The kernel doubles the figure for its own bookkeeping and reports the double; so does this.
pub fn set_buffer(socket: BorrowedFd<'_>, which: Buffer, bytes: u64) -> io::Result<u64> {
    let (force, plain) = match which {
        Buffer::Send => (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        Buffer::Receive => (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
    };
    // The kernel doubles it in an int.
    let asked = clamp_int(bytes).min(i32::MAX / 2);
    match set_int(socket, libc::SOL_SOCKET, force, asked) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            set_int(socket, libc::SOL_SOCKET, plain, asked)?;
        }
        Err(error) => return Err(error),
    }
    buffer(socket, which)
}

/// The size of a buffer now, the kernel's bookkeeping included.
pub fn buffer(socket: BorrowedFd<'_>, which: Buffer) -> io::Result<u64> {
    let name = match which {
        Buffer::Send => libc::SO_SNDBUF,
        Buffer::Receive => libc::SO_RCVBUF,
    };
    Ok(get_int(socket, libc::SOL_SOCKET, name)?.max(0) as u64)
}

/// Caps the segment size; before the connection is made, it is also what the peer is told.
pub fn set_mss(socket: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    set_int(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG, clamp_int(bytes))
}

/// Bounds the window this end advertises.
pub fn set_window_clamp(socket: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    set_int(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, clamp_int(bytes))
}

pub fn window_clamp(socket: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(get_int(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP)?.max(0) as u64)
}

/// Caps the rate at which TCP sends payload; without the `fq` discipline TCP paces itself. 64 bits wide since Linux 4.20; older
/// kernels refuse it.
pub fn set_max_pacing(socket: BorrowedFd<'_>, bytes_per_second: u64) -> io::Result<()> {
    // Safety: pointer and length describe the number, which outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes_per_second).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// The cap in force, bytes a second; `u64::MAX` for none.
pub fn max_pacing(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut value = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // Safety: pointer and length describe `value`, which outlives the call.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw mut value).cast(),
            &mut length,
        )
    })?;
    Ok(value)
}

pub fn set_nodelay(socket: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    set_int(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, i32::from(on))
}

/// Bytes written but not yet acknowledged by the peer's kernel (`SIOCOUTQ`).
pub fn unacknowledged_bytes(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut value: libc::c_int = 0;
    // Safety: the request writes one int to the pointer, which is valid for the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut value) })?;
    Ok(value.max(0) as u64)
}

/// Bytes received by the kernel but not yet by the program (`SIOCINQ`).
pub fn unread_bytes(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut value: libc::c_int = 0;
    // Safety: the request writes one int to the pointer, which is valid for the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut value) })?;
    Ok(value.max(0) as u64)
}

/// Takes up to `limit` bytes off a TCP socket without copying them to the program (`MSG_TRUNC`, tcp(7)); 0 is the stream's end.
pub fn discard(socket: BorrowedFd<'_>, limit: usize) -> io::Result<usize> {
    // Safety: with MSG_TRUNC the kernel writes nothing on a TCP socket, so that no memory is needed.
    let taken = unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), limit, libc::MSG_TRUNC) };
    if taken < 0 { Err(io::Error::last_os_error()) } else { Ok(taken as usize) }
}

/// What one call sends from now on leaves as datagrams of so many bytes each (`UDP_SEGMENT`, Linux 4.18); 0 ends that.
pub fn set_datagram_segment(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    const UDP_SEGMENT: libc::c_int = 103;
    let bytes = libc::c_int::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    set_int(socket, libc::SOL_UDP, UDP_SEGMENT, bytes)
}

/// Datagrams of one size that have come together are received with one call, one after the other (`UDP_GRO`, Linux 5.0).
pub fn set_datagram_join(socket: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    const UDP_GRO: libc::c_int = 104;
    set_int(socket, libc::SOL_UDP, UDP_GRO, libc::c_int::from(on))
}

/// Buffers the socket has dropped because it had no room (`SO_MEMINFO`, Linux 4.12).
pub fn dropped_datagrams(socket: BorrowedFd<'_>) -> io::Result<u64> {
    const SO_MEMINFO: libc::c_int = 55;
    const DROPS: usize = 8;
    let mut values = [0u32; 9];
    let mut length = std::mem::size_of_val(&values) as libc::socklen_t;
    // Safety: pointer and length describe `values`, which outlives the call.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    if (length as usize) < std::mem::size_of_val(&values) {
        return Err(io::Error::from(io::ErrorKind::Unsupported));
    }
    Ok(u64::from(values[DROPS]))
}

/// Raises this process's limit of open files to what it may have, and returns that. Many systems start programs with 1,024,
/// which a thousand flows exceed.
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // Safety: the pointer describes `limit`, which outlives the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // Safety: the pointer describes `limit`, which outlives the call.
        check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    }
    Ok(limit.rlim_cur)
}

/// The next close discards what was not sent and resets the connection, so that an aborted run leaves nothing behind.
pub fn reset_on_close(socket: BorrowedFd<'_>) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // Safety: pointer and length describe `linger`, which outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Connects to the socket of this path, however long that is: an address has room for 107 bytes of it.
pub fn connect_named(path: &Path) -> io::Result<UnixStream> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let folder = File::open(folder)?;
    UnixStream::connect(Path::new(&format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    #[test]
    fn an_unknown_congestion_control_is_not_found_and_a_known_one_is_in_force() {
        let socket = tcp_socket(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let error = set_congestion(socket.as_fd(), "nosuchcc").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        set_congestion(socket.as_fd(), "reno").unwrap();
        assert_eq!(congestion(socket.as_fd()).unwrap(), "reno");
    }

    #[test]
    fn a_connection_refused_says_so_and_a_silent_peer_is_a_time_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let socket = tcp_socket(&address).unwrap();
        let error = connect(socket.as_fd(), &address, Duration::from_secs(5)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn addresses_of_both_families_survive_the_way_to_the_kernel_and_back() {
        for text in ["127.0.0.1:0", "[::1]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let socket = tcp_socket(&address).unwrap();
            if let Err(error) = bind(socket.as_fd(), &address, Sharing::None) {
                assert!(address.is_ipv6(), "{error}"); // a machine may have no IPv6
                continue;
            }
            let bound = local_address(socket.as_fd()).unwrap();
            assert_eq!(bound.ip(), address.ip());
            assert_ne!(bound.port(), 0);
        }
    }

    #[test]
    fn a_socket_is_reached_by_a_path_longer_than_an_address() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a".repeat(100)).join("b".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        let here = folder.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&here).unwrap();
        let there = deep.join("s");
        std::fs::rename(&here, &there).unwrap();
        assert!(UnixStream::connect(&there).is_err());
        connect_named(&there).unwrap();
        listener.accept().unwrap();
        assert_eq!(connect_named(&deep.join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
