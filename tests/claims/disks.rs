//! Disks of stated speed under a real server, as its clients and programs on its host see them.

use super::replay::{of_trial, passed};
use super::services::{self, Scenario};
use super::support::lab::bring_up;
use super::support::{beside, need_lab, run, run_file, run_settled, settled, turn};
use std::fs;

const LAB: &str = r#"
[lab]
[[lab.site]]
name   = "store"
hosts  = 1
access = { rate = "1Gbit/s", delay = "20us", mtu = 1500 }
[[lab.site]]
name   = "user"
hosts  = 1
access = { rate = "1Gbit/s", delay = "20us", mtu = 1500 }
[[lab.link]]
name    = "wan"
between = ["store", "user"]
rate    = "200Mbit/s"
rtt     = "20ms"
[[service]]
name    = "files"
system  = "xrootd"
place   = { server = "store-0" }
disk    = { size = "300MB", rate = "20MB/s", position = "8ms" }
content = { path = "store/f-{n}", files = 1, size = "200MB" }
"#;

const READS: &str = r#"
[scenario]
name = "slow-disk"
trials = 1
[[step]]
name     = "read"
workload = "io-seq"
hosts    = "user-0"
target   = "service:files/store/f-0"
size     = "1MiB"
depth    = 4
verify   = true
duration = "3s"
warm_up  = "1s"
[[step]]
name     = "seek"
workload = "io-random"
hosts    = "user-0"
target   = "service:files/store/f-0"
size     = "8KiB"
depth    = 8
verify   = true
duration = "3s"
warm_up  = "1s"
[[case]]
name = "slow"
[[case]]
name = "fast"
set  = { "service.files.disk.rate" = "1GB/s", "service.files.disk.position" = "0s" }
[[criterion]]
text = "a slow disk holds who reads it in sequence and who seeks in it"
case = "slow"
limiting_factor = "disk-read"
[[criterion]]
text = "a fast one leaves it to the link"
case = "fast"
where = { step = "read" }
limiting_factor = "link-rate"
[[criterion]]
text = "the disk gives no more than its rate"
case = "slow"
where = { step = "read" }
metric = "io.bytes_total_per_second"
at_most = "21MB/s"
[[criterion]]
text = "nothing is other than it was written"
metric = "io.mismatched_operations"
at_most = 0
"#;

// Spec: disk.md#disk-9 and disk.md#disk-1
#[test]
fn a_slow_disk_is_named_as_what_holds_its_readers_and_a_fast_one_is_not() {
    need_lab();
    let _turn = beside();
    let (status, summary, ran) = run_settled(&format!("{READS}{LAB}"), &[]);
    assert_eq!(status, 0, "{summary:#}\n{}", ran.stderr);
}

const TROUBLES: &str = r#"
[scenario]
name = "troubled-disk"
trials = 1
[[step]]
name     = "read"
workload = "io-random"
hosts    = "user-0"
target   = "service:files/store/f-0"
size     = "8KiB"
depth    = 2
verify   = true
duration = "6s"
timeout  = "20s"
[[fault]]
name = "stuck"
step = "read"
at   = "1s"
on   = "service.files.disk"
do   = { stuck = { for = "1500ms" } }
[[fault]]
name = "fails"
step = "read"
at   = "4s"
on   = "service.files.disk.store-0"
do   = { errors = { ratio = 1.0, for = "1s" } }
[[criterion]]
text = "while it is stuck nothing is read"
metric = "io.pause_seconds.max"
between = ["1400ms", "2500ms"]
[[criterion]]
text = "what cannot be read the server tells its reader, who goes on"
metric = "io.failed_operations"
at_least = 5
[[criterion]]
text = "and nothing is wrong"
metric = "io.mismatched_operations"
at_most = 0
"#;

// Spec: disk.md#disk-10
#[test]
fn a_disk_that_is_stuck_stops_its_readers_for_so_long_and_the_server_tells_of_one_with_errors() {
    need_lab();
    let _turn = beside();
    let quick = LAB.replace("rate = \"20MB/s\", position = \"8ms\"", "position = \"1ms\"");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    fs::write(&file, format!("{TROUBLES}{quick}")).unwrap();
    let (status, summary, ran) = settled(|| run_file(&file, folder.path(), &[]), |(_, summary, _)| summary);
    assert_eq!(status, 0, "{summary:#}\n{}", ran.stderr);
    let log = std::path::Path::new(summary["results"].as_str().unwrap())
        .join("services/files/store-0/server/log/xrootd.out");
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("input/output error"), "{log}");
    let wrong = format!("{TROUBLES}{LAB}").replace("service.files.disk.store-0", "service.files.server");
    fs::write(&file, wrong).unwrap();
    let refused = run(&["check", file.to_str().unwrap()]);
    assert!(refused.status == 2 && refused.stderr.contains("are of disks"), "{}", refused.stderr);
}

// Spec: services.md#service-17 and disk.md#disk-4
#[test]
fn caches_are_empty_at_each_trial_unless_a_step_keeps_them() {
    need_lab();
    let _turn = turn();
    let fastest = |caches: &str| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("scenario.toml");
        let step = "[scenario]\nname = \"cold\"\ntrials = 3\n[[step]]\nname = \"read\"\nworkload = \"io-seq\"\nhosts = \"user-0\"\ntarget = \"service:files/store/f-0\"\nsize = \"1MiB\"\ndepth = 4\n";
        // Slow enough that the lab carries what comes from the cache with ease.
        let lab = LAB.replace("200MB", "12MiB").replace("500Mbit/s", "200Mbit/s").replace(
            "rate = \"20MB/s\", position = \"8ms\"",
            "rate = \"10MB/s\", position = \"1ms\", cache = \"64MiB\"",
        );
        fs::write(&file, format!("{step}caches = \"{caches}\"\n{lab}")).unwrap();
        let out = folder.path().join("out");
        let (_, summary, _) = settled(|| run_file(&file, &out, &[]), |(_, summary, _)| summary);
        let rates = &summary["points"][0]["metrics"]["io.bytes_total_per_second"];
        rates["max"].as_f64().unwrap_or_else(|| panic!("{summary:#}"))
    };
    let (reset, kept) = (fastest("reset"), fastest("kept"));
    assert!(reset < 10.5e6 && kept > 15e6, "{reset} {kept}");
}

/// A program that has a file sent, as servers do, three times over while it is open: MB/s of each.
const SENDS: &str = r#"
import os, socket, threading, time
size = 24 << 20
file = os.open("/var/lib/weir-disks/files/store/f-0", os.O_RDONLY)
into, out = socket.socketpair()
def drain():
    left = size
    while left > 0:
        left -= len(out.recv(1 << 20))
for _ in range(3):
    reader = threading.Thread(target=drain)
    reader.start()
    began, offset = time.monotonic(), 0
    while offset < size:
        offset += os.sendfile(into.fileno(), file, offset, min(1 << 20, size - offset))
    reader.join()
    print(size / (time.monotonic() - began) / 1e6)
    time.sleep(0.1)
"#;

// Spec: disk.md#disk-6
#[test]
fn what_a_server_sends_again_comes_from_the_disk_again_and_not_from_the_kernels_cache() {
    need_lab();
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lab.toml");
    fs::write(&file, LAB.replace("200MB", "24MiB")).unwrap();
    bring_up(file.to_str().unwrap(), "t-sent");
    let sent = run(&["lab", "exec", "t-sent", "store-0", "--root", "--", "python3", "-c", SENDS]);
    run(&["lab", "down", "t-sent"]);
    let rates: Vec<f64> = sent.stdout.lines().map(|line| line.parse().unwrap()).collect();
    // The disk gives 20 MB/s; a machine that is busy makes it slower, but not by much, and nothing may make it faster.
    assert!(
        rates.len() == 3 && rates.iter().all(|rate| (5.0..21.0).contains(rate)),
        "{rates:?} {}",
        sent.stderr
    );
}

// Spec: disk.md#disk-6, disk.md#disk-7 and disk.md#disk-8
#[test]
fn a_disk_is_a_file_system_that_holds_what_it_says_and_keeps_what_programs_give_it() {
    need_lab();
    let _turn = beside();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lab.toml");
    let fast = LAB.replace("rate = \"20MB/s\", position = \"8ms\"", "cache = \"1MB\"");
    fs::write(&file, fast).unwrap();
    bring_up(file.to_str().unwrap(), "t-disk");
    let script = r#"
        set -e
        cd /var/lib/weir-disks/files
        mkdir -p a/b && echo one > a/b/f && ln a/b/f a/hard && ln -s b/f a/soft
        chown nobody a/b/f && chmod 4750 a/b/f && touch -d '2001-02-03 04:05:06' a/b/f
        test "$(stat -c '%a %U %h %Y' a/hard)" = "4750 nobody 2 $(date -d '2001-02-03 04:05:06' +%s)"
        test "$(cat a/soft)" = one
        echo two >> a/b/f && test "$(cat a/hard | tr '\n' ' ')" = "one two "
        python3 -c "
import os
os.setxattr('a/b/f', 'trusted.weir', b'x')
assert os.getxattr('a/hard', 'trusted.weir') == b'x'
assert 'trusted.weir' in os.listxattr('a/b/f')
f = os.open('a/direct', os.O_RDWR | os.O_CREAT | os.O_DIRECT)
import mmap
m = mmap.mmap(-1, 8192); m.write(b'd' * 8192)
assert os.writev(f, [m]) == 8192 and os.pread(f, 10, 8190) == b'dd'
os.unlink('a/direct'); assert os.fstat(f).st_size == 8192; os.ftruncate(f, 5); assert os.pread(f, 10, 0) == b'd' * 5
"
        mv a c && test "$(cat c/soft | wc -l)" = 2 && rm -r c
        touch -- c && mv c d && ls | grep -qx d && rm d
        if dd if=/dev/zero of=big bs=1M count=200 2>dd.err; then echo "there is no room for this"; exit 1; fi
        grep -q 'No space left' dd.err
        test "$(df --output=avail . | tail -1)" -lt 2000
        rm big dd.err
        dd if=/dev/zero of=big bs=1M count=90 2>/dev/null && rm big
        echo good
    "#;
    let ran = run(&["lab", "exec", "t-disk", "store-0", "--root", "--", "sh", "-c", script]);
    let stock = run(&[
        "lab",
        "exec",
        "t-disk",
        "user-0",
        "--",
        "sh",
        "-c",
        "xrdcp -s root://store-0//store/f-0 - | wc -c",
    ]);
    let around = run(&[
        "lab",
        "exec",
        "t-disk",
        "store-0",
        "--root",
        "--",
        "sh",
        "-c",
        "find / -xdev -name f-0 | wc -l",
    ]);
    assert_eq!(run(&["lab", "down", "t-disk"]).status, 0);
    assert_eq!((ran.status, ran.stdout.trim()), (0, "good"), "{}", ran.stderr);
    assert_eq!(stock.stdout.trim(), "200000000", "{}", stock.stderr);
    assert_eq!(around.stdout.trim(), "0", "the disk's folder is seen in the host");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("weir-disk"), "{mounts}");
}

const SPREAD: &str = r#"
[scenario]
name = "spread"
about = "A system that keeps what it has on several disks of each server"
trials = 2
[[service]]
name = "site"
system = "glusterfs"
place = { server = ["store-0", "store-1"], client = "user-0" }
mount = { at = "/site/files" }
stripe = { unit = "4MiB" }
disk = { size = "500MB", rate = "100MB/s", position = "1ms", count = 2 }
content = { path = "store/f-{n}", files = 1, size = "160MiB" }
[[step]]
name = "read"
workload = "io-seq"
hosts = "user-0"
target = "service:site/store/f-0"
size = "1MiB"
depth = 4
verify = true
duration = "4s"
[[fault]]
name = "slow"
at = "1s"
on = "service.site.disk.store-1.1"
do = { slow = { factor = 4.0, for = "1s" } }
[[criterion]]
text = "all is as it was written"
metric = "io.mismatched_operations"
at_most = 0
"#;

// Spec: services.md#service-13, disk.md#disk-9 and disk.md#disk-10
#[test]
fn a_system_spreads_what_it_keeps_over_several_disks_of_each_server_and_a_fault_names_one() {
    need_lab();
    let _turn = beside();
    let text = format!("{SPREAD}{}", services::LAB);
    let scenario = Scenario::new(&text);
    let results = passed(&scenario);
    let trials = fs::read_to_string(results.join("trials.jsonl")).unwrap();
    for disk in ["store-0.0", "store-0.1", "store-1.0", "store-1.1"] {
        let entity = format!("service.site.disk.{disk}");
        let read = of_trial(&trials, "read", 0, "disk.read_bytes_per_second", &entity);
        assert!(read > 1e6, "{disk} gave {read} bytes/s: {trials}");
    }
    let events = fs::read_to_string(results.join("timeline.jsonl")).unwrap();
    assert!(events.contains("disk 1 of site on store-1") && !events.contains("but "), "{events}");
    for (from, to, says) in [
        ("store-1.1\"", "store-1.2\"", "numbered from 0 to 1"),
        ("count = 2", "count = 65", "count"),
        ("system = \"glusterfs\"", "system = \"webdav\"", "can have 1 of them, not 2"),
    ] {
        let refused = Scenario::new(&text.replace(from, to)).run(&[]);
        assert!(refused.status == 2 && refused.stderr.contains(says), "{}", refused.stderr);
    }
}

const SPREAD_NAMES: &str = r#"
[scenario]
name = "spread-names"
about = "Servers that keep their files on several disks each, under one root"
trials = 2
[[service]]
name = "site"
system = "xrootd"
place = { manager = "store-0", server = ["store-1", "store-2"] }
disk = { size = "200MB", rate = "100MB/s", position = "1ms", count = 2 }
content = { path = "store/f-{n}", files = 8, size = "4MiB" }
[[step]]
name = "read"
workload = "replay"
hosts = "user-0"
target = "service:site/store/f-{n}"
file_count = 8
jobs = 8
files_per_job = 1
trace = "random-1"
reads = 60
think = "20ms"
[[step]]
name = "write"
workload = "io-burst"
hosts = "user-0"
target = "service:site/new"
jobs = 8
size = "2MB"
repetitions = 1
verify = true
[[criterion]]
text = "every file is found, whichever disk it is on"
metric = "replay.failed_jobs"
at_most = 0
[[criterion]]
text = "what is written anew is there too"
metric = "io.failed_operations"
at_most = 0
"#;

// Spec: services.md#service-13
#[test]
fn xrootd_serves_what_several_disks_of_each_server_hold_and_deals_what_is_written_over_them() {
    need_lab();
    let _turn = beside();
    // So few and late packets that no busy machine holds them back.
    let lab = services::LAB.replace("mtu = 1500", "mtu = 9000");
    let lab = lab.replace("500Mbit/s", "100Mbit/s").replace("4ms", "40ms");
    let text = format!("{SPREAD_NAMES}{lab}");
    let scenario = Scenario::new(&text);
    let results = passed(&scenario);
    let trials = fs::read_to_string(results.join("trials.jsonl")).unwrap();
    for disk in ["store-1.0", "store-1.1", "store-2.0", "store-2.1"] {
        let entity = format!("service.site.disk.{disk}");
        for (step, metric) in
            [("read", "disk.read_bytes_per_second"), ("write", "disk.written_bytes_per_second")]
        {
            let moved = of_trial(&trials, step, 0, metric, &entity);
            assert!(moved > 1e3, "{disk} has {moved} bytes/s of {metric}: {trials}");
        }
    }
    let origin = "[[service]]\nname = \"far\"\nsystem = \"xrootd\"\nplace = { server = \"user-0\" }\n";
    let with_origin = text.replacen("[[service]]", &format!("{origin}[[service]]"), 1);
    let with_origin = with_origin.replace("name = \"site\"", "name = \"site\"\norigin = \"far\"");
    for (text, says) in [
        (with_origin, "keeps on one disk a server"),
        (
            text.replace("system = \"xrootd\"", "system = \"xrootd\"\nset.xrootd = { replicas-data = 3 }"),
            "2 have storage",
        ),
    ] {
        let refused = Scenario::new(&text).run(&[]);
        assert!(refused.status == 2 && refused.stderr.contains(says), "{}", refused.stderr);
    }
}

const TWIN_TAILED: &str = r#"
[scenario]
name = "twin-tailed"
about = "Two servers before one array: one takes over what the other served"
trials = 1
[[service]]
name = "files"
system = "xrootd"
place = { manager = "store-0", server = ["store-1", "store-2"] }
disk = { size = "100MB", rate = "8MB/s", position = "1ms" }
content = { path = "store/f-{n}", files = 4, size = "8MiB" }
set.xrootd = { shared = true }
[[step]]
name = "read"
workload = "io-random"
hosts = "user-0"
target = "service:files/store"
jobs = 4
depth = 8
size = "64KiB"
verify = true
duration = "8s"
timeout = "6s"
[[fault]]
name = "one"
at = "3s"
on = "service.files.server.store-1"
do = { kill = {} }
[[criterion]]
text = "nothing is other than it was written"
metric = "io.mismatched_operations"
at_most = 0
[[criterion]]
text = "nobody waits for long"
metric = "io.pause_seconds"
at_most = "4s"
[[criterion]]
text = "and no read fails"
metric = "io.failed_operations"
at_most = 0
[[criterion]]
text = "both together give no more than their array"
metric = "io.bytes_total_per_second"
between = ["3MB/s", "8.1MB/s"]
"#;

// Spec: disk.md#disk-5
#[test]
fn of_two_servers_before_one_array_one_takes_over_what_the_other_served() {
    need_lab();
    let _turn = beside();
    let lab = services::LAB.replace("mtu = 1500", "mtu = 9000").replace("4ms", "80ms");
    let text = format!("{TWIN_TAILED}{lab}");
    let scenario = Scenario::new(&text);
    let results = passed(&scenario);
    let trials = fs::read_to_string(results.join("trials.jsonl")).unwrap();
    for server in ["store-1", "store-2"] {
        let entity = format!("service.files.disk.{server}");
        let read = of_trial(&trials, "read", 0, "disk.read_bytes_per_second", &entity);
        assert!(read > 500e3, "{server} gave {read} bytes/s: {trials}");
    }
    let refused = Scenario::new(&text.replace("rate = \"8MB/s\"", "rate = \"8MB/s\", count = 2")).run(&[]);
    assert!(refused.status == 2 && refused.stderr.contains("of one array"), "{}", refused.stderr);
}
