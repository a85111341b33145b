//! What the doctor looks at. Reading needs no privilege; what cannot be read without is `None`.

use super::stillness::Stillness;
use crate::machine::{self, Bound};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use weir_sys::limits::{Resource, limit, page_bytes};
use weir_sys::probe;

/// A try that worked, or why it did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    Works,
    /// Not there at all: a module or a kernel option.
    Missing,
    /// There, and forbidden to this user.
    Forbidden,
    Failed(String),
}

impl Tried {
    fn of<T>(result: &std::io::Result<T>) -> Tried {
        match result {
            Ok(_) => Tried::Works,
            Err(error) => match (error.kind(), error.raw_os_error()) {
                (ErrorKind::PermissionDenied, _) => Tried::Forbidden,
                // ENOENT, ENXIO, ENODEV, ENOSYS: no such file, driver or system call; EINVAL: a namespace that is not built in.
                (ErrorKind::NotFound, _) | (_, Some(6 | 19 | 22 | 38)) => Tried::Missing,
                _ => Tried::Failed(error.to_string()),
            },
        }
    }
}

/// Programs that parts of weir start or that people want beside it.
pub const PROGRAMS: [&str; 3] = ["ssh", "tcpdump", "iperf3"];

#[derive(Clone, Debug)]
pub struct Facts {
    pub root: bool,
    pub kernel: String,
    pub namespace: Tried,
    pub tun: Tried,
    /// Permission bits of `/dev/net/tun`.
    pub tun_mode: Option<u32>,
    pub tun_abilities: Option<probe::TunAbilities>,
    pub io_uring: Tried,
    pub time_namespace: bool,
    /// In force and at most; `None` within is unlimited.
    pub open_files: Option<(Option<u64>, Option<u64>)>,
    pub locked_bytes: Option<(Option<u64>, Option<u64>)>,
    pub cores: usize,
    pub cpu_quota: Option<Bound>,
    pub memory_bytes: Option<f64>,
    pub memory_limit: Option<Bound>,
    /// Over a fifth of a second.
    pub busy_ratio: Option<f64>,
    pub stolen_ratio: Option<f64>,
    /// `None`: not looked at, because it takes a while and all cores.
    pub stillness: Option<Stillness>,
    pub clock_source: Option<String>,
    pub clock_sources: Vec<String>,
    pub receive_bytes_max: Option<f64>,
    pub send_bytes_max: Option<f64>,
    /// Third values of `tcp_rmem` and `tcp_wmem`: how far the kernel grows buffers by itself.
    pub grown_receive_bytes_max: Option<f64>,
    pub grown_send_bytes_max: Option<f64>,
    /// Second and third value of `tcp_mem`, in bytes.
    pub tcp_memory_bytes: Option<(f64, f64)>,
    pub page_bytes: f64,
    pub congestion_available: Vec<String>,
    pub congestion_allowed: Vec<String>,
    pub congestion_default: Option<String>,
    pub queueing_discipline: Option<String>,
    /// Whether `TCP_INFO` has the times from which limiting factors are named.
    pub tcp_times: Option<bool>,
    /// Whether the kernel says how long a thread waited for a core.
    pub thread_wait: bool,
    pub missing_programs: Vec<&'static str>,
    /// Systems that services may be, and whose programs are not there, with the packages that bring them.
    pub missing_systems: Vec<(String, Vec<String>)>,
    /// Whether a host can have an overlay of `/`.
    pub overlay: bool,
    /// The command that installs packages here, if it is one we know.
    pub install: Option<&'static str>,
}

fn words(text: Option<String>) -> Vec<String> {
    text.unwrap_or_default().split_ascii_whitespace().map(str::to_owned).collect()
}

fn number(name: &str, place: usize) -> Option<f64> {
    words(machine::sysctl(name)).get(place)?.parse().ok()
}

/// Whether a connection over the loopback tells the times that `TCP_INFO` has since Linux 4.10.
fn tcp_times() -> Option<bool> {
    use std::os::fd::AsFd;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").ok()?;
    let near = std::net::TcpStream::connect(listener.local_addr().ok()?).ok()?;
    let info = weir_sys::tcp_info::TcpInfo::read(near.as_fd()).ok()?;
    Some(info.busy_us.is_some() && info.rwnd_limited_us.is_some() && info.sndbuf_limited_us.is_some())
}

#[cfg(feature = "lab")]
fn missing_systems() -> Vec<(String, Vec<String>)> {
    let recipes = crate::registry::library(Path::new(".")).all().unwrap_or_default();
    let missing = recipes.into_iter().filter(|recipe| recipe.check_installed("").is_err());
    missing.map(|recipe| (recipe.schema.name.to_owned(), recipe.packages.clone())).collect()
}

#[cfg(not(feature = "lab"))]
fn missing_systems() -> Vec<(String, Vec<String>)> {
    Vec::new()
}

impl Facts {
    /// Reads everything and then watches all cores for `time`, keeping them busy.
    pub fn watch(time: Duration) -> Facts {
        let facts = Facts::read();
        Facts { stillness: Some(Stillness::watch(facts.cores, time)), ..facts }
    }

    /// Reads everything but that; takes a fifth of a second, in which it watches what else runs.
    pub fn read() -> Facts {
        let before = machine::ticks();
        std::thread::sleep(Duration::from_millis(200));
        let shares = before.zip(machine::ticks()).and_then(|(before, after)| machine::shares(before, after));
        let tun = probe::tun();
        let clock = "/sys/devices/system/clocksource/clocksource0";
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kibibytes = memory.and_then(|text| text.split_ascii_whitespace().next()?.parse::<f64>().ok());
        let page_bytes = page_bytes() as f64;
        let known = [
            ("apt-get", "apt-get install"),
            ("dnf", "dnf install"),
            ("zypper", "zypper install"),
            ("pacman", "pacman -S"),
            ("apk", "apk add"),
        ];
        Facts {
            root: weir_sys::process::User::real().uid == 0,
            kernel: machine::sysctl("kernel.osrelease").unwrap_or_default(),
            namespace: Tried::of(&probe::network_namespace()),
            tun_mode: Path::new("/dev/net/tun").metadata().ok().map(|it| it.permissions().mode() & 0o777),
            tun_abilities: tun.as_ref().ok().copied(),
            tun: Tried::of(&tun),
            io_uring: Tried::of(&probe::io_uring()),
            time_namespace: Path::new("/proc/self/ns/time").exists(),
            open_files: limit(Resource::OpenFiles).ok(),
            locked_bytes: limit(Resource::LockedBytes).ok(),
            cores: machine::core_count(),
            cpu_quota: machine::cpu_quota(),
            memory_bytes: kibibytes.map(|it| it * 1024.0),
            memory_limit: machine::memory_limit(),
            busy_ratio: shares.map(|(busy, _)| busy),
            stolen_ratio: shares.map(|(_, stolen)| stolen),
            stillness: None,
            clock_source: machine::first_line(format!("{clock}/current_clocksource")),
            clock_sources: words(machine::first_line(format!("{clock}/available_clocksource"))),
            receive_bytes_max: number("net.core.rmem_max", 0),
            send_bytes_max: number("net.core.wmem_max", 0),
            grown_receive_bytes_max: number("net.ipv4.tcp_rmem", 2),
            grown_send_bytes_max: number("net.ipv4.tcp_wmem", 2),
            tcp_memory_bytes: number("net.ipv4.tcp_mem", 1)
                .zip(number("net.ipv4.tcp_mem", 2))
                .map(|(pressure, most)| (pressure * page_bytes, most * page_bytes)),
            page_bytes,
            congestion_available: words(machine::sysctl("net.ipv4.tcp_available_congestion_control")),
            congestion_allowed: words(machine::sysctl("net.ipv4.tcp_allowed_congestion_control")),
            congestion_default: machine::sysctl("net.ipv4.tcp_congestion_control"),
            queueing_discipline: machine::sysctl("net.core.default_qdisc"),
            tcp_times: tcp_times(),
            thread_wait: weir_sys::clock::thread_cpu_wait_time().is_some(),
            missing_programs: machine::missing(&PROGRAMS),
            missing_systems: missing_systems(),
            overlay: std::fs::read_to_string("/proc/filesystems").is_ok_and(|all| all.contains("\toverlay")),
            install: known
                .into_iter()
                .find(|(name, _)| machine::missing(&[name]).is_empty())
                .map(|(_, command)| command),
        }
    }
}
