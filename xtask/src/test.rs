//! `cargo xtask test`: every test program of the workspace. Programs that only compute run side by side; those that
//! measure run by themselves, one after the other. A few that failed beside others are run once more, each by itself (decision 0024).
//! Ends with the tests that took longest.

mod times;

use crate::test::times::{Counts, Slowest};
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Instant;

/// Test programs that bring up labs and measure in them: package and target, and how many of their tests are threads at the same
/// time. Those of `claims` wait for each other by what they need of the machine (`tests/claims/support/lanes.rs`), so that most of
/// these threads stand still.
const MEASURES: &[(&str, &str, &str)] = &[("weir", "claims", "200"), ("weir-lab", "lab", "2")];
/// Where tests that waited for their turn add how long they took since it came.
const TIMES: &str = "WEIR_TEST_TIMES";
/// What the test harness says of those that wait.
const STILL_RUNS: &str = "has been running for over 60 seconds";
/// Programs that run side by side: one for each of the cores that the project reckons with.
const SIDE_BY_SIDE: usize = 2;
const SLOWEST: usize = 20;
/// Where more than these fail, something is wrong that no other test did to them.
const MOST_AGAIN: usize = 12;
/// What labs keep there outlives the program that made them.
const KEPT_BY_LABS: [&str; 2] = ["/run/weir", "/run/netns"];

struct Program {
    package: String,
    target: String,
    executable: PathBuf,
    /// Where its package lies.
    directory: PathBuf,
}

impl Program {
    /// How many tests of a program that measures are threads.
    fn measures(&self) -> Option<&'static str> {
        let mut all = MEASURES.iter();
        let own = all.find(|(package, target, _)| *package == self.package && *target == self.target);
        own.map(|(.., threads)| *threads)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.env("CARGO_MANIFEST_DIR", &self.directory).env("CARGO", cargo()).current_dir(&self.directory);
        command
    }

    fn name_of(&self, test: &str) -> String {
        format!("{} {test}", self.package)
    }
}

/// What the programs came to, so far.
#[derive(Default)]
struct Tally<'a> {
    counts: Counts,
    slowest: Slowest,
    /// Tests that failed, and whose they are.
    failed: Vec<(&'a Program, String)>,
    /// What failed and is no test.
    problems: Vec<String>,
}

/// Runs the tests whose names contain one of `filters`, or all. `Ok(false)`: a test failed, or left something behind.
pub fn run(workspace: &Path, filters: &[String]) -> Result<bool, String> {
    let programs = build(workspace)?;
    let before = kept_by_labs();
    let begun = Instant::now();
    let (measure, mut compute): (Vec<&Program>, Vec<&Program>) =
        programs.iter().partition(|program| program.measures().is_some());
    // Those with real servers wait most: begun last, they would run by themselves.
    compute.sort_by_key(|program| program.target != "claims");
    let tally = Mutex::new(Tally::default());
    let queue = Mutex::new(VecDeque::from(compute));
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                while let Some(program) = { queue.lock().expect("no test thread panics").pop_front() } {
                    carry_out(program, filters, &tally);
                }
            });
        }
    });
    for program in &measure {
        carry_out(program, filters, &tally);
    }
    let Tally { counts, slowest, failed, mut problems } = tally.into_inner().expect("no test thread panics");
    let alone = if failed.len() <= MOST_AGAIN { again(&failed) } else { Vec::new() };
    let left: Vec<String> = kept_by_labs().difference(&before).cloned().collect();
    if !left.is_empty() {
        problems.push(format!("tests left behind: {}", left.join(" ")));
    }
    println!("\nthe slowest of {} tests, {:.0} s in all:", counts.passed, begun.elapsed().as_secs_f64());
    for (seconds, name) in slowest.most(SLOWEST) {
        println!("{seconds:8.1} s  {name}");
    }
    for name in &alone {
        println!("passed only by itself, after it had failed beside others (its words stand above): {name}");
    }
    let names = failed.iter().map(|(program, test)| program.name_of(test));
    for problem in names.filter(|name| !alone.contains(name)).chain(problems.iter().cloned()) {
        println!("failed: {problem}");
    }
    let still = counts.failed - alone.len() as u64;
    println!("{} passed, {} failed", counts.passed + alone.len() as u64, still + problems.len() as u64);
    Ok(problems.is_empty() && still == 0)
}

/// Runs each of these tests by itself; the names of those that passed.
fn again(failed: &[(&Program, String)]) -> Vec<String> {
    let mut passed = Vec::new();
    for (program, test) in failed {
        let name = program.name_of(test);
        println!("\nagain, by itself: {name}");
        let mut command = program.command();
        match output_of(command.args(["--exact", test]), true, &name) {
            // A name that no test has passes too.
            Ok((status, text)) if status.success() && Counts::of(&text).passed == 1 => passed.push(name),
            Ok(_) => {}
            Err(error) => println!("{name} cannot be run: {error}"),
        }
    }
    passed
}

/// Builds every test program and lists them in the order of their names.
fn build(workspace: &Path) -> Result<Vec<Program>, String> {
    let arguments = [
        "test",
        "--workspace",
        "--features",
        "guide",
        "--locked",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ];
    let output = Command::new(cargo())
        .args(arguments)
        .current_dir(workspace)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo cannot be started: {error}"))?;
    if !output.status.success() {
        return Err("the tests could not be built; what is wrong stands above".to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut programs: Vec<Program> = text.lines().filter_map(program_of).collect();
    programs.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
    Ok(programs)
}

fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// The test program that a line of cargo's messages tells of.
fn program_of(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    let executable = message["executable"].as_str()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let target = message["target"]["name"].as_str()?.to_owned();
    // `path+file:///…/crates/net#weir-net@0.1.0`; without a name where the folder has the same.
    let id = message["package_id"].as_str()?;
    let after = id.rsplit('#').next().unwrap_or_default();
    let package = match after.split_once('@') {
        Some((name, _version)) => name.to_owned(),
        None => directory.file_name()?.to_str()?.to_owned(),
    };
    Some(Program { package, target, executable: executable.into(), directory })
}

fn carry_out<'a>(program: &'a Program, filters: &[String], tally: &Mutex<Tally<'a>>) {
    let mut command = program.command();
    command.args(filters).args(["-Z", "unstable-options", "--report-time"]);
    if let Some(threads) = program.measures() {
        command.args(["--test-threads", threads]);
    }
    let times = tempfile::NamedTempFile::new();
    if let Ok(times) = &times {
        command.env(TIMES, times.path());
    }
    // The test harness of the pinned toolchain tells times only to those who say that they know it may change.
    command.env("RUSTC_BOOTSTRAP", "1");
    let name = format!("{} {}", program.package, program.target);
    let output = output_of(&mut command, program.measures().is_some(), &name);
    let mut tally = tally.lock().expect("no test thread panics");
    match output {
        Ok((status, text)) => {
            let counts = Counts::of(&text);
            tally.counts.add(counts);
            let own = times.and_then(|times| std::fs::read_to_string(times.path())).unwrap_or_default();
            tally.slowest.add(&program.package, &text, &own);
            let failed = times::failed(&text);
            if !status.success() && failed.len() as u64 != counts.failed {
                tally.problems.push(format!("{name}: {status}"));
            }
            tally.failed.extend(failed.into_iter().map(|test| (program, test.to_owned())));
        }
        Err(error) => tally.problems.push(format!("{name} cannot be run: {error}")),
    }
}

/// How a program ended and what it said, which is shown as it comes or, beside others, when all of it is there.
fn output_of(command: &mut Command, as_it_comes: bool, name: &str) -> io::Result<(ExitStatus, String)> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut text = format!("\n== {name}\n");
    let mut shown = 0;
    for line in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
        let line = line?;
        if line.ends_with(STILL_RUNS) {
            continue;
        }
        text += &line;
        text.push('\n');
        if as_it_comes {
            print!("{}", &text[shown..]);
            shown = text.len();
        }
    }
    print!("{}", &text[shown..]);
    Ok((child.wait()?, text))
}

/// What labs keep on this machine now, by path.
fn kept_by_labs() -> BTreeSet<String> {
    let folders = KEPT_BY_LABS.iter().filter_map(|folder| std::fs::read_dir(folder).ok());
    folders.flatten().flatten().map(|entry| entry.path().display().to_string()).collect()
}
