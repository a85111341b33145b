//! The report as its reader sees it: opened in a real browser, wide and narrow, on paper, without network.

use crate::support::chromium::Chromium;
use crate::support::{beside, repository, run};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// Folders kept for this: what they are is said beside them.
const FOLDERS: [&str; 1] = ["tests/folders/0.1.0-quickstart"];

fn drawn(folder: &str, directory: &tempfile::TempDir) -> PathBuf {
    let page = directory.path().join("report.html");
    let ran = run(&["report", folder, "--out", page.to_str().unwrap()]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    page
}

/// What the sweep of the rich folder is made to measure, in bit/s: straight up to 24 streams, and then hardly more.
fn bent(streams: i64) -> f64 {
    20e6 + 30e6 * streams.min(24) as f64 + 0.5e6 * (streams - 24).max(0) as f64
}

/// A kept folder made into one with everything that a drawing must find room for: a switch and a router without answers between the
/// sites, impairments and disciplines on links, an auxiliary network, a sweep with published figures, and a fault whose parts
/// strike at phases of their own.
fn rich(directory: &tempfile::TempDir) -> String {
    let run = directory.path().join("rich");
    fs::create_dir(&run).unwrap();
    for entry in fs::read_dir(repository().join(FOLDERS[0])).unwrap().flatten() {
        fs::copy(entry.path(), run.join(entry.file_name())).unwrap();
    }
    let read = |name: &str| -> Value { serde_json::from_slice(&fs::read(run.join(name)).unwrap()).unwrap() };
    let (mut plan, mut summary) = (read("plan.json"), read("summary.json"));
    let configuration = &mut plan["configurations"][0];
    let topology = &mut configuration["topology"];
    let stages = topology["sites"].as_array_mut().unwrap();
    stages.push(json!({"name": "core", "tcp_profile": "modern", "stage": "switch", "buffer": 4_194_304}));
    stages.push(json!({"name": "edge-of-the-campus", "tcp_profile": "modern", "stage": {"router": {"replies": false}}}));
    let link = topology["links"][0].clone();
    let mut links = Vec::new();
    for (name, between) in [("wan", [0, 2]), ("trunk", [2, 3]), ("far", [3, 1])] {
        let mut link = link.clone();
        (link["name"], link["between"]) = (json!(name), json!(between));
        links.push(link);
    }
    links[1]["forward"]["impairments"] = json!({
        "jitter": {"by_ns": 2_000_000, "reorder": true}, "burst_loss": {"bad": 0.01, "length_packets": 8.0, "loss": 0.5},
        "corrupt": 1e-6, "reorder": {"share": 0.02, "by_ns": 500_000}
    });
    links[2]["forward"]["queue"]["discipline"] =
        json!({"codel": {"target_ns": 5_000_000, "interval_ns": 100_000_000}});
    topology["links"] = links.into();
    topology["auxiliary"] = json!({"rate": 1_000_000_000, "delay_ns": 20_000});
    configuration["published"] = json!({"stream.total_goodput_bits_per_second.mean": 7.1e8});
    for streams in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128] {
        let id = format!("many/streams={streams}");
        let mut step = configuration["steps"][1].clone();
        (step["name"], step["point"], step["parameters"]) =
            (json!("many"), json!(id), json!({"streams": streams}));
        configuration["steps"].as_array_mut().unwrap().push(step);
        let mut point = summary["points"][1].clone();
        (point["id"], point["step"], point["parameters"]) =
            (json!(id), json!("many"), json!({"streams": streams}));
        let measured = &mut point["metrics"]["stream.total_goodput_bits_per_second"];
        measured["mean"] = json!(bent(streams));
        measured["ci95"] = json!([bent(streams) * 0.98, bent(streams) * 1.02]);
        summary["points"].as_array_mut().unwrap().push(point);
    }
    for (kind, over, value, ci95, unit) in
        [("slope", [1, 12], 30e6, [29.1e6, 30.8e6], "bit/s"), ("knee", [1, 128], 24.0, [22.5, 26.1], "1")]
    {
        let corner = |streams: i64| json!([streams, bent(streams)]);
        let mut corners = vec![corner(over[0]), corner(over[1])];
        if kind == "knee" {
            corners.insert(1, corner(24));
        }
        let fit = json!({
            "kind": kind, "metric": "stream.total_goodput_bits_per_second", "statistic": "mean", "x": "streams", "x_unit": "1",
            "y_unit": "bit/s", "points": [{"point": "many/streams=1", "x": 1, "y": bent(1)}, {"point": "many/streams=2", "x": 2, "y": bent(2)}],
            "corners": corners, "value": value, "ci95": ci95
        });
        let criterion = json!({
            "text": format!("the {kind} of goodput over streams"), "metric": "stream.total_goodput_bits_per_second", "unit": unit,
            "bound": {"at_least": 1.0}, "value": value, "ci95": ci95, "verdict": "pass", "why": "", "fits": [fit]
        });
        summary["criteria"].as_array_mut().unwrap().push(criterion);
    }
    summary["scale"] = json!({"rate": 10, "size": 10});
    fs::write(run.join("plan.json"), plan.to_string()).unwrap();
    fs::write(run.join("summary.json"), summary.to_string()).unwrap();
    let mut timeline = fs::read_to_string(run.join("timeline.jsonl")).unwrap();
    let starts = timeline.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let is_outage = |it: &Value| it["event"] == "step-start" && it["step"] == "outage" && it["trial"] == 0;
    let start = starts.into_iter().find(is_outage).expect("the outage step")["trial_ns"].as_i64().unwrap();
    for (host, phase) in [("dresden-0", 200), ("dresden-1", 450), ("dresden-2", 500)] {
        for (event, after) in [("fault-start", 0), ("fault-end", 300)] {
            let at = start + (phase + after) * 1_000_000;
            let what = format!("every second packet from {host} later by 2 ms");
            let data = json!({"fault": "swap", "on": "link.trunk.forward", "what": what});
            let event = json!({"at_ns": 1, "utc": "", "event": event, "configuration": "", "trial": 0, "trial_ns": at, "text": "swap", "data": data});
            timeline += &format!("{event}\n");
        }
    }
    fs::write(run.join("timeline.jsonl"), timeline).unwrap();
    run.to_str().unwrap().to_owned()
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
    let _turn = beside();
    let directory = tempfile::tempdir().unwrap();
    let mut browser = Chromium::start();
    let rich = rich(&directory);
    for folder in FOLDERS.into_iter().chain([rich.as_str()]) {
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
            if folder == rich {
                for expected in [
                    "Diamonds: published (mean)",
                    "Strips of swap, from the top",
                    "auxiliary network",
                    "scaled rate 1:10",
                    "slope of “the slope of goodput over streams”, least squares",
                    "y = 20 Mbit/s + 30 Mbit/s · streams up to streams = 24, then y = 728 Mbit/s + 500 kbit/s · streams",
                ] {
                    assert!(text.contains(expected), "{expected}: {text}");
                }
                let labels = browser.evaluate(
                    "[...document.querySelectorAll('svg text')].map(it => it.textContent).join('\\n')",
                );
                let labels = labels.as_str().unwrap();
                for expected in [
                    "router, answers nothing",
                    "4 MiB shared by its ports",
                    "CoDel 5 ms",
                    "bursty loss 0.5 %",
                    "knee 24",
                ] {
                    assert!(labels.contains(expected), "{expected}: {labels}");
                }
            }
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
    let _turn = beside();
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
    let _turn = beside();
    let directory = tempfile::tempdir().unwrap();
    let page = drawn(FOLDERS[0], &directory);
    let take = || {
        let mut browser = Chromium::start();
        browser.media("screen", "light");
        browser.open(&page, 1200);
        // Of the steps the one with a fault, which shows most, and that down to its first plot.
        let height = browser.evaluate(
            "document.querySelectorAll('nav, details').forEach(it => it.remove());
             for (const it of document.querySelectorAll('section')) if (it.querySelector('h3').textContent !== 'outage') it.remove();
             Math.ceil(document.querySelector('section figure').getBoundingClientRect().bottom + scrollY + 20)",
        );
        browser.picture(1200, Some(u32::try_from(height.as_u64().expect("a height")).unwrap()))
    };
    let (first, second) = (take(), take());
    assert!(first.starts_with(b"\x89PNG") && first.len() > 50_000, "{} bytes", first.len());
    assert!(first == second, "two pictures of one page differ");
    if let Some(path) = std::env::var_os("WEIR_PICTURE") {
        fs::write(repository().join(path), first).unwrap();
    }
}
