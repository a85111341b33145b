//! The report as its reader sees it: opened in a real browser, wide and narrow, on paper, without network.

#[path = "support/chromium.rs"]
mod chromium;
mod support;

use chromium::Chromium;
use std::fs;
use std::path::PathBuf;
use support::{repository, run};

/// Folders kept for this: what they are is said beside them.
const FOLDERS: [&str; 1] = ["tests/folders/0.1.0-quickstart"];

fn drawn(folder: &str, directory: &tempfile::TempDir) -> PathBuf {
    let page = directory.path().join("report.html");
    let ran = run(&["report", folder, "--out", page.to_str().unwrap()]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    page
}

/// Problems of the layout, and the text that is seen.
fn seen(browser: &mut Chromium) -> (Vec<String>, String) {
    let layout = browser.evaluate(include_str!("support/layout.js"));
    let count = |what: &str| layout[what].as_u64().unwrap_or(0);
    assert!(count("drawings") >= 3 && count("texts") >= 10 && count("marks") >= 20, "{layout:#}");
    let problems = layout["problems"].as_array().expect("a list");
    let problems = problems.iter().map(|it| it.as_str().unwrap_or_default().to_owned()).collect();
    (problems, layout["text"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn the_report_lies_well_on_wide_and_narrow_screens_and_on_paper_and_asks_for_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut browser = Chromium::start();
    for folder in FOLDERS {
        let page = drawn(folder, &directory);
        // A4 at 96 dots an inch is 794 wide.
        for (width, media, scheme) in [
            (1280, "screen", "light"),
            (390, "screen", "light"),
            (794, "print", "light"),
            (1280, "screen", "dark"),
        ] {
            browser.media(media, scheme);
            browser.open(&page, width);
            let (folded, text) = seen(&mut browser);
            assert_eq!(folded, Vec::<String>::new(), "{folder}, {width} px, {media}");
            assert!(text.contains("✓ pass") && text.contains("one stream fills the link"), "{text}");
            browser.evaluate("document.querySelectorAll('details').forEach(it => it.open = true)");
            let (unfolded, text) = seen(&mut browser);
            assert_eq!(unfolded, Vec::<String>::new(), "{folder}, {width} px, {media}, unfolded");
            assert!(text.contains("stream.total_goodput_bits_per_second"), "{text}");
            assert_eq!(browser.complaints(), Vec::<String>::new(), "{folder}, {width} px");
        }
        browser.media("", "light");
        browser.open(&page, 1280);
        let pdf = browser.pdf();
        assert!(pdf.starts_with(b"%PDF-"), "no PDF of {folder}");
        assert!(pdf.len() > 20_000, "a PDF of {} bytes has nothing on it", pdf.len());
    }
}

#[test]
fn a_page_that_does_harm_is_seen_to_do_it() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("bad.html");
    let bad = "<!doctype html><meta charset=utf-8><main><p style='width:3000px'>too wide</p>
        <svg width=200 height=60 viewBox='0 0 200 60'><text x=10 y=20>one over</text><text x=14 y=22>the other</text>
        <text x=180 y=50>cut off at the edge</text><path d='M0 0H500' stroke=red /></svg>
        <script>console.error('no'); fetch('http://127.0.0.1:9/').catch(() => 0)</script></main>";
    fs::write(&page, bad).unwrap();
    let mut browser = Chromium::start();
    browser.open(&page, 800);
    let problems = browser.evaluate(include_str!("support/layout.js"))["problems"].to_string();
    for expected in ["px wide", "lie over each other", "is cut off", "lies outside its frame"] {
        assert!(problems.contains(expected), "{expected} is not among {problems}");
    }
    let complaints = browser.complaints().join("\n");
    assert!(complaints.contains("127.0.0.1:9") && complaints.contains("no"), "{complaints}");
}

/// `make picture` names the file with `WEIR_PICTURE`; without it the picture is taken and thrown away.
#[test]
fn the_picture_of_the_guide_is_the_same_every_time_it_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let page = drawn(FOLDERS[0], &directory);
    let take = || {
        let mut browser = Chromium::start();
        browser.media("screen", "light");
        browser.open(&page, 1200);
        browser.picture(1200, Some(1_800))
    };
    let (first, second) = (take(), take());
    assert!(first.starts_with(b"\x89PNG") && first.len() > 50_000, "{} bytes", first.len());
    assert!(first == second, "two pictures of one page differ");
    if let Some(path) = std::env::var_os("WEIR_PICTURE") {
        fs::write(repository().join(path), first).unwrap();
    }
}
