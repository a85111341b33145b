//! From what was looked at to findings, each with the command that mends it. Pure: facts in, words out.

use super::facts::{Facts, Tried};
use serde_json::{Value, json};
use weir_core::units::human;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Ok,
    /// Labs run; something is slower, clamped or missing for some uses.
    Note,
    /// No lab runs before this is mended.
    Problem,
}

impl Severity {
    /// As in the JSON document.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Problem => "problem",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Stable, for scripts: `tun`, `namespaces`, `buffers`, …
    pub name: &'static str,
    pub severity: Severity,
    /// What is so, and what it means for weir.
    pub text: String,
    /// The command that mends it, to be pasted into a shell; absent where there is nothing to mend or no command does it.
    pub mend: Option<String>,
}

impl Finding {
    /// As in the JSON document: `mend` is absent where there is none.
    pub fn json(&self) -> Value {
        let mut json = json!({"name": self.name, "severity": self.severity.name(), "text": self.text});
        if let Some(mend) = &self.mend {
            json["mend"] = mend.as_str().into();
        }
        json
    }
}

/// The path that buffers are held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    pub rate_bits_per_second: f64,
    pub rtt_seconds: f64,
}

impl Path {
    /// Bytes in flight when it is full.
    fn product_bytes(&self) -> f64 {
        self.rate_bits_per_second * self.rtt_seconds / 8.0
    }
    fn words(&self) -> String {
        format!("{} × {}", human(self.rate_bits_per_second, "bit/s"), human(self.rtt_seconds, "s"))
    }
}

fn ok(name: &'static str, text: impl Into<String>) -> Finding {
    Finding { name, severity: Severity::Ok, text: text.into(), mend: None }
}

fn note(name: &'static str, text: impl Into<String>, mend: Option<String>) -> Finding {
    Finding { name, severity: Severity::Note, text: text.into(), mend }
}

fn problem(name: &'static str, text: impl Into<String>, mend: &str) -> Finding {
    Finding { name, severity: Severity::Problem, text: text.into(), mend: Some(mend.to_owned()) }
}

/// Everything looked at, in the order in which one would mend it: what labs need, then the machine, then TCP.
pub fn findings(facts: &Facts, path: &Path) -> Vec<Finding> {
    let mut all = vec![privilege(facts), namespaces(facts), tun(facts), super_packets(facts), files(facts)];
    all.extend([cores(facts), quota(facts), memory(facts), load(facts)]);
    all.extend(stillness(facts));
    all.push(clock(facts));
    all.extend([buffers(facts, path), socket_memory(facts, path), congestion(facts), discipline(facts)]);
    all.extend([counters(facts), ring(facts), time(facts), programs(facts), systems(facts)]);
    all
}

/// The findings without which no lab runs.
#[cfg(feature = "lab")]
pub fn needed(facts: &Facts) -> Vec<Finding> {
    vec![privilege(facts), namespaces(facts), tun(facts)]
}

fn privilege(facts: &Facts) -> Finding {
    match facts.root {
        true => ok(
            "privilege",
            "root: labs may make namespaces and devices; programs in a lab run as who invoked weir",
        ),
        false => problem(
            "privilege",
            "not root: a lab makes network namespaces and TUN devices; measurements without a lab (weir net, weir agent) need no privilege",
            "sudo weir doctor",
        ),
    }
}

fn namespaces(facts: &Facts) -> Finding {
    let name = "namespaces";
    match &facts.namespace {
        Tried::Works => ok(name, "network namespaces can be made"),
        Tried::Forbidden if !facts.root => {
            note(name, "network namespaces: only root may make them, so this was not tried", None)
        }
        Tried::Forbidden => problem(
            name,
            "root may not make network namespaces here: this is a container without CAP_SYS_ADMIN",
            "docker run --privileged --device /dev/net/tun …",
        ),
        Tried::Missing => problem(
            name,
            format!("kernel {} has no network namespaces (CONFIG_NET_NS)", facts.kernel),
            "grep CONFIG_NET_NS /boot/config-$(uname -r)",
        ),
        Tried::Failed(error) => problem(
            name,
            format!("a network namespace could not be made: {error}"),
            "sudo sysctl -w user.max_net_namespaces=65536",
        ),
    }
}

fn tun(facts: &Facts) -> Finding {
    let name = "tun";
    let mode = facts.tun_mode.map_or(String::new(), |mode| format!(", mode {mode:04o}"));
    match &facts.tun {
        Tried::Works => ok(name, format!("/dev/net/tun opens{mode}")),
        Tried::Forbidden if !facts.root => note(
            name,
            format!("/dev/net/tun is there{mode}; only root may open it, which is what labs are started as"),
            None,
        ),
        Tried::Forbidden => problem(
            name,
            format!(
                "/dev/net/tun{mode} may not be opened even by root: the device is not allowed to this container"
            ),
            "docker run --privileged --device /dev/net/tun …",
        ),
        Tried::Missing if facts.tun_mode.is_some() => {
            problem(name, "/dev/net/tun is there and no driver is behind it", "sudo modprobe tun")
        }
        Tried::Missing => problem(
            name,
            "there is no /dev/net/tun: a lab's hosts are TUN devices",
            "sudo modprobe tun && sudo mkdir -p /dev/net && { test -e /dev/net/tun || sudo mknod -m 0666 /dev/net/tun c 10 200; }",
        ),
        Tried::Failed(error) => {
            problem(name, format!("/dev/net/tun cannot be used: {error}"), "sudo modprobe tun")
        }
    }
}

fn super_packets(facts: &Facts) -> Finding {
    let name = "super-packets";
    let Some(abilities) = facts.tun_abilities else {
        return note(name, "whether TUN carries super-packets was not tried: it could not be opened", None);
    };
    if !abilities.vnet_header || abilities.tcp_segmentation == Some(false) {
        return problem(
            name,
            format!(
                "the TUN driver of kernel {} takes no virtio-net headers or no TCP super-packets",
                facts.kernel
            ),
            "uname -r   # a lab needs Linux 4.9 or later",
        );
    }
    match abilities.udp_segmentation {
        Some(true) => ok(name, "TUN carries super-packets of TCP and UDP whole"),
        Some(false) => note(
            name,
            format!(
                "TUN carries super-packets of TCP; those of UDP need Linux 6.2, and kernel {} cuts them first: UDP at high rates costs more CPU",
                facts.kernel
            ),
            None,
        ),
        None => ok(name, "TUN takes virtio-net headers; which super-packets it carries is tried as root"),
    }
}

/// A lab of a hundred hosts: a device, a namespace and three streams of an agent each, and the fabric's own.
const FILES_LEAST: u64 = 1_024;

fn files(facts: &Facts) -> Finding {
    let name = "limits";
    let told = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |it| it.to_string());
    let Some((soft, hard)) = facts.open_files else {
        return note(name, "limits of open files cannot be read", None);
    };
    let locked = facts.locked_bytes.map_or(String::new(), |(soft, _)| {
        format!(", locked memory {}", soft.map_or("unlimited".to_owned(), |it| human(it as f64, "B")))
    });
    let text = format!("open files {} (at most {}){locked}", told(soft), told(hard));
    if hard.is_some_and(|hard| hard < FILES_LEAST) {
        return note(
            name,
            format!("{text}: a lab of more than about {} hosts runs out of descriptors", hard.unwrap_or(0) / 8),
            Some("ulimit -Hn 65536 && ulimit -n 65536   # for good: a line `* - nofile 65536` in /etc/security/limits.conf".to_owned()),
        );
    }
    ok(name, format!("{text}; weir raises its own as far as it may"))
}

fn cores(facts: &Facts) -> Finding {
    let name = "cores";
    match facts.cores {
        1 => note(
            name,
            "one core: hosts and emulator take turns on it, so lateness and rates of a lab suffer; trials say when they are emulator-limited",
            None,
        ),
        count => ok(name, format!("{count} cores")),
    }
}

fn quota(facts: &Facts) -> Finding {
    let name = "cpu-quota";
    match &facts.cpu_quota {
        None => ok(name, "no CPU quota of a control group"),
        Some(bound) if bound.value >= facts.cores as f64 => {
            ok(name, format!("CPU quota of {:.2} cores, no less than there are", bound.value))
        }
        Some(bound) => {
            let file = bound.file.display();
            let free = if bound.file.ends_with("cpu.max") { "max" } else { "-1" };
            note(
                name,
                format!(
                    "a control group grants {:.2} of {} cores: when it is used up everything stands still for tens of milliseconds, which no lab can hide",
                    bound.value, facts.cores
                ),
                Some(format!("echo {free} | sudo tee {file}")),
            )
        }
    }
}

/// What a lab of a few hosts with large buffers takes.
const MEMORY_LEAST_BYTES: f64 = 1e9;

fn memory(facts: &Facts) -> Finding {
    let name = "memory";
    let limit = facts.memory_limit.as_ref();
    let total = facts.memory_bytes.unwrap_or(f64::INFINITY);
    match limit.filter(|limit| limit.value < total) {
        Some(limit) if limit.value < MEMORY_LEAST_BYTES => note(
            name,
            format!(
                "a control group grants {}: the kernel may kill a lab whose queues and sockets grow beyond it",
                human(limit.value, "B")
            ),
            Some(format!(
                "echo {} | sudo tee {}",
                if limit.file.ends_with("memory.max") { "max" } else { "-1" },
                limit.file.display()
            )),
        ),
        Some(limit) => ok(name, format!("{} granted by a control group", human(limit.value, "B"))),
        None if total < MEMORY_LEAST_BYTES => note(
            name,
            format!("{} of memory: keep queues and buffers of a lab small", human(total, "B")),
            None,
        ),
        None if total.is_finite() => {
            ok(name, format!("{} of memory, no limit of a control group", human(total, "B")))
        }
        None => note(name, "the size of the memory cannot be read", None),
    }
}

fn load(facts: &Facts) -> Finding {
    let name = "load";
    let Some(busy) = facts.busy_ratio else { return note(name, "what else runs cannot be read", None) };
    let stolen = facts.stolen_ratio.unwrap_or(0.0);
    if stolen > 0.02 {
        return note(
            name,
            format!(
                "the hypervisor took {:.0} % of the CPU time just now: other machines disturb what is measured here",
                stolen * 100.0
            ),
            Some("vmstat 1 10   # column st; another time or another machine".to_owned()),
        );
    }
    if busy > 0.25 {
        return note(
            name,
            format!(
                "the machine was {:.0} % busy just now, before anything of weir ran: results will carry it",
                busy * 100.0
            ),
            Some("top -b -n 1 | head -n 15".to_owned()),
        );
    }
    ok(name, format!("{:.0} % busy, {:.0} % taken by a hypervisor", busy * 100.0, stolen * 100.0))
}

/// More of the cores' time than this in gaps is felt: 99 % of deliveries are judged.
const STILL_MAX: f64 = 0.005;

fn stillness(facts: &Facts) -> Option<Finding> {
    let name = "stillness";
    let seen = facts.stillness?;
    let share = format!("{:.1} %", seen.ratio * 100.0);
    let longest = human(seen.longest_seconds, "s");
    if seen.ratio <= STILL_MAX {
        return Some(ok(
            name,
            format!("busy cores stood still {share} of the time, {longest} at the longest"),
        ));
    }
    Some(note(
        name,
        format!(
            "busy cores stood still {} times just now, {share} of the time, up to {longest} each: the hypervisor, or who else has \
             such priority, takes them away, and a fabric is late then (emulator-limited trials, wide intervals)",
            seen.gaps
        ),
        None,
    ))
}

/// Clock sources that are read without asking a device or the hypervisor.
const QUICK_CLOCKS: [&str; 5] =
    ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase"];

fn clock(facts: &Facts) -> Finding {
    let name = "clock";
    let Some(source) = &facts.clock_source else {
        return note(name, "the clock source cannot be read", None);
    };
    if QUICK_CLOCKS.contains(&source.as_str()) {
        return ok(name, format!("clock source {source}"));
    }
    let better = QUICK_CLOCKS.into_iter().find(|quick| facts.clock_sources.iter().any(|it| it == quick));
    note(
        name,
        format!(
            "clock source {source}: reading it takes a system call or a device, which every timestamp pays"
        ),
        better.map(|better| {
            format!(
                "echo {better} | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"
            )
        }),
    )
}

fn buffers(facts: &Facts, path: &Path) -> Finding {
    let name = "buffers";
    // The kernel counts its own book-keeping against a buffer: twice the bytes in flight carry them.
    let wanted = 2.0 * path.product_bytes();
    let settings = [
        ("net.core.rmem_max", facts.receive_bytes_max, ""),
        ("net.core.wmem_max", facts.send_bytes_max, ""),
        ("net.ipv4.tcp_rmem", facts.grown_receive_bytes_max, "4096 131072 "),
        ("net.ipv4.tcp_wmem", facts.grown_send_bytes_max, "4096 16384 "),
    ];
    let small: Vec<_> = settings
        .iter()
        .filter_map(|(key, value, lead)| Some((*key, (*value)?, *lead)))
        .filter(|it| it.1 < wanted)
        .collect();
    let words = path.words();
    if small.is_empty() {
        return ok(
            name,
            format!("buffers may grow to what a path of {words} needs ({})", human(wanted, "B")),
        );
    }
    let said: Vec<String> =
        small.iter().map(|(key, value, _)| format!("{key} is {}", human(*value, "B"))).collect();
    let set: Vec<String> =
        small.iter().map(|(key, _, lead)| format!("{key}=\"{lead}{:.0}\"", wanted.ceil())).collect();
    note(
        name,
        format!(
            "a path of {words} needs buffers of {}; {}: larger requests are clamped without a word (rmem_max, wmem_max), and \
             buffers grow no further by themselves (tcp_rmem, tcp_wmem, which a lab's hosts have of their own)",
            human(wanted, "B"),
            said.join(", ")
        ),
        Some(format!("sudo sysctl -w {}", set.join(" "))),
    )
}

fn socket_memory(facts: &Facts, path: &Path) -> Finding {
    let name = "socket-memory";
    let Some((pressure, most)) = facts.tcp_memory_bytes else {
        return note(name, "net.ipv4.tcp_mem cannot be read", None);
    };
    // Both ends of a lab's path are on this machine, each with a buffer of twice what is in flight.
    let wanted = 4.0 * path.product_bytes();
    if pressure >= wanted {
        return ok(name, format!("TCP may hold {} before the kernel shrinks windows", human(pressure, "B")));
    }
    let pages = |bytes: f64| (bytes / facts.page_bytes).ceil();
    note(
        name,
        format!(
            "TCP of the whole machine may hold {} before the kernel shrinks windows and {} in all; one flow over a path of {} in a lab takes up to {}",
            human(pressure, "B"),
            human(most, "B"),
            path.words(),
            human(wanted, "B")
        ),
        Some(format!(
            "sudo sysctl -w net.ipv4.tcp_mem=\"{:.0} {:.0} {:.0}\"",
            pages(wanted * 0.75),
            pages(wanted),
            pages(wanted * 1.5)
        )),
    )
}

/// What scenarios ask for most; `legacy` needs reno, which every kernel has.
const CONTROLS: [&str; 3] = ["cubic", "reno", "bbr"];

fn congestion(facts: &Facts) -> Finding {
    let name = "congestion-control";
    let has = |list: &[String], wanted: &str| list.iter().any(|it| it == wanted);
    let (available, allowed) = (&facts.congestion_available, &facts.congestion_allowed);
    if available.is_empty() {
        return note(name, "the congestion controls of this kernel cannot be read", None);
    }
    let missing: Vec<&str> = CONTROLS.into_iter().filter(|it| !has(available, it)).collect();
    let reserved: Vec<&str> =
        CONTROLS.into_iter().filter(|it| has(available, it) && !has(allowed, it)).collect();
    let default = facts.congestion_default.as_deref().unwrap_or("unknown");
    let there = format!("{} available, {default} the default", available.join(" "));
    if !missing.is_empty() {
        let modules: Vec<String> = missing.iter().map(|it| format!("tcp_{it}")).collect();
        return note(
            name,
            format!("{there}; {} not loaded: a step that asks for one is refused", missing.join(" and ")),
            Some(format!("sudo modprobe -a {}", modules.join(" "))),
        );
    }
    if !reserved.is_empty() {
        let mut all: Vec<&str> = allowed.iter().map(String::as_str).collect();
        all.extend(&reserved);
        return note(
            name,
            format!(
                "{there}; {} reserved to root: programs that a lab runs for a user cannot choose it, and it cannot be a lab's default",
                reserved.join(" and ")
            ),
            Some(format!("sudo sysctl -w net.ipv4.tcp_allowed_congestion_control=\"{}\"", all.join(" "))),
        );
    }
    ok(name, format!("{there}, open to all programs"))
}

fn discipline(facts: &Facts) -> Finding {
    let name = "queueing-discipline";
    match facts.queueing_discipline.as_deref() {
        None => note(name, "net.core.default_qdisc cannot be read", None),
        Some("noqueue") => note(
            name,
            "the default queueing discipline is noqueue: a host's interface drops at once what it cannot send",
            Some("sudo sysctl -w net.core.default_qdisc=fq_codel".to_owned()),
        ),
        Some(discipline) => {
            ok(name, format!("default queueing discipline {discipline}; a lab's queues are the fabric's own"))
        }
    }
}

fn counters(facts: &Facts) -> Finding {
    let name = "tcp-counters";
    let mut lacking = Vec::new();
    if facts.tcp_times == Some(false) {
        lacking.push("TCP_INFO has no busy and limited times (Linux 4.10): windows and buffers cannot be named as limiting factors");
    }
    if !facts.thread_wait {
        lacking.push("/proc/thread-self/schedstat is missing: a thread that waits for a core is not told from one that waits for the network");
    }
    if !lacking.is_empty() {
        return note(name, lacking.join("; "), None);
    }
    match facts.tcp_times {
        Some(_) => ok(name, "TCP and the scheduler tell what limiting factors are named from"),
        None => note(
            name,
            "the counters of a TCP connection could not be tried: no connection over the loopback",
            Some("sudo ip link set lo up".to_owned()),
        ),
    }
}

fn ring(facts: &Facts) -> Finding {
    let name = "io_uring";
    match &facts.io_uring {
        Tried::Works => ok(name, "io_uring can be used"),
        Tried::Forbidden => note(
            name,
            "io_uring is forbidden here; nothing but storage load at depth would want it",
            Some("sudo sysctl -w kernel.io_uring_disabled=0".to_owned()),
        ),
        Tried::Missing => note(
            name,
            format!(
                "kernel {} has no io_uring; nothing but storage load at depth would want it",
                facts.kernel
            ),
            None,
        ),
        Tried::Failed(error) => note(name, format!("io_uring: {error}"), None),
    }
}

fn time(facts: &Facts) -> Finding {
    match facts.time_namespace {
        true => ok("time-namespace", "time namespaces are there: shifted clocks can be tried out"),
        false => {
            note("time-namespace", "no time namespaces (Linux 5.6): shifted clocks cannot be tried out", None)
        }
    }
}

fn programs(facts: &Facts) -> Finding {
    let name = "programs";
    if facts.missing_programs.is_empty() {
        return ok(name, "ssh, tcpdump and iperf3 are there");
    }
    let package = |program: &'static str| if program == "ssh" { "openssh-client" } else { program };
    let packages: Vec<&str> = facts.missing_programs.iter().copied().map(package).collect();
    note(
        name,
        format!(
            "not on this machine: {} (ssh starts agents on [hosts], tcpdump reads captures, iperf3 compares)",
            facts.missing_programs.join(", ")
        ),
        facts.install.map(|install| format!("sudo {install} {}", packages.join(" "))),
    )
}

/// What services need: an overlay for their hosts, and their programs.
fn systems(facts: &Facts) -> Finding {
    let name = "systems";
    if !facts.overlay {
        let text =
            "the kernel knows no overlay file system: services ([[service]]) cannot be started in a lab";
        return note(name, text, Some("sudo modprobe overlay".to_owned()));
    }
    if facts.missing_systems.is_empty() {
        return ok(name, "every system that a service may be is installed (`weir list system`)");
    }
    let names: Vec<&str> = facts.missing_systems.iter().map(|(name, _)| name.as_str()).collect();
    let packages: Vec<&str> =
        facts.missing_systems.iter().flat_map(|(_, packages)| packages).map(String::as_str).collect();
    let text = format!("not installed: {} (for services in a lab; `weir list system`)", names.join(", "));
    note(name, text, facts.install.map(|install| format!("sudo {install} {}", packages.join(" "))))
}

#[cfg(test)]
mod tests;
