//! One emulated host: a network namespace with its kernel settings and its interface.

use crate::error::LabError;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use weir_core::BitsPerSecond;
use weir_core::topology::{TcpProfile, Topology};
use weir_sys::netns;
use weir_sys::sysctl::Sysctls;
use weir_sys::tun::{Interface, Tun};

pub const INTERFACE: &str = "eth0";
/// Super-packets the kernel holds for the fabric. Large, so that a host whose link is busy waits instead of losing packets in
/// its own interface; a TCP sender fills it only as far as its window goes.
const INTERFACE_QUEUE_PACKETS: u32 = 10_000;
/// A rate to size socket memory by where a whole path has none.
const RATE_WITHOUT_LIMIT: BitsPerSecond = BitsPerSecond(10_000_000_000);

pub struct HostParts {
    pub namespace: OwnedFd,
    pub tun: Tun,
    pub notes: Vec<String>,
}

/// Makes host number `host`; `socket_bytes_max` is for the profile `modern`.
pub fn build(topology: &Topology, host: usize, socket_bytes_max: u64) -> Result<HostParts, LabError> {
    let name = &topology.hosts[host].name;
    let failed = |what: &str| {
        let what = what.to_owned();
        move |source| LabError::Host { host: name.clone(), what, source }
    };
    let namespace = netns::create().map_err(failed("making its network namespace"))?;
    let (tun, notes) = netns::run_in(namespace.as_fd(), || {
        let settings = Sysctls::of_this_thread().map_err(failed("its kernel settings"))?;
        let mut notes = Vec::new();
        quiet_ipv6(&settings);
        let profile = topology.sites[topology.hosts[host].site].tcp_profile;
        set_profile(&settings, profile, socket_bytes_max, &mut notes);
        netns::loopback_up().map_err(failed("taking its loopback interface up"))?;
        let tun = Tun::create(&Interface {
            name: INTERFACE.to_owned(),
            address: Topology::ipv4(host),
            mtu: topology.hosts[host].access.mtu,
            queue_packets: INTERFACE_QUEUE_PACKETS,
        })
        .map_err(failed("making its interface"))?;
        Ok((tun, notes))
    })
    .map_err(failed("entering its network namespace"))??;
    Ok(HostParts { namespace, tun, notes })
}

/// No router solicitations and no addresses of the kernel's own making: the fabric would count them as packets that lead
/// nowhere. A kernel without IPv6 has none of these settings, which is as good.
fn quiet_ipv6(settings: &Sysctls) {
    for (name, value) in [
        ("accept_ra", "0"),
        ("autoconf", "0"),
        ("router_solicitations", "0"),
        ("dad_transmits", "0"),
        ("addr_gen_mode", "1"),
    ] {
        for which in ["all", "default"] {
            let _ = settings.write(&format!("net.ipv6.conf.{which}.{name}"), value);
        }
    }
}

fn set_profile(settings: &Sysctls, profile: TcpProfile, socket_bytes_max: u64, notes: &mut Vec<String>) {
    // Else the second connection to a host starts from what the first one learned, and trials depend on their order.
    note(settings.write("net.ipv4.tcp_no_metrics_save", "1"), notes, || {
        "connections remember earlier ones: net.ipv4.tcp_no_metrics_save cannot be set".to_owned()
    });
    // Programs in a lab run without privileges, and ping is among the first: this is the socket it can do with.
    note(settings.write("net.ipv4.ping_group_range", "0 2147483647"), notes, || {
        "ping needs root here: net.ipv4.ping_group_range cannot be set".to_owned()
    });
    if profile == TcpProfile::Stock {
        return;
    }
    for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
        note(raise_memory_max(settings, name, socket_bytes_max), notes, || {
            format!(
                "{name} cannot be raised to {socket_bytes_max} B, so a window may be smaller than the path needs"
            )
        });
    }
    let congestion = "net.ipv4.tcp_congestion_control";
    if settings.write(congestion, "cubic").is_err() {
        let default = settings.read(congestion).unwrap_or_else(|_| "the kernel's default".to_owned());
        notes.push(format!(
            "programs in the lab that do not choose a congestion control get {}, because this kernel lets a namespace default \
             only to those in net.ipv4.tcp_allowed_congestion_control; weir's own streams set theirs on each socket; to change \
             it, add cubic to that setting on the host",
            default.trim()
        ));
    }
}

fn note(result: io::Result<()>, notes: &mut Vec<String>, text: impl FnOnce() -> String) {
    if let Err(error) = result {
        notes.push(format!("{} ({error})", text()));
    }
}

/// Raises the last of `min default max` to `max`, never lowers it.
fn raise_memory_max(settings: &Sysctls, name: &str, max: u64) -> io::Result<()> {
    let now = settings.read(name)?;
    let parts: Vec<u64> = now.split_ascii_whitespace().filter_map(|part| part.parse().ok()).collect();
    let [least, default, now_max] = parts[..] else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name} is {now:?}")));
    };
    if now_max >= max {
        return Ok(());
    }
    settings.write(name, &format!("{least} {default} {max}"))
}

/// Four times the largest bandwidth-delay product of any path of the lab: the largest link rate on it times its round trip.
/// Rounded up to 64 KiB, and at most what the kernel's settings can say.
pub fn socket_bytes_max(topology: &Topology) -> u64 {
    // Paths differ only by their sites and the two access links, so the fastest and the farthest host stand for a site's
    // all; a site with both kinds gets a little more memory than it needs.
    let of_site = |site: usize| {
        let access = topology.hosts.iter().filter(|host| host.site == site).map(|host| &host.access);
        access.fold(None, |worst: Option<(u64, u64)>, one| {
            let (rate, delay_ns) = worst.unwrap_or_default();
            Some((rate.max(one.rate.unwrap_or(RATE_WITHOUT_LIMIT).0), delay_ns.max(one.delay_ns)))
        })
    };
    let sites: Vec<Option<(u64, u64)>> = (0..topology.sites.len()).map(of_site).collect();
    let directed = topology.directed_links();
    let mut worst: u64 = 0;
    for (from, there) in sites.iter().enumerate() {
        for (to, here) in sites.iter().enumerate() {
            let (Some(there), Some(here)) = (there, here) else { continue };
            let Some((out, back)) = topology.site_path(from, to).zip(topology.site_path(to, from)) else {
                continue;
            };
            let links = || out.iter().chain(&back).map(|link| &directed[*link]);
            let rate = links().map(|link| link.rate.unwrap_or(RATE_WITHOUT_LIMIT).0).max().unwrap_or(0);
            let rate = rate.max(there.0).max(here.0);
            let rtt_ns = 2 * (there.1 + here.1) + links().map(|link| link.delay_ns).sum::<u64>();
            let bytes = u128::from(rate) * u128::from(rtt_ns) / 8_000_000_000;
            worst = worst.max(u64::try_from(bytes).unwrap_or(u64::MAX));
        }
    }
    worst.saturating_mul(4).min(i32::MAX as u64 - 65_535).next_multiple_of(65_536).min(i32::MAX as u64)
}
