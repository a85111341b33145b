//! What is asked of a TCP socket, and what the kernel granted.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use thiserror::Error;
use weir_core::Values;
use weir_sys::socket::{self, Buffer};
use weir_sys::tcp_info::TcpInfo;

/// Set on every socket unless the scenario names another, so that a machine's default never decides a result.
pub const DEFAULT_CONGESTION: &str = "cubic";
/// The least receive buffer that goes with a window: below it the kernel's own bookkeeping leaves too little room.
const WINDOW_BUFFER_BYTES_MIN: u64 = 64 * 1024;

/// What is asked of the kernel; `None` leaves it to the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpOptions {
    pub congestion: String,
    /// Caps what is in flight towards this socket: the window it advertises, in bytes.
    #[serde(default)]
    pub window: Option<u64>,
    #[serde(default)]
    pub send_buffer: Option<u64>,
    #[serde(default)]
    pub receive_buffer: Option<u64>,
    #[serde(default)]
    pub mss: Option<u64>,
    #[serde(default)]
    pub nodelay: bool,
    /// A congestion control that only the privileged may choose here leaves the socket with the kernel's own instead of
    /// being an error; `granted` tells.
    #[serde(default)]
    pub or_as_allowed: bool,
}

impl Default for TcpOptions {
    fn default() -> Self {
        TcpOptions {
            congestion: DEFAULT_CONGESTION.to_owned(),
            window: None,
            send_buffer: None,
            receive_buffer: None,
            mss: None,
            nodelay: false,
            or_as_allowed: false,
        }
    }
}

/// An option the kernel refused; the text says what to do.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct OptionError(pub String);

impl TcpOptions {
    /// From the common key `tcp` of a step.
    pub fn from_values(values: &Values) -> TcpOptions {
        let tcp = values.table("tcp").unwrap_or_default();
        TcpOptions {
            congestion: tcp.text("congestion").unwrap_or_else(|| DEFAULT_CONGESTION.to_owned()),
            window: tcp.size("window").map(|size| size.0),
            send_buffer: tcp.size("send_buffer").map(|size| size.0),
            receive_buffer: tcp.size("receive_buffer").map(|size| size.0),
            mss: tcp.size("mss").map(|size| size.0),
            nodelay: tcp.flag("nodelay").unwrap_or(false),
            or_as_allowed: false,
        }
    }

    /// Sets everything on a socket that is not connected yet, so that window scale and segment size are in the
    /// handshake. Accepted sockets inherit it from their listener.
    pub fn apply(&self, socket: BorrowedFd<'_>) -> Result<(), OptionError> {
        self.apply_buffers(socket)?;
        if let Some(mss) = self.mss {
            socket::set_mss(socket, mss).map_err(|error| {
                OptionError(format!(
                    "tcp.mss of {mss} bytes is refused by the kernel ({error}); it takes 88 to 32767"
                ))
            })?;
        }
        self.apply_rest(socket)
    }

    /// Sets what can still be set on a connected socket: all but the segment size.
    pub fn apply_connected(&self, socket: BorrowedFd<'_>) -> Result<(), OptionError> {
        self.apply_buffers(socket)?;
        self.apply_rest(socket)
    }

    fn apply_buffers(&self, socket: BorrowedFd<'_>) -> Result<(), OptionError> {
        let refused = |what: &str, bytes: u64, error: io::Error| {
            OptionError(format!("{what} of {bytes} bytes is refused by the kernel: {error}"))
        };
        if let Some(bytes) = self.send_buffer {
            socket::set_buffer(socket, Buffer::Send, bytes)
                .map_err(|error| refused("tcp.send_buffer", bytes, error))?;
        }
        // While the receive buffer follows the traffic, so does the window, past its clamp; a fixed buffer of twice the
        // window (the rest is the kernel's bookkeeping) leaves the clamp in force.
        let receive =
            self.receive_buffer.or(self.window.map(|window| (2 * window).max(WINDOW_BUFFER_BYTES_MIN)));
        if let Some(bytes) = receive {
            socket::set_buffer(socket, Buffer::Receive, bytes)
                .map_err(|error| refused("tcp.receive_buffer", bytes, error))?;
        }
        Ok(())
    }

    fn apply_rest(&self, socket: BorrowedFd<'_>) -> Result<(), OptionError> {
        if let Some(window) = self.window {
            socket::set_window_clamp(socket, window).map_err(|error| {
                OptionError(format!("tcp.window of {window} bytes is refused by the kernel: {error}"))
            })?;
        }
        socket::set_nodelay(socket, self.nodelay)
            .map_err(|error| OptionError(format!("tcp.nodelay is refused by the kernel: {error}")))?;
        match socket::set_congestion(socket, &self.congestion) {
            Err(error) if self.or_as_allowed && error.kind() == ErrorKind::PermissionDenied => Ok(()),
            set => set.map_err(|error| self.congestion_refused(&error)),
        }
    }

    fn congestion_refused(&self, error: &io::Error) -> OptionError {
        let offered = |name: &str| {
            let path = format!("/proc/sys/net/ipv4/{name}");
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            (text.trim().to_owned(), path)
        };
        let name = &self.congestion;
        OptionError(match error.kind() {
            ErrorKind::NotFound => {
                let (offers, path) = offered("tcp_available_congestion_control");
                format!(
                    "congestion control {name:?} is not available here\n  kernel offers: {offers}   ({path})\n  \
                     either load tcp_{name} or choose one of these (tcp.congestion, --congestion)"
                )
            }
            ErrorKind::PermissionDenied => {
                let (allowed, path) = offered("tcp_allowed_congestion_control");
                format!(
                    "congestion control {name:?} needs CAP_NET_ADMIN here\n  allowed to all: {allowed}   ({path})\n  \
                     either run as root, add it there, or choose one of these (tcp.congestion, --congestion)"
                )
            }
            _ => format!("congestion control {name:?} is refused by the kernel: {error}"),
        })
    }

    /// What a connected socket was granted, beside what was asked: `congestion`, `send_buffer_bytes`,
    /// `receive_buffer_bytes` (both as the kernel reports them, its bookkeeping included), `mss_bytes`, `timestamps`,
    /// and `window_bytes` where a window was asked for. Keys that start with `asked_` are what the scenario wanted.
    pub fn granted(&self, socket: BorrowedFd<'_>) -> Map<String, Value> {
        let mut map = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                map.insert(key.to_owned(), value);
            }
        };
        let congestion = socket::congestion(socket).ok();
        let other = congestion.as_ref().is_some_and(|granted| *granted != self.congestion);
        put("asked_congestion", other.then(|| self.congestion.clone().into()));
        put("congestion", congestion.map(Value::from));
        put("asked_send_buffer_bytes", self.send_buffer.map(Value::from));
        put("send_buffer_bytes", socket::buffer(socket, Buffer::Send).ok().map(Value::from));
        put("asked_receive_buffer_bytes", self.receive_buffer.map(Value::from));
        put("receive_buffer_bytes", socket::buffer(socket, Buffer::Receive).ok().map(Value::from));
        if self.window.is_some() {
            put("asked_window_bytes", self.window.map(Value::from));
            put("window_bytes", socket::window_clamp(socket).ok().map(Value::from));
        }
        put("asked_mss_bytes", self.mss.map(Value::from));
        if let Ok(info) = TcpInfo::read(socket) {
            put("mss_bytes", Some(info.snd_mss_bytes.into()));
            put("timestamps", Some(info.timestamps.into()));
        }
        if self.nodelay {
            put("nodelay", Some(true.into()));
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_congestion_control_that_is_not_there_is_an_error_that_lists_those_that_are() {
        let socket = socket::tcp_socket(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let options = TcpOptions { congestion: "nosuchcc".to_owned(), ..TcpOptions::default() };
        let text = options.apply(socket.as_fd()).unwrap_err().to_string();
        assert!(text.starts_with("congestion control \"nosuchcc\" is not available here\n  kernel offers: "));
        assert!(text.contains("reno"), "{text}");
    }

    // Spec: net-protocol.md#stream-5
    #[test]
    fn buffers_are_left_to_the_kernel_unless_asked_for_and_the_grant_is_told() {
        let listener = crate::tcp::listen("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let address = listener.local_addr().unwrap();
        let limit = std::time::Duration::from_secs(5);
        let plain = crate::tcp::connect(address, Some(&TcpOptions::default()), limit).unwrap();
        let asked = TcpOptions { send_buffer: Some(100_000), ..TcpOptions::default() };
        let sized = crate::tcp::connect(address, Some(&asked), limit).unwrap();
        let plain = TcpOptions::default().granted(plain.as_fd());
        let sized = asked.granted(sized.as_fd());
        assert_eq!(
            (&sized["asked_send_buffer_bytes"], &sized["send_buffer_bytes"]),
            (&100_000.into(), &200_000.into())
        );
        assert_eq!(plain["congestion"], "cubic");
        assert!(!plain.contains_key("asked_send_buffer_bytes"));
        assert_ne!(plain["send_buffer_bytes"], 200_000);
    }
}
