//! `weir doctor`: what this host can and cannot do, and how to mend it.

use crate::doctor::{Facts, Finding, Path, Severity, findings};
use crate::output;
use anyhow::bail;
use serde_json::json;
use std::time::Duration;
use weir_core::BitsPerSecond;

/// How long all cores are kept busy to see whether they are taken away.
const WATCHED: Duration = Duration::from_millis(800);

/// Say what this host can and cannot do, and how to mend it
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo weir doctor
  sudo weir doctor --rate 10Gbit/s --rtt 100ms      what such a path needs of buffers
  weir doctor --json | jq -r '.findings[] | select(.mend) | .mend'

Exit status: 0 when labs can run here, 2 when something that they need is missing.")]
pub struct Args {
    /// Rate of the path that buffers are held against
    #[arg(long, default_value = "1Gbit/s", value_name = "RATE", value_parser = BitsPerSecond::parse)]
    rate: BitsPerSecond,
    /// Round trip of that path
    #[arg(long, default_value = "100ms", value_name = "TIME", value_parser = weir_core::units::parse_duration)]
    rtt: Duration,
    /// Print one JSON document on standard output and nothing else
    #[arg(long)]
    json: bool,
}

/// Exit status 0 when a lab can run, 2 when it cannot.
pub fn run(args: &Args) -> anyhow::Result<i32> {
    if args.rtt > Duration::from_secs(60) {
        bail!("--rtt {:?} is no path's round trip; give at most 60s", args.rtt);
    }
    let path = Path { rate_bits_per_second: args.rate.as_f64(), rtt_seconds: args.rtt.as_secs_f64() };
    let found = findings(&Facts::watch(WATCHED), &path);
    let worst = found.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok);
    let text = if args.json {
        let document = json!({
            "schema": "weir.doctor/1",
            "status": worst.name(),
            "path": { "rate_bits_per_second": path.rate_bits_per_second, "rtt_seconds": path.rtt_seconds },
            "findings": found.iter().map(Finding::json).collect::<Vec<_>>(),
        });
        serde_json::to_string_pretty(&document)? + "\n"
    } else {
        told(&found, worst, output::is_colored())
    };
    output::print(&text)?;
    Ok(if worst == Severity::Problem { 2 } else { 0 })
}

/// For people: what is not well first asks for attention, each with its command on a line that can be copied.
fn told(found: &[Finding], worst: Severity, color: bool) -> String {
    const WIDTH: usize = 80;
    const INDENT: usize = 9;
    let mut text = String::new();
    for finding in found {
        let (word, code) = match finding.severity {
            Severity::Ok => ("ok", "32"),
            Severity::Note => ("note", "33"),
            Severity::Problem => ("PROBLEM", "31"),
        };
        let padded = format!("{word:<INDENT$}");
        let mark = if color { format!("\u{1b}[1;{code}m{padded}\u{1b}[0m") } else { padded };
        let said = format!("{}: {}", finding.name, finding.text);
        for (index, line) in wrapped(&said, WIDTH - INDENT).into_iter().enumerate() {
            text += if index == 0 { &mark } else { "         " };
            text += &line;
            text.push('\n');
        }
        if let Some(mend) = &finding.mend {
            text += &format!("           $ {mend}\n");
        }
    }
    let count = |severity| found.iter().filter(|it| it.severity == severity).count();
    text += &match worst {
        Severity::Problem => {
            format!("\nlabs cannot run here: {} to mend first\n", things(count(Severity::Problem), "problem"))
        }
        Severity::Note => format!("\nlabs can run here; {}\n", things(count(Severity::Note), "note")),
        Severity::Ok => "\nlabs can run here\n".to_owned(),
    };
    text
}

fn things(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Breaks at spaces; a word longer than a line stays whole.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}
