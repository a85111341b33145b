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
