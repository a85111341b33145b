//! What commands that listen or connect have in common.

use anyhow::Context;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use weir_transport::{Key, address};

pub fn key(path: Option<&Path>) -> anyhow::Result<Option<Key>> {
    Ok(path.map(Key::from_file).transpose()?)
}

/// `HOST`, `HOST:PORT`, an address of either family, `[ADDRESS]:PORT`, a link-local one with `%INTERFACE`.
pub fn resolve(text: &str, port: u16) -> anyhow::Result<SocketAddr> {
    if let Some(address) = address::parse(text, port) {
        return address.map_err(anyhow::Error::msg);
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
