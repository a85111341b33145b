//! TUN devices: the interface a host sees, whose other end is a descriptor that reads and writes whole IP packets, each
//! behind a virtio-net header that says how the kernel would cut it up (Linux `include/uapi/linux/if_tun.h`,
//! `virtio_net.h`).

use crate::address::{self, Network, configure, control_socket, interface_up, request};
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
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
    /// What is reached through it.
    pub network: Network,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Packets (super-packets count as one) that the kernel holds until they are read; beyond that it drops.
    pub queue_packets: u32,
}

/// The fabric's end of a device. Reads and writes never block.
pub struct Tun {
    file: File,
}

impl Tun {
    /// Makes the interface in the calling thread's namespace, up, with its address and a route through it. It lives as long
    /// as the namespace.
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

        let socket = control_socket(libc::AF_INET)?;
        let mut change = request(&interface.name)?;
        change.ifr_ifru.ifru_metric = interface.queue_packets as libc::c_int; // the union's int, ifr_qlen
        configure(&socket, "setting the queue length", libc::SIOCSIFTXQLEN as _, &mut change)?;
        change.ifr_ifru.ifru_mtu = interface.mtu as libc::c_int;
        configure(&socket, "setting the MTU", libc::SIOCSIFMTU as _, &mut change)?;
        address::add(&interface.name, interface.address.into())?;
        interface_up(&interface.name)?;
        address::add_route(&interface.name, interface.network)?;
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
