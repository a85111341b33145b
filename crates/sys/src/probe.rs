//! What this kernel can do, tried out without changing anything.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const TUNGETFEATURES: libc::c_ulong = 0x8004_54cf;
const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
const TUN_F_TSO6: libc::c_ulong = 0x04;
const TUN_F_USO4: libc::c_ulong = 0x20;
const TUN_F_USO6: libc::c_ulong = 0x40;

/// What a TUN device of this kernel carries whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunAbilities {
    /// A virtio-net header before each packet, without which nothing else is possible.
    pub vnet_header: bool,
    /// TCP super-packets; `None` where no device could be made to try.
    pub tcp_segmentation: Option<bool>,
    /// UDP super-packets (Linux 6.2).
    pub udp_segmentation: Option<bool>,
}

/// Opens `/dev/net/tun` and, with the right to, tries a device in a namespace that vanishes at once.
///
/// Errors: that of opening the device file (`NotFound`, `PermissionDenied`) or of asking it.
pub fn tun() -> io::Result<TunAbilities> {
    let device = File::options().read(true).write(true).open("/dev/net/tun")?;
    let mut features: libc::c_uint = 0;
    // Safety: the request stores one unsigned int, which outlives the call.
    if unsafe { libc::ioctl(device.as_raw_fd(), TUNGETFEATURES as _, &mut features) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut abilities = TunAbilities {
        vnet_header: features & libc::IFF_VNET_HDR as libc::c_uint != 0,
        ..TunAbilities::default()
    };
    if let Ok(namespace) = crate::netns::create() {
        let tried = crate::netns::run_in(std::os::fd::AsFd::as_fd(&namespace), offloads)?;
        if let Ok((tcp, udp)) = tried {
            (abilities.tcp_segmentation, abilities.udp_segmentation) = (Some(tcp), Some(udp));
        }
    }
    Ok(abilities)
}

/// In the calling thread's namespace: whether a device takes TCP and UDP segmentation.
fn offloads() -> io::Result<(bool, bool)> {
    let device = File::options().read(true).write(true).open("/dev/net/tun")?;
    // Safety: ifreq is plain data for which all zeros is a valid value; an empty name lets the kernel choose one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // Safety: the request reads and writes one ifreq, which outlives the call.
    if unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let takes = |offloads: libc::c_ulong| {
        // Safety: the argument is a number, not a pointer.
        unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as _, offloads) == 0 }
    };
    let tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
    Ok((takes(tcp), takes(tcp | TUN_F_USO4 | TUN_F_USO6)))
}

/// Makes a ring of one entry and closes it. Errors: `ENOSYS` without the feature, `EPERM` where it is forbidden.
pub fn io_uring() -> io::Result<()> {
    /// `struct io_uring_params` of `linux/io_uring.h`: 120 bytes, all zeros ask for nothing special.
    const PARAMS_BYTES: usize = 120;
    let mut params = [0u64; PARAMS_BYTES / 8];
    // Safety: the pointer is to as many bytes as the kernel's struct has, aligned as it is, and outlives the call.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1 as libc::c_uint, params.as_mut_ptr()) };
    if ring < 0 {
        return Err(io::Error::last_os_error());
    }
    // Safety: the descriptor is fresh and ours alone; it is closed here.
    drop(unsafe { OwnedFd::from_raw_fd(ring as i32) });
    Ok(())
}

/// Whether this process may make network namespaces.
pub fn network_namespace() -> io::Result<()> {
    crate::netns::create().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probing_leaves_this_thread_in_its_namespace_and_no_descriptor_open() {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let (before, home) = (open(), crate::netns::current().unwrap());
        for _ in 0..30 {
            let _ = (tun(), io_uring(), network_namespace());
        }
        assert!(crate::netns::same(&crate::netns::current().unwrap(), &home).unwrap());
        // Other tests of this process open files of their own meanwhile; one leak a round would show.
        assert!(open() < before + 30, "{} descriptors after {before}", open());
    }
}
