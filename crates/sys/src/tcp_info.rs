//! What the kernel tells about a TCP connection (`TCP_INFO`, `struct tcp_info` of `linux/tcp.h`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes asked for: more than any kernel gives today, so that a longer struct is cut and never refused.
const ASKED_BYTES: usize = 512;

/// The fields weir uses. Those that an older kernel does not return are `None`, never 0; the rest have been there since
/// Linux 2.6. Times are microseconds as the kernel keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// `TCPI_OPT_TIMESTAMPS`: 12 bytes of each segment are the timestamp option.
    pub timestamps: bool,
    pub sack: bool,
    /// `tcpi_delivery_rate_app_limited`: the last delivery was not limited by congestion control or the network, but by what
    /// the application had given TCP to send. Kernels before 4.9 leave it 0.
    pub application_limited: bool,
    pub snd_wscale: u8,
    pub rcv_wscale: u8,
    pub snd_mss_bytes: u32,
    pub rcv_mss_bytes: u32,
    pub unacked_segments: u32,
    /// Since the last acknowledgement came.
    pub last_ack_received_ms: u32,
    /// What the route takes, as TCP has it now.
    pub pmtu_bytes: u32,
    pub rtt_us: u32,
    pub rttvar_us: u32,
    pub snd_ssthresh_segments: u32,
    pub snd_cwnd_segments: u32,
    pub advmss_bytes: u32,
    /// By how many segments TCP expects packets to be out of order before it calls them lost.
    pub reordering_segments: u32,
    pub total_retrans_segments: u32,
    /// The rate the sender paces itself at now; `u64::MAX` for none.
    pub pacing_bytes_per_second: Option<u64>,
    /// Its cap (`SO_MAX_PACING_RATE`); `u64::MAX` for none.
    pub max_pacing_bytes_per_second: Option<u64>,
    pub bytes_acked: Option<u64>,
    pub bytes_received: Option<u64>,
    pub segs_out: Option<u32>,
    pub notsent_bytes: Option<u32>,
    pub min_rtt_us: Option<u32>,
    pub data_segs_out: Option<u32>,
    pub delivery_rate_bytes_per_second: Option<u64>,
    pub busy_us: Option<u64>,
    pub rwnd_limited_us: Option<u64>,
    pub sndbuf_limited_us: Option<u64>,
    pub bytes_sent: Option<u64>,
    pub bytes_retrans: Option<u64>,
    pub dsack_dups: Option<u32>,
    pub reord_seen: Option<u32>,
    /// Segments that came out of order (Linux 5.4): each is answered by a duplicate acknowledgement.
    pub rcv_ooopack: Option<u32>,
    /// The peer's advertised receive window after scaling.
    pub snd_wnd_bytes: Option<u32>,
    /// What we advertise.
    pub rcv_wnd_bytes: Option<u32>,
}

/// Byte offsets in `struct tcp_info`; a field counts as present when the kernel returned all of it.
mod offset {
    pub const OPTIONS: usize = 5;
    pub const WSCALE: usize = 6;
    pub const APP_LIMITED: usize = 7;
    pub const SND_MSS: usize = 16;
    pub const RCV_MSS: usize = 20;
    pub const UNACKED: usize = 24;
    pub const LAST_ACK_RECV: usize = 56;
    pub const PMTU: usize = 60;
    pub const RTT: usize = 68;
    pub const RTTVAR: usize = 72;
    pub const SND_SSTHRESH: usize = 76;
    pub const SND_CWND: usize = 80;
    pub const ADVMSS: usize = 84;
    pub const REORDERING: usize = 88;
    pub const TOTAL_RETRANS: usize = 100;
    pub const PACING_RATE: usize = 104;
    pub const MAX_PACING_RATE: usize = 112;
    pub const BYTES_ACKED: usize = 120;
    pub const BYTES_RECEIVED: usize = 128;
    pub const SEGS_OUT: usize = 136;
    pub const NOTSENT_BYTES: usize = 144;
    pub const MIN_RTT: usize = 148;
    pub const DATA_SEGS_OUT: usize = 156;
    pub const DELIVERY_RATE: usize = 160;
    pub const BUSY_TIME: usize = 168;
    pub const RWND_LIMITED: usize = 176;
    pub const SNDBUF_LIMITED: usize = 184;
    pub const BYTES_SENT: usize = 200;
    pub const BYTES_RETRANS: usize = 208;
    pub const DSACK_DUPS: usize = 216;
    pub const REORD_SEEN: usize = 220;
    pub const RCV_OOOPACK: usize = 224;
    pub const SND_WND: usize = 228;
    pub const RCV_WND: usize = 232;
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl TcpInfo {
    /// Reads the connection's counters. Errors: not a TCP socket, or a kernel whose struct is shorter than that of 2.6.
    pub fn read(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
        let mut bytes = [0u8; ASKED_BYTES];
        let mut length = ASKED_BYTES as libc::socklen_t;
        // Safety: the pointer and the length describe `bytes`, which outlives the call; the kernel writes at most `length` bytes.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let returned = (length as usize).min(ASKED_BYTES);
        TcpInfo::decode(&bytes[..returned]).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                format!("TCP_INFO: the kernel returned {length} bytes only"),
            )
        })
    }

    /// Decodes what the kernel returned; `None` when even the fields of Linux 2.6 are missing.
    pub fn decode(bytes: &[u8]) -> Option<TcpInfo> {
        let options = *bytes.get(offset::OPTIONS)?;
        let wscale = *bytes.get(offset::WSCALE)?;
        // The C bit field puts the first member into the low bits on little-endian machines only.
        let (low, high) = (wscale & 0x0f, wscale >> 4);
        let app_limited_bit = if cfg!(target_endian = "little") { 0x01 } else { 0x80 };
        let (snd_wscale, rcv_wscale) = if cfg!(target_endian = "little") { (low, high) } else { (high, low) };
        Some(TcpInfo {
            timestamps: options & 1 != 0,
            sack: options & 2 != 0,
            application_limited: *bytes.get(offset::APP_LIMITED)? & app_limited_bit != 0,
            snd_wscale,
            rcv_wscale,
            snd_mss_bytes: u32_at(bytes, offset::SND_MSS)?,
            rcv_mss_bytes: u32_at(bytes, offset::RCV_MSS)?,
            unacked_segments: u32_at(bytes, offset::UNACKED)?,
            last_ack_received_ms: u32_at(bytes, offset::LAST_ACK_RECV)?,
            rtt_us: u32_at(bytes, offset::RTT)?,
            rttvar_us: u32_at(bytes, offset::RTTVAR)?,
            pmtu_bytes: u32_at(bytes, offset::PMTU)?,
            snd_ssthresh_segments: u32_at(bytes, offset::SND_SSTHRESH)?,
            snd_cwnd_segments: u32_at(bytes, offset::SND_CWND)?,
            advmss_bytes: u32_at(bytes, offset::ADVMSS)?,
            reordering_segments: u32_at(bytes, offset::REORDERING)?,
            total_retrans_segments: u32_at(bytes, offset::TOTAL_RETRANS)?,
            pacing_bytes_per_second: u64_at(bytes, offset::PACING_RATE),
            max_pacing_bytes_per_second: u64_at(bytes, offset::MAX_PACING_RATE),
            bytes_acked: u64_at(bytes, offset::BYTES_ACKED),
            bytes_received: u64_at(bytes, offset::BYTES_RECEIVED),
            segs_out: u32_at(bytes, offset::SEGS_OUT),
            notsent_bytes: u32_at(bytes, offset::NOTSENT_BYTES),
            min_rtt_us: u32_at(bytes, offset::MIN_RTT),
            data_segs_out: u32_at(bytes, offset::DATA_SEGS_OUT),
            delivery_rate_bytes_per_second: u64_at(bytes, offset::DELIVERY_RATE),
            busy_us: u64_at(bytes, offset::BUSY_TIME),
            rwnd_limited_us: u64_at(bytes, offset::RWND_LIMITED),
            sndbuf_limited_us: u64_at(bytes, offset::SNDBUF_LIMITED),
            bytes_sent: u64_at(bytes, offset::BYTES_SENT),
            bytes_retrans: u64_at(bytes, offset::BYTES_RETRANS),
            dsack_dups: u32_at(bytes, offset::DSACK_DUPS),
            reord_seen: u32_at(bytes, offset::REORD_SEEN),
            rcv_ooopack: u32_at(bytes, offset::RCV_OOOPACK),
            snd_wnd_bytes: u32_at(bytes, offset::SND_WND),
            rcv_wnd_bytes: u32_at(bytes, offset::RCV_WND),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn a_kernel_that_returns_fewer_bytes_gives_absent_fields_and_no_zeros() {
        let bytes = [7u8; 104];
        let info = TcpInfo::decode(&bytes).unwrap();
        assert_eq!(info.total_retrans_segments, 0x0707_0707);
        assert_eq!((info.bytes_acked, info.busy_us, info.rcv_wnd_bytes), (None, None, None));
        assert_eq!(TcpInfo::decode(&bytes[..100]), None);
        // Half a field is no field.
        assert_eq!(TcpInfo::decode(&[7u8; 124]).unwrap().bytes_acked, None);
    }

    #[test]
    fn the_kernels_own_counters_are_found_at_their_offsets() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[1; 5000]).unwrap();
        let mut received = [0; 5000];
        far.read_exact(&mut received).unwrap();
        let sender = TcpInfo::read(near.as_fd()).unwrap();
        let receiver = TcpInfo::read(far.as_fd()).unwrap();
        assert_eq!(sender.bytes_sent.unwrap_or(5000), 5000);
        assert_eq!(receiver.bytes_received.unwrap_or(5000), 5000);
        assert!(sender.snd_mss_bytes >= 500 && sender.snd_cwnd_segments >= 1, "{sender:?}");
    }
}
