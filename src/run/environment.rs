//! What the machine was like: `environment.json`.

use crate::machine::{self, Bound, first_line};
use serde_json::{Map, Value, json};
use std::fs;
use std::time::Duration;

/// Kernel settings that change what the network does, read where weir itself runs; a lab's hosts may have their own.
const SYSCTLS: &[&str] = &[
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.core.default_qdisc",
    "net.core.netdev_max_backlog",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.somaxconn",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_mem",
    "net.ipv4.udp_mem",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_dsack",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_recovery",
    "net.ipv4.tcp_frto",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_reordering",
    "net.ipv4.tcp_max_reordering",
    "net.ipv4.tcp_early_retrans",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_tso_win_divisor",
    "kernel.sched_rt_runtime_us",
];

/// How long a machine is watched before anything of the run begins.
pub const WATCHED: Duration = Duration::from_millis(100);

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Reads what can be read; what cannot is left out. Watches for so long what else runs, unless that is zero.
pub fn read(watched: Duration) -> Map<String, Value> {
    let before = machine::ticks();
    std::thread::sleep(watched);
    let shares = before.zip(machine::ticks()).and_then(|(before, after)| machine::shares(before, after));
    let mut environment = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            environment.insert(key.to_owned(), value);
        }
    };
    put("weir", Some(env!("CARGO_PKG_VERSION").into()));
    put("kernel", machine::sysctl("kernel.osrelease").map(Value::from));
    put("kernel_version", machine::sysctl("kernel.version").map(Value::from));
    put("distribution", field_of_release("PRETTY_NAME").map(Value::from));
    put("virtualisation", Some(machine::virtualisation()));
    put("cpu_model", field("/proc/cpuinfo", "model name").map(Value::from));
    put("cpu_count", Some(machine::core_count().into()));
    put("cpu_online", first_line("/sys/devices/system/cpu/online").map(Value::from));
    let governor = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    put("cpu_governor", first_line(governor).map(Value::from));
    put("cpu_quota", machine::cpu_quota().map(|bound| bounded("cores", &bound)));
    put("memory", field("/proc/meminfo", "MemTotal").map(Value::from));
    put("memory_available_before", field("/proc/meminfo", "MemAvailable").map(Value::from));
    put("memory_limit", machine::memory_limit().map(|bound| bounded("bytes", &bound)));
    let clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    put("clock_source", first_line(clock).map(Value::from));
    put("clock", Some("shared".into()));
    put("load_average_before", first_line("/proc/loadavg").map(Value::from));
    put("busy_ratio_before", shares.map(|(busy, _)| busy.into()));
    put("stolen_ratio_before", shares.map(|(_, stolen)| stolen.into()));
    put("interfaces", Some(machine::interfaces()));
    let sysctls: Map<String, Value> =
        SYSCTLS.iter().filter_map(|name| Some(((*name).to_owned(), machine::sysctl(name)?.into()))).collect();
    put("sysctls", Some(sysctls.into()));
    environment
}

/// What was read before anything began, with what the lab says of itself: `notes` on what the machine forbids.
#[cfg(feature = "lab")]
pub fn with_lab(environment: &Map<String, Value>, notes: &[String]) -> Value {
    let mut environment = environment.clone();
    if !notes.is_empty() {
        environment.insert("lab".to_owned(), json!(notes));
    }
    environment.into()
}

fn bounded(unit: &str, bound: &Bound) -> Value {
    json!({ unit: bound.value, "file": bound.file.display().to_string() })
}

fn field_of_release(name: &str) -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(line.trim_matches('"').to_owned())
}
