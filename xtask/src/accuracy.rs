//! `cargo xtask accuracy`: the lab against its own ground truth. Writes docs/guide/lab-accuracy.md.

mod delay;
mod discipline;
mod disk;
mod kernel;
mod loss;
mod queue;
mod rate;
mod section;
mod statistics;
mod theory;
mod wire;

use crate::bench::{Settings, record};
use section::{Claim, Section, Verdict};
use std::path::{Path, PathBuf};
use std::time::Instant;

const PAGE: &str = "docs/guide/lab-accuracy.md";

/// How much is measured.
pub struct Setup {
    /// The program whose fabric is measured.
    pub weir: PathBuf,
    pub seed: u64,
    pub quick: bool,
    /// Repetitions of each row whose interval is over rounds.
    pub rounds: usize,
}

impl Setup {
    /// A duration in seconds, of the full form.
    fn seconds(&self, full: f64) -> f64 {
        if self.quick { full / 3.0 } else { full }
    }
    /// A number of packets, of the full form.
    fn packets(&self, full: usize) -> usize {
        if self.quick { full / 10 } else { full }
    }
}

type Part = (&'static str, fn(&Setup) -> Result<Section, String>);

/// In the order of the page.
const PARTS: &[Part] = &[
    ("delay", delay::idle),
    ("load", delay::loaded),
    ("rate", rate::grid),
    ("loss", loss::random),
    ("bursts", loss::bursty),
    ("queue", queue::bursts),
    ("buffer", discipline::shared_buffer),
    ("red", discipline::red),
    ("codel", discipline::codel),
    ("reordering", wire::reordering),
    ("jitter", wire::jitter),
    ("corruption", wire::corruption),
    ("kernel", kernel::beside),
    ("disk", disk::disks),
];

/// Two hosts, `left-0` and `right-0`, joined by the link `wire`, whose keys are given; their accesses have no rate and no delay.
fn two_hosts(mtu: u64, link_keys: &str) -> String {
    let site =
        |name: &str| format!("[[lab.site]]\nname = \"{name}\"\nhosts = 1\naccess = {{ mtu = {mtu} }}\n");
    format!(
        "[lab]\n{}{}[[lab.link]]\nname = \"wire\"\nbetween = [\"left\", \"right\"]\n{link_keys}",
        site("left"),
        site("right")
    )
}

/// `Ok(false)` when a limit is broken. The page is written all the same, and says so.
pub fn run(workspace: &Path, arguments: &[String]) -> Result<bool, String> {
    let mut settings = Settings::new(workspace);
    let mut setup = Setup { weir: settings.weir.clone(), seed: 1, quick: false, rounds: 5 };
    settings.out = workspace.join(PAGE);
    let mut wanted: Vec<&Part> = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--quick" => (setup.quick, setup.rounds) = (true, 3),
            "--out" => settings.out = PathBuf::from(value()?),
            "--seed" => setup.seed = value()?.parse().map_err(|_| "--seed: not a number".to_owned())?,
            "--list" => {
                PARTS.iter().for_each(|(name, _)| println!("{name}"));
                return Ok(true);
            }
            name => wanted.push(
                PARTS
                    .iter()
                    .find(|(known, _)| *known == name)
                    .ok_or_else(|| format!("no part {name:?}; `cargo xtask accuracy --list` names them"))?,
            ),
        }
    }
    if wanted.is_empty() {
        wanted = PARTS.iter().collect();
    } else if settings.out == workspace.join(PAGE) {
        return Err("parts alone make no page of the guide: give --out FILE too".to_owned());
    }
    if !setup.weir.is_file() {
        return Err(format!("{} is missing: cargo build --release", setup.weir.display()));
    }
    let environment = record::environment(&settings);
    let started = Instant::now();
    let (mut sections, mut problems) = (Vec::new(), Vec::new());
    for (name, measure) in wanted {
        eprintln!("accuracy: {name} …");
        match measure(&setup) {
            Ok(section) => {
                section.claims.iter().for_each(|claim| println!("{}", line(claim)));
                sections.push(section);
            }
            // One part that cannot be measured is told at the end; the others still give their figures.
            Err(problem) => problems.push(format!("{name}: {problem}")),
        }
    }
    let command = format!("cargo xtask accuracy {}", arguments.join(" ")).trim_end().to_owned();
    let page = page(&setup, &sections, &problems, &environment, &command, started.elapsed().as_secs());
    std::fs::write(&settings.out, page)
        .map_err(|problem| format!("{}: {problem}", settings.out.display()))?;
    println!("{}", settings.shown(&settings.out.display().to_string()));
    if !problems.is_empty() {
        return Err(problems.join("\nxtask: "));
    }
    Ok(sections.iter().flat_map(|section| &section.claims).all(|claim| claim.verdict != Verdict::Broken))
}

fn line(claim: &Claim) -> String {
    format!("{:7} {}: {} (limit {})", claim.verdict.word(), claim.text, claim.worst, claim.limit)
}

const CANNOT: &str = include_str!("accuracy/cannot.md");

fn page(
    setup: &Setup,
    sections: &[Section],
    problems: &[String],
    environment: &serde_json::Value,
    command: &str,
    took_seconds: u64,
) -> String {
    let mut text = String::from("# How true the lab is\n\n");
    text += &format!(
        "The lab measured against its own ground truth: what a link was told to do, and what packets and flows met. Everything on this \
         page is written by one command, `make accuracy` (this one: `{command}`, {} minutes, seed {}, {}), and can be made again on any \
         machine that can have a lab. Sender and receiver of every packet share one clock, so a one-way delay is a difference of two \
         of its readings. Times in parentheses are 95 % intervals of the median over {} interleaved rounds (bootstrap over rounds). A \
         limit is *kept* when the whole interval keeps it, *broken* when none of it does, else *open*.\n\n",
        took_seconds.div_ceil(60),
        setup.seed,
        if setup.quick { "quick form: a tenth of the packets, a third of the time" } else { "full form" },
        setup.rounds
    );
    text += "## In short\n\n";
    let rows: Vec<Vec<String>> = sections
        .iter()
        .flat_map(|section| &section.claims)
        .map(|claim| {
            vec![
                claim.text.clone(),
                claim.limit.clone(),
                claim.worst.clone(),
                claim.verdict.word().to_owned(),
            ]
        })
        .collect();
    text += &section::table(&["what", "limit", "worst row", "verdict"], &rows);
    for problem in problems {
        text += &format!("\n**Not measured**: {problem}\n");
    }
    for section in sections {
        text += &format!("\n{}", section.markdown());
    }
    text += &format!("\n{CANNOT}\n## Environment\n\n");
    for (key, value) in environment.as_object().into_iter().flatten() {
        text += &format!("- {key}: {}\n", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_failed_is_on_the_page_and_so_is_each_limit() {
        let setup = Setup { weir: PathBuf::new(), seed: 7, quick: false, rounds: 5 };
        let claim = Claim {
            text: "it holds".to_owned(),
            limit: "≤ 1".to_owned(),
            worst: "2".to_owned(),
            verdict: Verdict::Broken,
        };
        let section = Section { title: "One", claims: vec![claim], ..Section::default() };
        let text = page(&setup, &[section], &["rate: no lab".to_owned()], &serde_json::json!({}), "x", 61);
        assert!(text.contains("| it holds | ≤ 1 | 2 | broken |"), "{text}");
        assert!(text.contains("**Not measured**: rate: no lab"), "{text}");
        assert!(text.contains("2 minutes, seed 7, full form"), "{text}");
    }
}
