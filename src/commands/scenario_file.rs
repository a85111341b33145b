//! A scenario file from the command line: what `run` and `check` may change of it, and how it is read.

use crate::output::tell_as_it_is;
use crate::registry;
use anyhow::{Context, bail};
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::Path;
use weir_core::scenario::{self, Overrides, Plan, ScenarioErrors};

/// Flags that change what a scenario says.
#[derive(clap::Args)]
pub struct Changes {
    /// Take the scenario's short form, at most 60 s of running
    #[arg(long)]
    pub short: bool,
    /// Change a value: step.NAME.key, link.NAME.key, site.NAME.key, sweep.DIMENSION, … (repeatable)
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Seed of everything random
    #[arg(long)]
    seed: Option<u64>,
    /// Repetitions of each point
    #[arg(long)]
    trials: Option<u32>,
}

impl Changes {
    pub fn overrides(&self) -> Overrides {
        Overrides { sets: self.sets.clone(), trials: self.trials, seed: self.seed, short: self.short }
    }
}

/// Reads a scenario file whole, refusing what cannot be one.
fn read(path: &Path) -> anyhow::Result<String> {
    const BYTES_MAX: u64 = scenario::FILE_BYTES_MAX as u64;
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot open the scenario {shown}"))?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read the scenario {shown}"))?;
    if bytes.len() as u64 > BYTES_MAX {
        bail!("{shown} is larger than 16 MiB; a scenario is a few kilobytes of TOML");
    }
    String::from_utf8(bytes).with_context(|| format!("{shown} is not UTF-8 text; a scenario is a TOML file"))
}

/// Loads a plan, or prints every problem found, with its place, and gives them back: the exit status is then 2.
pub fn load(path: &Path, overrides: &Overrides) -> anyhow::Result<Result<Plan, ScenarioErrors>> {
    let text = read(path)?;
    let file = path.display().to_string();
    let loaded = scenario::load(&text, &file, overrides, &registry::workload_schemas());
    if let Err(errors) = &loaded {
        tell_as_it_is(errors.render(std::io::stderr().is_terminal()));
    }
    Ok(loaded)
}
