//! Listening and connecting over kernel TCP, with options set before the handshake.

use crate::address::Shown;
use crate::tcp_options::{DEFAULT_CONGESTION, TcpOptions, is_congestion_name};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use weir_core::{Kind, Param, Values};
use weir_sys::socket;

/// Connections the kernel holds until they are accepted.
pub const BACKLOG: i32 = 1024;

/// The option of targets by which a load chooses how its own end of a server's connection behaves.
pub const CONGESTION: Param = Param::new(
    "congestion",
    Kind::Text,
    "Congestion control of what this end sends; what a server sends goes by the server's own.",
)
.default(DEFAULT_CONGESTION);

/// What `CONGESTION` says. Errors: it is no name of one.
pub fn to_server(options: &Values) -> Result<TcpOptions, String> {
    let congestion = options.text(CONGESTION.name).unwrap_or_else(|| DEFAULT_CONGESTION.to_owned());
    match is_congestion_name(&congestion) {
        true => Ok(TcpOptions { congestion, nodelay: true, ..TcpOptions::default() }),
        false => Err(format!("`congestion` {congestion:?}: not the name of a congestion control")),
    }
}

fn set(socket: BorrowedFd<'_>, options: Option<&TcpOptions>) -> io::Result<()> {
    let refused = |error| io::Error::new(ErrorKind::InvalidInput, error);
    options.map_or(Ok(()), |options| options.apply(socket).map_err(refused))
}

/// Begins to connect without waiting; whether the connection is there already.
pub fn begin(address: &SocketAddr, options: &TcpOptions) -> io::Result<(TcpStream, bool)> {
    let socket = socket::tcp_socket(address)?;
    set(socket.as_fd(), Some(options))?;
    let is_connected = socket::begin_connect(socket.as_fd(), address)?;
    Ok((TcpStream::from(socket), is_connected))
}

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
    set(socket.as_fd(), options)?;
    socket::bind(socket.as_fd(), &address, socket::Sharing::OldConnections).map_err(named)?;
    socket::listen(socket.as_fd(), BACKLOG).map_err(named)?;
    Ok(TcpListener::from(socket))
}

/// Connects within `limit`, with `options` set before the handshake.
pub fn connect(address: SocketAddr, options: Option<&TcpOptions>, limit: Duration) -> io::Result<TcpStream> {
    let socket = socket::tcp_socket(&address)?;
    set(socket.as_fd(), options)?;
    socket::connect(socket.as_fd(), &address, limit)?;
    Ok(TcpStream::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Spec: http.md#connection-1 and xrootd.md#connection-1
    #[test]
    fn a_connection_to_a_server_of_others_has_the_congestion_control_that_is_said_and_cubic_unless() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for (param, expected) in [(CONGESTION, "cubic"), (CONGESTION.default("reno"), "reno")] {
            let options = to_server(&Values::defaults(&[param])).unwrap();
            let (stream, _) = begin(&address, &options).unwrap();
            assert_eq!(socket::congestion(stream.as_fd()).unwrap(), expected);
            let (_accepted, from) = listener.accept().unwrap();
            assert_eq!(from, stream.local_addr().unwrap());
            assert!(stream.nodelay().unwrap());
        }
        let unknown = to_server(&Values::defaults(&[CONGESTION.default("nosuch")])).unwrap();
        let error = begin(&address, &unknown).unwrap_err();
        assert!(error.to_string().contains("nosuch"), "{error}");
        assert!(to_server(&Values::defaults(&[CONGESTION.default("a b")])).is_err());
    }
}
