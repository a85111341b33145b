//! What is known of the machine without changing it: read for `environment.json` and for `weir doctor`.

use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// First line of a file, white space single.
pub fn first_line(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.lines().next()?.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
}

/// A setting below `/proc/sys`, by its dotted name.
pub fn sysctl(name: &str) -> Option<String> {
    first_line(format!("/proc/sys/{}", name.replace('.', "/")))
}

/// A bound that a control group sets, and the file that sets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Cores, or bytes.
    pub value: f64,
    pub file: PathBuf,
}

/// Where control groups are mounted and which of them this process is in; both file systems' text as the kernel gives it.
struct Groups<'a> {
    /// `/proc/self/cgroup`.
    own: &'a str,
    root: &'a Path,
}

impl Groups<'_> {
    /// Folders of a controller's groups (version 1: of its own tree; version 2: the one tree), from this process's up to the root.
    fn folders(&self, controller: &str) -> Vec<PathBuf> {
        let line = |line: &str| -> Option<(PathBuf, String)> {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let tree = if controllers.is_empty() && self.root.join("cgroup.controllers").exists() {
                self.root.to_owned()
            } else if controllers.split(',').any(|name| name == controller) {
                self.root.join(controller)
            } else {
                return None;
            };
            Some((tree, path.trim_start_matches('/').to_owned()))
        };
        let mut all = Vec::new();
        for (tree, path) in self.own.lines().filter_map(line) {
            let mut folder = tree.join(&path);
            while folder.starts_with(&tree) {
                all.push(folder.clone());
                if !folder.pop() {
                    break;
                }
            }
        }
        all
    }

    /// The tightest of the bounds that `read` finds on the way up.
    fn tightest(&self, controller: &str, read: impl Fn(&Path) -> Option<Bound>) -> Option<Bound> {
        let bounds = self.folders(controller).into_iter().filter_map(|folder| read(&folder));
        bounds.min_by(|one, other| one.value.total_cmp(&other.value))
    }

    fn cpu(&self) -> Option<Bound> {
        self.tightest("cpu", |folder| {
            let (file, quota, period) = match first_line(folder.join("cpu.max")) {
                Some(line) => {
                    let (quota, period) = line.split_once(' ')?;
                    ("cpu.max", quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?)
                }
                None => {
                    let number = |name: &str| first_line(folder.join(name))?.parse::<f64>().ok();
                    ("cpu.cfs_quota_us", number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
                }
            };
            (quota > 0.0 && period > 0.0).then(|| Bound { value: quota / period, file: folder.join(file) })
        })
    }

    fn memory(&self) -> Option<Bound> {
        self.tightest("memory", |folder| {
            let file = ["memory.max", "memory.limit_in_bytes"]
                .into_iter()
                .find(|name| folder.join(name).exists())?;
            let value = first_line(folder.join(file))?.parse::<f64>().ok()?;
            // Version 1 has no word for "no limit": it is the largest number of pages.
            (value < 9.2e18).then(|| Bound { value, file: folder.join(file) })
        })
    }
}

fn groups<T>(read: impl Fn(&Groups<'_>) -> Option<T>) -> Option<T> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    read(&Groups { own: &own, root: Path::new("/sys/fs/cgroup") })
}

/// Cores' worth of time that control groups allow; `None` without a quota.
pub fn cpu_quota() -> Option<Bound> {
    groups(|it| it.cpu())
}

/// Bytes of memory that control groups allow; `None` without a limit.
pub fn memory_limit() -> Option<Bound> {
    groups(|it| it.memory())
}

/// Number of cores that may run this process.
pub fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Busy, stolen and all ticks of all cores so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    pub busy: u64,
    pub stolen: u64,
    pub all: u64,
}

pub fn ticks() -> Option<Ticks> {
    ticks_of(&fs::read_to_string("/proc/stat").ok()?)
}

fn ticks_of(stat: &str) -> Option<Ticks> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; what guests took is in user already.
    let counted: u64 = ticks.iter().take(8).sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some(Ticks { busy: counted - idle, stolen: ticks.get(7).copied().unwrap_or(0), all: counted })
}

/// Shares of all cores' time between two readings: busy, and stolen by the hypervisor.
pub fn shares(before: Ticks, after: Ticks) -> Option<(f64, f64)> {
    let all = after.all.checked_sub(before.all).filter(|all| *all > 0)? as f64;
    let share = |after: u64, before: u64| after.saturating_sub(before) as f64 / all;
    Some((share(after.busy, before.busy), share(after.stolen, before.stolen)))
}

/// What kind of machine this is, where the system tells: hypervisor, product, container.
pub fn virtualisation() -> Value {
    let mut found = Map::new();
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flag = flags.lines().find(|line| line.starts_with("flags"));
    if let Some(flags) = flag {
        found.insert(
            "hypervisor".to_owned(),
            flags.split_ascii_whitespace().any(|it| it == "hypervisor").into(),
        );
    }
    for (key, path) in [
        ("vendor", "/sys/class/dmi/id/sys_vendor"),
        ("product", "/sys/class/dmi/id/product_name"),
        ("type", "/sys/hypervisor/type"),
    ] {
        if let Some(text) = first_line(path).filter(|text| !text.is_empty()) {
            found.insert(key.to_owned(), text.into());
        }
    }
    let container =
        [("docker", "/.dockerenv"), ("podman", "/run/.containerenv"), ("systemd", "/run/systemd/container")];
    if let Some((name, _)) = container.into_iter().find(|(_, path)| Path::new(path).exists()) {
        found.insert("container".to_owned(), name.into());
    }
    found.into()
}

/// Interfaces of this machine with what bounds them: MTU, speed, driver, queues and offloads. The loopback is left out.
pub fn interfaces() -> Value {
    let mut all = Map::new();
    let mut names: Vec<String> = fs::read_dir("/sys/class/net")
        .map(|entries| entries.flatten().filter_map(|it| it.file_name().into_string().ok()).collect())
        .unwrap_or_default();
    names.sort();
    for name in names.into_iter().filter(|name| name != "lo").take(64) {
        let folder = Path::new("/sys/class/net").join(&name);
        let mut found = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                found.insert(key.to_owned(), value);
            }
        };
        let number = |file: &str| first_line(folder.join(file))?.parse::<i64>().ok();
        put("state", first_line(folder.join("operstate")).map(Value::from));
        put("mtu", number("mtu").map(Value::from));
        // -1 where the driver does not know.
        put("speed_megabits_per_second", number("speed").filter(|speed| *speed > 0).map(Value::from));
        put("queue_packets", number("tx_queue_len").map(Value::from));
        let driver = fs::read_link(folder.join("device/driver")).ok();
        let driver = driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        put("driver", driver.map(Value::from));
        let queues = |kind: &str| {
            let names = fs::read_dir(folder.join("queues")).ok()?.flatten();
            Some(names.filter(|it| it.file_name().to_string_lossy().starts_with(kind)).count())
        };
        put("receive_queues", queues("rx").map(Value::from));
        put("send_queues", queues("tx").map(Value::from));
        let offloads = weir_sys::offload::offloads(&name).unwrap_or_default();
        if !offloads.is_empty() {
            put("offloads", Some(json!(offloads.into_iter().collect::<std::collections::BTreeMap<_, _>>())));
        }
        all.insert(name, found.into());
    }
    all.into()
}

/// Names of the programs that are not on `PATH`, of those asked for.
pub fn missing<'a>(programs: &[&'a str]) -> Vec<&'a str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    // An unprivileged user's PATH lacks these, and sudo's has them.
    folders.extend(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from));
    let there = |name: &str| folders.iter().any(|folder| folder.join(name).is_file());
    programs.iter().copied().filter(|name| !there(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_tightest_bound_on_the_way_up_counts_in_one_tree_of_groups() {
        let root = tempfile::tempdir().unwrap();
        file(root.path(), "cgroup.controllers", "cpu memory");
        file(root.path(), "a/cpu.max", "150000 100000\n");
        file(root.path(), "a/b/cpu.max", "max 100000\n");
        file(root.path(), "a/memory.max", "max\n");
        file(root.path(), "a/b/memory.max", "1048576\n");
        let groups = Groups { own: "0::/a/b\n", root: root.path() };
        assert_eq!(groups.cpu(), Some(Bound { value: 1.5, file: root.path().join("a/cpu.max") }));
        assert_eq!(
            groups.memory(),
            Some(Bound { value: 1_048_576.0, file: root.path().join("a/b/memory.max") })
        );
    }

    #[test]
    fn the_older_trees_have_their_own_files_and_their_own_word_for_no_limit() {
        let root = tempfile::tempdir().unwrap();
        file(root.path(), "cpu/x/cpu.cfs_quota_us", "50000\n");
        file(root.path(), "cpu/x/cpu.cfs_period_us", "100000\n");
        file(root.path(), "cpu/cpu.cfs_quota_us", "-1\n");
        file(root.path(), "cpu/cpu.cfs_period_us", "100000\n");
        file(root.path(), "memory/memory.limit_in_bytes", "9223372036854771712\n");
        let groups = Groups { own: "4:memory:/y\n2:cpuacct,cpu:/x\n0::/\n", root: root.path() };
        assert_eq!(groups.cpu().map(|bound| bound.value), Some(0.5));
        assert_eq!(groups.memory(), None);
        assert_eq!(Groups { own: "", root: root.path() }.cpu(), None);
    }

    #[test]
    fn busy_and_stolen_are_shares_of_the_time_between_two_readings() {
        let before = ticks_of("cpu  10 0 10 100 10 0 0 0 7 7\ncpu0 1 2 3\n").unwrap();
        assert_eq!(before, Ticks { busy: 20, stolen: 0, all: 130 });
        let after = ticks_of("cpu  20 0 10 180 10 0 0 10 9 9\n").unwrap();
        assert_eq!(shares(before, after), Some((0.2, 0.1)));
        assert_eq!(shares(after, after), None);
        assert_eq!(ticks_of("intr 1 2\n"), None);
    }
}
