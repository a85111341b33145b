//! What the guide shows is what the program takes.

use crate::support::{repository, run};
use std::fs;

const PAGE: &str = "docs/guide/scenario-language.md";

/// The blocks of a page that are written in TOML, each with its first line's number.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let text = fs::read_to_string(repository().join(page)).unwrap();
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        match line {
            "```toml" => {
                inside = true;
                blocks.push((index + 2, String::new()));
            }
            "```" => inside = false,
            _ if inside => {
                let (_, block) = blocks.last_mut().expect("a block was opened");
                block.push_str(line);
                block.push('\n');
            }
            _ => {}
        }
    }
    assert!(!inside, "{page}: a block is not closed");
    blocks
}

/// What `weir check` says of it, with the status.
fn checked(scenario: &str) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("example.toml");
    fs::write(&file, scenario).unwrap();
    let ran = run(&["check", file.to_str().unwrap()]);
    (ran.status, ran.stderr)
}

/// As the page says: a block with a network is a file of its own, the others are added to the first.
fn files(page: &str) -> Vec<(usize, String)> {
    let blocks = blocks(page);
    let first = blocks[0].1.clone();
    let has_network = |block: &str| block.lines().any(|line| line == "[lab]" || line == "[hosts]");
    let whole = |block: String| if has_network(&block) { block } else { format!("{first}\n{block}") };
    blocks.into_iter().map(|(line, block)| (line, whole(block))).collect()
}

#[test]
fn every_scenario_of_the_language_page_and_of_the_readme_passes_the_check() {
    let files: Vec<_> = files(PAGE).into_iter().map(|file| (PAGE, file)).collect();
    assert!(files.len() >= 15, "{} examples", files.len());
    let readme = blocks("README.md").into_iter().map(|file| ("README.md", file));
    for (page, (line, scenario)) in files.into_iter().chain(readme) {
        let (status, said) = checked(&scenario);
        assert_eq!(status, 0, "{page}, the example at line {line}:\n{said}");
    }
}

#[test]
fn an_example_with_a_key_too_many_does_not_pass() {
    for (line, scenario) in files(PAGE) {
        let (status, said) = checked(&format!("{scenario}\nno_such_key = 1\n"));
        assert_eq!(status, 2, "the example at line {line}");
        assert!(said.contains("no_such_key"), "{said}");
    }
}

#[test]
fn the_language_page_has_every_key_that_the_program_explains() {
    let page = fs::read_to_string(repository().join(PAGE)).unwrap();
    let words: Vec<&str> =
        page.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')).collect();
    let explained = run(&["explain"]);
    assert_eq!(explained.status, 0, "{}", explained.stderr);
    let mut keys = 0;
    // A table is its header, a sentence or more, and the names of its keys.
    for table in explained.stdout.split("\n\n").filter(|table| table.starts_with('[')) {
        let (_, names) = table.rsplit_once(".\n").expect("a sentence before the keys");
        // The keys of a workload follow its name.
        let names = names.lines().map(|line| line.split_once(": ").map_or(line, |(_, keys)| keys));
        let names = names.flat_map(|line| line.split(',')).map(str::trim);
        for name in names.filter(|name| !name.is_empty()) {
            assert!(
                words.contains(&name),
                "{PAGE} does not have {name:?} of {}",
                table.lines().next().unwrap()
            );
            keys += 1;
        }
    }
    assert!(keys > 80, "only {keys} keys were found in what explain says");
}

/// The scenario and the name of the workload of the page on adding parts.
#[cfg(feature = "guide")]
fn added() -> (String, String) {
    let (_, scenario) = blocks("docs/guide/adding.md").remove(0);
    let named = scenario.lines().find_map(|line| line.strip_prefix("workload = ")).unwrap();
    let name = named.trim_matches('"').to_owned();
    (scenario, name)
}

// Spec: results.md#failure-3, results.md#record-1, evidence.md#order-4
#[cfg(feature = "guide")]
#[test]
fn the_workload_of_the_page_runs_on_one_host_and_a_fault_there_changes_its_result_and_its_factor() {
    use crate::support::{need_lab, run_file, settled, turn};
    need_lab();
    let _turn = turn();
    let (scenario, name) = added();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("added.toml");
    fs::write(&file, scenario).unwrap();
    let (status, summary, ran) = settled(|| run_file(&file, folder.path(), &[]), |(_, summary, _)| summary);
    assert_eq!(status, 0, "{summary:#}\n{}", ran.stderr);
    let results = std::path::Path::new(summary["results"].as_str().unwrap());
    let lines = |file: &str| -> Vec<serde_json::Value> {
        let text = fs::read_to_string(results.join(file)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    // The failure is a datum, and its trial counts.
    let failures = lines("failures.jsonl");
    let stopped: Vec<_> = failures.iter().filter(|failure| failure["step"] == "stopped").collect();
    assert!(!stopped.is_empty(), "{failures:?}");
    assert_eq!((&stopped[0]["code"], &stopped[0]["host"]), (&"ETIME".into(), &"a-0".into()));
    let at_ns = stopped.iter().map(|failure| failure["at_ns"].as_i64().unwrap()).max().unwrap();
    let trials = lines("trials.jsonl");
    let of_step = trials.iter().find(|trial| trial["step"] == "stopped").unwrap();
    assert!((of_step["start_ns"].as_i64().unwrap()..of_step["end_ns"].as_i64().unwrap()).contains(&at_ns));
    assert_eq!(
        (&of_step["valid"], of_step["failure_count"].as_u64()),
        (&true.into(), Some(stopped.len() as u64))
    );
    let blocks = |step: &str| {
        let point = summary["points"].as_array().unwrap().iter().find(|point| point["step"] == step).unwrap();
        let metrics = point["metrics"].as_object().unwrap();
        let (_, blocks) = metrics.iter().find(|(metric, _)| **metric == format!("{name}.blocks")).unwrap();
        blocks["mean"].as_f64().unwrap()
    };
    assert!(blocks("stopped") < 0.8 * blocks("calm"), "{} of {}", blocks("stopped"), blocks("calm"));
    // Each block is recorded, drawn and exported.
    let page = fs::read_to_string(results.join("report.html")).unwrap();
    for part in ["the time that each block took", "<h4>Failures", "Next: hash on more hosts", "workload <b>"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert_eq!(run(&["export", results.to_str().unwrap(), "--csv"]).status, 0);
    let exported = fs::read_to_string(results.join("chunks.csv")).unwrap();
    let recorded = exported.lines().filter(|line| line.contains(",calm,")).count() as f64;
    assert!((recorded - blocks("calm")).abs() < 1.0, "{recorded} of {}", blocks("calm"));
    assert!(exported.lines().next().unwrap().contains("block_ns,hashed_bytes"), "{}", &exported[..200]);
}

#[cfg(feature = "guide")]
#[test]
fn the_workload_of_the_page_is_named_in_its_file_alone() {
    let (_, name) = added();
    let mut found = std::process::Command::new("git");
    let found = found.args(["grep", "-lw", &name]).current_dir(repository()).output().unwrap();
    let files = String::from_utf8(found.stdout).unwrap();
    assert_eq!(files.lines().collect::<Vec<_>>(), ["docs/guide/adding.md"], "{files}");
    let listed = run(&["list", "workload"]).stdout;
    assert!(listed.contains(&name), "{listed}");
    let wrong = blocks("docs/guide/adding.md").remove(0).1.replace("\"core-speed\"", "\"core-sped\"");
    let (status, said) = checked(&wrong);
    assert!(status == 2 && said.contains("core-speed"), "{said}");
}
