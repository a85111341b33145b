//! The control plane without a lab: real agents of the real program on this machine.

use crate::support;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::time::Duration;
use weir_agent::Fleet;
use weir_agent::job::{Interrupt, Observer, StepJob, StepResult};
use weir_agent::launcher::LocalLauncher;
use weir_agent::step::run_trial;
use weir_core::record::Observed;
use weir_core::scenario::{Shape, StepStart};
use weir_core::{Instant, Value, Values};
use weir_seams::workload::Peer;

struct Quiet;
impl Observer for Quiet {
    fn trial_starts(&mut self, _at: Instant) {}
    fn step_starts(&mut self, _step: usize, _at: Instant) {}
    fn step_ended(&mut self, _step: usize, _result: &StepResult) {}
    fn progress(&mut self, _step: usize, _done: u64, _now: Instant) {}
    fn interrupt(&mut self) -> Interrupt {
        Interrupt::None
    }
    fn broken(&mut self) -> Option<String> {
        None
    }
}

fn program() -> LocalLauncher {
    LocalLauncher { program: env!("CARGO_BIN_EXE_weir").into(), arguments: vec!["agent".to_owned()] }
}

#[test]
fn two_agents_carry_a_stream_and_each_byte_asked_for_arrives() {
    let _turn = support::beside();
    let hosts = ["a-0".to_owned(), "b-0".to_owned()];
    let mut fleet = Fleet::default();
    assert!(fleet.launch(&program(), &hosts, Duration::from_secs(10)).is_empty());
    let entry = weir_net::WORKLOADS.iter().find(|entry| entry.name == "stream").unwrap();
    let mut values = Values::defaults(entry.params);
    values.set("bytes", Value::Size(weir_core::Bytes(20_000_000)));
    values.set("streams", Value::Count(3));
    values.set("warm_up", Value::Duration(Duration::ZERO));
    let peer = |host: &str| Peer {
        host: host.to_owned(),
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        auxiliary: None,
    };
    let job = StepJob {
        name: "load",
        workload_name: "stream",
        workload: entry.build,
        values: &values,
        seed: 1,
        pairs: vec![(peer("a-0"), peer("b-0"))],
        roles: Vec::new(),
        group: 0,
        start: StepStart::After(None),
        estimate: entry.build.estimate(&values, &Shape::of_pairs(1, Duration::ZERO)).unwrap(),
        data_ports: &BTreeMap::new(),
        samplers: vec!["stack".to_owned(), "what-nobody-has".to_owned()],
    };
    let key = "00112233445566778899aabbccddeeff";
    let results = run_trial(&mut fleet, &[job], key, 1, &mut Quiet);
    assert_eq!(results[0].failure, None);
    let receiver = results[0].outcomes.iter().find(|outcome| outcome.host == "b-0").unwrap();
    let received: Vec<f64> = receiver
        .series
        .iter()
        .filter(|series| series.name == "stream.received_bytes")
        .map(|series| *series.value.last().unwrap())
        .collect();
    assert_eq!(received, [20_000_000.0; 3]);
    let goodputs = receiver.rows.iter().filter(|row| row.metric == "stream.flow_goodput_bits_per_second");
    assert!(
        goodputs.clone().count() == 3
            && goodputs.clone().all(|row| matches!(row.value, Observed::Value(rate) if rate > 1e6))
    );
    // Beside the load each agent watched its own host; this machine is both.
    for outcome in &results[0].outcomes {
        let name = format!("host.{}", outcome.host);
        let sent =
            outcome.series.iter().find(|it| it.entity == name && it.name == "stack.sent_segments").unwrap();
        let grown = sent.value.last().unwrap() - sent.value[0];
        assert!(grown > 100.0, "{name} sent {grown} segments");
        assert!(outcome.series.iter().any(|it| it.entity == name && it.name == "telemetry.cpu_seconds"));
    }
    fleet.disband();
}

// Spec: agent-protocol.md#agent-2
#[test]
fn an_agent_that_hears_garbage_or_nothing_ends_by_itself() {
    for order in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 100], &[0xff, 0xff, 0xff, 0x7f], b""] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("agent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(order).unwrap();
        let output = support::finish_within(child, Duration::from_secs(5));
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "{said}");
        if !order.is_empty() {
            assert!(said.contains("refused"), "{said:?} to {order:?}");
        }
    }
}
