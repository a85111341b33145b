//! What the window audit needs to know of both ends: what was asked for, what was granted, what their kernels give by
//! themselves.

use super::outcome::StreamBody;
use super::plan::StreamPlan;
use crate::evidence::{BufferFacts, WindowFacts};
use weir_seams::workload::Outcome;
use weir_sys::sysctl;

/// The three values of a memory setting of this thread's namespace; `None` where it cannot be read.
pub fn memory(setting: &str) -> Option<[u64; 3]> {
    let text = sysctl::read(setting).ok()?;
    let values: Vec<u64> = text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    values.try_into().ok()
}

/// Completes what the senders saw.
pub fn complete(window: &mut WindowFacts, plan: &StreamPlan, outcomes: &[Outcome], bodies: &[StreamBody]) {
    let least = |end: &str, key: &str| {
        let all = outcomes.iter().flat_map(|outcome| &outcome.granted);
        all.filter(|(flow, _)| flow.ends_with(end))
            .filter_map(|(_, granted)| granted.get(key)?.as_u64())
            .min()
    };
    let buffer = |asked_bytes: Option<u64>, end: &str, key: &str, memory: Vec<[u64; 3]>| BufferFacts {
        asked_bytes,
        // The kernel reports twice what it was asked for.
        granted_bytes: asked_bytes.and_then(|_| Some(least(end, key)? / 2)),
        kernel_bytes: memory.into_iter().min_by_key(|[_, _, most]| *most),
    };
    let sends = bodies.iter().filter(|body| !body.sent.is_empty());
    let send = sends.filter_map(|body| body.send_memory_bytes).collect();
    let receives = bodies.iter().filter(|body| !body.received.is_empty());
    let receive = receives.filter_map(|body| body.receive_memory_bytes).collect();
    let tcp = &plan.tcp;
    window.asked_window_bytes = tcp.window;
    window.send = buffer(tcp.send_buffer, ".sender", "send_buffer_bytes", send);
    window.receive = buffer(tcp.receive_buffer, ".receiver", "receive_buffer_bytes", receive);
    window.source_bits_per_second = plan.source_bits_per_second;
    window.read_bits_per_second = plan.read_bits_per_second;
    window.pacing_bits_per_second = tcp.pacing;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::outcome::{ReceivedFlow, SentFlow};
    use serde_json::json;
    use std::time::Duration;
    use weir_core::{Bytes, Value, Values};

    // Spec: evidence.md#window-2
    #[test]
    fn of_several_hosts_the_one_that_gives_least_is_audited_each_at_its_own_end() {
        let mut values = Values::default();
        values.set("duration", Value::Duration(Duration::from_secs(1)));
        let tcp = [("send_buffer".to_owned(), Value::Size(Bytes(1_000_000)))].into();
        values.set("tcp", Value::Table(tcp));
        let plan = StreamPlan::from_values(&values).unwrap();
        let sent = SentFlow { entity: "flow.a.b.0".to_owned(), bytes: 1, ..SentFlow::default() };
        let received = ReceivedFlow {
            entity: "flow.a.b.0".to_owned(),
            bytes: 1,
            steady_ns_bytes: None,
            waited_ns: 0,
            unread: None,
            slack_ns: 0,
            clock: None,
            seconds: None,
        };
        let sends = |most| StreamBody {
            sent: vec![sent.clone()],
            send_memory_bytes: Some([1, 2, most]),
            // Of a host that receives nothing: not looked at.
            receive_memory_bytes: Some([1, 2, 3]),
            ..StreamBody::default()
        };
        let receives = StreamBody {
            received: vec![received],
            send_memory_bytes: Some([1, 2, 3]),
            receive_memory_bytes: Some([4, 5, 600]),
            ..StreamBody::default()
        };
        let mut outcome = Outcome::default();
        for (flow, bytes) in
            [("flow.a.b.0.sender", 2_000_000), ("flow.c.b.0.sender", 500_000), ("flow.a.b.0.receiver", 8)]
        {
            outcome.granted.insert(flow.to_owned(), json!({ "send_buffer_bytes": bytes }));
        }
        let mut window = WindowFacts::default();
        complete(&mut window, &plan, &[outcome], &[sends(900), sends(800), receives]);
        let send = BufferFacts {
            asked_bytes: Some(1_000_000),
            granted_bytes: Some(250_000),
            kernel_bytes: Some([1, 2, 800]),
        };
        let receive = BufferFacts { asked_bytes: None, granted_bytes: None, kernel_bytes: Some([4, 5, 600]) };
        assert_eq!((window.send, window.receive), (send, receive));
    }

    #[test]
    fn the_kernels_own_sizes_are_three_rising_numbers() {
        let [least, first, most] = memory("net.ipv4.tcp_wmem").unwrap();
        assert!(least <= first && first <= most);
        assert_eq!(memory("net.ipv4.tcp_congestion_control"), None);
    }
}
