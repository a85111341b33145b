//! What a group found, as JSON for programs and Markdown for people, with all that is needed to run it again.

use super::Settings;
use super::groups::Group;
use super::statistics::{Bound, Estimate, Verdict};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::process::Command;

/// One line of the table: a figure of each round, and what it must not be beyond.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    /// `ratio` of weir to the peer in the same round, or the unit of an absolute figure.
    pub unit: &'static str,
    pub bound: Bound,
    pub values: Vec<f64>,
    /// What the ratio was made of, by arm, in the base unit; for the JSON only.
    pub arms: Vec<(String, Vec<f64>)>,
}

impl Row {
    pub fn verdict(&self) -> Verdict {
        // A row without figures must not pass for a good one.
        Estimate::of(&self.values).map_or(Verdict::Fail, |estimate| estimate.judge(self.bound))
    }
}

#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub rows: Vec<Row>,
    /// Command lines as run, once each.
    pub commands: Vec<String>,
    pub notes: Vec<String>,
}

fn verdict_text(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::NotSignificant => "not significant",
        Verdict::Fail => "fail",
        Verdict::NotJudged => "",
    }
}

fn bound_text(bound: Bound) -> String {
    match bound {
        Bound::AtLeast(least) => format!("≥ {}", number(least)),
        Bound::AtMost(most) => format!("≤ {}", number(most)),
        Bound::None => "none".to_owned(),
    }
}

/// Four significant digits, without an exponent where it reads well.
fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 1e5 || (magnitude > 0.0 && magnitude < 1e-3) {
        format!("{value:.3e}")
    } else {
        let whole = if magnitude < 1.0 { 0 } else { magnitude.log10().floor() as usize + 1 };
        format!("{value:.*}", 4_usize.saturating_sub(whole))
    }
}

pub fn table(outcome: &Outcome) -> String {
    let mut text = String::from(
        "| figure | unit | rounds | median | 95 % interval | bound | verdict |\n|---|---|---|---|---|---|---|\n",
    );
    for row in &outcome.rows {
        let (rounds, median, interval) = match Estimate::of(&row.values) {
            Some(found) => {
                (found.n, number(found.median), format!("{} to {}", number(found.low), number(found.high)))
            }
            None => (row.values.len(), "none".to_owned(), "none".to_owned()),
        };
        let (bound, verdict) = (bound_text(row.bound), verdict_text(row.verdict()));
        text += &format!(
            "| {} | {} | {rounds} | {median} | {interval} | {bound} | {verdict} |\n",
            row.name, row.unit
        );
    }
    text
}

/// Taken before the group runs, so that the load is not its own.
pub fn environment(settings: &Settings) -> Value {
    let first = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(&settings.workspace).output().ok();
        let text =
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        text.lines().next().unwrap_or_default().trim().to_owned()
    };
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| {
        Some(line.strip_prefix("model name")?.trim_start_matches([' ', '\t', ':']).to_owned())
    });
    let dirty = !first("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty();
    json!({
        "kernel": first("uname", &["-r"]),
        "cpu": model.unwrap_or_default(),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "load_before": read("/proc/loadavg"),
        "tcp_rmem": read("/proc/sys/net/ipv4/tcp_rmem"),
        "tcp_wmem": read("/proc/sys/net/ipv4/tcp_wmem"),
        "commit": first("git", &["rev-parse", "HEAD"]),
        "uncommitted_changes": dirty,
        "weir": first(&settings.weir.to_string_lossy(), &["--version"]),
        "iperf3": first(&settings.iperf3.to_string_lossy(), &["--version"]),
        "sockperf": first("sockperf", &["--version"]),
        "rattan": first(&settings.rattan.to_string_lossy(), &["--version"]),
        "neper": settings.neper.as_ref().map_or_else(
            || "absent".to_owned(),
            |folder| {
                let (scratch, program) = (settings.scratch.to_string_lossy(), folder.join("tcp_crr"));
                first("env", &["-C", &scratch, &program.to_string_lossy(), "--version"])
            },
        ),
        "started": first("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
    })
}

/// Writes `DATE-NAME.json` and `DATE-NAME.md`; a name in use gets a number, since no run overwrites another.
pub fn write(
    settings: &Settings,
    group: &Group,
    environment: &Value,
    outcome: &Outcome,
) -> Result<PathBuf, String> {
    let date = environment["started"].as_str().and_then(|text| text.split('T').next()).unwrap_or("undated");
    let named = |number: usize| match number {
        1 => format!("{date}-{}", group.name),
        _ => format!("{date}-{}-{number}", group.name),
    };
    let base =
        (1..).map(named).find(|name| !settings.out.join(format!("{name}.json")).exists()).unwrap_or_default();
    let commands: Vec<String> = outcome.commands.iter().map(|line| settings.shown(line)).collect();
    let document = json!({
        "schema": "weir.bench/1",
        "name": group.name,
        "about": group.about,
        "environment": environment,
        "commands": commands,
        "notes": outcome.notes,
        "figures": outcome.rows.iter().map(row_json).collect::<Vec<_>>(),
    });
    let text = serde_json::to_string_pretty(&document).map_err(|problem| problem.to_string())? + "\n";
    let mut page = format!("# {base}\n\n{}.\n\n{}\n", group.about, table(outcome));
    page += "A ratio is weir's figure over the peer's in the same round. `fail`: the whole 95 % interval (bootstrap of the median, 10,000\nresamples of rounds) is beyond the bound; `not significant`: the median is, the interval is not.\n\n## Environment\n\n";
    for (key, value) in environment.as_object().into_iter().flatten() {
        page += &format!("- {key}: {}\n", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    }
    page += "\n## Commands\n\n";
    page += &commands.iter().map(|line| format!("    {line}\n")).collect::<String>();
    if !outcome.notes.is_empty() {
        page += "\n## Notes\n\n";
        page += &outcome.notes.iter().map(|note| format!("- {note}\n")).collect::<String>();
    }
    for (extension, text) in [("json", text), ("md", page)] {
        let path = settings.out.join(format!("{base}.{extension}"));
        std::fs::write(&path, text).map_err(|problem| format!("{}: {problem}", path.display()))?;
    }
    Ok(settings.out.join(format!("{base}.md")))
}

fn row_json(row: &Row) -> Value {
    let mut value = Map::new();
    value.insert("name".to_owned(), json!(row.name));
    value.insert("unit".to_owned(), json!(row.unit));
    value.insert("bound".to_owned(), json!(bound_text(row.bound)));
    value.insert("verdict".to_owned(), json!(verdict_text(row.verdict())));
    if let Some(found) = Estimate::of(&row.values) {
        value.insert("median".to_owned(), json!(found.median));
        value.insert("ci95".to_owned(), json!([found.low, found.high]));
    }
    value.insert("rounds".to_owned(), json!(row.values));
    let arms: Map<String, Value> =
        row.arms.iter().map(|(name, values)| (name.clone(), json!(values))).collect();
    value.insert("arms".to_owned(), Value::Object(arms));
    Value::Object(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_without_figures_fails_and_says_none() {
        let row = Row {
            name: "x".into(),
            unit: "ratio",
            bound: Bound::AtLeast(0.97),
            values: vec![],
            arms: vec![],
        };
        assert_eq!(row.verdict(), Verdict::Fail);
        let text = table(&Outcome { rows: vec![row], ..Outcome::default() });
        assert!(text.contains("| none | none | ≥ 0.9700 | fail |"), "{text}");
    }

    #[test]
    fn figures_are_written_to_four_digits() {
        assert_eq!(
            ["0.9712", "12.35", "9.512e9", "1.100e-5"],
            [number(0.97123), number(12.345), number(9.5123e9), number(1.1e-5)].map(|text| text)
        );
    }
}
