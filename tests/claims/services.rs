//! Real systems as services on a lab's hosts: packaged XRootD, and recipes written on the spot.

use super::support::{
    Ran, beside, eventually, finish_within, need_lab, ran, run, run_settled, seeds, settled, start,
    state_folder, turn, weir,
};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

pub const LAB: &str = r#"
[lab]
[[lab.site]]
name = "store"
hosts = 3
access = { rate = "1Gbit/s", delay = "20us", mtu = 1500 }
[[lab.site]]
name = "user"
hosts = 1
access = { rate = "1Gbit/s", delay = "20us", mtu = 1500 }
[[lab.link]]
name = "wan"
between = ["store", "user"]
rate = "500Mbit/s"
rtt = "4ms"
"#;

pub const CLUSTER: &str = r#"
[[service]]
name = "files"
system = "xrootd"
place = { manager = "store-0", server = "store-[1-2]" }
content = { path = "store/f-{n}", files = 2, size = "16MiB" }
set.xrootd = { shared = true }
"#;

/// A named lab with services; gone with this value.
pub struct Up {
    name: &'static str,
    _folder: tempfile::TempDir,
}

impl Up {
    pub fn new(name: &'static str, text: &str) -> Up {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lab.toml");
        fs::write(&file, text).unwrap();
        super::support::lab::bring_up(file.to_str().unwrap(), name);
        Up { name, _folder: folder }
    }
    fn exec(&self, host: &str, command: &[&str]) -> Ran {
        let mut arguments = vec!["lab", "exec", self.name, host, "--root", "--"];
        arguments.extend(command);
        run(&arguments)
    }
    fn io(&self, arguments: &[&str]) -> Child {
        let program = env!("CARGO_BIN_EXE_weir");
        start(weir().args(["lab", "exec", self.name, "user-0", "--", program, "io"]).args(arguments))
    }
    pub fn io_done(&self, arguments: &[&str]) -> Value {
        document(&ran(finish_within(self.io(arguments), Duration::from_secs(60))))
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        run(&["lab", "down", self.name]);
    }
}

fn document(ran: &Ran) -> Value {
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

pub fn figure(summary: &Value, metric: &str, statistic: &str) -> f64 {
    let found = summary["points"][0]["metrics"][metric][statistic].as_f64();
    found.unwrap_or_else(|| panic!("{metric}: {summary:#}"))
}

// Spec: services.md#service-4, services.md#service-5, services.md#service-8, xrootd.md#session-1 and xrootd.md#recovery-1
#[test]
fn a_cluster_is_up_with_one_command_serves_stock_clients_and_ours_and_outlives_its_servers_death() {
    need_lab();
    let _turn = beside();
    let up = Up::new("t-cluster", &format!("{LAB}{CLUSTER}"));
    let stock = up.exec("user-0", &["sh", "-c", "xrdcp -s root://store-0//store/f-1 - | wc -c"]);
    assert_eq!(stock.stdout.trim(), "16777216", "{}", stock.stderr);
    // As the package's account, and behind the load.
    let daemons = up.exec("store-1", &["ps", "-o", "comm=,user=,ni=", "-C", "xrootd,cmsd"]);
    let words: Vec<&str> = daemons.stdout.split_whitespace().collect();
    assert_eq!(words, ["cmsd", "xrootd", "10", "xrootd", "xrootd", "10"]);
    let url = "root://store-0//store/f-0";
    let read = up.io_done(&["seq", url, "--depth", "4", "--verify", "--json"]);
    assert_eq!(figure(&read, "io.mismatched_operations", "mean"), 0.0);
    // The link carries 500 Mbit/s on the wire, headers included.
    assert!(figure(&read, "io.bytes_total_per_second", "mean") < 62.5e6, "{read:#}");

    let reader = up.io(&[
        "random",
        url,
        "--depth",
        "8",
        "--size",
        "8KiB",
        "--duration",
        "6s",
        "--timeout",
        "30s",
        "--verify",
        "--json",
    ]);
    let in_use = |host: &str| {
        let connected = up.exec(host, &["ss", "-tnH", "state", "established", "sport", "=", "1094"]);
        let user = up.exec("user-0", &["hostname", "-I"]).stdout;
        let address = user.split_whitespace().next().unwrap_or("none").to_owned();
        connected.stdout.contains(&address)
    };
    let mut used = None;
    eventually("a server is read from", Duration::from_secs(20), || {
        used = ["store-1", "store-2"].into_iter().find(|host| in_use(host));
        used.is_some()
    });
    std::thread::sleep(Duration::from_secs(1));
    let killed = up.exec(used.unwrap(), &["pkill", "-KILL", "-x", "xrootd"]);
    assert_eq!(killed.status, 0, "{}", killed.stderr);
    let summary = document(&ran(finish_within(reader, Duration::from_secs(60))));
    assert_eq!(figure(&summary, "io.failed_operations", "mean"), 0.0, "{summary:#}");
    assert_eq!(figure(&summary, "io.mismatched_operations", "mean"), 0.0);
}

const PROXIED: &str = r#"
[[service]]
name = "files"
system = "xrootd"
place = { manager = "store-0", server = "store-1", proxy = "store-2" }
content = { path = "store/f-{n}", files = 2, size = "4MiB" }
set.xrootd = { cache = "64MiB" }
"#;

// Spec: services.md#service-13, http.md#request-2 and xrootd.md#vector-1
#[test]
fn a_cluster_has_a_door_for_http_and_a_proxy_keeps_what_was_read_through_it() {
    need_lab();
    let _turn = beside();
    let doors = CLUSTER.replace("shared = true", "http = true");
    let up = Up::new("t-xrd-http", &format!("{LAB}{doors}"));
    let curl = "curl -sfL http://store-0:1094/store/f-1 | wc -c";
    let stock = up.exec("user-0", &["sh", "-c", curl]);
    assert_eq!(stock.stdout.trim(), "16777216", "{}", stock.stderr);
    let read = |up: &Up, url: &str, more: &[&str]| {
        let arguments =
            ["random", url, "--depth", "16", "--size", "8KiB", "--count", "200", "--verify", "--json"];
        let read = up.io_done(&[&arguments[..], more].concat());
        assert_eq!(figure(&read, "io.failed_operations", "mean"), 0.0, "{url}: {read:#}");
        assert_eq!(figure(&read, "io.mismatched_operations", "mean"), 0.0, "{url}");
    };
    read(&up, "dav://store-0:1094/store/f-0", &[]);
    read(&up, "dav://store-0:1094/store/f-0", &["--pieces", "300"]);
    drop(up);
    let up = Up::new("t-xrd-proxy", &format!("{LAB}{PROXIED}"));
    let sent = || {
        let counted = up.exec("store-1", &["sh", "-c", "cat /sys/class/net/*/statistics/tx_bytes"]);
        let all = counted.stdout.lines().map(|line| line.parse::<u64>().unwrap());
        all.max().unwrap()
    };
    let mut before = sent();
    let mut moved = Vec::new();
    for _ in 0..2 {
        let stock = up.exec("user-0", &["sh", "-c", "xrdcp -s root://store-2//store/f-1 - | wc -c"]);
        assert_eq!(stock.stdout.trim(), "4194304", "{}", stock.stderr);
        moved.push(sent() - before);
        before = sent();
    }
    assert!(moved[0] > 4 << 20 && moved[1] < 1 << 20, "the server sent {moved:?} bytes for two reads");
    read(&up, "root://store-2//store/f-0", &[]);
    read(&up, "root://store-2//store/f-0", &["--pieces", "64"]);
    read(&up, "root://store-0//store/f-0?pages=true", &[]);
}

pub const WEB_AND_OBJECTS: &str = r#"
[[service]]
name = "web"
system = "webdav"
place = { server = "store-0" }
content = { path = "store/f-{n}", files = 2, size = "4MiB" }
[[service]]
name = "objects"
system = "s3"
place = { server = "store-1" }
content = { path = "store/f-{n}", files = 2, size = "4MiB" }
"#;

// Spec: services.md#service-4, services.md#service-25, http.md#many-1 and http.md#s3-1
#[test]
fn web_servers_and_object_stores_serve_stock_clients_and_ours() {
    need_lab();
    let _turn = turn();
    let web = "place = { server = \"store-0\" }\n";
    let first = WEB_AND_OBJECTS.replace(web, &format!("{web}priority = {{ server = \"high\" }}\n"));
    let up = Up::new("t-web", &format!("{LAB}{first}"));
    for (host, program, nice) in [("store-0", "nginx", "-10"), ("store-1", "versitygw", "10")] {
        let own = up.exec(host, &["sh", "-c", &format!("ps -o ni= -C {program} | sort -u")]);
        assert_eq!(own.stdout.trim(), nice, "{program}: {}", own.stderr);
    }
    let signed =
        "--aws-sigv4 aws:amz:us-east-1:s3 --user weir:weir-in-a-lab -H x-amz-content-sha256:UNSIGNED-PAYLOAD";
    for (options, url) in
        [("", "http://store-0:8080/store/f-1"), (signed, "http://store-1:7070/weir/store/f-1")]
    {
        let stock = up.exec("user-0", &["sh", "-c", &format!("curl -sf {options} {url} | wc -c")]);
        assert_eq!(stock.stdout.trim(), "4194304", "{url}: {}", stock.stderr);
    }
    let options = "endpoint=http://store-1:7070&access_key=weir&secret_key=weir-in-a-lab";
    for folder in
        ["http://store-0:8080/store/", "dav://store-0:8080/store", &format!("s3://weir/store?{options}")]
    {
        let file = match folder.split_once('?') {
            Some((path, options)) => format!("{path}/f-0?{options}"),
            None => format!("{}/f-0", folder.trim_end_matches('/')),
        };
        let read =
            ["random", &file, "--depth", "64", "--size", "8KiB", "--count", "500", "--verify", "--json"];
        let read = up.io_done(&read);
        assert_eq!(figure(&read, "io.failed_operations", "mean"), 0.0, "{folder}");
        assert_eq!(figure(&read, "io.mismatched_operations", "mean"), 0.0, "{folder}");
        let pieces =
            ["random", &file, "--pieces", "200", "--size", "4KiB", "--count", "10", "--verify", "--json"];
        let pieces = up.io_done(&pieces);
        assert_eq!(figure(&pieces, "io.failed_operations", "mean"), 0.0, "{folder}");
        assert_eq!(figure(&pieces, "io.mismatched_operations", "mean"), 0.0, "{folder}");
        let written = ["seq", folder, "--mix", "0", "--jobs", "2", "--file-size", "12MiB", "--json"];
        let written = up.io_done(&written);
        assert_eq!(figure(&written, "io.failed_operations", "mean"), 0.0, "{folder}");
        let refused = ran(finish_within(up.io(&["random", folder, "--mix", "0.5"]), Duration::from_secs(30)));
        assert_eq!(refused.status, 2, "{}", refused.stdout);
        assert!(refused.stderr.contains("from its beginning to its end"), "{}", refused.stderr);
    }
}

const MOUNTED: &str = r#"
[[service]]
name = "site"
system = "glusterfs"
place = { server = "store-*", client = "user-0" }
mount = { at = "/site/files" }
replicas = { data = 3 }
disk = { size = "500MB", rate = "200MB/s", position = "1ms", cache = "16MiB" }
content = { path = "store/f-{n}", files = 3, size = "16MiB" }
"#;

// Spec: services.md#service-9, services.md#service-15 and scenario.md#point-6
#[test]
fn a_system_that_was_taken_down_for_another_comes_up_again_in_the_same_lab() {
    need_lab();
    let _turn = beside();
    let cases = r#"
[scenario]
name = "there-and-back"
trials = 2
[[step]]
name = "read"
workload = "io-random"
hosts = "user-0"
target = "service:site/store/f-0"
count = 20
verify = true
[[case]]
name = "mounted"
[[case]]
name = "spoken-to"
set = { "step.read.target" = "service:files/store/f-0" }
"#;
    let lab = LAB.replace("hosts = 3", "hosts = 1");
    let mounted = MOUNTED.replace("replicas = { data = 3 }\n", "");
    let other = CLUSTER.replace("manager = \"store-0\", server = \"store-[1-2]\"", "server = \"store-0\"");
    let scenario = Scenario::new(&format!("{cases}{lab}{mounted}{other}"));
    let ran = scenario.run(&[]);
    // Whether trials count is the machine's matter; that all four were there and read what they should is not.
    assert!([0, 3].contains(&ran.status), "{}{}", ran.stdout, ran.stderr);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    let folder = Path::new(summary["results"].as_str().unwrap());
    let trials = fs::read_to_string(folder.join("trials.jsonl")).unwrap();
    let trials: Vec<Value> = trials.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let order: Vec<&str> = trials.iter().map(|trial| trial["point"].as_str().unwrap()).collect();
    assert_eq!(order, ["read/mounted", "read/spoken-to", "read/spoken-to", "read/mounted"]);
    assert!(trials.iter().all(|trial| trial["failure_count"].as_u64().unwrap_or(0) == 0), "{trials:#?}");
}

const DOORS: &str = r#"
[[service]]
name = "farm"
system = "door"
place = { proxy = "store-[0-1]", manager = "store-2", server = "store-[3-4]" }
disk = { size = "1GB", position = "20ms", depth = 8 }
content = { path = "data/f-{n}", files = 4, size = "1MiB" }
set.door = { pool_slots = 1, wait = "400ms" }
"#;

// Spec: services.md#service-18, services.md#service-19 and http.md#request-2
#[test]
fn doors_send_clients_to_pools_whose_slots_they_wait_for_and_what_waits_too_long_is_refused() {
    need_lab();
    let _turn = beside();
    let lab = LAB.replace("hosts = 3", "hosts = 5");
    let up = Up::new("t-doors", &format!("{lab}{DOORS}"));
    let curl =
        |arguments: &str| up.exec("user-0", &["sh", "-c", &format!("curl -sS -m 20 {arguments}")]).stdout;
    // What the name space knows, by way of either door.
    let sent_on = "-o /dev/null -w '%{http_code} %{redirect_url}'";
    assert_eq!(
        curl(&format!("{sent_on} http://store-0:8080/data/f-2")),
        "307 http://10.64.0.4:8080/data/f-2"
    );
    assert_eq!(
        curl(&format!("{sent_on} http://store-1:8080/data/f-3")),
        "307 http://10.64.0.5:8080/data/f-3"
    );
    assert_eq!(curl("-L http://store-1:8080/data/f-0 | wc -c").trim(), "1048576");
    // What is new goes where its name says, and is found there.
    curl("-L -T /etc/debian_version http://store-0:8080/new/file");
    assert_eq!(curl("-L http://store-1:8080/new/file"), fs::read_to_string("/etc/debian_version").unwrap());

    let url = "http://store-0:8080/data/f-{n}?also=store-1:8080";
    let few =
        up.io_done(&["random", url, "--jobs", "4", "--size", "8KiB", "--count", "30", "--verify", "--json"]);
    assert_eq!(figure(&few, "io.failed_operations", "mean"), 0.0, "{few:#}");
    assert_eq!(figure(&few, "io.mismatched_operations", "mean"), 0.0);
    for door in ["store-0", "store-1"] {
        let counters = "curl -sS --unix-socket /var/lib/weir/farm/proxy/run/counters http://x/metrics";
        let said = up.exec(door, &["sh", "-c", counters]).stdout;
        let total = "haproxy_frontend_http_requests_total{proxy=\"before\"} ";
        let served = said.lines().find_map(|line| line.strip_prefix(total)?.parse::<u64>().ok());
        assert!(served.unwrap_or(0) >= 4, "{door}: {served:?}");
    }
    // Of 40 readers of one file 39 wait behind one slot: each of them for the 20 ms of every other before it.
    let url = "http://store-0:8080/data/f-0";
    let many =
        ["random", url, "--jobs", "40", "--layout", "shared", "--size", "8KiB", "--duration", "2s", "--json"];
    let many = up.io_done(&many);
    assert!(figure(&many, "io.failed_operations", "mean") > 0.0, "{many:#}");
    assert!(
        many["failures"].to_string().contains("HTTP-503") || many.to_string().contains("503"),
        "{many:#}"
    );
}

// Spec: services.md#service-18 and services.md#service-19
#[test]
fn slots_that_readers_wait_for_are_named_and_with_more_of_them_are_not() {
    need_lab();
    let _turn = beside();
    let scenario = r#"
[scenario]
name = "slots"
trials = 1
[[step]]
name = "read"
workload = "io-random"
hosts = "user-0"
target = "service:farm/data/f-{n}"
jobs = 8
size = "8KiB"
file_size = "1MiB"
duration = "3s"
[[case]]
name = "few"
[[case]]
name = "many"
set = { "service.farm.set.door.pool_slots" = 8 }
[[criterion]]
text = "one slot a pool is what readers wait for"
case = "few"
limiting_factor = "server-slots"
[[criterion]]
text = "which takes the reads of one after the other"
case = "few"
metric = "io.operations_total_per_second"
at_most = 100
[[criterion]]
text = "with enough of them each reader has its own"
case = "many"
metric = "io.operations_total_per_second"
at_least = 150
[[criterion]]
text = "and none waits"
case = "many"
metric = "service.slot_waiters"
on = "service.farm.haproxy.store-3"
at_most = 0.5
"#;
    let text = format!("{scenario}{}{DOORS}", LAB.replace("hosts = 3", "hosts = 5"));
    let (status, summary, ran) =
        run_settled(&text.replace("files = 4", "files = 8").replace("400ms", "20s"), &[]);
    assert_eq!(status, 0, "{summary:#}\n{}", ran.stderr);
}

// Spec: services.md#service-4, services.md#service-15, services.md#service-16 and services.md#service-11
#[test]
fn a_file_system_is_mounted_on_its_clients_alone_and_outlives_a_servers_death() {
    need_lab();
    let _turn = turn();
    let fault = r#"
[[fault]]
name = "server-dies"
step = "read"
at = "1s"
on = "service.site.server.store-0"
do = { kill = { for = "2s" } }
"#;
    let read = READ
        .replace("service:files/store/f-0", "service:site/store?direct=true")
        .replace("trials = 2", "trials = 1");
    let scenario = Scenario::new(&format!("{read}{LAB}{MOUNTED}{fault}"));
    let summary = scenario.passed();
    let results = Path::new(summary["results"].as_str().unwrap()).to_owned();
    // A brick lets go of whoever starts it, and is killed with its server all the same: it had no time to say so, as the others had.
    let said_goodbye = |host: &str| {
        let bricks = results.join(format!("services/site/{host}/server/log/bricks"));
        let mut logs =
            fs::read_dir(&bricks).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
        logs.any(|text| text.contains("cleanup_and_exit"))
    };
    assert_eq!(
        ["store-0", "store-1", "store-2"].map(said_goodbye),
        [false, true, true],
        "{}",
        results.display()
    );
    let up = Up::new("t-mounted", &format!("{LAB}{MOUNTED}"));
    let listed = up.exec(
        "user-0",
        &[
            "sh",
            "-c",
            "ls /site/files/store; stat -c %s /site/files/store/f-2; findmnt -no OPTIONS /site/files",
        ],
    );
    let words: Vec<&str> = listed.stdout.split_whitespace().collect();
    assert_eq!(words[..4], ["f-0", "f-1", "f-2", "16777216"], "{}", listed.stderr);
    assert!(words[4].contains("nosuid") && words[4].contains("nodev"), "{words:?}");
    assert!(!Path::new("/site").exists());
    let elsewhere = up.exec("store-0", &["ls", "/site/files/store"]);
    assert_ne!(elsewhere.status, 0, "{}", elsewhere.stdout);
    let lab = run(&["lab", "list", "--json"]).stdout;
    assert!(lab.contains("/site/files"), "{lab}");
    drop(up);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("/site/files"), "{mounts}");
}

// Spec: services.md#service-15
#[test]
fn a_mount_whose_client_was_killed_is_there_again_when_the_client_is() {
    need_lab();
    let _turn = beside();
    let more = r#"
[[step]]
name = "again"
workload = "io-random"
hosts = "user-0"
target = "service:site/store/f-1?direct=true"
size = "64KiB"
verify = true
duration = "2s"
timeout = "10s"
[[fault]]
name = "client-dies"
step = "read"
at = "1s"
on = "service.site.client.user-0"
do = { kill = { for = "1s" } }
"#;
    let (read, _) = READ.split_once("[[criterion]]").unwrap();
    let read = read
        .replace("service:files/store/f-0", "service:site/store/f-0?direct=true")
        .replace("trials = 2", "trials = 1");
    let scenario = Scenario::new(&format!("{read}{LAB}{MOUNTED}{more}"));
    let summary = scenario.passed();
    let of_step = |step: usize, metric: &str| {
        summary["points"][step]["metrics"][metric]["max"]
            .as_f64()
            .unwrap_or_else(|| panic!("{metric}: {summary:#}"))
    };
    assert!(of_step(0, "io.failed_operations") > 0.0, "{summary:#}");
    assert_eq!(of_step(1, "io.failed_operations"), 0.0, "{summary:#}");
    assert!(of_step(1, "io.read_bytes_per_second") > 1e6, "{summary:#}");
}

/// A scenario with one service, in a folder with what else it needs.
pub struct Scenario {
    folder: tempfile::TempDir,
}

impl Scenario {
    pub fn new(text: &str) -> Scenario {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("scenario.toml"), text).unwrap();
        Scenario { folder }
    }
    fn write(&self, name: &str, text: &str) -> &Self {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }
    pub fn run(&self, more: &[&str]) -> Ran {
        let out = self.folder.path().join("results");
        let file = self.folder.path().join("scenario.toml");
        let mut arguments = vec!["run", file.to_str().unwrap(), "--json", "--out", out.to_str().unwrap()];
        arguments.extend(more);
        run(&arguments)
    }

    /// What a run says at its end, whatever its verdict.
    fn summary(&self) -> Value {
        serde_json::from_str(&self.run(&[]).stdout).expect("a run ends with its summary")
    }

    /// What a run that counts says at its end, which is that it passes.
    pub fn passed(&self) -> Value {
        let summary = settled(|| self.summary(), |summary| summary);
        let failures = Path::new(summary["results"].as_str().unwrap()).join("failures.jsonl");
        let first: Vec<String> = fs::read_to_string(failures)
            .iter()
            .flat_map(|text| text.lines())
            .take(8)
            .map(str::to_owned)
            .collect();
        assert_eq!(summary["verdict"], "pass", "{first:#?} {summary:#}");
        summary
    }
}

const READ: &str = r#"
[scenario]
name = "read-a-service"
trials = 2
[[step]]
name = "read"
workload = "io-random"
hosts = "user-0"
target = "service:files/store/f-0"
size = "64KiB"
depth = 8
verify = true
duration = "4s"
timeout = "20s"
[[criterion]]
text = "nothing fails"
metric = "io.failed_operations"
at_most = 0
[[criterion]]
text = "and all is what was written"
metric = "io.mismatched_operations"
at_most = 0
"#;

// Spec: services.md#service-3, services.md#service-10 and services.md#service-11
#[test]
fn a_run_starts_its_service_reads_it_through_a_servers_death_and_keeps_what_it_logged() {
    need_lab();
    let _turn = beside();
    let fault = r#"
[[fault]]
name = "server-dies"
step = "read"
at = "1s"
on = "service.files.server.store-1"
do = { kill = { for = "1s" } }
"#;
    let alone = r#"
[[service]]
name = "files"
system = "xrootd"
place = { server = "store-1" }
content = { path = "store/f-{n}", size = "16MiB" }
set.xrootd.threads = 32
"#;
    let scenario = Scenario::new(&format!("{READ}{LAB}{alone}{fault}"));
    let summary = scenario.passed();
    // The only server was away for a second: clients waited for it.
    let pause = figure(&summary, "io.pause_seconds", "max");
    assert!((0.9..8.0).contains(&pause), "{pause}");
    let results = Path::new(summary["results"].as_str().unwrap()).to_owned();
    let kept = results.join("services/files");
    let about: Value = serde_json::from_slice(&fs::read(kept.join("service.json")).unwrap()).unwrap();
    assert!(
        about["version"].as_str().unwrap().contains('5')
            && about["at"].as_str().unwrap().starts_with("root://")
    );
    assert_eq!(about["place"]["server"], serde_json::json!(["store-1"]));
    assert_eq!(about["tuning"], serde_json::json!({"threads": "32"}));
    let page = fs::read_to_string(results.join("report.html")).unwrap();
    let row = &page[page.find("<h2>Services</h2>").expect("the page has the service")..];
    assert!(
        row[..1000].contains("files<td>xrootd<td>") && row[..1000].contains("threads 32<td>server store-1"),
        "{}",
        &row[..1000]
    );
    let configured = fs::read_to_string(kept.join("store-1/server/xrootd.cf")).unwrap();
    assert!(configured.contains("xrd.port 1094") && !configured.contains("all.manager"), "{configured}");
    assert!(fs::metadata(kept.join("store-1/server/log/xrootd.out")).unwrap().len() > 0);
    let timeline = fs::read_to_string(results.join("timeline.jsonl")).unwrap();
    let told = timeline.lines().filter(|line| line.contains("server-dies")).count();
    assert_eq!(told, 4, "begins and ends in each of two trials: {timeline}");
}

const OWN: &str = r#"
about    = "Python's own HTTP server"
packages = ["python3"]
programs = ["python3"]
version  = ["python3", "--version"]
user     = "nobody"
url      = "http://{{ host.address }}:{{ option.port }}"
entry    = ["server"]
content  = "{{ data }}"
[[role]]
name  = "server"
least = 1
most  = 1
[option.port]
kind    = "count"
default = "8080"
about   = "Where it listens."
[[step]]
daemon = "httpd"
roles  = ["server"]
run    = ["python3", "-m", "http.server", "--bind", "{{ host.address }}", "--directory", "{{ data }}", "{{ option.port }}"]
ready  = [{ port = "{{ option.port }}" }]
within = "10s"
"#;

const OWN_SERVICE: &str = r#"
[[service]]
name = "web"
system = "./mine"
place = { server = "store-0" }
content = { path = "set/f-{n}", files = 3, size = "100kB" }
set.mine = { port = 8081 }
"#;

// Spec: services.md#service-14 and services.md#service-13
#[test]
fn a_strangers_recipe_beside_a_scenario_works_like_a_built_in_one() {
    need_lab();
    let _turn = beside();
    let scenario = Scenario::new(&format!("{LAB}{OWN_SERVICE}"));
    scenario.write("mine/system.toml", OWN);
    let file = scenario.folder.path().join("scenario.toml");
    super::support::lab::bring_up(file.to_str().unwrap(), "t-mine");
    let fetch = "curl -sf http://store-0:8081/set/f-2 | wc -c";
    let got = run(&["lab", "exec", "t-mine", "user-0", "--", "sh", "-c", fetch]);
    let listed = run(&["lab", "list", "--json"]);
    let down = run(&["lab", "down", "t-mine"]);
    assert_eq!(got.stdout.trim(), "100000", "{}", got.stderr);
    let labs: Value = serde_json::from_str(&listed.stdout).unwrap();
    let lab = labs.as_array().unwrap().iter().find(|lab| lab["name"] == "t-mine").unwrap();
    assert!(lab["services"][0]["at"].as_str().unwrap().ends_with(":8081"), "{lab:#}");
    assert_eq!(down.status, 0, "{}", down.stderr);
    assert!(!state_folder().join("data/labs/t-mine").exists());
}

// Spec: services.md#service-6 and services.md#service-7
#[test]
fn a_service_that_cannot_start_is_named_with_its_logs_last_lines_and_leaves_nothing() {
    need_lab();
    let _turn = beside();
    for (what, from, to, says) in [
        (
            "not installed",
            r#"programs = ["python3"]"#,
            r#"programs = ["no-such-daemon"]"#,
            "apt-get install -y python3",
        ),
        ("dies", r#""--bind""#, r#""--no-such-flag""#, "exited with status 2"),
        ("its log", r#""--bind""#, r#""--no-such-flag""#, "invalid int value"),
        (
            "not ready",
            r#"{ port = "{{ option.port }}" }"#,
            r#"{ port = "9" }"#,
            "does not listen at port 9 within 1 s",
        ),
        ("unknown word", "{{ data }}\"\n[[role]]", "{{ dta }}\"\n[[role]]", "undefined value"),
        ("unknown key", "within = ", "withn = ", "withn"),
    ] {
        let scenario = Scenario::new(&format!("{LAB}{OWN_SERVICE}"));
        let recipe = OWN.replace("within = \"10s\"", "within = \"1s\"").replace(from, to);
        assert_ne!(recipe, OWN, "{what}");
        scenario.write("mine/system.toml", &recipe);
        let file = scenario.folder.path().join("scenario.toml");
        let up = run(&["lab", "up", file.to_str().unwrap(), "--name", "t-broken"]);
        assert_eq!(up.status, 2, "{what}: {}", up.stdout);
        assert!(up.stderr.contains(says), "{what}: {}", up.stderr);
        assert!(!run(&["lab", "list"]).stdout.contains("t-broken"), "{what}");
    }
}

// Spec: services.md#service-1 and services.md#service-2
#[test]
fn a_service_that_is_written_wrongly_is_refused_with_its_place_and_the_nearest_name() {
    for (from, to, says) in [
        ("xrootd\"", "xrotd\"", "did you mean `xrootd`?"),
        ("manager =", "manger =", "did you mean `manager`?"),
        ("shared = true", "shred = true", "did you mean `shared`?"),
        ("shared = true", "shared = 3", "expected true or false"),
        ("store-[1-2]", "stare-[1-2]", "no host is called"),
        ("server = \"store-[1-2]\"", "client = \"store-[1-2]\"", "needs a server"),
        ("store/f-{n}", "../f-{n}", "no path below"),
        ("content =", "replicas = { metadata = 2 }\ncontent =", "xrootd has no `replicas.metadata`"),
        ("content =", "replicas = { data = 3 }\ncontent =", "is 3, and the service has 2 servers"),
        ("store/f-{n}", "store/f", "need a path with {n}"),
    ] {
        let text = format!("{READ}{LAB}{CLUSTER}").replace(from, to);
        let scenario = Scenario::new(&text);
        let file = scenario.folder.path().join("scenario.toml");
        let check = run(&["check", file.to_str().unwrap()]);
        assert_eq!(check.status, 2, "{to}: {}", check.stdout);
        assert!(
            check.stderr.contains(says) && check.stderr.contains("scenario.toml:"),
            "{to}: {}",
            check.stderr
        );
    }
    let text = format!("{READ}{LAB}{CLUSTER}").replace("service:files", "service:fils");
    let file = Scenario::new(&text);
    let check = run(&["check", file.folder.path().join("scenario.toml").to_str().unwrap()]);
    assert!(check.status == 2 && check.stderr.contains("did you mean `files`?"), "{}", check.stderr);
}

/// Processes whose view of the files is made of something in this folder.
fn processes_that_see(mark: &str) -> usize {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let views = all.filter_map(|entry| fs::read_to_string(entry.path().join("mountinfo")).ok());
    views.filter(|view| view.contains(mark)).count()
}

// Spec: services.md#service-9
#[test]
fn whenever_a_run_with_services_is_killed_lab_down_dead_leaves_nothing_of_it() {
    need_lab();
    let _turn = beside();
    for number in 0..seeds(5) {
        // However many there are, they lie evenly apart, closer where systems are brought up.
        let place = (number as f64 * 0.618_034).fract();
        let delay_ms = 100 + (8_000.0 * place * place) as u64;
        let scenario = Scenario::new(&format!("{READ}{LAB}{CLUSTER}"));
        let file = scenario.folder.path().join("scenario.toml");
        let out = scenario.folder.path().join("results");
        let mut child = start(weir().args(["run", file.to_str().unwrap(), "--out", out.to_str().unwrap()]));
        std::thread::sleep(Duration::from_millis(delay_ms));
        child.kill().unwrap();
        let id = child.id();
        child.wait().unwrap();
        let runs = state_folder().join("data/runs");
        let of_run = || {
            let entries = fs::read_dir(&runs).into_iter().flatten().flatten();
            entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{id}-"))).count()
        };
        let mark = format!("{}/{id}-", runs.display());
        let gone = || processes_that_see(&mark) == 0;
        eventually("the processes of its hosts are gone", Duration::from_secs(10), gone);
        let down = run(&["lab", "down", "--dead"]);
        assert_eq!(down.status, 0, "{}", down.stderr);
        assert_eq!(of_run(), 0, "{delay_ms} ms");
    }
}
