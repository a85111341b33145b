//! How bytes travel: the transports, frames, keys, and what a fresh connection says before it is let in.
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
pub mod memory;
pub mod tcp;
pub mod tcp_options;
pub mod udp;

pub use frame::{FrameError, read_frame, write_frame};
pub use key::Key;

use weir_seams::Entry;
use weir_seams::transport::TransportEntry;

pub static TRANSPORTS: &[TransportEntry] = &[
    Entry { name: "tcp", about: "kernel TCP sockets, Nagle off", params: &[], needs: &[], build: &tcp::Tcp },
    Entry {
        name: "udp",
        about: "kernel UDP sockets: messages that may be lost; nothing is sent to an address that has not answered a cookie",
        params: &[],
        needs: &[],
        build: &udp::Udp,
    },
    Entry {
        name: "memory",
        about: "a pipe inside this process: measures weir itself",
        params: &[],
        needs: &[],
        build: &memory::Memory,
    },
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_transport_keeps_the_claims_of_the_seam() {
        for entry in super::TRANSPORTS {
            weir_seams::transport::conformance::check(entry, "127.0.0.1:0");
        }
    }
}
