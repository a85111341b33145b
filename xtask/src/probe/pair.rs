//! Two network namespaces with an address each: the ends of a probe.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use weir_sys::netns;
use weir_sys::socket::{Buffer, set_buffer};

/// Room for what arrives while the probe sends: no packet is lost between the kernel and the probe.
const RECEIVE_BYTES: u64 = 64 << 20;

/// A namespace and the address that the other end sends to.
pub struct End {
    pub namespace: OwnedFd,
    pub address: Ipv4Addr,
}

/// Packets go from `near` to `far`.
pub struct Pair {
    pub near: End,
    pub far: End,
}

impl Pair {
    /// UDP sockets at both ends, not blocking: the near one sends to the far one.
    pub fn udp(&self) -> Result<(UdpSocket, UdpSocket), String> {
        let open = |end: &End| {
            within(end.namespace.as_fd(), || {
                let socket = UdpSocket::bind((end.address, 0))?;
                socket.set_nonblocking(true)?;
                set_buffer(socket.as_fd(), Buffer::Receive, RECEIVE_BYTES)?;
                set_buffer(socket.as_fd(), Buffer::Send, RECEIVE_BYTES)?;
                Ok(socket)
            })
        };
        let (near, far) = (open(&self.near)?, open(&self.far)?);
        let to = far.local_addr().map_err(|problem| format!("a probe's socket: {problem}"))?;
        near.connect(to).map_err(|problem| format!("a probe's socket: {problem}"))?;
        Ok((near, far))
    }

    /// A listener at the far end, and where it listens.
    pub fn listener(&self) -> Result<(TcpListener, SocketAddr), String> {
        let listener = within(self.far.namespace.as_fd(), || TcpListener::bind((self.far.address, 0)))?;
        let at = listener.local_addr().map_err(|problem| format!("a probe's listener: {problem}"))?;
        Ok((listener, at))
    }
}

/// Runs `work` in a namespace; a socket that it opens stays there.
pub fn within<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T, String> {
    netns::run_in(namespace, work)
        .and_then(|outcome| outcome)
        .map_err(|problem| format!("in a namespace: {problem}"))
}

/// Two namespaces joined by a veth pair, gone when dropped: what the probe and the kernel cost without a lab, and where the
/// kernel's own shapers are measured.
pub struct Veth {
    names: [String; 2],
    pub pair: Pair,
}

impl Veth {
    /// Generic segmentation is off, so that a shaper sees the packets that a wire would carry.
    pub fn new() -> Result<Veth, String> {
        let names = ["near", "far"].map(|end| format!("weir-probe-{}-{end}", std::process::id()));
        let mut veth = Veth { pair: Pair { near: home()?, far: home()? }, names: names.clone() };
        for name in &names {
            ip(&format!("netns add {name}"))?;
        }
        let [near, far] = &names;
        ip(&format!("-n {near} link add veth0 type veth peer name veth0 netns {far}"))?;
        for (name, own) in [(near, "198.18.1.1"), (far, "198.18.1.2")] {
            ip(&format!("-n {name} addr add {own}/30 dev veth0"))?;
            ip(&format!("-n {name} link set veth0 gso_max_segs 1 txqueuelen 10000"))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set veth0 up"))?;
        }
        veth.pair = Pair { near: named(near, [198, 18, 1, 1])?, far: named(far, [198, 18, 1, 2])? };
        Ok(veth)
    }

    /// Replaces the near end's queueing discipline: `words` as `tc qdisc replace dev veth0 root …` takes them. `None` takes
    /// it away.
    pub fn shape(&self, lines: &[String]) -> Result<(), String> {
        // The first line of a shaper replaces the root; without one there is nothing to remove at first.
        let _ = run("tc", &format!("-n {} qdisc del dev veth0 root", self.names[0]));
        lines.iter().try_for_each(|line| run("tc", &format!("-n {} {line}", self.names[0])))
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        for name in &self.names {
            if let Err(problem) = ip(&format!("netns del {name}")) {
                eprintln!("xtask: {problem}");
            }
        }
    }
}

fn home() -> Result<End, String> {
    let namespace = netns::current().map_err(|problem| format!("the own namespace: {problem}"))?;
    Ok(End { namespace, address: Ipv4Addr::LOCALHOST })
}

fn named(name: &str, address: [u8; 4]) -> Result<End, String> {
    let path = Path::new("/run/netns").join(name);
    let namespace = netns::open(&path).map_err(|problem| format!("{}: {problem}", path.display()))?;
    Ok(End { namespace, address: Ipv4Addr::from(address) })
}

fn ip(words: &str) -> Result<(), String> {
    run("ip", words)
}

fn run(program: &str, words: &str) -> Result<(), String> {
    let output = Command::new(program)
        .args(words.split_whitespace())
        .output()
        .map_err(|problem| format!("{program}: {problem}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} {words}: {}\n{}", output.status, said.trim()))
}
