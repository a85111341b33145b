//! Whole runs in the lab: a knob causes a limiting factor, and without the knob the factor is another.

use crate::support::{
    alone, children_of, eventually, finish_within, light, need_lab, ran, run_scenario, run_settled, scenario,
    settled_unless, start, stream_step, turn, weir,
};
use serde_json::Value;
use std::net::Ipv4Addr;
use std::process::{Child, Command};
use std::time::Duration;

const FAST: &str = "rate = \"200Mbit/s\"\nrtt = \"10ms\"\nqueue = { bytes = \"1MiB\" }";

fn factor(summary: &Value) -> String {
    summary["points"][0]["limiting_factor"]["name"].as_str().unwrap_or("none").to_owned()
}

/// The factor of a stream over `link` with these keys.
fn of_stream(link: &str, keys: &str) -> (String, Value) {
    let (_, summary, _) = run_settled(&scenario(link, &stream_step(keys)), &[]);
    (factor(&summary), summary)
}

fn evidence(summary: &Value) -> String {
    summary["points"][0]["limiting_factor"]["evidence"].to_string()
}

// Spec: evidence.md#ends-3
#[test]
fn a_small_send_buffer_is_named_and_without_it_the_link_is() {
    need_lab();
    let _turn = turn();
    let (name, summary) = of_stream(FAST, "tcp = { send_buffer = \"64KiB\" }");
    assert_eq!(name, "send-buffer", "{summary:#}");
    assert!(evidence(&summary).contains("larger send buffer"), "{summary:#}");
    let (name, summary) = of_stream(FAST, "");
    assert_eq!(name, "link-rate", "{summary:#}");
}

// Spec: evidence.md#window-1, evidence.md#window-2
#[test]
fn a_long_fat_path_is_filled_by_the_modern_profile_and_the_audit_says_why_not_by_the_stock_one() {
    need_lab();
    let _turn = alone();
    // 12.5 MB in flight, twice what kernels give without being told.
    let link = "rate = \"1Gbit/s\"\nrtt = \"100ms\"\nqueue = { bytes = \"12MB\" }";
    let step = stream_step("").replace("\"2500ms\"", "\"8s\"").replace("\"1s\"", "\"4s\"");
    let under = |profile: &str| {
        let text = scenario(link, &step)
            .replace("hosts = 1\n", &format!("hosts = 1\ntcp_profile = \"{profile}\"\n"));
        run_settled(&text, &[]).1
    };
    let of_ceiling = |summary: &Value| {
        let metrics = &summary["points"][0]["metrics"];
        metrics["stream.total_goodput_bits_per_second"]["mean"].as_f64().unwrap() / 941.5e6
    };
    let modern = under("modern");
    assert!(of_ceiling(&modern) > 0.9, "{modern:#}");
    let stock = under("stock");
    assert!(of_ceiling(&stock) < 0.5, "{stock:#}");
    let name = factor(&stock);
    assert!(["receive-window", "send-buffer"].contains(&name.as_str()), "{stock:#}");
    let said = evidence(&stock);
    assert!(
        said.contains("the path needs 11.") && said.contains("MB in flight (941.5 Mbit/s over 100"),
        "{said}"
    );
    // 23.5 MB for 11.8 in flight; the settings' other values are this kernel's own.
    let setting = if name == "send-buffer" { "tcp_wmem" } else { "tcp_rmem" };
    assert!(
        said.contains(&format!("s: sysctl -w net.ipv4.{setting}=")) && said.contains(" 33554432"),
        "{said}"
    );
    // The same need is told where it is met, and nothing is to be changed.
    let said = evidence(&modern);
    assert!(said.contains("the path needs 11.") && !said.contains("sysctl"), "{said}");
}

// Spec: evidence.md#path-4
#[test]
fn a_queue_too_small_for_the_round_trip_is_named_and_a_larger_one_fills_the_link() {
    need_lab();
    let _turn = light();
    let link =
        |queue: &str| format!("rate = \"100Mbit/s\"\nrtt = \"20ms\"\nqueue = {{ bytes = \"{queue}\" }}");
    // From next to nothing Reno needs 3.7 s to the next drop, from half of a window half of that: whatever slow start left behind,
    // there are some.
    let step = stream_step("tcp = { congestion = \"reno\" }").replace("\"2500ms\"", "\"9s\"");
    let over = |queue: &str| run_settled(&scenario(&link(queue), &step), &[]).1;
    let summary = over("16KiB");
    assert_eq!(factor(&summary), "queue", "{summary:#}");
    assert!(evidence(&summary).contains("dropped by the queue of link.wan.forward"), "{summary:#}");
    let summary = over("1MiB");
    assert_eq!(factor(&summary), "link-rate", "{summary:#}");
}

/// Programs that keep core 0 from others. Each is a session of its own: kernels that share a core between sessions first
/// (`sched_autogroup`) would give one program of many no more than its neighbour.
struct Burners(Vec<Child>);

impl Burners {
    fn start(count: usize) -> Burners {
        let one = |_| {
            let mut command = Command::new("setsid");
            let arguments = ["taskset", "-c", "0", "sh", "-c", "while :; do :; done"];
            command.args(arguments).spawn().expect("setsid and taskset are there")
        };
        Burners((0..count).map(one).collect())
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        for burner in &mut self.0 {
            let _ = burner.kill();
            let _ = burner.wait();
        }
    }
}

/// The IPv4 address of the host that a process is on.
fn local_address(process: u32) -> Ipv4Addr {
    let tree = std::fs::read_to_string(format!("/proc/{process}/net/fib_trie")).unwrap();
    let lines: Vec<&str> = tree.lines().map(str::trim).collect();
    let own = lines.windows(2).filter(|pair| pair[1].starts_with("/32 host LOCAL"));
    let mut addresses = own.filter_map(|pair| pair[0].strip_prefix("|-- ")?.parse::<Ipv4Addr>().ok());
    addresses.find(|address| !address.is_loopback()).unwrap_or_else(|| panic!("no address in {tree}"))
}

/// The factor of a stream whose agent on `host` (0 sends, 1 receives) shares core 0 with programs that have nearly all of it.
fn of_starved(host: usize) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    // Fast enough that a sender or a receiver needs a good part of a core, and above the rate at which packets are split.
    let fast = "rate = \"3Gbit/s\"\nrtt = \"2ms\"";
    std::fs::write(&file, scenario(fast, &stream_step(""))).unwrap();
    let mut command = weir();
    command.args(["run", file.to_str().unwrap(), "--json", "--out", folder.path().to_str().unwrap()]);
    let child = start(&mut command);
    let mut agents = Vec::new();
    eventually("two agents run", Duration::from_secs(10), || {
        let children = children_of(child.id());
        agents =
            children.into_iter().filter(|(_, line)| line.contains("weir agent")).map(|(id, _)| id).collect();
        agents.len() == 2
    });
    // Agents are started side by side: of what host each is its address says, and they are numbered in the scenario's order.
    agents.sort_by_key(|agent| local_address(*agent));
    let agent = agents[host].to_string();
    // All threads, those that are still to come too: what was begun while the first pass went over them is met by the second.
    for _ in 0..3 {
        // A thread that ends while they are gone over is an error to taskset.
        eventually("its threads are on one core", Duration::from_secs(5), || {
            Command::new("taskset").args(["-acp", "0", &agent]).output().unwrap().status.success()
        });
        std::thread::sleep(Duration::from_millis(10));
    }
    // A thirtieth of a core has sent 2.4 Gbit/s.
    let _burners = Burners::start(60);
    let ran = ran(finish_within(child, Duration::from_secs(120)));
    let summary: Value = serde_json::from_str(&ran.stdout).expect("one document");
    (factor(&summary), summary)
}

// Spec: evidence.md#fitness-1
#[test]
fn a_sender_whose_core_another_program_has_is_the_machines_limit_and_judges_nothing() {
    need_lab();
    let _turn = alone();
    let (name, summary) = settled_unless(&["generator-limited"], || of_starved(0), |(_, summary)| summary);
    assert_eq!(name, "emulator-limited", "{summary:#}");
    assert!(evidence(&summary).contains("waited for a core"), "{summary:#}");
    assert_eq!(summary["points"][0]["valid_trials"], 0, "{summary:#}");
}

// Spec: evidence.md#fitness-1
#[test]
fn a_receiver_whose_core_another_program_has_is_the_machines_limit_and_judges_nothing() {
    need_lab();
    let _turn = alone();
    let (name, summary) = settled_unless(&["generator-limited"], || of_starved(1), |(_, summary)| summary);
    assert_eq!(name, "emulator-limited", "{summary:#}");
    assert!(evidence(&summary).contains("waited for a core"), "{summary:#}");
}

// Spec: evidence.md#ends-2
#[test]
fn a_source_slower_than_the_link_is_named() {
    need_lab();
    let _turn = turn();
    let (name, summary) = of_stream(FAST, "source_rate = \"50Mbit/s\"");
    assert_eq!(name, "source-application", "{summary:#}");
}

// Spec: evidence.md#ends-1
#[test]
fn a_reader_slower_than_the_link_is_named() {
    need_lab();
    let _turn = turn();
    let (name, summary) = of_stream(FAST, "read_rate = \"50Mbit/s\"");
    assert_eq!(name, "receiver-application", "{summary:#}");
}

// Spec: evidence.md#path-3
#[test]
fn a_router_that_delays_every_second_packet_is_named_under_the_legacy_profile_and_gone_under_the_modern_one()
{
    need_lab();
    let _turn = turn();
    let steps = stream_step("tcp = { congestion = \"reno\" }")
        + "[[fault]]\nname = \"swap\"\nat = \"1200ms\"\nevery = \"300ms\"\nstep = \"load\"\non = \"link.wan.forward\"\n\
           do = { delay_some = { share = 0.5, by = \"3ms\", for = \"20ms\" } }\n";
    let text = scenario(FAST, &steps);
    let under = |profile: &str| {
        let sites = text.replace("hosts = 1\n", &format!("hosts = 1\ntcp_profile = \"{profile}\"\n"));
        let (_, summary, _) = run_settled(&sites, &[]);
        (factor(&summary), summary)
    };
    let (name, summary) = under("legacy");
    assert_eq!(name, "reordering", "{summary:#}");
    assert!(evidence(&summary).contains("although they had arrived"), "{summary:#}");
    let without = text.replace("name = \"swap\"", "name = \"swap\"\nenabled = false");
    let (_, summary, _) =
        run_settled(&without.replace("hosts = 1\n", "hosts = 1\ntcp_profile = \"legacy\"\n"), &[]);
    assert_eq!(factor(&summary), "link-rate", "{summary:#}");
}

// Spec: evidence.md#fitness-2
#[test]
fn a_generator_that_its_rate_outruns_makes_the_run_inconclusive() {
    // Over loopback: a lab's fabric would have to carry the flood too, and may be late before the generator is.
    let _turn = turn();
    let at = |rate: &str| {
        let here = "address = \"127.0.0.1\"\nlauncher = \"local\"\n";
        format!(
            "[scenario]\nname = \"sibling\"\nabout = \"written by a test\"\ntrials = 1\nseed = 7\n[hosts.left-0]\n{here}[hosts.right-0]\n{here}\
             [[step]]\nname = \"ping\"\nworkload = \"latency\"\nfrom = \"left-0\"\nto = \"right-0\"\nduration = \"2s\"\nrate = \"{rate}\"\n\
             [[criterion]]\ntext = \"quick\"\nmetric = \"latency.round_trip_seconds.median\"\nat_most = \"1s\"\n"
        )
    };
    let (status, summary, _) = run_scenario(&at("1000000Hz"), &[]);
    assert_eq!(factor(&summary), "generator-limited", "{summary:#}");
    assert_eq!((status, summary["verdict"].as_str()), (3, Some("inconclusive")), "{summary:#}");
    let (status, summary, _) = run_settled(&at("200Hz"), &[]);
    assert_eq!((status, factor(&summary).as_str()), (0, "unknown"), "{summary:#}");
}

#[test]
fn what_is_around_the_load_is_measured_on_the_machine_and_on_each_host_within_its_budget() {
    need_lab();
    let _turn = turn();
    let lossy = format!("{FAST}\nforward = {{ loss = \"1%\" }}");
    let (_, summary) = of_stream(&lossy, "");
    let metrics = &summary["points"][0]["metrics"];
    let value = |name: &str| {
        metrics[name]["mean"].as_f64().unwrap_or_else(|| panic!("{name} is missing: {metrics:#}"))
    };
    // What the sender's interface sent is the goodput and its headers.
    let goodput = value("stream.total_goodput_bits_per_second");
    let sent = value("interface.sent_bits_per_second@host.left-0.eth0");
    assert!((0.95..1.15).contains(&(sent / goodput)), "{sent} sent for {goodput}");
    let received = value("interface.received_bits_per_second@host.right-0.eth0");
    assert!((0.95..1.10).contains(&(received / goodput)), "{received} received for {goodput}");
    assert!(value("stack.retransmitted_segments@host.left-0") > 0.0);
    assert!(value("stack.out_of_order_segments@host.right-0") > 0.0);
    assert_eq!(value("stack.retransmitted_segments@host.right-0"), 0.0);
    // The kernel counts TCP's memory in lots of a megabyte for each core, so a single stream may leave it at 0.
    assert!(value("memory.available_bytes@machine") > 1e6 && value("memory.tcp_bytes@machine") >= 0.0);
    assert!((0.0..=1.0).contains(&value("softirq.busy_ratio@machine")));
    for who in ["machine", "host.left-0", "host.right-0"] {
        let cost = value(&format!("telemetry.cost_ratio@{who}"));
        assert!(cost > 0.0 && cost <= 0.012, "{who} spends {cost} of a core on looking");
    }
}
