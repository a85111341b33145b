//! What a run of a buffer looks like where it is now: as its host sent it, less the hops it has made, with the bit that a wire
//! inverted, or as a router's answer to it.

use crate::buffer::Buffer;
use crate::icmp;
use crate::ip::set_hop_limit;
use crate::run::Run;
use crate::segment::{invert_bit, on_the_wire};
use crate::vnet::{VNET_HEADER_BYTES, VnetHeader};
use weir_fabric::{Answer, Packet, Refusal};

/// Room for the virtio-net header and an IP header whose hop limit has changed.
const HEAD_BYTES: usize = VNET_HEADER_BYTES + crate::ip::HEADERS_BYTES_MAX;

pub enum Image {
    /// The buffer as it is.
    Whole,
    /// The buffer behind another beginning.
    Head { bytes: [u8; HEAD_BYTES], used: usize },
    /// Part of a super-packet.
    Run(Run),
    /// Something else, virtio-net header included.
    Made(Vec<u8>),
}

impl Image {
    pub fn of(buffer: &Buffer, run: &Packet) -> Image {
        let packet = &buffer.packet;
        if run.answer().is_some() || run.inverted_bit().is_some() {
            return Image::Made(made(buffer, run));
        }
        let bytes = buffer.bytes();
        if run.count != packet.segments {
            let ip = &bytes[VNET_HEADER_BYTES..];
            return Image::Run(Run::cut(packet, ip, run.first, run.count, run.hop_limit()));
        }
        if run.hop_limit() == packet.ip.hop_limit {
            return Image::Whole;
        }
        let used = VNET_HEADER_BYTES + usize::from(packet.ip.header_bytes);
        let mut head = [0; HEAD_BYTES];
        head[..used].copy_from_slice(&bytes[..used]);
        set_hop_limit(&mut head[VNET_HEADER_BYTES..used], run.hop_limit());
        Image::Head { bytes: head, used }
    }

    /// The packet in two pieces, the first with the virtio-net header.
    pub fn pieces<'a>(&'a self, buffer: &'a Buffer) -> [&'a [u8]; 2] {
        let bytes = buffer.bytes();
        match self {
            Image::Whole => [bytes, &[]],
            Image::Head { bytes: head, used } => [&head[..*used], &bytes[*used..]],
            Image::Run(run) => [run.head(), &bytes[VNET_HEADER_BYTES..][run.payload.clone()]],
            Image::Made(made) => [made, &[]],
        }
    }

    /// What the packet's virtio-net header leaves for the receiver to do.
    pub fn vnet(&self, buffer: &Buffer) -> VnetHeader {
        let [first, _] = self.pieces(buffer);
        let header = first.first_chunk().expect("every packet has a virtio-net header");
        VnetHeader::decode(header)
    }
}

/// A single segment that is no longer as the kernel sent it. Its checksums are complete and its virtio-net header asks for
/// nothing, so that the receiver checks every byte.
#[cold]
fn made(buffer: &Buffer, run: &Packet) -> Vec<u8> {
    let segment = |hop_limit| on_the_wire(&buffer.packet, buffer.bytes(), run.first, hop_limit);
    let mut ip = match run.answer() {
        None => segment(run.hop_limit()),
        Some(Answer::Refused { stage, why }) => {
            // The router quotes what arrived there: the last hop, or an unknown one, of which the sender's is shown.
            let arrived_with = match why {
                Refusal::TimeExceeded => buffer.packet.ip.hop_limit.min(1),
                Refusal::TooBig { .. } => buffer.packet.ip.hop_limit,
            };
            let refused = segment(arrived_with);
            icmp::error(stage, why, &refused, run.ip_bytes() as usize, run.hop_limit())
        }
        Some(Answer::Echo { stage }) => {
            icmp::echo_reply(stage, &segment(buffer.packet.ip.hop_limit), run.hop_limit())
        }
    };
    if let Some(bit) = run.inverted_bit() {
        invert_bit(&mut ip, bit);
    }
    [&VnetHeader::default().encode()[..], &ip].concat()
}
