//! How bytes travel: TCP and UDP, frames, keys, and what a fresh connection says before it is let in.
//! What goes over the wire is in `docs/specs/net-protocol.md`.

pub mod address;
pub mod associate;
pub mod datagram;
pub mod deadline;
pub mod dial;
pub mod exposure;
pub mod frame;
pub mod gate;
pub mod handshake;
pub mod key;
pub mod tcp;
pub mod tcp_options;
#[cfg(feature = "tls")]
pub mod tls;
pub mod udp;

pub use frame::{FrameError, read_frame, write_frame};
pub use key::Key;
