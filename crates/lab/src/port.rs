//! One host's TUN device as the fabric sees it.

use std::io;
use weir_core::Instant;
use weir_core::topology::{Access, Topology};
use weir_fabric::{Fabric, Network};
use weir_sys::epoll::Epoll;
use weir_sys::tun::Tun;

pub struct Port {
    pub tun: Tun,
    /// Above this many bytes waiting for the access link nothing more is read: the host's own interface queue waits, as
    /// behind a real interface. `None` where the scenario gives the access link a queue that drops.
    hold_bytes_max: Option<u64>,
    watched: bool,
    /// When the device last had nothing to read.
    pub seen_empty: Instant,
}

impl Port {
    pub fn new(tun: Tun, access: &Access, now: Instant) -> Port {
        let hold_bytes_max = match access.queue {
            Some(_) => None,
            None => Some(hold_bytes_max(access)),
        };
        Port { tun, hold_bytes_max, watched: false, seen_empty: now }
    }

    pub fn may_read(&self, host: usize, fabric: &Fabric) -> bool {
        self.hold_bytes_max.is_none_or(|max| fabric.hold_bytes(Network::Data, host) <= max)
    }

    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// Watches the device for packets, or stops: a device that may not be read is not watched, else the wait would return
    /// at once for ever.
    pub fn watch(&mut self, host: usize, epoll: &Epoll, watched: bool) -> io::Result<()> {
        if self.watched != watched {
            match watched {
                true => epoll.add(self.tun.fd(), host as u64)?,
                false => epoll.remove(self.tun.fd())?,
            }
            self.watched = watched;
        }
        Ok(())
    }
}

/// What the link sends in 2 ms, so that it never runs dry while the fabric sleeps or is late, and two super-packets; at
/// least 256 KiB.
fn hold_bytes_max(access: &Access) -> u64 {
    let in_two_ms = access.rate.map_or(0, |rate| rate.0 / 8 / 500);
    (in_two_ms + (128 << 10)).max(256 << 10)
}

/// Devices in host order, checked against the topology.
pub fn open(tuns: Vec<Tun>, topology: &Topology, now: Instant) -> Vec<Port> {
    tuns.into_iter().zip(&topology.hosts).map(|(tun, host)| Port::new(tun, &host.access, now)).collect()
}
