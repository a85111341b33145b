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
    let systems = registry::library(path);
    let loaded = scenario::load(&text, &file, overrides, registry::language(&systems));
    if let Err(errors) = &loaded {
        tell_as_it_is(errors.render(std::io::stderr().is_terminal()));
    }
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::scenario::Criterion;

    /// All of a plan that its folder is read for; line numbers are those of another file.
    fn essence(plan: &Plan) -> String {
        let criteria: Vec<Criterion> =
            plan.criteria.iter().map(|criterion| Criterion { line: 0, ..criterion.clone() }).collect();
        let head =
            (&plan.name, &plan.about, &plan.origin, &plan.scale, plan.trials, plan.trials_min, plan.seed);
        format!("{:#?}", (head, &plan.dimensions, &plan.configurations, criteria))
    }

    // Spec: scenario.md#resolved-1
    #[test]
    fn every_scenario_of_the_repository_in_both_forms_comes_back_from_its_resolved_text_as_the_same_plan() {
        let all = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios")).unwrap();
        let mut seen = 0;
        for path in all.map(|entry| entry.unwrap().path()) {
            let (text, file) = (read(&path).unwrap(), path.display().to_string());
            for short in [false, true] {
                if short && !text.contains("[short") {
                    continue;
                }
                let load = |text: &str, short| {
                    let overrides = Overrides { short, ..Overrides::default() };
                    let systems = registry::library(&path);
                    scenario::load(text, &file, &overrides, registry::language(&systems))
                        .unwrap_or_else(|errors| panic!("{file}, short {short}: {errors}\n{text}"))
                };
                let first = load(&text, short);
                let again = load(&first.resolved, false);
                assert!(essence(&first) == essence(&again), "{file}, short {short}: {}", first.resolved);
                seen += 1;
            }
        }
        assert!(seen > 60, "{seen} plans were looked at");
    }
}
