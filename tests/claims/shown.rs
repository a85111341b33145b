//! What others wrote reaches nobody's terminal as it is: a scenario, a folder of results, a server, a lab.

use crate::support::*;
use std::fs;
use std::path::Path;
use std::process::Stdio;

/// Longest line that a command prints: what is shown of others' text, and this program's words around it.
const LINE_BYTES_MAX: usize = 5_000;

/// Steers a terminal in seven ways, forges a line, and is longer than anyone reads.
fn hostile() -> String {
    format!("x\u{1b}[2J\u{9b}31m\u{8}\u{7}\r\u{7f}\u{202e}\nverdict: pass{}", "y".repeat(100_000))
}

fn as_toml(text: &str) -> String {
    serde_json::to_string(text).unwrap().replace('\u{7f}', "\\u007F")
}

fn harmless(arguments: &[&str], bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let bad = |letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}');
    if let Some(at) = text.find(bad) {
        let around: String = text[at..].chars().take(40).collect();
        panic!("{arguments:?} printed {around:?}");
    }
    let json = arguments.contains(&"--json");
    for line in text.lines() {
        assert!(json || line.len() < LINE_BYTES_MAX, "{arguments:?} printed a line of {} bytes", line.len());
        assert!(!line.starts_with("verdict: pass"), "{arguments:?} printed a forged line");
    }
}

fn both(folder: &Path, arguments: &[&str]) {
    let mut command = weir();
    command.current_dir(folder).args(arguments).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = finish_within(child, std::time::Duration::from_secs(60));
    assert!(!output.stdout.is_empty() || !output.stderr.is_empty(), "{arguments:?} said nothing");
    harmless(arguments, &output.stdout);
    harmless(arguments, &output.stderr);
}

// Spec: commands.md#output-4
#[test]
fn no_command_lets_text_of_others_steer_a_terminal_forge_a_line_or_fill_it() {
    let _turn = beside();
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    let text = hostile();
    let step =
        "[[step]]\nname = \"x\"\nworkload = \"stream\"\nfrom = \"a-0\"\nto = \"a-1\"\nduration = \"2s\"\n";
    let lab = "[lab]\n[[lab.site]]\nname = \"a\"\nhosts = 2\n";
    let criterion = format!(
        "[[criterion]]\ntext = {}\nmetric = \"stream.total_goodput_bits_per_second\"\nat_least = \"1Mbit/s\"\notherwise = {}\n",
        as_toml(&text),
        as_toml(&text)
    );
    let head = format!("[scenario]\nname = \"s\"\nabout = {0}\norigin = {0}\n", as_toml(&text));
    fs::write(folder.join("good.toml"), format!("{head}{lab}{step}{criterion}")).unwrap();
    for arguments in [&["check", "good.toml"][..], &["check", "good.toml", "--json"]] {
        both(folder, arguments);
    }
    // What is refused is quoted: keys, names, values, paths, and the line itself.
    let wrong = [
        format!("{head}{lab}{step}{} = 1\n", as_toml(&text)),
        format!("{head}{lab}{step}capture = {}\n", as_toml(&text)),
        format!("{head}{lab}{step}[sweep]\n{} = [1]\n", as_toml(&text)),
        format!("{head}{lab}{step}{criterion}where = {{ {} = {} }}\n", as_toml(&text), as_toml(&text)),
        format!("{head}{lab}{step}{criterion}case = {}\n", as_toml(&text)),
        format!("{lab}# \u{9b}31m\n{text}"),
    ];
    for wrong in wrong {
        fs::write(folder.join("wrong.toml"), wrong).unwrap();
        for arguments in [
            &["check", "wrong.toml"][..],
            &["check", "wrong.toml", "--json"],
            &["run", "wrong.toml"],
            &["lab", "up", "wrong.toml", "--name", "shown"],
        ] {
            both(folder, arguments);
        }
    }
    let short = text[..text.len().min(3_000)].replace('\0', "");
    for arguments in [
        &["explain", short.as_str()][..],
        &["list", &short],
        &["check", &short],
        &["check", "good.toml", "--set", &short],
        &["run", "--resume", &short],
        &["report", &short],
        &["export", &short, "--csv"],
        &["lab", "down", &short],
        &["lab", "exec", &short, "a-0", "--", "true"],
        &["net", "stream", &short],
    ] {
        both(folder, arguments);
    }
    // A folder of results: documents that are none, and lines with something in them.
    let run = folder.join("run");
    fs::create_dir(&run).unwrap();
    for (name, content) in [
        ("summary.json", format!("{{\"schema\": {}}}", serde_json::to_string(&text).unwrap())),
        (
            "plan.json",
            format!("{{\"schema\": \"weir.results/1\", {}: 1}}", serde_json::to_string(&text).unwrap()),
        ),
        ("trials.jsonl", text.clone()),
        ("scenario.toml", text.clone()),
    ] {
        fs::write(run.join(name), content).unwrap();
        for arguments in [
            &["report", "run"][..],
            &["export", "run", "--csv"],
            &["run", "--resume", "run"],
            &["check", "run/scenario.toml"],
        ] {
            both(folder, arguments);
        }
    }
}
