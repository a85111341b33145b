//! Addresses that belong to an interface: both ends in a network namespace of their own, which ends with this test.

use crate::support::{beside, finish_within, need_lab, ran, start, weir};
use std::process::Command;
use std::time::Duration;

/// Both servers at the interface's name and at its index, and every workload towards them.
const SCRIPT: &str = r#"
set -eu
exec 2>&1
ip link set lo up
ip link add far0 type veth peer name near0
ip address add fe80::1/64 dev far0 nodad
ip link set far0 up
ip link set near0 up
index=$(cat /sys/class/net/far0/ifindex 2>/dev/null || ip -o link show far0 | cut -d: -f1)
"$WEIR" net serve --open --listen "[fe80::1%far0]:5301" >weir.log 2>&1 &
first=$!
"$WEIR" net serve --open --protocol iperf3 --listen "fe80::1%$index" >iperf3.log 2>&1 &
trap "kill $first $! 2>/dev/null || true; wait" EXIT
for log in weir.log iperf3.log; do
    for try in $(seq 500); do grep -q listening $log && break; sleep 0.01; done
    cat $log
done
for at in "[fe80::1%far0]:5301" "fe80::1%$index"; do
    for job in "stream --duration 200ms" "latency --count 20" "latency --transport udp --count 20" \
        "burst --connection per-burst --repetitions 3 --sizes 1kB" "connect --count 5" \
        "udp --count 20 --direction both" "path --train 20 --probes 1 --transfer 10kB"; do
        "$WEIR" net ${job%% *} "$at" ${job#* } >out 2>&1 && echo "done $at $job" || { echo "FAILED $at $job"; cat out; }
    done
done
# A busy machine makes a second longer than a second, which counts for nothing: then once more.
for job in "stream --duration 1s" "udp --duration 1s --rate 1Mbit/s"; do
    for try in 1 2 3 4 5; do
        "$WEIR" net ${job%% *} "fe80::1%far0" --protocol iperf3 ${job#* } >out 2>&1 && break
    done && echo "done iperf3 $job" || { echo "FAILED iperf3 $job"; cat out; }
done
"$WEIR" net latency "[fe80::1%$index]:9" || true
"$WEIR" net latency "fe80::1%nowhere0" || true
"#;

// Spec: net-protocol.md#address-1
#[test]
fn a_link_local_address_with_the_name_or_the_index_of_its_interface_serves_every_workload() {
    need_lab();
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "sh", "-c", SCRIPT]).current_dir(folder.path());
    command.env("WEIR", weir().get_program());
    let ran = ran(finish_within(start(&mut command), Duration::from_secs(60)));
    let said = ran.stdout;
    assert!(!said.contains("FAILED"), "{said}");
    assert_eq!(said.matches("done ").count(), 16, "{said}");
    assert!(said.contains("listening at [fe80::1%far0]:5301"), "{said}");
    assert!(said.contains("listening at [fe80::1%far0]:5201"), "{said}");
    assert!(said.contains("cannot connect to [fe80::1%far0]:9"), "{said}");
    assert!(said.contains("no interface \"nowhere0\""), "{said}");
}
