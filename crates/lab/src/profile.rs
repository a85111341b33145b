//! What a host's `tcp_profile` changes in the settings of its namespace.

use crate::limits::Limits;
use std::io;
use weir_core::topology::TcpProfile;
use weir_sys::sysctl::Sysctls;

/// TCP as hosts had it in 2005: no selective acknowledgements, no time stamps, and none of what later made it withstand
/// reordering.
const LEGACY: [(&str, &str); 8] = [
    ("tcp_sack", "0"),
    ("tcp_dsack", "0"),
    ("tcp_timestamps", "0"),
    ("tcp_recovery", "0"),
    ("tcp_frto", "0"),
    ("tcp_early_retrans", "0"),
    ("tcp_reordering", "3"),
    ("tcp_max_reordering", "3"),
];

/// Brings the calling thread's namespace, whose settings these are, to the profile. What the kernel refuses becomes a note.
pub fn set(settings: &Sysctls, profile: TcpProfile, limits: Limits, notes: &mut Vec<String>) {
    // Else the second connection to a host starts from what the first one learned, and trials depend on their order.
    note(settings.write("net.ipv4.tcp_no_metrics_save", "1"), notes, || {
        "connections remember earlier ones: net.ipv4.tcp_no_metrics_save cannot be set".to_owned()
    });
    // Programs in a lab run without privileges, and ping is among the first: this is the socket it can do with.
    note(settings.write("net.ipv4.ping_group_range", "0 2147483647"), notes, || {
        "ping needs root here: net.ipv4.ping_group_range cannot be set".to_owned()
    });
    match profile {
        TcpProfile::Stock => {}
        TcpProfile::Modern => set_modern(settings, limits.socket_bytes_max, notes),
        TcpProfile::Legacy => set_legacy(settings, limits, notes),
    }
}

fn set_modern(settings: &Sysctls, socket_bytes_max: u64, notes: &mut Vec<String>) {
    for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
        raise(settings, name, socket_bytes_max, notes);
    }
    set_default_congestion_control(settings, "cubic", notes);
}

fn set_legacy(settings: &Sysctls, limits: Limits, notes: &mut Vec<String>) {
    for (name, value) in LEGACY {
        let name = format!("net.ipv4.{name}");
        note(settings.write(&name, value), notes, || {
            format!("the TCP profile legacy is not complete: {name} cannot be set to {value}")
        });
    }
    // The receiver must not be the limit. The sender's window has to be one: without selective acknowledgements the losses of
    // an overshoot are repaired one a round trip, which takes minutes.
    raise(settings, "net.ipv4.tcp_rmem", limits.socket_bytes_max, notes);
    if let Some(bytes) = limits.legacy_send_bytes_max {
        note(set_memory_max(settings, "net.ipv4.tcp_wmem", bytes), notes, || {
            format!(
                "the TCP profile legacy is not complete: net.ipv4.tcp_wmem cannot be capped at {bytes} B, so that a slow start \
                 may overflow a queue and take minutes to recover"
            )
        });
    }
    set_default_congestion_control(settings, "reno", notes);
}

fn set_default_congestion_control(settings: &Sysctls, wanted: &str, notes: &mut Vec<String>) {
    let congestion = "net.ipv4.tcp_congestion_control";
    if settings.write(congestion, wanted).is_err() {
        let default = settings.read(congestion).unwrap_or_else(|_| "the kernel's default".to_owned());
        notes.push(format!(
            "programs in the lab that do not choose a congestion control get {}, because this kernel lets a namespace default \
             only to those in net.ipv4.tcp_allowed_congestion_control; weir's own streams set theirs on each socket; to change \
             it, add {wanted} to that setting on the host",
            default.trim()
        ));
    }
}

fn raise(settings: &Sysctls, name: &str, bytes: u64, notes: &mut Vec<String>) {
    note(raise_memory_max(settings, name, bytes), notes, || {
        format!("{name} cannot be raised to {bytes} B, so a window may be smaller than the path needs")
    });
}

fn note(result: io::Result<()>, notes: &mut Vec<String>, text: impl FnOnce() -> String) {
    if let Err(error) = result {
        notes.push(format!("{} ({error})", text()));
    }
}

/// `min default max` of a memory setting.
fn memory(settings: &Sysctls, name: &str) -> io::Result<[u64; 3]> {
    let now = settings.read(name)?;
    let parts: Vec<u64> = now.split_ascii_whitespace().filter_map(|part| part.parse().ok()).collect();
    parts.try_into().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{name} is {now:?}")))
}

/// Raises the last of the three to `max`, never lowers it.
fn raise_memory_max(settings: &Sysctls, name: &str, max: u64) -> io::Result<()> {
    let [least, default, now_max] = memory(settings, name)?;
    if now_max >= max {
        return Ok(());
    }
    settings.write(name, &format!("{least} {default} {max}"))
}

/// Sets the last of the three to `max`, and the default with it where that is larger.
fn set_memory_max(settings: &Sysctls, name: &str, max: u64) -> io::Result<()> {
    let [least, default, _] = memory(settings, name)?;
    settings.write(name, &format!("{least} {} {max}", default.min(max)))
}
