//! Housekeeping of the workspace: `cargo xtask tidy` keeps its rules, `cargo xtask test` runs the tests,
//! `cargo xtask bench` measures against peers, `cargo xtask accuracy` measures the lab against its own ground truth,
//! `cargo xtask labelled` tries its verdicts beside other load.

mod accuracy;
mod bench;
mod labelled;
mod layers;
mod probe;
mod test;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy
       cargo xtask test [FILTER…]
       cargo xtask bench [--rounds N] [--duration SECONDS] [--out DIR] [--list] [NAME…]
       cargo xtask labelled [--runs N] [--weir PROGRAM]
       cargo xtask accuracy [--quick] [--out FILE] [--seed N] [--list] [PART…]";

/// The folder that holds the workspace, wherever cargo was called from.
fn workspace() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("xtask lies in the workspace").to_owned()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.first().map(String::as_str) {
        Some("tidy") if arguments.len() == 1 => tidy::run(&workspace()),
        Some("test") => test::run(&workspace(), &arguments[1..]),
        Some("bench") => bench::run(&workspace(), &arguments[1..]),
        // One end of a comparison, started by `bench`.
        Some("bare-loop") => bench::bare_loop(&arguments[1..]).map(|()| true),
        Some("bare-joiner") => bench::bare_joiner(&arguments[1..]).map(|()| true),
        Some("accuracy") => accuracy::run(&workspace(), &arguments[1..]),
        Some("labelled") => labelled::run(&workspace(), &arguments[1..]),
        // What runs beside, started by `labelled`.
        Some("load") => labelled::load(&arguments[1..]).map(|()| true),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("xtask: {problem}");
            ExitCode::from(2)
        }
    }
}
