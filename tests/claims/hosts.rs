//! Real hosts: agents over real OpenSSH, as a user without privileges, on hosts that nothing else reaches.

use crate::support;
use crate::support::far;
use crate::support::far::{Far, far_user};
use crate::support::{beside, eventually, light};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant as StdInstant};
use weir_agent::job::{Interrupt, Observer, StepJob, StepResult};
use weir_agent::launcher::SshLauncher;
use weir_agent::step::run_trial;
use weir_agent::{Fleet, PROTOCOL};
use weir_core::hosts::PortRange;
use weir_core::record::Observed;
use weir_core::scenario::{RealHost, Shape, StepStart};
use weir_core::{Instant, Value, Values};
use weir_seams::launcher::LaunchError;
use weir_seams::workload::Peer;

const HELLO_MAX: Duration = Duration::from_secs(10);

fn names(hosts: &[RealHost]) -> Vec<String> {
    hosts.iter().map(|host| host.name.clone()).collect()
}

fn launch(launcher: &SshLauncher, hosts: &[RealHost]) -> (Fleet, Vec<LaunchError>) {
    let mut fleet = Fleet::default();
    let failed = fleet.launch(launcher, &names(hosts), HELLO_MAX);
    (fleet, failed)
}

/// Why a host could not be launched.
fn refusal(far: &Far, host: RealHost) -> String {
    let hosts = [host];
    let (_, failed) = launch(&far.launcher(&hosts), &hosts);
    assert_eq!(failed.len(), 1, "it was launched");
    failed[0].to_string()
}

/// Kills a process of the far side, by its id.
fn kill(process: u32) {
    assert!(Command::new("kill").args(["-9", &process.to_string()]).status().unwrap().success());
}

/// Watches a trial and does something once the first bytes have moved.
struct Watch<F: FnMut()> {
    on_first_bytes: Option<F>,
    ended: BTreeMap<usize, StdInstant>,
}
impl<F: FnMut()> Observer for Watch<F> {
    fn trial_starts(&mut self, _at: Instant) {}
    fn step_starts(&mut self, _step: usize, _at: Instant) {}
    fn step_ended(&mut self, step: usize, _result: &StepResult) {
        self.ended.insert(step, StdInstant::now());
    }
    fn progress(&mut self, _step: usize, done: u64, _now: Instant) {
        if done > 0
            && let Some(mut act) = self.on_first_bytes.take()
        {
            act();
        }
    }
    fn interrupt(&mut self) -> Interrupt {
        Interrupt::None
    }
    fn broken(&mut self) -> Option<String> {
        None
    }
}

/// Streams from left-0 to right-0, then from left-0 to near-0 if it takes part, of so many milliseconds each.
fn stream(fleet: &mut Fleet, to: &[&str], ms: u64, act: impl FnMut()) -> (Vec<StepResult>, StdInstant) {
    let entry = weir_net::WORKLOADS.iter().find(|entry| entry.name == "stream").unwrap();
    let mut values = Values::defaults(entry.params);
    values.set("duration", Value::Duration(Duration::from_millis(ms)));
    values.set("warm_up", Value::Duration(Duration::from_millis(200)));
    values.set("streams", Value::Count(2));
    let peer = |fleet: &Fleet, host: &str| Peer {
        host: host.to_owned(),
        address: fleet.report(host).unwrap().reached_at.expect("sshd says where it was reached"),
        auxiliary: None,
    };
    let data_ports: BTreeMap<String, PortRange> =
        to.iter().map(|host| ((*host).to_owned(), PortRange::new(5301, 5304).unwrap())).collect();
    let job = |(index, host): (usize, &&'static str)| StepJob {
        name: host,
        workload_name: "stream",
        workload: entry.build,
        values: &values,
        seed: 1,
        pairs: vec![(peer(fleet, "left-0"), peer(fleet, host))],
        roles: Vec::new(),
        group: index,
        start: StepStart::After(index.checked_sub(1)),
        estimate: entry.build.estimate(&values, &Shape::of_pairs(1, Duration::ZERO)).unwrap(),
        samplers: Vec::new(),
        data_ports: &data_ports,
    };
    let to: Vec<&'static str> =
        to.iter().map(|host| if *host == "near-0" { "near-0" } else { "right-0" }).collect();
    let jobs: Vec<StepJob<'_>> = to.iter().enumerate().map(job).collect();
    let mut watch = Watch { on_first_bytes: Some(act), ended: BTreeMap::new() };
    let results = run_trial(fleet, &jobs, "00112233445566778899aabbccddeeff", 1, &mut watch);
    (results, watch.ended[&0])
}

// Spec: agent-protocol.md#ssh-3
#[test]
fn an_agent_is_copied_once_used_again_and_mended_when_damaged() {
    let user = far_user();
    let _turn = beside();
    let mut far = Far::up(&user, "t-copy");
    far.serve("left-0", 22, "", &[]);
    let hosts = [far.host("left-0")];
    let launcher = far.launcher(&hosts);
    let (mut fleet, failed) = launch(&launcher, &hosts);
    assert!(failed.is_empty(), "{failed:?}");
    let report = fleet.report("left-0").unwrap();
    assert_eq!(
        report.reached_at,
        Some(far.exec("left-0", &["hostname", "-I"]).trim().split(' ').next().unwrap().parse().unwrap())
    );
    assert!(report.environment.contains_key("kernel"), "{:?}", report.environment);
    assert_eq!(far.agents_on("left-0").len(), 1);
    let user = fs::read_to_string(format!("/proc/{}/status", far.agents_on("left-0")[0].0)).unwrap();
    let capabilities = user.lines().find(|line| line.starts_with("CapEff:")).unwrap();
    assert!(capabilities.ends_with("0000000000000000"), "the agent has privileges: {capabilities}");
    fleet.disband();
    eventually("the agent ends with its stream", Duration::from_secs(3), || {
        far.agents_on("left-0").is_empty()
    });
    let first = far.copies();
    assert_eq!(first.len(), 1, "{first:?}");
    let (fleet, failed) = launch(&launcher, &hosts);
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(far.copies(), first, "it was copied again");
    drop(fleet);
    // Cut short, as by a full disk; then of the right length and with one byte changed.
    let path = format!("/home/{}/.cache/weir/{}", far::USER, first[0].0);
    let mut bytes = fs::read(&path).unwrap();
    // The system keeps a program's file from being written until the last of its process is gone, which is a little after it is seen.
    let spoil = |bytes: &[u8]| {
        eventually("the agent ends", Duration::from_secs(3), || far.agents_on("left-0").is_empty());
        eventually("its file can be written", Duration::from_secs(3), || fs::write(&path, bytes).is_ok());
    };
    spoil(&bytes[..1000]);
    let (fleet, failed) = launch(&launcher, &hosts);
    assert!(failed.is_empty(), "{failed:?}");
    drop(fleet);
    assert_eq!(far.copies()[0].1, first[0].1);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    spoil(&bytes);
    let (_fleet, failed) = launch(&launcher, &hosts);
    assert!(failed.is_empty(), "{failed:?}");
    bytes[middle] ^= 1;
    assert!(fs::read(&path).unwrap() == bytes, "the damaged copy was used");
}

// Spec: agent-protocol.md#ssh-4
#[test]
fn an_agent_that_is_there_is_used_and_one_of_another_version_is_refused_with_both() {
    let user = far_user();
    let _turn = beside();
    let mut far = Far::up(&user, "t-there");
    far.serve("left-0", 22, "", &[]);
    far.script("present", &format!("#!/bin/sh\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_weir")));
    fs::copy(env!("CARGO_BIN_EXE_weir"), far.path("weir")).unwrap();
    let at = |path: String| RealHost { agent: Some(path), ..far.host("left-0") };
    let hosts = [at(far.text("weir"))];
    let (fleet, failed) = launch(&far.launcher(&hosts), &hosts);
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(far.copies(), [], "nothing was to be copied");
    drop(fleet);
    let hello = format!(
        r#"{{"say":"hello","protocol":{PROTOCOL},"version":"0.0.7","schema":"weir.summary/1","process":1,"monotonic_ns":1}}"#
    );
    let length: String =
        (hello.len() as u32).to_le_bytes().iter().map(|byte| format!("\\{byte:03o}")).collect();
    let old = far.script("old", &format!("#!/bin/sh\nprintf '{length}'\nprintf '%s' '{hello}'\nsleep 5\n"));
    let text = refusal(&far, at(old));
    assert!(
        text.contains("0.0.7 there")
            && text.contains(env!("CARGO_PKG_VERSION"))
            && text.contains("same version"),
        "{text}"
    );
    let text = refusal(&far, at("/nonexistent/weir".to_owned()));
    assert!(text.contains("/nonexistent/weir is no program") && text.contains("install weir"), "{text}");
    let text = refusal(&far, at("/bin/false".to_owned()));
    assert!(text.contains("the agent ended"), "{text}");
    let text = refusal(&far, at("/bin/echo".to_owned()));
    assert!(text.contains("what is no message"), "{text}");
}

// Spec: agent-protocol.md#ssh-2
#[test]
fn a_host_key_that_is_wrong_or_unknown_and_a_user_without_a_key_are_refused_without_a_question() {
    let user = far_user();
    let _turn = beside();
    let mut far = Far::up(&user, "t-keys");
    far.serve("left-0", 22, "", &[]);
    far.know("other_key");
    let text = refusal(&far, far.host("left-0"));
    assert!(text.contains("not the one known here") && text.contains("ssh-keygen -R left-0"), "{text}");
    fs::write(far.path("known_hosts"), "").unwrap();
    let text = refusal(&far, far.host("left-0"));
    assert!(text.contains("not known here") && text.contains("log in once by hand"), "{text}");
    assert_eq!(fs::read_to_string(far.path("known_hosts")).unwrap(), "", "a key was taken on trust");
    far.know("host_key");
    fs::copy(far.path("other_key.pub"), far.path("authorized_keys")).unwrap();
    let text = refusal(&far, far.host("left-0"));
    assert!(text.contains("never asks for a password") && text.contains("ssh-copy-id"), "{text}");
    let text = refusal(&far, far.host("right-0"));
    assert!(text.contains("cannot be reached") && text.contains("Connection refused"), "{text}");
    let text = refusal(&far, RealHost::new("left-0", "nowhere-9"));
    assert!(text.contains("correct `address`"), "{text}");
}

// Spec: agent-protocol.md#ssh-2
#[test]
fn a_login_that_talks_is_understood_and_one_that_hangs_is_given_up_in_time() {
    let user = far_user();
    let _turn = beside();
    let mut far = Far::up(&user, "t-login");
    far.serve("left-0", 22, "", &[]);
    far.serve(
        "left-0",
        2222,
        "ForceCommand echo Welcome to left-0!; printf 'no newline '; echo; eval \"$SSH_ORIGINAL_COMMAND\"",
        &[],
    );
    far.serve("left-0", 2223, "ForceCommand sleep 60", &[]);
    far.serve("left-0", 2224, "ForceCommand yes", &[]);
    let at = |port: u16| RealHost { port: Some(port), ..far.host("left-0") };
    let hosts = [at(2222)];
    let (fleet, failed) = launch(&far.launcher(&hosts), &hosts);
    assert!(failed.is_empty(), "{failed:?}");
    drop(fleet);
    let hosts = [at(2223)];
    let mut launcher = far.launcher(&hosts);
    launcher.login_max = Duration::from_secs(2);
    let begun = StdInstant::now();
    let (_, failed) = launch(&launcher, &hosts);
    assert!(failed[0].text.contains("took longer than 2 s"), "{}", failed[0]);
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    assert!(refusal(&far, at(2224)).contains("prints more than"));
    eventually("no client is left", Duration::from_secs(3), || {
        support::processes_with(&far.text("ssh_config")).is_empty()
    });
}

// Spec: agent-protocol.md#ssh-6
#[test]
fn a_host_behind_another_is_reached_through_it() {
    let user = far_user();
    let _turn = beside();
    let mut far = Far::up(&user, "t-jump");
    far.serve("right-0", 22, "", &[]);
    // From the coordinator's host alone the door is shut.
    let closed = "Match Address 10.64.0.0/10,!LEFT\n PubkeyAuthentication no";
    let left = far.exec("left-0", &["hostname", "-I"]);
    let left = left.split_whitespace().next().unwrap().to_owned();
    far.serve("left-0", 22, "", &[]);
    far.serve("right-0", 2222, &closed.replace("LEFT", &left), &[]);
    let direct = RealHost { port: Some(2222), ..far.host("right-0") };
    assert!(refusal(&far, direct.clone()).contains("never asks for a password"));
    let hosts = [RealHost { jump: Some("left-0".to_owned()), ..direct }];
    let (fleet, failed) = launch(&far.launcher(&hosts), &hosts);
    assert!(failed.is_empty(), "{failed:?}");
    assert!(fleet.is_up("right-0"));
}

// Spec: agent-protocol.md#lost-1
// Spec: agent-protocol.md#lost-2, agent-protocol.md#lost-3
#[test]
fn a_connection_that_is_cut_fails_its_step_and_the_next_goes_on_and_nothing_is_left_behind() {
    let user = far_user();
    let _turn = beside();
    let mut far = Far::up(&user, "t-cut");
    let hosts = ["near-0", "left-0", "right-0"].map(|name| far.host(name));
    for host in &hosts {
        far.serve(&host.name, 22, "", &[]);
    }
    let launcher = far.launcher(&hosts);
    let (mut fleet, failed) = launch(&launcher, &hosts);
    assert!(failed.is_empty(), "{failed:?}");
    let mut cut_at = None;
    let before = weir_sys::clock::monotonic();
    let (results, ended) = stream(&mut fleet, &["right-0", "near-0"], 8_000, || {
        let (_, session) = far.agents_on("right-0")[0];
        kill(session);
        cut_at = Some(StdInstant::now());
    });
    let failure = results[0].failure.as_deref().unwrap();
    assert!(failure.contains("right-0") && failure.contains("the agent ended"), "{failure}");
    assert!(ended - cut_at.unwrap() < Duration::from_secs(5), "{:?}", ended - cut_at.unwrap());
    assert_eq!(results[1].failure, None, "the next step was drawn in");
    let clock = fleet.clock_over("right-0", before, weir_sys::clock::monotonic());
    assert!(!fleet.is_up("right-0") && clock.is_some(), "what it measured until then has lost its times");
    eventually("the agent there ends", Duration::from_secs(3), || far.agents_on("right-0").is_empty());
    // The next trial has its agent back. This time the path dies without a word.
    assert!(fleet.launch(&launcher, &names(&hosts), HELLO_MAX).is_empty());
    let mut cut_at = None;
    let (results, ended) = stream(&mut fleet, &["right-0"], 8_000, || {
        far.exec("right-0", &["ip", "link", "set", "eth0", "down"]);
        cut_at = Some(StdInstant::now());
    });
    let failure = results[0].failure.as_deref().unwrap();
    assert!(failure.contains("right-0") && failure.contains("silent"), "{failure}");
    assert!(ended - cut_at.unwrap() < Duration::from_secs(5), "{:?}", ended - cut_at.unwrap());
    // Its session is still open, but nobody asks it anything any more.
    assert_eq!(far.agents_on("right-0").len(), 1);
    eventually("the abandoned agent ends", Duration::from_secs(13), || far.agents_on("right-0").is_empty());
    let again = fleet.launch(&launcher, &names(&hosts), HELLO_MAX);
    assert!(again.len() == 1 && again[0].host == "right-0", "{again:?}");
    assert!(fleet.is_up("left-0"), "a host that is down takes no other with it");
}

// Spec: agent-protocol.md#clock-1
// Spec: agent-protocol.md#clock-4
#[test]
fn times_of_a_host_whose_clock_is_a_day_ahead_come_out_on_ours() {
    let user = far_user();
    let _turn = beside();
    let mut far = Far::up(&user, "t-clock");
    let hosts = ["left-0", "right-0"].map(|name| far.host(name));
    far.serve("left-0", 22, "", &[]);
    far.serve("right-0", 22, "", &["unshare", "--time", "--monotonic", "86400", "--fork", "--kill-child"]);
    let (mut fleet, failed) = launch(&far.launcher(&hosts), &hosts);
    assert!(failed.is_empty(), "{failed:?}");
    let before = weir_sys::clock::monotonic();
    let (results, _) = stream(&mut fleet, &["right-0"], 2_000, || {});
    let after = weir_sys::clock::monotonic();
    assert_eq!(results[0].failure, None);
    for (host, ahead_ns) in [("left-0", 0i128), ("right-0", 86_400_000_000_000)] {
        let clock = fleet.clock_over(host, before, after).unwrap();
        let error_ns = clock.offset_ns(before) - ahead_ns;
        let said_ns = i128::from(clock.uncertainty_ns());
        assert!(error_ns.abs() <= said_ns, "{host}: off by {error_ns} ns, said ±{said_ns}");
        assert!(clock.exchange_count() >= 32, "{host}: {} exchanges", clock.exchange_count());
    }
    let start = results[0].started.unwrap();
    for outcome in &results[0].outcomes {
        let late = Instant::from_ns(outcome.started_ns).seconds_from(start);
        assert!(late.abs() < 0.5, "{} began {late} s after the agreed instant", outcome.host);
        for series in &outcome.series {
            let inside = before.as_ns() as i64..after.as_ns() as i64;
            assert!(
                series.t_ns.iter().all(|t| inside.contains(t)),
                "{} is outside of the trial",
                series.name
            );
        }
    }
    let receiver = results[0].outcomes.iter().find(|outcome| outcome.host == "right-0").unwrap();
    let goodput = receiver.rows.iter().find(|row| row.metric == "stream.flow_goodput_bits_per_second");
    assert!(matches!(goodput.unwrap().value, Observed::Value(rate) if rate > 1e6), "{goodput:?}");
    // The acceptor kept to the ports it was given.
    let granted = receiver.granted.clone();
    assert!(!granted.is_empty());
}

/// What lies between, and what is to be measured over it; the lab or the hosts come before it.
const STEPS: &str = r#"
[[step]]
name = "idle"
workload = "latency"
from = "left-0"
to = "right-0"
size = "64B"
duration = "2s"
warm_up = "200ms"

[[step]]
name = "load"
workload = "stream"
from = "left-0"
to = "right-0"
duration = "5s"
warm_up = "2s"
tcp = { congestion = "reno" }
"#;

/// Two hosts of the far side as a scenario has them.
const HOSTS: &str = "[hosts]\ndata_ports = \"5300-5309\"\n[hosts.left-0]\naddress = \"left-0\"\n[hosts.right-0]\n\
                     address = \"right-0\"\ndata_interface = \"eth0\"\n";

/// Median round trip in seconds and total goodput in bit/s of a summary.
fn figures(summary: &serde_json::Value) -> [f64; 2] {
    let metric = |step: &str, name: &str, statistic: &str| {
        let point = summary["points"].as_array().unwrap().iter().find(|point| point["step"] == step).unwrap();
        point["metrics"][name][statistic].as_f64().unwrap_or_else(|| panic!("no {name} in {point}"))
    };
    [
        metric("idle", "latency.round_trip_seconds", "median"),
        metric("load", "stream.total_goodput_bits_per_second", "mean"),
    ]
}

/// Summary of `hosts.toml`, run on the far side's hosts.
fn run_from_near(far: &Far, limit: Duration) -> serde_json::Value {
    let (file, out, configuration) = (far.text("hosts.toml"), far.text("results"), far.text("ssh_config"));
    let program = env!("CARGO_BIN_EXE_weir");
    let run = [program, "run", &file, "--json", "--out", &out, "--ssh-config", &configuration];
    let text = far.exec_for("near-0", &run, limit);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
}

// Spec: agent-protocol.md#data-1
#[test]
fn one_scenario_gives_the_same_figures_in_the_lab_and_on_hosts_that_ssh_reaches() {
    let user = far_user();
    let _turn = light();
    let head = "[scenario]\nname = \"twice\"\nabout = \"written by a test\"\ntrials = 2\n";
    let (status, of_lab, ran) = support::run_settled(&format!("{head}{}{STEPS}", far::LAB), &[]);
    assert!(status == 0 || status == 3, "{}", ran.stderr);
    let mut far = Far::up(&user, "t-twice");
    far.serve("left-0", 22, "", &[]);
    far.serve("right-0", 22, "", &["unshare", "--time", "--monotonic", "5000", "--fork", "--kill-child"]);
    fs::write(far.path("hosts.toml"), format!("{head}{HOSTS}{STEPS}")).unwrap();
    let of_hosts = run_from_near(&far, Duration::from_secs(90));
    for point in of_hosts["points"].as_array().unwrap() {
        assert_eq!(point["valid_trials"], 2, "{}", of_hosts["warnings"]);
        let uncertainty = &point["metrics"]["control.clock_uncertainty_seconds@host.right-0"];
        assert!(uncertainty["max"].as_f64().is_some_and(|it| it > 0.0 && it < 0.5), "{uncertainty}");
    }
    let ([lab_rtt, lab_rate], [rtt, rate]) = (figures(&of_lab), figures(&of_hosts));
    // 10 ms and 94.1 Mbit/s; the scheduling of a busy machine is in the one, sampling at the edges in the other.
    assert!((rtt / lab_rtt - 1.0).abs() < 0.05, "{lab_rtt} s in the lab, {rtt} s on hosts");
    assert!((rate / lab_rate - 1.0).abs() < 0.02, "{lab_rate} bit/s in the lab, {rate} bit/s on hosts");
    let folder = of_hosts["results"].as_str().unwrap();
    let environment: serde_json::Value =
        serde_json::from_slice(&fs::read(format!("{folder}/environment.json")).unwrap()).unwrap();
    let ahead: i64 = environment["hosts"]["right-0"]["clock"]["offset_ns"].as_str().unwrap().parse().unwrap();
    assert!((ahead - 5_000_000_000_000).abs() < 500_000_000, "{environment:#}");
    assert!(of_hosts["warnings"].to_string().contains("real hosts"), "{}", of_hosts["warnings"]);
}

// Spec: agent-protocol.md#inputs-1 and agent-protocol.md#inputs-2
#[test]
fn a_trace_and_a_list_of_files_are_carried_to_hosts_that_cannot_read_them() {
    let user = far_user();
    let _turn = beside();
    let mut far = Far::up(&user, "t-carried");
    far.serve("left-0", 22, "", &[]);
    far.serve("right-0", 22, "", &[]);
    let (trace, list) = (far.text("own.trace"), far.text("own.list"));
    let records: String = (0..40_000).map(|number| format!("{} 4096\n", number % 200 * 4096)).collect();
    let names: String = (0..40).map(|number| format!("f-{number}\n")).collect();
    for (path, text) in
        [(&trace, format!("# weir-trace/1 offset length\n{records}")), (&list, format!("# files\n{names}"))]
    {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let scenario = format!(
        "[scenario]\nname = \"carried\"\nabout = \"written by a test\"\ntrials = 2\n{HOSTS}[[step]]\nname = \"analysis\"\n\
         workload = \"replay\"\nhosts = [\"left-0\", \"right-0\"]\ntarget = \"mem:\"\njobs = 4\ntrace = [\"{trace}\", \"random-1\"]\n\
         files = \"{list}\"\nfile_size = \"1MB\"\nreads = 1000\n"
    );
    fs::write(far.path("hosts.toml"), scenario).unwrap();
    let summary = run_from_near(&far, Duration::from_secs(60));
    let point = &summary["points"][0];
    assert_eq!(point["valid_trials"], 2, "{summary:#}");
    assert_eq!(point["metrics"]["replay.failed_jobs"]["max"], 0.0, "{summary:#}");
    let left = || fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let left = left().filter(|entry| entry.file_name().to_string_lossy().ends_with(".partial"));
    assert_eq!(left.count(), 0, "copies have no names");
}

// Spec: results.md#results-9
#[test]
fn a_run_on_real_hosts_that_was_killed_is_resumed_where_it_was() {
    let user = far_user();
    let _turn = beside();
    let mut far = Far::up(&user, "t-resume");
    far.serve("left-0", 22, "", &[]);
    far.serve("right-0", 22, "", &[]);
    let head = "[scenario]\nname = \"resumed\"\nabout = \"written by a test\"\ntrials = 4\n";
    let step = "[[step]]\nname = \"load\"\nworkload = \"stream\"\nfrom = \"left-0\"\nto = \"right-0\"\n\
                duration = \"1200ms\"\nwarm_up = \"200ms\"\n";
    fs::write(far.path("hosts.toml"), format!("{head}{HOSTS}{step}")).unwrap();
    let (file, out, configuration) = (far.text("hosts.toml"), far.text("results"), far.text("ssh_config"));
    let program = env!("CARGO_BIN_EXE_weir");
    let near = ["lab", "exec", "t-resume", "near-0", "--root", "--"];
    let mut first = support::start(support::weir().args(near).args([
        program,
        "run",
        &file,
        "--json",
        "--out",
        &out,
        "--ssh-config",
        &configuration,
    ]));
    let trials =
        |folder: &std::path::Path| fs::read_to_string(folder.join("trials.jsonl")).unwrap_or_default();
    let mut folder = None;
    eventually("two trials are recorded", Duration::from_secs(60), || {
        let of_name = fs::read_dir(far.path("results/resumed")).ok().and_then(|mut all| all.next());
        folder = of_name.and_then(Result::ok).map(|entry| entry.path());
        folder.as_ref().is_some_and(|folder| trials(folder).lines().count() >= 2)
    });
    let folder = folder.unwrap();
    // `exec` has become the command, so this is the coordinator itself, in the middle of its next trial.
    first.kill().unwrap();
    first.wait().unwrap();
    let kept = trials(&folder);
    let kept: String = kept.split_inclusive('\n').take(2).collect();
    for host in ["left-0", "right-0"] {
        eventually("the killed run's agents end", Duration::from_secs(15), || far.agents_on(host).is_empty());
    }
    let text = far.exec_for(
        "near-0",
        &[program, "run", "--resume", folder.to_str().unwrap(), "--json", "--ssh-config", &configuration],
        Duration::from_secs(90),
    );
    let summary: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    let point = &summary["points"][0];
    assert_eq!((&point["trials"], &point["valid_trials"]), (&4.into(), &4.into()), "{summary:#}");
    let all = trials(&folder);
    assert!(all.starts_with(&kept), "what was finished has changed:\n{kept}\n{all}");
    let numbers: Vec<u64> = all
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["trial"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [0, 1, 2, 3], "each trial once");
    let goodput = point["metrics"]["stream.total_goodput_bits_per_second"]["mean"].as_f64().unwrap();
    assert!(goodput > 1e6, "{goodput}");
    let timeline = fs::read_to_string(folder.join("timeline.jsonl")).unwrap();
    assert_eq!(timeline.matches("\"event\":\"resumed\"").count(), 1);
}
