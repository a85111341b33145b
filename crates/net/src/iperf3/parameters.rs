//! What a client asks of a server.

use super::{OMIT_SECONDS_MAX, SECONDS_MAX, STREAMS_MAX};
use crate::adhoc::Job;
use crate::latency::pingpong::Until as Count;
use crate::stream::plan::Direction;
use serde_json::{Map, Value};
use std::time::Duration;
use weir_transport::udp::DATAGRAM_BYTES_MAX;

/// Of a TCP stream, in bytes; of socket buffers; of segments.
const BLOCK_BYTES_MAX: u64 = 1 << 20;
const BUFFER_BYTES_MAX: u64 = 512 << 20;
const MSS_BYTES_MAX: u64 = 32 * 1024 - 1;
/// Seconds, microseconds and a number of 32 bits.
pub const DATAGRAM_BYTES_MIN: u64 = 12;
/// Buffers of all sockets of a test together.
const MEMORY_BYTES_MAX: u64 = 4 << 30;

/// A test as the client wants it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    pub udp: bool,
    /// Seconds at the beginning that count nowhere, and those that do; 0 of these is as long as it takes.
    pub omit_seconds: u64,
    pub time_seconds: u64,
    /// Streams each way.
    pub parallel: u64,
    /// Up is from the client to the server.
    pub direction: Direction,
    /// Of one send or receive call, or of a datagram.
    pub block_bytes: u64,
    /// Asked of the kernel for both buffers of a socket.
    pub buffer_bytes: Option<u64>,
    pub mss_bytes: Option<u64>,
    pub nodelay: bool,
    /// What each sending program makes; `None` is as fast as it can.
    pub rate_bits_per_second: Option<u64>,
    /// Cap of the kernel on each sending socket.
    pub pacing_bits_per_second: Option<u64>,
    pub congestion: Option<String>,
    /// Datagrams are numbered with 64 bits instead of 32.
    pub wide_numbers: bool,
    /// The kernel of a receiving end throws the payload of connections away; known to stock servers from 3.19 on.
    pub discard: bool,
}

/// What a server does not do: iperf3's own number of the error, and the reason in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub code: u32,
    pub text: String,
}

fn refused<T>(code: u32, text: impl Into<String>) -> Result<T, Refused> {
    Err(Refused { code, text: text.into() })
}

impl Parameters {
    /// What is asked for a job. Errors: what iperf3 cannot be asked.
    pub fn of(job: &Job) -> Result<Parameters, String> {
        let (warm_up, duration) = match job {
            Job::Stream(plan) => (plan.warm_up, job.duration()),
            Job::Udp(plan) if matches!(plan.until, Count::Duration(_)) => (plan.warm_up, job.duration()),
            _ => (Duration::ZERO, None),
        };
        let Some(duration) = duration else {
            return Err("a test of iperf3 is ended by time here; give --duration".to_owned());
        };
        if warm_up.subsec_nanos() != 0 || warm_up.as_secs() > OMIT_SECONDS_MAX {
            return Err(format!(
                "an iperf3 server leaves out whole seconds, at most {OMIT_SECONDS_MAX}; --warm-up is {warm_up:?}"
            ));
        }
        let seconds = duration.saturating_sub(warm_up).as_secs_f64().ceil() as u64;
        if seconds > SECONDS_MAX {
            return Err(format!(
                "a test of iperf3 takes at most {SECONDS_MAX} s; --duration is {duration:?}"
            ));
        }
        let parameters = Parameters {
            udp: false,
            omit_seconds: warm_up.as_secs(),
            time_seconds: seconds,
            parallel: 1,
            direction: Direction::Up,
            block_bytes: 0,
            buffer_bytes: None,
            mss_bytes: None,
            nodelay: false,
            rate_bits_per_second: None,
            pacing_bits_per_second: None,
            congestion: None,
            wide_numbers: true,
            discard: false,
        };
        let parameters = match job {
            Job::Stream(plan) => {
                let tcp = &plan.tcp;
                if tcp.window.is_some() || plan.read_bits_per_second.is_some() {
                    return Err(
                        "--window and --read-rate are things of the receiver that an iperf3 server cannot be asked \
                         for; --send-buffer and --receive-buffer can"
                            .to_owned(),
                    );
                }
                if !plan.ramp.is_zero() || tcp.is_mixed() {
                    return Err(
                        "all streams of iperf3 start together with one congestion control; leave --ramp out and give one name"
                            .to_owned(),
                    );
                }
                if tcp.send_buffer != tcp.receive_buffer {
                    return Err(
                        "iperf3 has one size for both buffers of a socket; give --send-buffer and --receive-buffer the \
                         same"
                            .to_owned(),
                    );
                }
                Parameters {
                    parallel: plan.streams,
                    direction: plan.direction,
                    block_bytes: plan.block_bytes,
                    buffer_bytes: tcp.send_buffer,
                    mss_bytes: tcp.mss,
                    rate_bits_per_second: plan.source_bits_per_second,
                    pacing_bits_per_second: tcp.pacing,
                    congestion: Some(tcp.congestion.clone()),
                    discard: plan.discard,
                    ..parameters
                }
            }
            Job::Udp(plan) => Parameters {
                udp: true,
                parallel: plan.streams,
                direction: plan.direction,
                block_bytes: plan.size_bytes,
                rate_bits_per_second: Some(
                    (plan.packets_per_second * plan.size_bytes as f64 * 8.0).round().max(1.0) as u64,
                ),
                ..parameters
            },
            _ => return Err(format!("iperf3 has no {} test; stream and udp are what it knows", job.name())),
        };
        parameters.check().map_err(|refused| refused.text)?;
        Ok(parameters)
    }

    /// Bounds that hold wherever they come from.
    fn check(&self) -> Result<(), Refused> {
        if self.parallel == 0 || self.parallel > STREAMS_MAX {
            return refused(6, format!("{} streams; iperf3 has 1 to {STREAMS_MAX}", self.parallel));
        }
        let (least, most) =
            if self.udp { (DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX as u64) } else { (1, BLOCK_BYTES_MAX) };
        let least = if self.udp && self.wide_numbers { least + 4 } else { least };
        if !(least..=most).contains(&self.block_bytes) {
            let code = if self.udp { 20 } else { 8 };
            let text = format!("blocks of {} bytes; iperf3 has {least} to {most}", self.block_bytes);
            return refused(code, text);
        }
        let sockets = 2 * self.parallel * if self.direction == Direction::Both { 2 } else { 1 };
        let buffers = self.buffer_bytes.unwrap_or(0);
        if buffers > BUFFER_BYTES_MAX || buffers * sockets > MEMORY_BYTES_MAX {
            return refused(
                7,
                format!("socket buffers of {buffers} bytes for each of the streams are too much"),
            );
        }
        if self.mss_bytes.is_some_and(|bytes| bytes > MSS_BYTES_MAX) {
            return refused(10, format!("segments have at most {MSS_BYTES_MAX} bytes"));
        }
        Ok(())
    }

    /// As iperf3 writes them.
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        let mut put = |name: &str, value: Value| {
            map.insert(name.to_owned(), value);
        };
        put(if self.udp { "udp" } else { "tcp" }, true.into());
        put("omit", self.omit_seconds.into());
        put("time", self.time_seconds.into());
        // Ends by bytes or by blocks: none.
        put("num", 0.into());
        put("blockcount", 0.into());
        put("parallel", self.parallel.into());
        match self.direction {
            Direction::Up => {}
            Direction::Down => put("reverse", true.into()),
            Direction::Both => put("bidirectional", true.into()),
        }
        put("len", self.block_bytes.into());
        for (name, value) in [
            ("MSS", self.mss_bytes),
            ("window", self.buffer_bytes),
            ("bandwidth", self.rate_bits_per_second),
            ("fqrate", self.pacing_bits_per_second),
            // How often a stock server's older versions look whether they may send, us.
            ("pacing_timer", Some(1000)),
        ] {
            if let Some(value) = value {
                put(name, value.into());
            }
        }
        if let Some(congestion) = &self.congestion {
            put("congestion", congestion.as_str().into());
        }
        if self.udp {
            put("udp_counters_64bit", u64::from(self.wide_numbers).into());
        }
        if self.discard {
            put("skip_rx_copy", 1.into());
        }
        put("client_version", concat!("weir ", env!("CARGO_PKG_VERSION")).into());
        Value::Object(map)
    }

    /// As a client wrote them. Names that are not known are passed over, as a stock server does. Errors: what cannot be done.
    pub fn from_json(value: &Value) -> Result<Parameters, Refused> {
        let Some(map) = value.as_object() else {
            return refused(114, "its parameters are no JSON object");
        };
        let flag = |name: &str| match map.get(name) {
            Some(Value::Bool(set)) => *set,
            Some(Value::Number(number)) => number.as_f64() != Some(0.0),
            _ => false,
        };
        let number = |name: &str, code: u32, most: u64| match map.get(name) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) if number >= 0.0 && number <= most as f64 => Ok(Some(number as u64)),
                _ => refused(code, format!("{name:?} is {value}; it is 0 to {most}")),
            },
        };
        if flag("sctp") || flag("mptcp") {
            return refused(13, "SCTP and MPTCP are not spoken here");
        }
        let udp = flag("udp");
        if flag("reverse") && flag("bidirectional") {
            return refused(24, "it wants one direction and both");
        }
        let direction = match () {
            () if flag("bidirectional") => Direction::Both,
            () if flag("reverse") => Direction::Down,
            () => Direction::Up,
        };
        let congestion = match map.get("congestion") {
            None => None,
            Some(Value::String(name))
                if name.len() < 16
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)) =>
            {
                Some(name.clone())
            }
            Some(_) => return refused(134, "the congestion control's name has characters no name has"),
        };
        let some = |value: Option<u64>| value.filter(|value| *value > 0);
        let parameters = Parameters {
            udp,
            omit_seconds: number("omit", 12, OMIT_SECONDS_MAX)?.unwrap_or(0),
            time_seconds: number("time", 5, SECONDS_MAX)?.unwrap_or(0),
            parallel: number("parallel", 6, STREAMS_MAX)?.unwrap_or(1),
            direction,
            block_bytes: some(number("len", 8, BLOCK_BYTES_MAX)?).unwrap_or(if udp {
                1460
            } else {
                128 << 10
            }),
            buffer_bytes: some(number("window", 7, BUFFER_BYTES_MAX)?),
            mss_bytes: some(number("MSS", 10, MSS_BYTES_MAX)?),
            nodelay: flag("nodelay"),
            rate_bits_per_second: some(number("bandwidth", 114, 100_000_000_000_000)?),
            pacing_bits_per_second: some(number("fqrate", 140, 100_000_000_000_000)?),
            congestion,
            wide_numbers: flag("udp_counters_64bit"),
            discard: !udp && flag("skip_rx_copy"),
        };
        parameters.check()?;
        Ok(parameters)
    }

    /// Longest that a test takes without a stop of its client's.
    pub fn duration_max(&self) -> Duration {
        let seconds = if self.time_seconds == 0 { SECONDS_MAX } else { self.time_seconds };
        Duration::from_secs(seconds + self.omit_seconds)
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    // Spec: net-protocol.md#iperf3-4
    #[test]
    fn what_a_stock_client_asks_is_understood_and_nonsense_is_refused_with_iperf3s_own_number() {
        let stock = json!({"tcp": true, "omit": 1, "time": 10, "num": 0, "blockcount": 0, "parallel": 4, "bidirectional": true,
            "len": 131072, "pacing_timer": 1000, "client_version": "3.12"});
        let read = Parameters::from_json(&stock).unwrap();
        assert_eq!((read.omit_seconds, read.time_seconds, read.parallel), (1, 10, 4));
        assert_eq!((read.udp, read.direction, read.block_bytes), (false, Direction::Both, 131_072));
        assert_eq!(
            (read.rate_bits_per_second, read.congestion.clone(), read.wide_numbers),
            (None, None, false)
        );
        for (key, value, code) in [
            ("parallel", json!(129), 6),
            ("parallel", json!(-1), 6),
            ("parallel", json!("many"), 6),
            ("time", json!(1e300), 5),
            ("omit", json!(601), 12),
            ("len", json!(1 << 30), 8),
            ("window", json!(512 << 20), 7),
            ("MSS", json!(40_000), 10),
            ("sctp", json!(true), 13),
            ("reverse", json!(true), 24),
            ("congestion", json!("../etc"), 134),
        ] {
            let mut bad = stock.clone();
            bad[key] = value;
            assert_eq!(Parameters::from_json(&bad).unwrap_err().code, code, "{key}");
        }
        assert_eq!(Parameters::from_json(&json!([])).unwrap_err().code, 114);
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let written = Parameters {
            udp: true,
            omit_seconds: 2,
            time_seconds: 9,
            parallel: 3,
            direction: Direction::Down,
            block_bytes: 1400,
            buffer_bytes: Some(1 << 20),
            mss_bytes: Some(1400),
            nodelay: false,
            rate_bits_per_second: Some(200_000_000),
            pacing_bits_per_second: Some(1_000_000),
            congestion: Some("reno".to_owned()),
            wide_numbers: true,
            discard: false,
        };
        assert_eq!(Parameters::from_json(&written.to_json()).unwrap(), written);
    }

    proptest! {
        #[test]
        fn no_json_makes_it_panic(keys in prop::collection::vec(0usize..16, 0..8), values in prop::collection::vec(any::<f64>(), 8)) {
            const NAMES: [&str; 16] = ["tcp", "udp", "omit", "time", "num", "parallel", "len", "window", "MSS", "bandwidth",
                "fqrate", "reverse", "bidirectional", "nodelay", "udp_counters_64bit", "congestion"];
            let map = keys.iter().zip(&values).map(|(key, value)| (NAMES[*key].to_owned(), json!(value)));
            let _ = Parameters::from_json(&Value::Object(map.collect()));
        }
    }
}
