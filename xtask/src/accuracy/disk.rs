//! Disks under services against what they were told to be, by fio on the mount, and through a real server on it.

use super::Setup;
use super::section::{Section, Verdict, Worst, digits, percent_with_interval};
use crate::bench::statistics::Estimate;
use serde_json::Value;
use std::process::Command;

const NAME: &str = "accuracy-disk";
/// Where a host has the disk of the service `store`.
const MOUNT: &str = "/var/lib/weir-disks/store";
const RATE_ERROR_MAX: f64 = 0.02;
const POSITION_ERROR_MAX_MS: f64 = 0.2;

/// What a disk is told to be.
struct Disk {
    rate_bytes_per_second: f64,
    position_ms: f64,
}

const DISKS: &[Disk] = &[
    Disk { rate_bytes_per_second: 30e6, position_ms: 8.0 },
    Disk { rate_bytes_per_second: 120e6, position_ms: 4.0 },
    Disk { rate_bytes_per_second: 300e6, position_ms: 1.0 },
];
const CACHE_BYTES: u64 = 32 << 20;

/// A lab of one server and one client, up as long as this lives.
struct Store<'a> {
    setup: &'a Setup,
}

impl<'a> Store<'a> {
    fn up(setup: &'a Setup, disk: &Disk, cache: &str) -> Result<Store<'a>, String> {
        let text = format!(
            "[lab]\n[[lab.site]]\nname = \"store\"\nhosts = 1\naccess = {{ mtu = 1500 }}\n[[lab.site]]\nname = \"user\"\nhosts = 1\naccess = {{ mtu = 1500 }}\n\
             [[lab.link]]\nname = \"wire\"\nbetween = [\"store\", \"user\"]\nrate = \"5Gbit/s\"\nrtt = \"100us\"\n\
             [[service]]\nname = \"store\"\nsystem = \"xrootd\"\nplace = {{ server = \"store-0\" }}\n\
             disk = {{ size = \"4GB\", rate = \"{}MB/s\", position = \"{}ms\", cache = \"{cache}\" }}\n\
             content = {{ path = \"store/f\", size = \"64MiB\" }}\n",
            disk.rate_bytes_per_second / 1e6,
            disk.position_ms
        );
        let file = tempfile(&text)?;
        let ran = Command::new(&setup.weir).args(["lab", "up"]).arg(&file).args(["--name", NAME]).output();
        let _ = std::fs::remove_file(&file);
        let ran = ran.map_err(|problem| problem.to_string())?;
        if ran.status.success() {
            Ok(Store { setup })
        } else {
            Err(String::from_utf8_lossy(&ran.stderr).into_owned())
        }
    }

    fn exec(&self, host: &str, command: &[&str]) -> Result<Value, String> {
        let ran = Command::new(&self.setup.weir)
            .args(["lab", "exec", NAME, host, "--root", "--"])
            .args(command)
            .output();
        let ran = ran.map_err(|problem| problem.to_string())?;
        if !ran.status.success() {
            return Err(format!("{}: {}", command.join(" "), String::from_utf8_lossy(&ran.stderr)));
        }
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        let begin = text.find('{').unwrap_or(0);
        serde_json::from_str(&text[begin..]).map_err(|problem| format!("{}: {problem}", command.join(" ")))
    }

    /// Bytes a second and the median of an operation in seconds, by fio on the mount.
    fn fio(&self, kind: &str, block: &str, seconds: f64) -> Result<(f64, f64), String> {
        let (block, runtime) = (format!("--bs={block}"), format!("--runtime={seconds}"));
        let (kind, file) = (format!("--rw={kind}"), format!("--filename={MOUNT}/fio"));
        let said = self.exec(
            "store-0",
            &[
                "fio",
                "--name=a",
                &file,
                "--size=64MiB",
                "--ioengine=psync",
                "--direct=1",
                "--time_based",
                &runtime,
                &kind,
                &block,
                "--randrepeat=1",
                "--percentile_list=50",
                "--output-format=json",
            ],
        )?;
        let of = |which: &str| -> Option<(f64, f64)> {
            let all = &said["jobs"][0][which];
            let rate = all["bw_bytes"].as_f64().filter(|rate| *rate > 0.0)?;
            Some((rate, all["clat_ns"]["percentile"]["50.000000"].as_f64()? / 1e9))
        };
        of("read").or_else(|| of("write")).ok_or_else(|| "fio gives no figures".to_owned())
    }

    /// The same through the server, from the other host.
    fn served(&self, kind: &str, size: &str, seconds: f64) -> Result<(f64, f64), String> {
        let weir = self.setup.weir.display().to_string();
        let time = format!("{seconds}s");
        // Two pieces under way, so that the way there and back is not the disk's idle time.
        let depth = if kind == "seq" { "2" } else { "1" };
        let said = self.exec(
            "user-0",
            &[
                &weir,
                "io",
                kind,
                "root://store-0//store/f",
                "--size",
                size,
                "--depth",
                depth,
                "--duration",
                &time,
                "--json",
            ],
        )?;
        let metrics = &said["points"][0]["metrics"];
        let of = |metric: &str, statistic: &str| metrics[metric][statistic].as_f64();
        let both = of("io.bytes_total_per_second", "mean").zip(of("io.latency_seconds", "median"));
        both.ok_or_else(|| format!("no figures: {}", said["warnings"]))
    }
}

impl Drop for Store<'_> {
    fn drop(&mut self) {
        let _ = Command::new(&self.setup.weir).args(["lab", "down", NAME]).output();
    }
}

fn tempfile(text: &str) -> Result<std::path::PathBuf, String> {
    let path = std::env::temp_dir().join(format!("weir-accuracy-{}.toml", std::process::id()));
    std::fs::write(&path, text).map_err(|problem| format!("{}: {problem}", path.display()))?;
    Ok(path)
}

/// Rounds of a figure, as an estimate.
fn rounds(setup: &Setup, mut one: impl FnMut() -> Result<f64, String>) -> Result<Estimate, String> {
    let values: Result<Vec<f64>, String> = (0..setup.rounds).map(|_| one()).collect();
    Estimate::of(&values?).ok_or_else(|| "no figures".to_owned())
}

fn beyond(estimate: &Estimate, limit: f64) -> Verdict {
    let worst = estimate.low.abs().max(estimate.high.abs());
    let best = if estimate.low <= 0.0 && estimate.high >= 0.0 {
        0.0
    } else {
        estimate.low.abs().min(estimate.high.abs())
    };
    match (best > limit, worst <= limit) {
        (true, _) => Verdict::Broken,
        (_, true) => Verdict::Kept,
        _ => Verdict::Open,
    }
}

pub fn disks(setup: &Setup) -> Result<Section, String> {
    let mut section = Section {
        title: "Disks under services",
        text: vec![
            "A disk is a rate, a positioning time before each operation that does not go on where the last one ended, and a cache. fio \
             (`psync`, `direct`, one operation at a time) is asked on the mount, where a real server keeps its files, and `weir io` through that server \
             (XRootD) over a link of 5 Gbit/s and 100 µs, less what the same takes of a disk that takes no time; a random operation is to take the positioning time and its length over the rate."
                .to_owned(),
        ],
        head: vec!["disk", "asked by", "sequential read", "sequential write", "random 4 KiB, median", "of the model"],
        ..Section::default()
    };
    let (mut rates, mut positions, mut served_rates, mut served_positions) =
        (Worst::default(), Worst::default(), Worst::default(), Worst::default());
    // What server and link take where the disk takes nothing.
    let nothing = Disk { rate_bytes_per_second: 10e9, position_ms: 0.0 };
    let server_ms = {
        let store = Store::up(setup, &nothing, "0B")?;
        rounds(setup, || Ok(store.served("random", "4KiB", setup.seconds(3.0))?.1 * 1e3))?.median
    };
    for disk in DISKS {
        let store = Store::up(setup, disk, "0B")?;
        let seconds = setup.seconds(3.0);
        let name = format!("{} MB/s, {} ms", disk.rate_bytes_per_second / 1e6, disk.position_ms);
        let model_ms = disk.position_ms + 4096.0 / disk.rate_bytes_per_second * 1e3;
        let of_rate = |rate: f64| rate / disk.rate_bytes_per_second - 1.0;
        let mut row = vec![name.clone(), "fio".to_owned()];
        for kind in ["read", "write"] {
            let error = rounds(setup, || Ok(of_rate(store.fio(kind, "1M", seconds)?.0)))?;
            rates.see(
                beyond(&error, RATE_ERROR_MAX),
                error.median.abs(),
                format!("{name}, {kind}: {}", percent_with_interval(&error)),
            );
            row.push(percent_with_interval(&error));
        }
        let late = rounds(setup, || Ok(store.fio("randread", "4k", seconds)?.1 * 1e3 - model_ms))?;
        positions.see(
            beyond(&late, POSITION_ERROR_MAX_MS),
            late.median.abs(),
            format!("{name}: {} ms", digits(late.median)),
        );
        row.extend([format!("{} ms", digits(model_ms + late.median)), format!("{} ms", digits(model_ms))]);
        section.rows.push(row);
        let error = rounds(setup, || Ok(of_rate(store.served("seq", "1MiB", seconds)?.0)))?;
        served_rates.see(
            beyond(&error, RATE_ERROR_MAX),
            error.median.abs(),
            format!("{name}: {}", percent_with_interval(&error)),
        );
        let late =
            rounds(setup, || Ok(store.served("random", "4KiB", seconds)?.1 * 1e3 - server_ms - model_ms))?;
        served_positions.see(
            beyond(&late, POSITION_ERROR_MAX_MS),
            late.median.abs(),
            format!("{name}: {} ms", digits(late.median)),
        );
        section.rows.push(vec![
            name,
            "XRootD".to_owned(),
            percent_with_interval(&error),
            "none".to_owned(),
            format!("{} ms", digits(model_ms + late.median)),
            format!("{} ms", digits(model_ms)),
        ]);
    }
    section
        .claims
        .extend(rates.claim("Disks: rate of sequential reads and writes, fio on the mount", "within 2 %"));
    section
        .claims
        .extend(positions.claim("Disks: positioning time, fio on the mount, median", "within 0.2 ms"));
    section.claims.extend(served_rates.claim("Disks: rate of sequential reads through XRootD", "within 2 %"));
    section.claims.extend(served_positions.claim(
        "Disks: positioning time through XRootD, median, less what server and link take",
        "within 0.2 ms",
    ));
    section.claims.extend(cache(setup, &mut section.notes)?);
    section.claims.extend(busiest(setup)?);
    Ok(section)
}

/// What is in the cache costs no time, what is not costs all of it.
fn cache(setup: &Setup, notes: &mut Vec<String>) -> Result<Vec<super::Claim>, String> {
    let disk = Disk { rate_bytes_per_second: 30e6, position_ms: 8.0 };
    let store = Store::up(setup, &disk, &format!("{}MiB", CACHE_BYTES >> 20))?;
    let file = format!("--filename={MOUNT}/kept");
    let random = |bytes: &str, loops: &str| {
        let (size, loops) = (format!("--size={bytes}"), format!("--loops={loops}"));
        let said = store.exec(
            "store-0",
            &[
                "fio",
                "--name=a",
                &file,
                &size,
                "--ioengine=psync",
                "--direct=1",
                "--rw=read",
                "--bs=64k",
                &loops,
                "--percentile_list=25:75",
                "--output-format=json",
            ],
        )?;
        let at = |share: &str| said["jobs"][0]["read"]["clat_ns"]["percentile"][share].as_f64();
        at("25.000000").zip(at("75.000000")).ok_or_else(|| "fio gives no figures".to_owned())
    };
    // Half the cache, read five times: all but the first time from memory. Twice the cache in order: never.
    random("16MiB", "1")?;
    let (_, hit_ns) = random("16MiB", "5")?;
    let (miss_ns, _) = random("64MiB", "3")?;
    let model_ns = 65_536.0 / disk.rate_bytes_per_second * 1e9;
    notes.push(format!(
        "A disk of 30 MB/s with a cache of 32 MiB: blocks of 64 KiB of 16 MiB that are read again take {} ms (75 %), of 64 MiB in order {} ms (25 %), where \
         the rate alone asks for {} ms.",
        digits(hit_ns / 1e6),
        digits(miss_ns / 1e6),
        digits(model_ns / 1e6)
    ));
    let kept = hit_ns < 0.3 * model_ns && miss_ns > 0.95 * model_ns;
    Ok(vec![super::Claim {
        text: "Disks: what fits into the cache comes from it, what does not does not".to_owned(),
        limit: "hits below 0.3, misses above 0.95 of the rate's time".to_owned(),
        worst: format!("hit {:.3}, miss {:.3}", hit_ns / model_ns, miss_ns / model_ns),
        verdict: Verdict::of(kept),
    }])
}

/// 5,000 operations a second of one disk.
fn busiest(setup: &Setup) -> Result<Vec<super::Claim>, String> {
    let disk = Disk { rate_bytes_per_second: 300e6, position_ms: 0.186 };
    let store = Store::up(setup, &disk, "0B")?;
    let wanted = 1.0 / (disk.position_ms / 1e3 + 4096.0 / disk.rate_bytes_per_second);
    let said = rounds(setup, || Ok(store.fio("randread", "4k", setup.seconds(3.0))?.0 / 4096.0))?;
    Ok(vec![super::Claim {
        text: "Disks: 5,000 random reads a second, one at a time".to_owned(),
        limit: "at least 0.8 of the model's".to_owned(),
        worst: format!("{:.0} of {wanted:.0} a second", said.median),
        verdict: Verdict::of(said.median >= 0.8 * wanted),
    }])
}
