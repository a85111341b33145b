//! What each end tells the other of its streams when the test is over.

use serde::{Deserialize, Deserializer, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// CPU time of the whole process, percent of one core, and its two parts.
    pub cpu_util_total: f64,
    pub cpu_util_user: f64,
    pub cpu_util_system: f64,
    /// 1 or 0 of a sender; -1 of an end that only receives.
    #[serde(deserialize_with = "whole")]
    pub sender_has_retransmits: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_used: Option<String>,
    pub streams: Vec<StreamResults>,
}

/// One stream as one end saw it; what was left out at the beginning is not in `bytes`, but in all other counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamResults {
    #[serde(deserialize_with = "whole")]
    pub id: i64,
    #[serde(deserialize_with = "whole")]
    pub bytes: i64,
    /// -1 where they are not known.
    #[serde(deserialize_with = "whole")]
    pub retransmits: i64,
    #[serde(rename = "jitter")]
    pub jitter_seconds: f64,
    /// Datagrams that did not come, and those of them in the part left out; -1 where it is not known, absent before 3.14.
    #[serde(deserialize_with = "whole")]
    pub errors: i64,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "maybe_whole")]
    pub omitted_errors: Option<i64>,
    /// The largest number that came, or how many were sent.
    #[serde(deserialize_with = "whole")]
    pub packets: i64,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "maybe_whole")]
    pub omitted_packets: Option<i64>,
    /// Seconds by the clock of the end that says so; absent before 3.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<f64>,
}

/// Numbers are written as JSON has them, 1e9 too.
fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    const MOST: f64 = (1u64 << 53) as f64;
    // Versions before 3.13 write -1 without its sign.
    const MINUS_ONE: f64 = u64::MAX as f64;
    let number = f64::deserialize(from)?;
    if number == MINUS_ONE {
        Ok(-1)
    } else if number.abs() <= MOST {
        Ok(number as i64)
    } else {
        Err(serde::de::Error::custom(format!("{number} is no count")))
    }
}

fn maybe_whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    whole(from).map(Some)
}

impl Results {
    pub fn stream(&self, id: u64) -> Option<&StreamResults> {
        self.streams.iter().find(|stream| u64::try_from(stream.id) == Ok(id))
    }
}

impl StreamResults {
    /// What it counted over.
    pub fn seconds(&self) -> Option<f64> {
        let seconds = self.end_time? - self.start_time.unwrap_or(0.0);
        (seconds > 0.0 && seconds < 1e7).then_some(seconds)
    }

    /// Datagrams that came in the part that counts, and numbers of the part before; `None` where that is not told, or cannot be.
    pub fn came(&self, omitting: bool) -> Option<(u64, u64)> {
        let omitted = match self.omitted_packets {
            None if omitting => return None,
            None => 0,
            Some(omitted) => omitted,
        };
        let omitted_errors = match self.omitted_errors {
            Some(errors) if errors < 0 => return None,
            errors => errors.unwrap_or(0),
        };
        let came = (self.packets - self.errors) - (omitted - omitted_errors);
        Some((u64::try_from(came).ok()?, u64::try_from(omitted).ok()?))
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    // Spec: net-protocol.md#iperf3-6
    #[test]
    fn counts_may_be_floats_and_what_old_versions_leave_out_may_be_absent() {
        let text = r#"{"cpu_util_total":1.5,"cpu_util_user":1,"cpu_util_system":0.5,"sender_has_retransmits":-1,"streams":[
            {"id":1,"bytes":1.25e9,"retransmits":-1,"jitter":0.001,"errors":3,"packets":100,"end_time":10.0}]}"#;
        let results: Results = serde_json::from_str(text).unwrap();
        let stream = results.stream(1).unwrap();
        assert_eq!((stream.bytes, stream.seconds()), (1_250_000_000, Some(10.0)));
        assert_eq!(stream.came(false), Some((97, 0)));
        assert_eq!(stream.came(true), None);
        assert_eq!(results.stream(2), None);
        let unsigned: Results =
            serde_json::from_str(&text.replace("\"retransmits\":-1", "\"retransmits\":18446744073709551615"))
                .unwrap();
        assert_eq!(unsigned, results);
        for bad in ["1e300", "\"many\"", "null"] {
            assert!(serde_json::from_str::<Results>(&text.replace("1.25e9", bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_part_left_out_is_taken_off_both_counts() {
        let stream = StreamResults {
            packets: 1_000,
            errors: 30,
            omitted_packets: Some(400),
            omitted_errors: Some(10),
            ..StreamResults::default()
        };
        assert_eq!(stream.came(true), Some((580, 400)));
        assert_eq!(StreamResults { errors: 2_000, ..stream }.came(true), None);
    }
}
