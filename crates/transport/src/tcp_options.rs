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
/// Stands between the congestion controls of a mix, which the streams of a pair take in turn: `cubic+bbr`.
const MIX: char = '+';
/// Most congestion controls of a mix.
pub const MIX_MAX: usize = 16;
/// Segments that a kernel can be asked for: `TCP_MIN_MSS` to `MAX_TCP_WINDOW`.
pub const MSS_BYTES: std::ops::RangeInclusive<u64> = 88..=32_767;
/// Most that TCP options take of a segment.
const MSS_OPTION_BYTES_MAX: u64 = 40;

/// What is asked of the kernel; `None` leaves it to the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpOptions {
    /// One name, or several in a mix.
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
    /// Caps the sender's rate of payload, bits a second.
    #[serde(default)]
    pub pacing: Option<u64>,
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
            pacing: None,
            nodelay: false,
            or_as_allowed: false,
        }
    }
}

/// Whether a text has only characters that names of congestion controls have.
pub fn is_congestion_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// An option the kernel refused; the text says what to do.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct OptionError(pub String);

impl TcpOptions {
    /// Of connections of which nobody asks anything, such as those for words between roles.
    pub fn unasked() -> TcpOptions {
        TcpOptions { or_as_allowed: true, ..TcpOptions::default() }
    }

    /// From the common key `tcp` of a step.
    pub fn from_values(values: &Values) -> TcpOptions {
        let tcp = values.table("tcp").unwrap_or_default();
        TcpOptions {
            congestion: tcp.text("congestion").unwrap_or_else(|| DEFAULT_CONGESTION.to_owned()),
            window: tcp.size("window").map(|size| size.0),
            send_buffer: tcp.size("send_buffer").map(|size| size.0),
            receive_buffer: tcp.size("receive_buffer").map(|size| size.0),
            mss: tcp.size("mss").map(|size| size.0),
            pacing: tcp.rate("pacing").map(|rate| rate.0),
            nodelay: tcp.flag("nodelay").unwrap_or(false),
            or_as_allowed: false,
        }
    }

    /// Likewise, for what nothing follows that a short segment could wait for: without Nagle's algorithm unless the step asks
    /// for it.
    pub fn from_values_at_once(values: &Values) -> TcpOptions {
        let nodelay = values.table("tcp").and_then(|tcp| tcp.flag("nodelay")).unwrap_or(true);
        TcpOptions { nodelay, ..TcpOptions::from_values(values) }
    }

    /// The names of a mix, or the one there is.
    pub fn congestions(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.congestion.split(MIX)
    }
    pub fn is_mixed(&self) -> bool {
        self.congestion.contains(MIX)
    }

    /// These options as the stream with this number, from 0, of its pair has them: with one congestion control.
    pub fn of_stream(&self, number: u64) -> TcpOptions {
        let count = self.congestions().count().max(1) as u64;
        let own = self.congestions().nth((number % count) as usize).unwrap_or_default();
        TcpOptions { congestion: own.to_owned(), ..self.clone() }
    }

    /// Sets everything on a socket that is not connected yet, so that window scale and segment size are in the
    /// handshake. Accepted sockets inherit it from their listener. Of a mix every name is tried, and the first is set.
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
        if let Some(bits) = self.pacing {
            socket::set_max_pacing(socket, (bits / 8).max(1)).map_err(|error| {
                OptionError(format!(
                    "tcp.pacing of {bits} bit/s is refused by the kernel ({error}); it needs Linux 4.20"
                ))
            })?;
        }
        socket::set_nodelay(socket, self.nodelay)
            .map_err(|error| OptionError(format!("tcp.nodelay is refused by the kernel: {error}")))?;
        self.apply_congestion(socket)
    }

    /// Sets the congestion control alone, which may be done at any time.
    pub fn apply_congestion(&self, socket: BorrowedFd<'_>) -> Result<(), OptionError> {
        for name in self.congestions().rev() {
            match socket::set_congestion(socket, name) {
                Err(error) if self.or_as_allowed && error.kind() == ErrorKind::PermissionDenied => {}
                set => set.map_err(|error| congestion_refused(name, &error))?,
            }
        }
        Ok(())
    }

    /// What a connected socket was granted, beside what was asked: `congestion`, `send_buffer_bytes`,
    /// `receive_buffer_bytes` (both as the kernel reports them, its bookkeeping included), `mss_bytes`, `timestamps`,
    /// and `window_bytes` and `pacing_bits_per_second` where they were asked for. Keys that start with `asked_` are what the
    /// scenario wanted; `clamped` lists, in words, what the kernel granted less of. `window` is what may be in flight, a
    /// buffer is memory: a window brings a receive buffer with it that nobody asked for, so there is no `asked_` for it.
    pub fn granted(&self, socket: BorrowedFd<'_>) -> Map<String, Value> {
        let mut map = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                map.insert(key.to_owned(), value);
            }
        };
        let info = TcpInfo::read(socket).ok();
        let send = socket::buffer(socket, Buffer::Send).ok();
        let receive = socket::buffer(socket, Buffer::Receive).ok();
        let window = self.window.and_then(|_| socket::window_clamp(socket).ok());
        let pacing = self.pacing.and_then(|_| socket::max_pacing(socket).ok());
        let congestion = socket::congestion(socket).ok();
        let other = congestion.as_ref().is_some_and(|granted| *granted != self.congestion);
        put("asked_congestion", other.then(|| self.congestion.clone().into()));
        put("congestion", congestion.clone().map(Value::from));
        put("asked_send_buffer_bytes", self.send_buffer.map(Value::from));
        put("send_buffer_bytes", send.map(Value::from));
        put("asked_receive_buffer_bytes", self.receive_buffer.map(Value::from));
        put("receive_buffer_bytes", receive.map(Value::from));
        put("asked_window_bytes", self.window.map(Value::from));
        put("window_bytes", window.map(Value::from));
        put("asked_mss_bytes", self.mss.map(Value::from));
        put("mss_bytes", info.map(|info| info.snd_mss_bytes.into()));
        put("timestamps", info.map(|info| info.timestamps.into()));
        put("asked_pacing_bits_per_second", self.pacing.map(Value::from));
        put("pacing_bits_per_second", pacing.map(|bytes| bytes.saturating_mul(8).into()));
        if self.nodelay {
            put("nodelay", Some(true.into()));
        }
        let granted = Granted {
            send_buffer: send,
            receive_buffer: receive,
            window,
            mss: info.map(|info| u64::from(info.snd_mss_bytes)),
            pacing: pacing.map(|bytes| bytes.saturating_mul(8)),
        };
        let mut clamped = self.clamped(&granted);
        if let Some(congestion) = congestion.filter(|_| other) {
            clamped.push(format!(
                "tcp.congestion: {} was asked for, the kernel granted {congestion}; add it to \
                 net.ipv4.tcp_allowed_congestion_control or run as root",
                self.congestion
            ));
        }
        if !clamped.is_empty() {
            map.insert("clamped".to_owned(), clamped.into());
        }
        map
    }

    /// What the kernel granted less of than was asked, each with what would mend it.
    fn clamped(&self, granted: &Granted) -> Vec<String> {
        let mut all = Vec::new();
        let mut less = |what: &str, asked: Option<u64>, got: Option<u64>, mend: &str| {
            if let (Some(asked), Some(got)) = (asked, got)
                && got < asked
            {
                all.push(format!("tcp.{what}: {asked} were asked for, the kernel granted {got}; {mend}"));
            }
        };
        // The kernel doubles what is asked, for its own bookkeeping, and reports the double.
        let halved = |bytes: Option<u64>| bytes.map(|bytes| bytes / 2);
        less(
            "send_buffer",
            self.send_buffer,
            halved(granted.send_buffer),
            "raise net.core.wmem_max or run as root",
        );
        less(
            "receive_buffer",
            self.receive_buffer,
            halved(granted.receive_buffer),
            "raise net.core.rmem_max or run as root",
        );
        less("window", self.window, granted.window, "give a larger tcp.receive_buffer");
        // Options of each segment come out of what was asked: 12 bytes of timestamps, up to 40 in all.
        less(
            "mss",
            self.mss.map(|mss| mss.saturating_sub(MSS_OPTION_BYTES_MAX)),
            granted.mss,
            "the path's MTU allows no more",
        );
        less("pacing", self.pacing.map(|bits| bits / 8 * 8), granted.pacing, "the kernel holds it lower");
        all
    }
}

/// What to say when the kernel refuses a congestion control.
fn congestion_refused(name: &str, error: &io::Error) -> OptionError {
    let offered = |name: &str| {
        let path = format!("/proc/sys/net/ipv4/{name}");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        (text.trim().to_owned(), path)
    };
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

/// What a socket has, in the units of what is asked; buffers doubled as the kernel reports them.
#[derive(Clone, Copy, Debug, Default)]
struct Granted {
    send_buffer: Option<u64>,
    receive_buffer: Option<u64>,
    window: Option<u64>,
    mss: Option<u64>,
    pacing: Option<u64>,
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

    // Spec: net-protocol.md#stream-8
    #[test]
    fn what_the_kernel_grants_less_of_is_said_and_what_it_grants_is_not() {
        let asked = TcpOptions {
            send_buffer: Some(1 << 20),
            receive_buffer: Some(1 << 20),
            window: Some(1 << 20),
            mss: Some(1460),
            pacing: Some(80_000_000),
            ..TcpOptions::default()
        };
        let all = Granted {
            send_buffer: Some(2 << 20),
            receive_buffer: Some(2 << 20),
            window: Some(1 << 20),
            mss: Some(1448),
            pacing: Some(80_000_000),
        };
        assert_eq!(asked.clamped(&all), Vec::<String>::new());
        let less = Granted {
            send_buffer: Some(400_000),
            receive_buffer: Some(400_000),
            window: Some(65_535),
            mss: Some(536),
            pacing: Some(8),
        };
        let texts = asked.clamped(&less);
        assert_eq!(texts.len(), 5, "{texts:?}");
        assert!(
            texts[0].contains("1048576 were asked for, the kernel granted 200000; raise net.core.wmem_max")
        );
    }

    #[test]
    fn a_pacing_rate_asked_for_is_in_force_and_told() {
        let listener = crate::tcp::listen("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let asked = TcpOptions { pacing: Some(80_000_000), ..TcpOptions::default() };
        let limit = std::time::Duration::from_secs(5);
        let stream = crate::tcp::connect(listener.local_addr().unwrap(), Some(&asked), limit).unwrap();
        let granted = asked.granted(stream.as_fd());
        assert_eq!(granted["asked_pacing_bits_per_second"], 80_000_000);
        assert_eq!(granted["pacing_bits_per_second"], 80_000_000);
        assert!(!granted.contains_key("clamped"), "{granted:?}");
        let info = TcpInfo::read(stream.as_fd()).unwrap();
        assert_eq!(info.max_pacing_bytes_per_second, Some(10_000_000));
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
