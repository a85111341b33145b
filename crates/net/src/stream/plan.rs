//! What a stream step asks for: its parameters, checked.

use crate::rendezvous::FlowSpec;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_core::param::Kind;
use weir_core::scenario::plan::ramp_length;
use weir_core::{Param, Values};
use weir_seams::workload::WorkloadError;
use weir_transport::tcp_options::{MIX_MAX, MSS_BYTES, TcpOptions};

pub static PARAMS: &[Param] = &[
    Param::new(
        "direction",
        Kind::Choice(&["up", "down", "both"]),
        "Which end sends: up is from `from` to `to`, down the other way; both opens a connection for each way.",
    )
    .default("up"),
    Param::new(
        "ramp",
        Kind::Duration,
        "Time from the start of one stream of a pair to that of the next; `warm_up` counts from the start of the last.",
    )
    .default("0s")
    .range(0.0, 86_400e9),
    Param::new("block", Kind::Size, "Bytes of one send or receive call.")
        .default("128KiB")
        .range(1.0, BLOCK_BYTES_MAX as f64),
    Param::new("threads", Kind::Count, "Data threads at each end; 0 takes one a flow, up to one a core.")
        .default("0")
        .range(0.0, 256.0),
    Param::new(
        "source_rate",
        Kind::Rate,
        "Payload that each flow's sending program makes a second, a block at each tick of its own clock (a slow source); as much as the connection takes unless given.",
    )
    .range(PROGRAM_RATE_MIN as f64, 1e14),
    Param::new(
        "read_rate",
        Kind::Rate,
        "Payload that each flow's receiving program reads a second, a block at each tick of its own clock (a slow reader); all that comes unless given.",
    )
    .range(PROGRAM_RATE_MIN as f64, 1e14),
    Param::new(
        "receive",
        Kind::Choice(&["copy", "discard"]),
        "What the receiving end does with what comes: copy takes it as any program would; discard lets the kernel count and free it (`MSG_TRUNC`), which leaves out the receiver's copy.",
    )
    .default("copy"),
];

/// Slowest program, bit/s.
pub const PROGRAM_RATE_MIN: u64 = 1_000;
/// Longest time between two ticks of a slow program.
const PROGRAM_PERIOD_MAX: Duration = Duration::from_secs(5);

/// Largest block: each data thread holds one.
pub const BLOCK_BYTES_MAX: u64 = 16 << 20;
/// Most flows of a step at one end.
pub const FLOWS_MAX: u64 = 16_384;
/// Up to so many flows the series keep the interval asked for.
const FLOWS_FULL_RESOLUTION: u64 = 16;
/// Beyond, samples a second over all flows of the step.
const SAMPLES_PER_SECOND: u64 = 1_600;
pub const INTERVAL_DEFAULT: Duration = Duration::from_millis(10);
pub const INTERVAL_MIN: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Up,
    Down,
    Both,
}

impl Direction {
    /// Whether the connecting end sends, for each connection of one stream.
    pub fn connector_sends(self) -> &'static [bool] {
        match self {
            Direction::Up => &[true],
            Direction::Down => &[false],
            Direction::Both => &[true, false],
        }
    }
}

/// When a flow ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// Senders stop so long after the start.
    Duration(Duration),
    /// Each flow moves exactly so many bytes.
    Bytes(u64),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamPlan {
    pub until: Until,
    pub warm_up: Duration,
    /// Of each pair.
    pub streams: u64,
    pub direction: Direction,
    /// From the start of one stream of a pair to that of the next.
    #[serde(default)]
    pub ramp: Duration,
    pub block_bytes: u64,
    /// 0: automatic.
    pub threads: u64,
    /// As asked; see `series_interval`.
    pub interval: Duration,
    /// Bits a second of each flow's sending program; `None` is as fast as it can.
    #[serde(default)]
    pub source_bits_per_second: Option<u64>,
    /// Bits a second of each flow's receiving program.
    #[serde(default)]
    pub read_bits_per_second: Option<u64>,
    /// Receivers let the kernel throw the payload away.
    #[serde(default)]
    pub discard: bool,
    pub tcp: TcpOptions,
}

impl StreamPlan {
    /// Errors name the keys that contradict each other.
    pub fn from_values(values: &Values) -> Result<StreamPlan, WorkloadError> {
        let stop = |text: &str| Err(WorkloadError::new(text));
        let until = match (values.duration("duration"), values.size("bytes")) {
            (Some(duration), None) => Until::Duration(duration),
            (None, Some(bytes)) => Until::Bytes(bytes.0),
            (None, None) => return stop("a stream needs `duration` or `bytes`"),
            (Some(_), Some(_)) => {
                return stop("`duration` and `bytes` both say when the stream ends; give one of them");
            }
        };
        if values.count("count").is_some() {
            return stop("`count` means operations, and a stream has none; give `duration` or `bytes`");
        }
        let direction = match values.text("direction").as_deref() {
            Some("down") => Direction::Down,
            Some("both") => Direction::Both,
            _ => Direction::Up,
        };
        let plan = StreamPlan {
            until,
            warm_up: values.duration("warm_up").unwrap_or_default(),
            streams: values.count("streams").unwrap_or(1),
            direction,
            ramp: values.duration("ramp").unwrap_or_default(),
            block_bytes: values.size("block").map_or(128 << 10, |size| size.0),
            threads: values.count("threads").unwrap_or(0),
            interval: values.duration("interval").unwrap_or(INTERVAL_DEFAULT),
            source_bits_per_second: values.rate("source_rate").map(|rate| rate.0),
            read_bits_per_second: values.rate("read_rate").map(|rate| rate.0),
            discard: values.text("receive").as_deref() == Some("discard"),
            tcp: TcpOptions::from_values(values),
        };
        plan.check()?;
        Ok(plan)
    }

    /// Bounds that hold wherever a plan comes from, a peer included.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let stop = |text: String| Err(WorkloadError::new(text));
        // The kernel takes 0 without a word and does as if nothing had been asked.
        if let Some(mss) = self.tcp.mss.filter(|mss| !MSS_BYTES.contains(mss)) {
            return stop(format!(
                "`mss` is {mss} bytes; the kernel takes {} to {}",
                MSS_BYTES.start(),
                MSS_BYTES.end()
            ));
        }
        match self.until {
            Until::Duration(duration) if duration.is_zero() => return stop("`duration` is zero".to_owned()),
            Until::Duration(duration) if !self.ramp.is_zero() && self.steady_after() >= duration => {
                return stop(format!(
                    "with a `ramp` of {:?} the last of {} streams starts after {:?}; with a `warm_up` of {:?} from then on nothing \
                     is left to measure of a `duration` of {duration:?}",
                    self.ramp,
                    self.streams,
                    ramp_length(self.ramp, self.streams),
                    self.warm_up
                ));
            }
            Until::Bytes(_) if !self.ramp.is_zero() => {
                return stop(
                    "`ramp` needs a `duration`: of flows bounded by `bytes` the first may end before the last starts"
                        .to_owned(),
                );
            }
            Until::Duration(duration) if self.warm_up >= duration => {
                return stop(format!(
                    "`warm_up` of {:?} leaves nothing to measure of a `duration` of {duration:?}",
                    self.warm_up
                ));
            }
            Until::Bytes(0) => return stop("`bytes` is zero".to_owned()),
            _ => {}
        }
        if self.streams == 0 {
            return stop("`streams` is zero".to_owned());
        }
        if self.streams > FLOWS_MAX {
            return stop(format!("`streams` is {}; at most {FLOWS_MAX} flows are possible", self.streams));
        }
        self.check_mix()?;
        if self.block_bytes == 0 || self.block_bytes > BLOCK_BYTES_MAX {
            return stop(format!(
                "`block` is {} bytes; it must be from 1 to {BLOCK_BYTES_MAX}",
                self.block_bytes
            ));
        }
        if self.threads > 256 {
            return stop(format!("`threads` is {}; at most 256 are possible", self.threads));
        }
        for (name, rate) in
            [("source_rate", self.source_bits_per_second), ("read_rate", self.read_bits_per_second)]
        {
            let Some(rate) = rate else { continue };
            if rate < PROGRAM_RATE_MIN {
                return stop(format!("`{name}` is below {PROGRAM_RATE_MIN} bit/s"));
            }
            let period = Duration::from_secs_f64(self.block_bytes as f64 * 8.0 / rate as f64);
            if period > PROGRAM_PERIOD_MAX {
                return stop(format!(
                    "`{name}` of {rate} bit/s moves one `block` of {} bytes in {period:?}; take a smaller block, of \
                     {PROGRAM_PERIOD_MAX:?} at most",
                    self.block_bytes
                ));
            }
        }
        if self.interval < INTERVAL_MIN {
            return stop(format!("`interval` is {:?}; the finest is {INTERVAL_MIN:?}", self.interval));
        }
        Ok(())
    }

    fn check_mix(&self) -> Result<(), WorkloadError> {
        let mix = &self.tcp.congestion;
        let count = self.tcp.congestions().count();
        if self.tcp.congestions().any(str::is_empty) {
            return Err(WorkloadError::new(format!(
                "`tcp.congestion` is {mix:?}, with an empty name; a mix is written as \"cubic+bbr\""
            )));
        }
        if count > MIX_MAX {
            return Err(WorkloadError::new(format!(
                "`tcp.congestion` {mix:?} has {count} names; at most {MIX_MAX} are possible"
            )));
        }
        if count as u64 > self.streams {
            return Err(WorkloadError::new(format!(
                "`tcp.congestion` {mix:?} is for {count} `streams` or more, which take its names in turn; there are {}",
                self.streams
            )));
        }
        Ok(())
    }

    /// From the step's start to its steady state.
    // Spec: net-protocol.md#ramp-2
    pub fn steady_after(&self) -> Duration {
        ramp_length(self.ramp, self.streams).saturating_add(self.warm_up)
    }

    /// Which of its pair's streams a flow is, from 0: the flows of a pair are numbered one direction after the other
    /// (`rendezvous::assignments`).
    pub fn stream_of(&self, flow: &FlowSpec) -> u64 {
        u64::from(flow.index) % self.streams.max(1)
    }

    /// Connections of one pair.
    pub fn flows_per_pair(&self) -> u64 {
        self.streams * self.direction.connector_sends().len() as u64
    }

    /// The interval of the series with `flows` flows in the step. Beyond 16 flows it is stretched so that all flows
    /// together give at most 1,600 samples a second, so that looking does not slow what is looked at.
    pub fn series_interval(&self, flows: u64) -> Duration {
        if flows <= FLOWS_FULL_RESOLUTION {
            return self.interval;
        }
        self.interval.max(Duration::from_nanos(flows * 1_000_000_000 / SAMPLES_PER_SECOND))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::{Bytes, Value};

    fn values(pairs: &[(&str, Value)]) -> Values {
        let mut values = Values::defaults(PARAMS);
        for (key, value) in pairs {
            values.set(key, value.clone());
        }
        values
    }

    // Spec: scenario.md#step-5
    #[test]
    fn contradicting_keys_are_refused_by_name() {
        let second = Value::Duration(Duration::from_secs(1));
        let refused = |pairs: &[(&str, Value)]| StreamPlan::from_values(&values(pairs)).unwrap_err().text;
        assert!(refused(&[]).contains("`duration` or `bytes`"));
        assert!(refused(&[("duration", second.clone()), ("bytes", Value::Size(Bytes(1)))]).contains("both"));
        assert!(refused(&[("duration", second.clone()), ("count", Value::Count(3))]).contains("`count`"));
        assert!(refused(&[("duration", second.clone()), ("warm_up", second)]).contains("`warm_up`"));
    }

    // Spec: net-protocol.md#ramp-2
    #[test]
    fn a_ramp_that_leaves_nothing_to_measure_is_refused_and_a_shorter_one_moves_the_steady_state() {
        let seconds = |count| Value::Duration(Duration::from_secs(count));
        let of = |streams, ramp, warm_up| {
            StreamPlan::from_values(&values(&[
                ("duration", seconds(10)),
                ("streams", Value::Count(streams)),
                ("ramp", seconds(ramp)),
                ("warm_up", seconds(warm_up)),
            ]))
        };
        assert_eq!(of(4, 2, 1).unwrap().steady_after(), Duration::from_secs(7));
        assert_eq!(of(1, 20, 1).unwrap().steady_after(), Duration::from_secs(1));
        let text = of(4, 3, 1).unwrap_err().text;
        assert!(text.contains("`ramp` of 3s the last of 4 streams starts after 9s"), "{text}");
        assert!(of(u64::from(u16::MAX), 20_000, 0).is_err());
        let bytes = [("bytes", Value::Size(Bytes(1))), ("ramp", seconds(1))];
        assert!(
            StreamPlan::from_values(&values(&bytes)).unwrap_err().text.contains("`ramp` needs a `duration`")
        );
    }

    // Spec: net-protocol.md#mix-1
    #[test]
    fn a_mix_of_congestion_controls_has_names_and_streams_enough() {
        let of = |mix: &str, streams| {
            let tcp = [("congestion".to_owned(), Value::Text(mix.to_owned()))].into();
            let mut values = values(&[("duration", Value::Duration(Duration::from_secs(1)))]);
            values.set("streams", Value::Count(streams));
            values.set("tcp", Value::Table(tcp));
            StreamPlan::from_values(&values)
        };
        let plan = of("cubic+bbr", 5).unwrap();
        let names: Vec<String> = (0..5).map(|number| plan.tcp.of_stream(number).congestion).collect();
        assert_eq!(names, ["cubic", "bbr", "cubic", "bbr", "cubic"]);
        assert!(of("cubic+bbr", 1).unwrap_err().text.contains("2 `streams` or more"));
        assert!(of("cubic+", 2).unwrap_err().text.contains("empty name"));
        assert!(of(&["reno"; 17].join("+"), 17).unwrap_err().text.contains("at most 16"));
    }

    // Spec: net-protocol.md#ramp-1
    #[test]
    fn a_flow_knows_which_of_its_pairs_streams_it_is() {
        let mut values = values(&[("duration", Value::Duration(Duration::from_secs(1)))]);
        values.set("streams", Value::Count(2));
        values.set("direction", Value::Text("both".to_owned()));
        let plan = StreamPlan::from_values(&values).unwrap();
        let peer = |host: &str| weir_seams::workload::Peer {
            host: host.to_owned(),
            address: std::net::Ipv4Addr::LOCALHOST.into(),
            auxiliary: None,
        };
        let pairs = vec![(peer("a"), peer("b")), (peer("a"), peer("c"))];
        let request = weir_seams::workload::StepRequest {
            step: "",
            seed: 1,
            values: &values,
            pairs,
            roles: Vec::new(),
            key: "",
        };
        let ways = plan.direction.connector_sends();
        let all = crate::rendezvous::assignments("stream", &request, plan.streams, ways);
        let of_a = all.iter().find(|assignment| assignment.host == "a").unwrap();
        let flows = crate::rendezvous::Body::of(of_a).unwrap().flows;
        let numbers: Vec<(String, u64)> =
            flows.iter().map(|flow| (flow.entity.clone(), plan.stream_of(flow))).collect();
        assert_eq!(numbers.len(), 8);
        for (entity, number) in numbers {
            assert!(entity.ends_with(&format!(".{number}")), "{entity} is stream {number}");
        }
    }

    #[test]
    fn many_flows_stretch_the_interval_to_1600_samples_a_second() {
        let plan = StreamPlan::from_values(&values(&[("duration", Value::Duration(Duration::from_secs(1)))]))
            .unwrap();
        let fine = StreamPlan { interval: INTERVAL_MIN, ..plan.clone() };
        assert_eq!(fine.series_interval(16), INTERVAL_MIN);
        assert_eq!(plan.series_interval(16), INTERVAL_DEFAULT);
        assert_eq!(fine.series_interval(128), Duration::from_millis(80));
        let coarse = StreamPlan { interval: Duration::from_secs(1), ..plan };
        assert_eq!(coarse.series_interval(128), Duration::from_secs(1));
    }
}
