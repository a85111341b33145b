//! What a burst step asks for: its parameters, checked.

use crate::rendezvous;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use weir_core::param::Kind;
use weir_core::{Param, Values};
use weir_seams::workload::WorkloadError;
use weir_transport::tcp_options::TcpOptions;

/// Largest burst.
pub const SIZE_BYTES_MAX: u64 = 1 << 40;
/// Bursts that all flows of one end keep the times of.
pub const BURSTS_MAX: u64 = 1_000_000;
/// Flows of one end: each has a thread of its own.
pub const FLOWS_MAX: u64 = 1_024;
/// Bytes of one send or receive call; no burst needs more memory.
pub const BLOCK_BYTES: usize = 256 * 1024;
const EVERY_MIN: Duration = Duration::from_micros(10);
const EVERY_MAX: Duration = Duration::from_secs(3600);

pub static PARAMS: &[Param] = &[
    Param::new("size", Kind::Size, "Payload of one burst.").default("1MB").range(1.0, SIZE_BYTES_MAX as f64),
    Param::new("repetitions", Kind::Count, "Bursts of each flow that count.")
        .default("10")
        .range(1.0, BURSTS_MAX as f64),
    Param::new(
        "warm_up_count",
        Kind::Count,
        "Bursts of each flow at the beginning that do not count: the first ones find small windows.",
    )
    .default("0")
    .range(0.0, BURSTS_MAX as f64),
    Param::new(
        "reply",
        Kind::Choice(&["none", "ack", "echo"]),
        "What comes back when the burst is there: nothing, one byte, or as many bytes. With none a burst is complete when the receiving program has its last byte.",
    )
    .default("none"),
    Param::new(
        "every",
        Kind::Duration,
        "From the beginning of one burst to that of the next, the same moment on all flows; a burst counts from then, however long those before it took. Without it a flow begins the next burst when the last is complete, and the flows go apart.",
    )
    .range(EVERY_MIN.as_nanos() as f64, EVERY_MAX.as_nanos() as f64),
    Param::new(
        "connection",
        Kind::Choice(&["outside-timing", "timed", "per-burst"]),
        "outside-timing: each flow has one connection, made before. timed: it is made within the time of the first burst. per-burst: a connection for each burst, made within its time.",
    )
    .default("outside-timing"),
    Param::new(
        "disconnect",
        Kind::Choice(&["outside-timing", "timed"]),
        "Whether the end of a connection that is made for each burst is within the burst's time, until the sender has seen both sides closed.",
    )
    .default("outside-timing"),
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    #[default]
    None,
    Ack,
    Echo,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Connection {
    #[default]
    OutsideTiming,
    Timed,
    PerBurst,
}

impl Connection {
    /// Whether connections are made while the load runs.
    pub fn made_within(self) -> bool {
        self != Connection::OutsideTiming
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BurstPlan {
    pub size_bytes: u64,
    pub repetitions: u64,
    pub warm_up_count: u64,
    /// Flows of each pair.
    pub streams: u64,
    pub reply: Reply,
    pub every: Option<Duration>,
    pub connection: Connection,
    pub disconnect_timed: bool,
    pub tcp: TcpOptions,
}

impl BurstPlan {
    /// Errors name the keys that contradict each other.
    pub fn from_values(values: &Values) -> Result<BurstPlan, WorkloadError> {
        let stop = |text: &str| Err(WorkloadError::new(text));
        if values.duration("duration").is_some() {
            return stop("`duration` does not bound a burst step; give `repetitions`");
        }
        if values.size("bytes").is_some() {
            return stop("`bytes` does not bound a burst step; give `size` for one burst and `repetitions`");
        }
        if values.count("count").is_some() {
            return stop("`count` does not bound a burst step; give `repetitions`");
        }
        if values.duration("warm_up").is_some_and(|warm_up| !warm_up.is_zero()) {
            return stop("`warm_up` is a time, and bursts have none before them; give `warm_up_count`");
        }
        // The last segment of a burst is short, and nothing follows it that it could wait for.
        let tcp = TcpOptions::from_values_at_once(values);
        let plan = BurstPlan {
            size_bytes: values.size("size").map_or(1_000_000, |size| size.0),
            repetitions: values.count("repetitions").unwrap_or(1),
            warm_up_count: values.count("warm_up_count").unwrap_or(0),
            streams: values.count("streams").unwrap_or(1),
            reply: match values.text("reply").as_deref() {
                Some("ack") => Reply::Ack,
                Some("echo") => Reply::Echo,
                _ => Reply::None,
            },
            every: values.duration("every"),
            connection: match values.text("connection").as_deref() {
                Some("timed") => Connection::Timed,
                Some("per-burst") => Connection::PerBurst,
                _ => Connection::OutsideTiming,
            },
            disconnect_timed: values.text("disconnect").as_deref() == Some("timed"),
            tcp,
        };
        plan.check()?;
        Ok(plan)
    }

    /// Bounds that hold wherever a plan comes from, a peer included.
    pub fn check(&self) -> Result<(), WorkloadError> {
        rendezvous::one_congestion(&self.tcp)?;
        let stop = |text: String| Err(WorkloadError::new(text));
        if self.size_bytes == 0 || self.size_bytes > SIZE_BYTES_MAX {
            return stop(format!(
                "`size` is {} bytes; it must be from 1 to {SIZE_BYTES_MAX}",
                self.size_bytes
            ));
        }
        if self.repetitions == 0 || self.streams == 0 {
            return stop("`repetitions` and `streams` are at least 1".to_owned());
        }
        let bursts = self.bursts().saturating_mul(self.streams);
        if bursts > BURSTS_MAX {
            return stop(format!("{bursts} bursts of one pair; at most {BURSTS_MAX} are possible"));
        }
        if self.every.is_some_and(|every| !(EVERY_MIN..=EVERY_MAX).contains(&every)) {
            return stop(format!("`every` must be from {EVERY_MIN:?} to {EVERY_MAX:?}"));
        }
        if self.disconnect_timed && self.connection != Connection::PerBurst {
            return stop(
                "`disconnect` = \"timed\" needs `connection` = \"per-burst\"; else there is nothing to disconnect"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Of each flow, those that do not count included.
    pub fn bursts(&self) -> u64 {
        self.repetitions.saturating_add(self.warm_up_count)
    }

    /// From the start to the beginning of the last burst, where that is known before.
    pub fn planned(&self) -> Option<Duration> {
        let every = self.every?;
        let nanoseconds = every.as_nanos().saturating_mul(u128::from(self.bursts() - 1));
        Some(Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX)))
    }

    /// The reply to a burst, on its connection.
    pub fn answer_bytes(&self) -> Option<u64> {
        match self.reply {
            Reply::Echo => Some(self.size_bytes),
            Reply::Ack => Some(1),
            Reply::None => None,
        }
    }

    /// Without reply, clock and an end of the connection that would say it, one byte says that the burst has arrived and the next may
    /// begin; nothing of that is measured.
    pub fn waits_for_sign(&self) -> bool {
        self.reply == Reply::None && self.every.is_none() && self.connection != Connection::PerBurst
    }
}
