//! How far apart the agents of a step begin, as each run's record has it.

use super::Settings;
use super::groups::{ROUNDS, limit};
use super::process;
use super::record::{Outcome, Row};
use super::statistics::Bound;
use super::tools;

const METRIC: &str = "control.start_spread_seconds";

/// Scenario in bench/labs, what it is, and what its spread may be, in seconds.
static CASES: &[(&str, &str, f64)] =
    &[("start-2.toml", "2 hosts", 200e-6), ("start-16.toml", "16 hosts", 5e-3)];

pub fn starts(settings: &Settings) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    for (file, name, most) in CASES {
        let path = super::place::lab_file(settings, file);
        let out = settings.scratch.join("start-spread");
        let line: Vec<String> = [
            &*settings.weir.to_string_lossy(),
            "run",
            &path.to_string_lossy(),
            "--out",
            &out.to_string_lossy(),
            "--json",
        ]
        .map(str::to_owned)
        .to_vec();
        outcome.commands.push(format!("weir run bench/labs/{file} --out DIR --json"));
        let (mut values, mut invalid) = (Vec::new(), 0);
        for _ in 0..settings.rounds(ROUNDS) {
            let run = process::finish(&settings.scratch, &line, limit(settings))?;
            match tools::weir_valid_trials(&run.stdout)? {
                0 => invalid += 1,
                _ => values.push(tools::weir_metric(&run.stdout, METRIC, "max")?),
            }
        }
        if invalid > 0 {
            outcome.notes.push(format!("{name}: {invalid} trials were not valid (see their reasons in `weir run`) and give no figure."));
        }
        let _ = std::fs::remove_dir_all(&out);
        outcome.rows.push(Row {
            name: format!("first to last start, {name}"),
            unit: "s",
            bound: Bound::AtMost(*most),
            values,
            arms: vec![],
        });
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    outcome.notes.push(format!("{METRIC} of one trial a round: each agent's own time of its first byte, on the one clock of the lab. This machine has {cores} cores."));
    Ok(outcome)
}
