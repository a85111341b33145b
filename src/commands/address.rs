//! What commands that listen or connect have in common.

use anyhow::Context;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use weir_transport::Key;

pub fn key(path: Option<&Path>) -> anyhow::Result<Option<Key>> {
    Ok(path.map(Key::from_file).transpose()?)
}

/// `HOST`, `HOST:PORT`, an address of either family, `[ADDRESS]:PORT`.
pub fn resolve(text: &str, port: u16) -> anyhow::Result<SocketAddr> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => {
            let port = port.parse().with_context(|| format!("{text:?}: {port:?} is not a port"))?;
            (host, port)
        }
        None => (text, port),
    };
    let mut all = (host, port).to_socket_addrs().with_context(|| format!("{host:?} names no host"))?;
    all.next().with_context(|| format!("{host:?} has no address"))
}
