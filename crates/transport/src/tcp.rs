//! Listening and connecting over kernel TCP, with options set before the handshake.

use crate::address::Shown;
use crate::tcp_options::TcpOptions;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use weir_sys::socket;

/// Connections the kernel holds until they are accepted.
pub const BACKLOG: i32 = 1024;

/// Opens a listener; `options` are set first, since some are told to the peer in the handshake.
/// Errors name the address and what to do.
pub fn listen(address: SocketAddr, options: Option<&TcpOptions>) -> io::Result<TcpListener> {
    let shown = Shown(address);
    let named = |error: io::Error| match error.kind() {
        ErrorKind::AddrInUse => io::Error::new(
            ErrorKind::AddrInUse,
            format!("{shown} is in use; stop what listens there (ss -ltnp shows it) or choose another port"),
        ),
        ErrorKind::AddrNotAvailable => {
            io::Error::new(ErrorKind::AddrNotAvailable, format!("{shown} is no address of this machine"))
        }
        kind => io::Error::new(kind, format!("cannot listen at {shown}: {error}")),
    };
    let socket = socket::tcp_socket(&address).map_err(named)?;
    if let Some(options) = options {
        options.apply(socket.as_fd()).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
    }
    socket::bind(socket.as_fd(), &address, socket::Sharing::OldConnections).map_err(named)?;
    socket::listen(socket.as_fd(), BACKLOG).map_err(named)?;
    Ok(TcpListener::from(socket))
}

/// Connects within `limit`, with `options` set before the handshake.
pub fn connect(address: SocketAddr, options: Option<&TcpOptions>, limit: Duration) -> io::Result<TcpStream> {
    let socket = socket::tcp_socket(&address)?;
    if let Some(options) = options {
        options.apply(socket.as_fd()).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
    }
    socket::connect(socket.as_fd(), &address, limit)?;
    Ok(TcpStream::from(socket))
}
