//! TUN devices: the interface a host sees, whose other end is a descriptor that reads and writes whole IP packets, each
//! behind a virtio-net header that says how the kernel would cut it up (Linux `include/uapi/linux/if_tun.h`,
//! `virtio_net.h`).

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Bytes of the virtio-net header before every packet.
pub const VNET_HEADER_BYTES: usize = 10;

const TUN_F_CSUM: libc::c_uint = 0x01;
const TUN_F_TSO4: libc::c_uint = 0x02;
const TUN_F_TSO6: libc::c_uint = 0x04;
const TUN_F_TSO_ECN: libc::c_uint = 0x08;
const TUN_F_USO4: libc::c_uint = 0x20;
const TUN_F_USO6: libc::c_uint = 0x40;

/// What the device looks like from inside its namespace.
#[derive(Clone, Debug)]
pub struct Interface {
    pub name: String,
    pub address: Ipv4Addr,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Packets (super-packets count as one) that the kernel holds until they are read; beyond that it drops.
    pub queue_packets: u32,
}

/// The fabric's end of a device. Reads and writes never block.
pub struct Tun {
    file: File,
}

fn request(name: &str) -> io::Result<libc::ifreq> {
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

fn control_socket() -> io::Result<OwnedFd> {
    // Safety: no memory is passed.
    let raw = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // Safety: the descriptor is fresh and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// An interface request that reads or writes one `ifreq`.
fn configure(socket: &OwnedFd, what: &str, code: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // Safety: all codes used here read or write at most one ifreq, which outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), code as _, std::ptr::from_mut(request)) };
    if result < 0 {
        let error = io::Error::last_os_error();
        return Err(io::Error::new(error.kind(), format!("{what}: {error}")));
    }
    Ok(())
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

/// Takes an interface of the calling thread's namespace up.
pub(crate) fn interface_up(name: &str) -> io::Result<()> {
    let socket = control_socket()?;
    let mut up = request(name)?;
    configure(&socket, "reading the interface's flags", libc::SIOCGIFFLAGS as _, &mut up)?;
    // Safety: SIOCGIFFLAGS filled in this member of the union.
    unsafe { up.ifr_ifru.ifru_flags |= (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short };
    configure(&socket, "taking the interface up", libc::SIOCSIFFLAGS as _, &mut up)
}

impl Tun {
    /// Makes the interface in the calling thread's namespace, up, with its address and a default route through it. It lives as
    /// long as the namespace.
    ///
    /// Errors: `NotFound` without `/dev/net/tun`, `PermissionDenied` without `CAP_NET_ADMIN` in the namespace, and
    /// whatever the kernel refuses of the settings; the text says which.
    pub fn create(interface: &Interface) -> io::Result<Tun> {
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .map_err(|error| io::Error::new(error.kind(), format!("opening /dev/net/tun: {error}")))?;
        let tun = OwnedFd::from(file);
        let mut attach = request(&interface.name)?;
        attach.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
        configure(&tun, "making the TUN interface", libc::TUNSETIFF as _, &mut attach)?;
        set_header_size(&tun)?;
        set_offloads(&tun)?;
        leave_removal_to_namespace(&tun)?;

        let socket = control_socket()?;
        let mut change = request(&interface.name)?;
        change.ifr_ifru.ifru_metric = interface.queue_packets as libc::c_int; // the union's int, ifr_qlen
        configure(&socket, "setting the queue length", libc::SIOCSIFTXQLEN as _, &mut change)?;
        change.ifr_ifru.ifru_mtu = interface.mtu as libc::c_int;
        configure(&socket, "setting the MTU", libc::SIOCSIFMTU as _, &mut change)?;
        change.ifr_ifru.ifru_addr = socket_address(interface.address);
        configure(&socket, "setting the address", libc::SIOCSIFADDR as _, &mut change)?;
        change.ifr_ifru.ifru_netmask = socket_address(Ipv4Addr::BROADCAST);
        configure(&socket, "setting the netmask", libc::SIOCSIFNETMASK as _, &mut change)?;
        interface_up(&interface.name)?;
        default_route(&socket, &interface.name)?;
        Ok(Tun { file: File::from(tun) })
    }

    /// Takes over a device made by `create` in another process.
    pub fn from_fd(fd: OwnedFd) -> Tun {
        Tun { file: File::from(fd) }
    }

    /// Reads one packet with its virtio-net header before it; `None` if there is none now.
    pub fn read(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(into) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
    /// Gives the host one packet, virtio-net header first, in up to a few pieces.
    pub fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        (&self.file).write_vectored(pieces).map(|_| ())
    }
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn set_header_size(tun: &OwnedFd) -> io::Result<()> {
    let size = VNET_HEADER_BYTES as libc::c_int;
    // Safety: reads one int, which outlives the call.
    let result = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Else closing the descriptor unregisters the interface, 20 ms each, one after the other. What is left in a namespace goes
/// with it, all of a lab's in one go and in the background.
fn leave_removal_to_namespace(tun: &OwnedFd) -> io::Result<()> {
    // Safety: the argument is a number, not a pointer.
    let result = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETPERSIST as _, 1 as libc::c_ulong) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set_offloads(tun: &OwnedFd) -> io::Result<()> {
    let always = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    // UDP segmentation came with Linux 6.2; before that the kernel cuts UDP itself, which only costs time.
    for offloads in [always | TUN_F_USO4 | TUN_F_USO6, always] {
        // Safety: the argument is a number, not a pointer.
        let result =
            unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(offloads)) };
        if result == 0 {
            return Ok(());
        }
    }
    let error = io::Error::last_os_error();
    Err(io::Error::new(error.kind(), format!("asking the TUN interface for whole super-packets: {error}")))
}

fn default_route(socket: &OwnedFd, name: &str) -> io::Result<()> {
    let mut device: Vec<libc::c_char> = name.bytes().map(|byte| byte as libc::c_char).collect();
    device.push(0);
    // Safety: rtentry is plain data for which all zeros is a valid value.
    let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
    route.rt_dst = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_flags = libc::RTF_UP;
    route.rt_dev = device.as_mut_ptr();
    // Safety: reads one rtentry and the C string it points to; both outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCADDRT as _, &route) };
    if result < 0 {
        let error = io::Error::last_os_error();
        return Err(io::Error::new(error.kind(), format!("setting the default route: {error}")));
    }
    Ok(())
}
