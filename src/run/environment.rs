//! What the machine was like: `environment.json`.

use serde_json::{Map, Value, json};
use std::fs;

/// Kernel settings that change what TCP does, read where weir itself runs; a lab's hosts may have their own.
const SYSCTLS: &[&str] = &[
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/core/default_qdisc",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_mem",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_available_congestion_control",
    "net/ipv4/tcp_allowed_congestion_control",
    "net/ipv4/tcp_sack",
    "net/ipv4/tcp_timestamps",
    "net/ipv4/tcp_window_scaling",
];

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.lines().next()?.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Number of cores that may run this process.
pub fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Reads what can be read; what cannot is left out.
pub fn read(lab_notes: &[String]) -> Value {
    let mut environment = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            environment.insert(key.to_owned(), value);
        }
    };
    put("weir", Some(env!("CARGO_PKG_VERSION").into()));
    put("kernel", first_line("/proc/sys/kernel/osrelease").map(Value::from));
    put("kernel_version", first_line("/proc/sys/kernel/version").map(Value::from));
    put("distribution", field_of_release("PRETTY_NAME").map(Value::from));
    put("cpu_model", field("/proc/cpuinfo", "model name").map(Value::from));
    put("cpu_count", Some(core_count().into()));
    put("memory", field("/proc/meminfo", "MemTotal").map(Value::from));
    let clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    put("clock_source", first_line(clock).map(Value::from));
    put("clock", Some("shared".into()));
    put("load_average_before", first_line("/proc/loadavg").map(Value::from));
    let sysctls: Map<String, Value> = SYSCTLS
        .iter()
        .filter_map(|name| Some((name.replace('/', "."), first_line(&format!("/proc/sys/{name}"))?.into())))
        .collect();
    put("sysctls", Some(sysctls.into()));
    if !lab_notes.is_empty() {
        put("lab", Some(json!(lab_notes)));
    }
    environment.into()
}

fn field_of_release(name: &str) -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(line.trim_matches('"').to_owned())
}
