//! One TUN device as the fabric sees it.

use std::io;
use weir_core::topology::Topology;
use weir_core::{BitsPerSecond, Instant};
use weir_fabric::{Fabric, Network};
use weir_sys::epoll::Epoll;
use weir_sys::tun::Tun;

pub struct Port {
    pub tun: Tun,
    pub host: usize,
    pub network: Network,
    /// Above this many bytes waiting for the host's link nothing more is read: the host's own interface queue waits, as
    /// behind a real interface. `None` where the scenario gives the link a queue that drops.
    hold_bytes_max: Option<u64>,
    watched: bool,
    /// When the device last had nothing to read.
    pub seen_empty: Instant,
}

impl Port {
    /// Bytes of the host's that wait for its link.
    pub fn hold_bytes(&self, fabric: &Fabric) -> u64 {
        fabric.hold_bytes(self.network, self.host)
    }

    pub fn may_read(&self, fabric: &Fabric) -> bool {
        self.hold_bytes_max.is_none_or(|max| self.hold_bytes(fabric) <= max)
    }

    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// Watches the device for packets, or stops: a device that may not be read is not watched, else the wait would return
    /// at once for ever.
    pub fn watch(&mut self, token: usize, epoll: &Epoll, watched: bool) -> io::Result<()> {
        if self.watched != watched {
            match watched {
                true => epoll.add(self.tun.fd(), token as u64)?,
                false => epoll.remove(self.tun.fd())?,
            }
            self.watched = watched;
        }
        Ok(())
    }
}

/// What the link sends in 2 ms, so that it never runs dry while the fabric sleeps or is late, and two super-packets; at
/// least 256 KiB.
fn hold_bytes_max(rate: Option<BitsPerSecond>) -> u64 {
    let in_two_ms = rate.map_or(0, |rate| rate.0 / 8 / 500);
    (in_two_ms + (128 << 10)).max(256 << 10)
}

/// How many devices a lab of this topology has.
pub fn count(topology: &Topology) -> usize {
    topology.hosts.len() * if topology.auxiliary.is_some() { 2 } else { 1 }
}

/// The number of a host's device on a network.
pub fn number(topology: &Topology, network: Network, host: usize) -> usize {
    match network {
        Network::Data => host,
        Network::Auxiliary => topology.hosts.len() + host,
    }
}

/// Devices in the order of their numbers.
pub fn open(tuns: Vec<Tun>, topology: &Topology, now: Instant) -> Vec<Port> {
    let data = topology.hosts.iter().enumerate().map(|(host, own)| {
        let hold = own.access.queue.is_none().then(|| hold_bytes_max(own.access.rate));
        (host, Network::Data, hold)
    });
    let auxiliary = topology.auxiliary.iter().flat_map(|auxiliary| {
        let hold = Some(hold_bytes_max(auxiliary.rate));
        (0..topology.hosts.len()).map(move |host| (host, Network::Auxiliary, hold))
    });
    let port = |(tun, (host, network, hold_bytes_max))| Port {
        tun,
        host,
        network,
        hold_bytes_max,
        watched: false,
        seen_empty: now,
    };
    tuns.into_iter().zip(data.chain(auxiliary)).map(port).collect()
}
