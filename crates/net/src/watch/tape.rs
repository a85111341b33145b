//! What a watched flow hands on of each sample.

use super::seconds::{Accumulator, Seconds};
use crate::stream::clock::Schedule;
use weir_core::chunk::{RECEIVED, TCP_INFO};
use weir_seams::chunks::Tape;
use weir_seams::workload::Control;
use weir_sys::tcp_info::TcpInfo;

/// Samples of the series that is kept beside, for the report's usual plots: it gets coarser and never longer.
pub const COARSE_SAMPLES_MAX: usize = 6_000;

/// `TCP_INFO` in the order of `chunk::TCP_INFO`.
fn values(info: &TcpInfo) -> [Option<u64>; 28] {
    let some = |value: u32| Some(u64::from(value));
    let wide = |value: Option<u32>| value.map(u64::from);
    [
        some(info.snd_cwnd_segments),
        some(info.snd_ssthresh_segments),
        some(info.unacked_segments),
        some(info.rtt_us),
        some(info.rttvar_us),
        wide(info.min_rtt_us),
        some(info.snd_mss_bytes),
        some(info.rcv_mss_bytes),
        some(info.advmss_bytes),
        some(info.total_retrans_segments),
        info.pacing_bytes_per_second,
        info.max_pacing_bytes_per_second,
        info.bytes_acked,
        info.bytes_received,
        wide(info.segs_out),
        wide(info.notsent_bytes),
        wide(info.data_segs_out),
        info.delivery_rate_bytes_per_second,
        info.busy_us,
        info.rwnd_limited_us,
        info.sndbuf_limited_us,
        info.bytes_sent,
        info.bytes_retrans,
        wide(info.dsack_dups),
        wide(info.reord_seen),
        wide(info.snd_wnd_bytes),
        wide(info.rcv_wnd_bytes),
        Some(u64::from(info.application_limited)),
    ]
}

/// Of the sending end.
pub struct SenderTape {
    /// `None` where nobody takes it.
    tape: Option<Tape>,
}

impl SenderTape {
    pub fn new(entity: &str, control: &Control) -> SenderTape {
        SenderTape { tape: control.chunks().map(|queue| Tape::new(entity, &TCP_INFO, queue)) }
    }

    pub fn push(&mut self, at_ns: u64, info: &TcpInfo) {
        if let Some(tape) = &mut self.tape {
            tape.push(at_ns, &values(info));
        }
    }

    pub fn finish(self) {
        if let Some(tape) = self.tape {
            tape.finish();
        }
    }
}

/// Of the receiving end.
pub struct ReceiverTape {
    tape: Option<Tape>,
    seconds: Accumulator,
}

impl ReceiverTape {
    pub fn new(entity: &str, control: &Control, schedule: &Schedule) -> ReceiverTape {
        ReceiverTape {
            tape: control.chunks().map(|queue| Tape::new(entity, &RECEIVED, queue)),
            seconds: Accumulator::new(schedule.warm_ns, schedule.end_ns),
        }
    }

    pub fn push(&mut self, at_ns: u64, bytes: u64) {
        self.seconds.push(at_ns, bytes);
        if let Some(tape) = &mut self.tape {
            tape.push(at_ns, &[Some(bytes)]);
        }
    }

    pub fn finish(self) -> Seconds {
        if let Some(tape) = self.tape {
            tape.finish();
        }
        self.seconds.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_own_place_in_the_set() {
        let info = TcpInfo {
            rtt_us: 25_000,
            bytes_retrans: Some(7),
            application_limited: true,
            ..TcpInfo::default()
        };
        let values = values(&info);
        assert_eq!(values.len(), TCP_INFO.fields.len());
        let of = |name: &str| values[TCP_INFO.position(name).unwrap()];
        assert_eq!(of("rtt_us"), Some(25_000));
        assert_eq!(of("bytes_retrans_bytes"), Some(7));
        assert_eq!(of("application_limited_flag"), Some(1));
        assert_eq!(of("bytes_acked_bytes"), None);
    }
}
