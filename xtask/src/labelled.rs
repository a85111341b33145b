//! Verdicts beside other load: runs that are known to pass or to fail undisturbed are made again beside patterns of load, and no verdict
//! may turn round. What cannot be told must be inconclusive.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const RUNS: usize = 64;
/// A load that was forgotten ends by itself.
const LOAD_SECONDS_MAX: u64 = 900;
/// Other runs of a case whose label could not be told at once.
const LABEL_TRIES: usize = 3;

/// What is run: a file of `scenarios`, or the path below with something wrong with it.
struct Case {
    name: &'static str,
    file: Option<&'static str>,
    rate: &'static str,
    window: &'static str,
}

const CASES: [Case; 8] = [
    Case { name: "full line", file: None, rate: "1Gbit/s", window: "4MB" },
    Case { name: "half a window", file: None, rate: "1Gbit/s", window: "1MB" },
    Case { name: "line at nine tenths", file: None, rate: "900Mbit/s", window: "4MB" },
    Case { name: "gridka-1g-2003", file: Some("gridka-1g-2003"), rate: "", window: "" },
    Case { name: "gridka-single-reno", file: Some("gridka-single-reno"), rate: "", window: "" },
    Case { name: "g100-latency", file: Some("g100-latency"), rate: "", window: "" },
    Case { name: "event-incast", file: Some("event-incast"), rate: "", window: "" },
    Case { name: "quickstart", file: Some("quickstart"), rate: "", window: "" },
];

/// What runs meanwhile: what stands before `xtask load`, and its arguments.
type Load = (&'static [&'static str], &'static [&'static str]);

/// Name, and the programs that are started.
const PATTERNS: [(&str, &[Load]); 8] = [
    ("one busy loop", &[(&[], &["busy", "1"])]),
    ("four busy loops", &[(&[], &["busy", "4"])]),
    ("pulses of 4 %, real time", &[(&["chrt", "-f", "10"], &["pulse", "2500", "100"])]),
    ("pulses of 20 ms, real time", &[(&["chrt", "-f", "10"], &["pulse", "500", "20"])]),
    ("bursts", &[(&[], &["pulse", "1000", "300"])]),
    ("busy loops, nice -10", &[(&["nice", "-n", "-10"], &["busy", "2"])]),
    ("memory hog", &[(&[], &["memory", "512"])]),
    ("short programs, as a build", &[(&[], &["programs"])]),
];

/// `xtask load`: takes CPU or memory until it is ended.
pub fn load(arguments: &[String]) -> Result<(), String> {
    let number = |index: usize| -> Result<u64, String> {
        let text = arguments.get(index).ok_or("a number is missing")?;
        text.parse().map_err(|_| format!("{text} is no number"))
    };
    let end = Instant::now() + Duration::from_secs(LOAD_SECONDS_MAX);
    match arguments.first().map(String::as_str) {
        Some("busy") => std::thread::scope(|scope| {
            for _ in 0..number(1)? {
                scope.spawn(|| while Instant::now() < end {});
            }
            Ok(())
        }),
        // One thread a core, all at the same time.
        Some("pulse") => {
            let (every, of) = (Duration::from_millis(number(1)?.max(1)), Duration::from_millis(number(2)?));
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            std::thread::scope(|scope| {
                for _ in 0..cores {
                    scope.spawn(|| {
                        while Instant::now() < end {
                            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                            let into = now.as_nanos() % every.as_nanos();
                            std::thread::sleep(every - Duration::from_nanos(into as u64));
                            let pulse = Instant::now() + of;
                            while Instant::now() < pulse {}
                        }
                    });
                }
            });
            Ok(())
        }
        Some("memory") => {
            let mut memory = vec![0_u8; usize::try_from(number(1)? << 20).unwrap_or(0)];
            while Instant::now() < end {
                memory.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
            }
            std::hint::black_box(&memory);
            Ok(())
        }
        Some("programs") => {
            while Instant::now() < end {
                let sum = Command::new("sha256sum").arg("/proc/self/exe").stdout(Stdio::null()).status();
                sum.map_err(|error| format!("sha256sum: {error}"))?;
            }
            Ok(())
        }
        _ => Err("usage: cargo xtask load busy N | pulse EVERY_MS FOR_MS | memory MIB | programs".to_owned()),
    }
}

/// Programs that run meanwhile and end with it.
struct Beside(Vec<Child>);

impl Beside {
    fn start(programs: &[(&[&str], &[&str])]) -> Result<Beside, String> {
        let own = std::env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
        let mut beside = Beside(Vec::new());
        for (before, arguments) in programs {
            let mut words = before.iter().map(PathBuf::from).chain([own.clone()]);
            let first = words.next().unwrap_or_default();
            let mut command = Command::new(&first);
            command.args(words).arg("load").args(*arguments).stdout(Stdio::null());
            let child = command.spawn().map_err(|error| format!("{}: {error}", first.display()))?;
            beside.0.push(child);
        }
        Ok(beside)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended already is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    Fail,
    Inconclusive,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Inconclusive => "inconclusive",
        }
    }
}

/// What a verdict beside load is, of a case that undisturbed has the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judged {
    Right,
    Inconclusive,
    WrongFail,
    WrongPass,
    /// Undisturbed it was inconclusive too: the machine is too busy to make labels.
    Unlabelled,
}

fn judged(undisturbed: Verdict, beside: Verdict) -> Judged {
    match (undisturbed, beside) {
        (Verdict::Inconclusive, _) => Judged::Unlabelled,
        (_, Verdict::Inconclusive) => Judged::Inconclusive,
        (Verdict::Pass, Verdict::Fail) => Judged::WrongFail,
        (Verdict::Fail, Verdict::Pass) => Judged::WrongPass,
        (Verdict::Pass, Verdict::Pass) | (Verdict::Fail, Verdict::Fail) => Judged::Right,
    }
}

struct Asked {
    weir: PathBuf,
    runs: usize,
}

fn asked(workspace: &Path, arguments: &[String]) -> Result<Asked, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
    let mut asked = Asked { weir: target.join("release/weir"), runs: RUNS };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--runs" => {
                asked.runs = value()?.parse().map_err(|_| "--runs takes a whole number".to_owned())?;
            }
            "--weir" => asked.weir = PathBuf::from(value()?),
            _ => {
                return Err(format!(
                    "{word} is not known; usage: cargo xtask labelled [--runs N] [--weir PROGRAM]"
                ));
            }
        }
    }
    if !asked.weir.is_file() {
        return Err(format!("{} is not there: cargo build --release, or give --weir", asked.weir.display()));
    }
    Ok(asked)
}

/// The path of 1 Gbit/s and 16 ms that should carry one stream, as it is or with something wrong with it.
fn text(case: &Case) -> String {
    format!(
        r#"[scenario]
name = "labelled"
trials = 2
seed = 7
[lab]
[[lab.site]]
name = "left"
tcp_profile = "modern"
[[lab.site]]
name = "right"
tcp_profile = "modern"
[[lab.link]]
name = "wan"
between = ["left", "right"]
rate = "{}"
rtt = "16ms"
queue = {{ bytes = "4MB" }}
[[step]]
name = "load"
workload = "stream"
from = "left-0"
to = "right-0"
duration = "6s"
warm_up = "2s"
tcp = {{ congestion = "cubic", window = "{}" }}
[[criterion]]
text = "the stream fills 1 Gbit/s"
metric = "stream.total_goodput_bits_per_second"
at_least = "920Mbit/s"
"#,
        case.rate, case.window
    )
}

/// The verdict, and what was said with it.
fn verdict(asked: &Asked, workspace: &Path, folder: &Path, case: &Case) -> Result<(Verdict, String), String> {
    let mut command = Command::new(&asked.weir);
    command.arg("run").stderr(Stdio::null()).arg("--out").arg(folder.join("results"));
    if let Some(file) = case.file {
        command.arg(workspace.join("scenarios").join(format!("{file}.toml"))).arg("--short");
    } else {
        let file = folder.join("labelled.toml");
        std::fs::write(&file, text(case)).map_err(|error| format!("{}: {error}", file.display()))?;
        command.arg(file);
    }
    let output = command.output().map_err(|error| format!("{}: {error}", asked.weir.display()))?;
    let verdict = match output.status.code() {
        Some(0) => Verdict::Pass,
        Some(1) => Verdict::Fail,
        Some(3) => Verdict::Inconclusive,
        _ => return Err(format!("weir run of {}: {}; run it by hand to see why", case.name, output.status)),
    };
    Ok((verdict, String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// False where a verdict turned round.
pub fn run(workspace: &Path, arguments: &[String]) -> Result<bool, String> {
    let asked = asked(workspace, arguments)?;
    let folder = tempfile::tempdir().map_err(|error| format!("a folder for the results: {error}"))?;
    let mut labels = Vec::new();
    for case in &CASES[..CASES.len().min(asked.runs)] {
        let mut label = Verdict::Inconclusive;
        for _ in 0..LABEL_TRIES {
            label = verdict(&asked, workspace, folder.path(), case)?.0;
            if label != Verdict::Inconclusive {
                break;
            }
        }
        eprintln!("undisturbed  {:<22} {}", case.name, label.name());
        labels.push(label);
    }
    println!("{:<28} {:<22} {:<14} {:<14}", "pattern", "scenario", "undisturbed", "beside");
    let mut counts = [0_usize; 5];
    for run in 0..asked.runs {
        // Fewer runs than there are pairs still meet every case, and other patterns with each.
        let case = run % CASES.len();
        let (pattern, programs) = PATTERNS[(run / CASES.len() + case) % PATTERNS.len()];
        let beside = Beside::start(programs)?;
        let (found, said) = verdict(&asked, workspace, folder.path(), &CASES[case])?;
        drop(beside);
        let judged = judged(labels[case], found);
        counts[judged as usize] += 1;
        let mut line = format!(
            "{pattern:<28} {:<22} {:<14} {:<14}",
            CASES[case].name,
            labels[case].name(),
            found.name()
        );
        if matches!(judged, Judged::WrongFail | Judged::WrongPass) {
            let _ = write!(line, " WRONG\n\n{said}");
        }
        println!("{}", line.trim_end());
    }
    let [right, inconclusive, wrong_fail, wrong_pass, unlabelled] = counts;
    println!(
        "{wrong_fail} wrong fails, {wrong_pass} wrong passes, {right} right, {inconclusive} inconclusive, {unlabelled} without a label"
    );
    Ok(wrong_fail + wrong_pass == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_verdict_that_turns_round_is_wrong() {
        use Verdict::{Fail, Inconclusive, Pass};
        assert_eq!([judged(Pass, Pass), judged(Fail, Fail)], [Judged::Right; 2]);
        assert_eq!([judged(Pass, Inconclusive), judged(Fail, Inconclusive)], [Judged::Inconclusive; 2]);
        assert_eq!([judged(Pass, Fail), judged(Fail, Pass)], [Judged::WrongFail, Judged::WrongPass]);
        assert_eq!(judged(Inconclusive, Fail), Judged::Unlabelled);
    }

    #[test]
    fn a_full_set_meets_every_case_beside_every_pattern_once() {
        let mut met = std::collections::BTreeSet::new();
        for run in 0..RUNS {
            let case = run % CASES.len();
            met.insert((case, (run / CASES.len() + case) % PATTERNS.len()));
        }
        assert_eq!(met.len(), CASES.len() * PATTERNS.len());
    }
}
