//! The parts of `weir` that this crate's tests need as a program of its own: `weir` is built above this crate.

use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::exit;
use weir_lab::named::{self, Entry, LabName, Place};
use weir_lab::{LabError, Options};

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(|argument| argument.to_str().unwrap_or_default()).collect();
    if let Some(status) = arguments.first().and_then(|first| weir_lab::hidden(first)) {
        exit(status);
    }
    let result = match words.as_slice() {
        ["up", name, topology] => up(name, topology),
        ["exec", name, host, "--root", ..] => exec(name, host, true, &arguments[4..]),
        ["exec", name, host, ..] => exec(name, host, false, &arguments[3..]),
        ["down", name] => down(name),
        _ => Err("up NAME TOPOLOGY | exec NAME HOST [--root] COMMAND… | down NAME".into()),
    };
    exit(result.unwrap_or_else(|error| {
        eprintln!("{error}");
        2
    }));
}

fn lab(name: &str) -> Result<LabName, LabError> {
    LabName::new(&Place::chosen()?, name)
}

fn down(name: &str) -> Result<i32, Box<dyn Error>> {
    let problems = named::down(&lab(name)?)?.problems;
    for problem in &problems {
        eprintln!("{problem}");
    }
    Ok(if problems.is_empty() { 0 } else { 2 })
}

fn up(name: &str, topology: &str) -> Result<i32, Box<dyn Error>> {
    let options = Options { seed: 1, exe: PathBuf::from("/proc/self/exe") };
    let holding = std::env::var_os("WEIR_TEST_HOLD").is_some();
    let furnish = &mut |lab: &mut weir_lab::Lab, folder: &std::path::Path| {
        if holding {
            lab.hold(0, folder)?;
        }
        Ok(Vec::new())
    };
    named::up(&lab(name)?, &serde_json::from_str(topology)?, &options, "a test", furnish)?;
    Ok(0)
}

fn exec(name: &str, host: &str, root: bool, command: &[OsString]) -> Result<i32, Box<dyn Error>> {
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let (status, error) = named::exec(&lab(name)?, &Entry { host, program, arguments, root })?;
    eprintln!("{error}");
    Ok(status)
}
