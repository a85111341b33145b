//! Claims on whole folders, pages and tables.

use crate::{Folder, SINKS, Style, Writer, html, json, sample, terminal};
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use weir_core::failure::{Failure, FailureRecord};
use weir_core::record::{SampleRecord, Series, Summary};

fn sample_folder() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    sample::write(&directory.path().join("run"), &sample::summary(), 10);
    directory
}

fn read(directory: &Path) -> Folder {
    Folder::read(directory).unwrap_or_else(|error| panic!("{error}"))
}

/// With WEIR_REPORT_SAMPLE=DIR the sample pages stay in DIR, to be looked at in a browser.
#[test]
fn a_whole_folder_gives_a_page_of_moderate_size_with_every_section() {
    let kept = std::env::var_os("WEIR_REPORT_SAMPLE").map(std::path::PathBuf::from);
    let temporary = tempfile::tempdir().unwrap();
    let base = kept.as_deref().unwrap_or(temporary.path());
    for (name, summary, interval_ms) in
        [("pass", sample::summary(), 10), ("fail", sample::failing_summary(), 1)]
    {
        let run = base.join(name);
        let _ = fs::remove_dir_all(&run);
        sample::write(&run, &summary, interval_ms);
        let folder = read(&run);
        assert_eq!(folder.notes, Vec::<String>::new());
        let page = html(&folder);
        fs::write(run.join("report.html"), &page).unwrap();
        assert!(page.len() < 2_000_000, "{} bytes", page.len());
        for heading in [
            "Criteria",
            "Topology",
            "Step by step",
            "All points",
            "Trials that do not count",
            "Environment",
            "Timeline",
            "Metrics",
        ] {
            assert!(page.contains(&format!("<h2>{heading}</h2>")), "{name}: no section {heading}");
        }
        assert_eq!(page.contains("<h2>Scaling</h2>"), name == "fail", "only one of them sweeps");
        assert!(page.contains("class=bandname"), "the fault is not drawn");
        assert!(!page.contains("<script") && !page.contains("http://") && !page.contains("https://"));
    }
}

/// What stands openly in a point's section, and what is behind its fold.
fn section<'a>(page: &'a str, point: &str) -> (&'a str, &'a str) {
    let start = page.find(&format!("<h3>{point}</h3>")).unwrap_or_else(|| panic!("no section {point}"));
    let section = &page[start..];
    section[..section.find("</section>").unwrap()].split_once("<details class=fold>").expect("a fold")
}

fn plots(html: &str) -> Vec<&str> {
    html.split("aria-label=\"").skip(1).map(|rest| &rest[..rest.find('"').unwrap()]).collect()
}

#[test]
fn a_latency_step_shows_its_distribution_and_no_other_picture_openly() {
    let directory = sample_folder();
    let page = html(&read(&directory.path().join("run")));
    let (open, folded) = section(&page, "idle");
    assert_eq!(plots(open), ["Distribution of latency.round_trip_seconds, idle"]);
    assert_eq!(
        plots(folded),
        [
            "CPU in use, each core over time, idle",
            "CPU in use, each process over time, idle",
            "packets sent over time, idle",
            "rate on the wire over time, idle"
        ]
    );
}

#[test]
fn a_stream_step_shows_openly_what_its_readers_ask_and_folds_the_machine() {
    let directory = sample_folder();
    let page = html(&read(&directory.path().join("run")));
    let (open, folded) = section(&page, "eight");
    assert_eq!(
        plots(open),
        [
            "goodput over time, eight",
            "goodput of each flow over time, eight",
            "queue depth over time, eight",
            "congestion window of each flow over time, eight",
            "round trip as TCP saw it of each flow over time, eight"
        ]
    );
    assert!(folded.contains("CPU in use, each core") && !folded.contains("machine</span>"), "{folded}");
    assert!(open.contains("Rate over bins of 40 ms."), "the caption names the bin");
    assert!(page.contains("Zero throughout: port.dropped_loss_packets"));
}

// Spec: results.md#shown-1 and results.md#shown-2
#[test]
fn a_series_is_drawn_as_the_folder_says_and_what_nobody_declared_is_folded_by_its_own_name() {
    let directory = sample_folder();
    let run = directory.path().join("run");
    let said = fs::read_to_string(run.join("shown.json")).unwrap();
    fs::write(run.join("shown.json"), said.replace("queue depth", "bytes that wait")).unwrap();
    let page = html(&read(&run));
    let (open, _) = section(&page, "eight");
    assert!(open.contains("bytes that wait over time, eight") && !open.contains("queue depth"), "{open}");

    fs::remove_file(run.join("shown.json")).unwrap();
    let folder = read(&run);
    let page = html(&folder);
    let (open, folded) = section(&page, "eight");
    assert!(!open.contains("over time") && folded.contains("port.queue_bytes over time, eight"), "{folded}");
    let declared = serde_json::from_str(&said).unwrap();
    let page = html(&folder.or_shown(|| declared));
    assert!(section(&page, "eight").0.contains("queue depth over time, eight"), "an older folder");
}

#[test]
fn the_emulators_lateness_is_a_line_beside_the_limiting_factor_with_what_is_allowed() {
    let directory = sample_folder();
    let page = html(&read(&directory.path().join("run")));
    let (open, _) = section(&page, "one");
    assert!(open.contains("<li>fabric lateness: median 10 µs, 99 % within 899 µs, allowed 500 µs"), "{open}");
    assert!(
        open.contains("Limited by <b>link-rate</b> in all 5 valid trials") && !open.contains("confidence")
    );
    assert!(!page.contains("Distribution of fabric"));
}

#[test]
fn a_factor_of_some_trials_is_said_with_their_number_once() {
    let directory = sample_folder();
    let run = directory.path().join("run");
    let trials = fs::read_to_string(run.join("trials.jsonl")).unwrap();
    let mut others = 2;
    let changed = trials.lines().map(|line| {
        let other = line.contains("\"step\":\"one\"") && others > 0;
        others -= usize::from(other);
        if other { line.replace("link-rate", "loss") } else { line.to_owned() }
    });
    fs::write(run.join("trials.jsonl"), changed.map(|line| line + "\n").collect::<String>()).unwrap();
    let mut summary = sample::summary();
    summary.points[1].limiting_factor.evidence.push("3 of 5 valid trials".to_owned());
    fs::write(run.join("summary.json"), json(&summary)).unwrap();
    let page = html(&read(&run));
    let (open, _) = section(&page, "one");
    assert_eq!(open.matches("3 of 5").count(), 1, "{open}");
    assert!(open.contains("Limited by <b>link-rate</b> in 3 of 5 valid trials"), "{open}");
}

#[test]
fn a_warm_up_is_marked_in_the_plots_and_in_the_figures_behind_them() {
    let directory = sample_folder();
    let run = directory.path().join("run");
    assert!(!html(&read(&run)).contains("warm-up</"));
    let mut plan = sample::plan();
    plan.configurations[0].steps[1].steady_after_ns = 500_000_000;
    fs::write(run.join("plan.json"), serde_json::to_vec(&plan).unwrap()).unwrap();
    let page = html(&read(&run));
    assert!(
        section(&page, "one").0.contains("class=warm") && !section(&page, "eight").0.contains("class=warm")
    );
    assert!(page.contains("Grey: warm-up, until 500 ms."));
    let figures = section(&page, "one").0;
    assert!(figures.contains("<td class=n>0.000 s <span class=quiet>warm-up</span>"), "{figures}");
    assert!(!figures.contains("<td class=n>0.600 s <span class=quiet>"), "{figures}");
}

#[test]
fn no_table_behind_a_plot_has_more_than_200_rows() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    sample::write(&run, &sample::failing_summary(), 1);
    let page = html(&read(&run));
    for table in page.split("The figures behind this plot").skip(1) {
        let rows = table[..table.find("</table>").unwrap()].matches("<tr>").count();
        assert!(rows <= 201, "{rows} rows");
    }
}

// Spec: results.md#results-3
#[test]
fn a_killed_runs_folder_is_read_and_says_what_is_missing() {
    let directory = sample_folder();
    let run = directory.path().join("run");
    fs::remove_file(run.join("summary.json")).unwrap();
    for name in ["trials.jsonl", "samples.jsonl", "timeline.jsonl"] {
        let bytes = fs::read(run.join(name)).unwrap();
        fs::write(run.join(name), &bytes[..bytes.len() - 25]).unwrap();
    }
    let folder = read(&run);
    assert_eq!(folder.trials.len(), 19);
    assert_eq!(folder.notes.len(), 4, "{:?}", folder.notes);
    assert!(folder.notes[0].contains("summary.json is missing"), "{:?}", folder.notes);
    let page = html(&folder);
    assert!(page.contains("… unfinished") && page.contains("Measured so far") && page.contains("is missing"));
}

#[test]
fn a_folder_cut_at_any_byte_of_any_file_is_read_or_refused_with_its_name_and_never_panics() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    sample::write(&run, &sample::summary(), 200);
    for name in [
        "summary.json",
        "plan.json",
        "metrics.json",
        "environment.json",
        "trials.jsonl",
        "samples.jsonl",
        "timeline.jsonl",
    ] {
        let path = run.join(name);
        let whole = fs::read(&path).unwrap();
        for cut in (0..whole.len()).step_by((whole.len() / 40).max(1)) {
            fs::write(&path, &whole[..cut]).unwrap();
            match Folder::read(&run) {
                Ok(folder) => assert!(!html(&folder).is_empty()),
                Err(error) => panic!("{name} cut at {cut}: {error}"),
            }
        }
        fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn a_bad_line_is_named_with_its_file_and_number() {
    let directory = sample_folder();
    let run = directory.path().join("run");
    for (name, bad, at) in [
        ("trials.jsonl", "{\"point\": 7}\n{}\n", "trials.jsonl line 1"),
        ("samples.jsonl", "\u{0}\u{1}garbage\n", "samples.jsonl line 1"),
        ("timeline.jsonl", "[]\n", "timeline.jsonl line 1"),
        ("summary.json", "{\"schema\": \"weir.summary/1\",\n \"scenario\": []}", "summary.json line 2"),
        ("plan.json", "\"a text\"", "plan.json line 1"),
        (
            "samples.jsonl",
            "{\"point\":\"a\",\"trial\":0,\"step\":\"a\",\"entity\":\"e\",\"name\":\"n\",\"unit\":\"B\",\"cumulative\":true,\"t_ns\":[1],\"value\":[]}\n",
            "1 timestamps and 0 values",
        ),
    ] {
        let kept = fs::read(run.join(name)).unwrap();
        fs::write(run.join(name), bad).unwrap();
        let error = Folder::read(&run).expect_err(name).to_string();
        assert!(error.contains(at), "{error}");
        fs::write(run.join(name), kept).unwrap();
    }
    fs::write(run.join("timeline.jsonl"), b"\xff\xfe\n\x80").unwrap();
    assert!(Folder::read(&run).unwrap_err().to_string().contains("timeline.jsonl line 1"));
}

#[test]
fn a_plan_that_points_at_sites_it_does_not_have_is_refused() {
    let directory = sample_folder();
    let run = directory.path().join("run");
    let mut plan = sample::plan();
    plan.configurations[0].topology.links[0].between = [0, 7];
    fs::write(run.join("plan.json"), serde_json::to_vec(&plan).unwrap()).unwrap();
    let error = Folder::read(&run).unwrap_err().to_string();
    assert!(error.contains("link \"wan\" is between sites [0, 7] of 2"), "{error}");
}

#[test]
fn what_is_not_a_folder_of_a_run_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    assert!(Folder::read(directory.path()).unwrap_err().to_string().contains("not the folder of a run"));
    assert!(
        Folder::read(&directory.path().join("none")).unwrap_err().to_string().contains("is not a folder")
    );
    fs::create_dir(directory.path().join("summary.json")).unwrap();
    assert!(Folder::read(directory.path()).unwrap_err().to_string().contains("not a regular file"));
}

/// Every text of a document becomes `name`; keys of maps stay, they are names of metrics and parameters.
fn rename(value: &mut serde_json::Value, name: &str) {
    match value {
        serde_json::Value::String(text) if text.parse::<f64>().is_err() => *text = name.to_owned(),
        serde_json::Value::Array(items) => items.iter_mut().for_each(|item| rename(item, name)),
        serde_json::Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                let closed =
                    ["schema", "verdict", "tcp_profile", "stage", "discipline", "event", "metric", "utc"];
                let factor = key == "name"
                    && value
                        .as_str()
                        .is_some_and(|it| weir_core::evidence::SHARED.iter().any(|factor| factor.name == it));
                // The folder finds series by these; they are texts like any other in a hostile one.
                if !closed.contains(&key.as_str()) && !factor {
                    rename(value, name);
                }
            }
        }
        _ => {}
    }
}

fn renamed_page(name: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    sample::write(&run, &sample::summary(), 200);
    for file in ["summary.json", "plan.json", "metrics.json", "environment.json"] {
        let mut value = serde_json::from_slice(&fs::read(run.join(file)).unwrap()).unwrap();
        rename(&mut value, name);
        fs::write(run.join(file), serde_json::to_vec(&value).unwrap()).unwrap();
    }
    for file in ["trials.jsonl", "samples.jsonl", "timeline.jsonl"] {
        let lines = fs::read_to_string(run.join(file)).unwrap();
        let renamed = lines.lines().map(|line| {
            let mut value = serde_json::from_str(line).unwrap();
            rename(&mut value, name);
            format!("{value}\n")
        });
        fs::write(run.join(file), renamed.collect::<String>()).unwrap();
    }
    fs::write(run.join("scenario.toml"), name).unwrap();
    html(&read(&run))
}

/// Everything that opens a tag, with what names have no part in.
fn tags(page: &str) -> Vec<String> {
    let opened = page.split('<').skip(1);
    opened
        .map(|rest| {
            rest.chars()
                .take_while(|letter| letter.is_ascii_alphanumeric() || "/!".contains(*letter))
                .collect()
        })
        .collect()
}

static TAME: std::sync::LazyLock<Vec<String>> = std::sync::LazyLock::new(|| tags(&renamed_page("x")));

#[test]
fn a_hostile_name_in_every_place_leaves_the_pages_tags_as_they_were() {
    assert!(TAME.len() > 500);
    for name in [
        "<script>alert(1)</script>",
        "\" onload=alert(1) x=\"",
        "'><img src=x>",
        "a & b &lt;",
        "\u{202e}left\u{200f}",
        "\u{0}\u{1b}[2J",
    ] {
        let page = renamed_page(name);
        assert_eq!(tags(&page), *TAME, "{name:?}");
        assert!(!page.contains(name), "{name:?} appears raw");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn no_name_with_markup_in_it_becomes_markup(name in "[a-z]{0,5}[<>&\"'][\\PC<>\"']{0,20}") {
        let page = renamed_page(&name);
        prop_assert_eq!(tags(&page), TAME.clone(), "{:?} changed the page's tags", name);
        let entities = ["amp;", "lt;", "gt;", "quot;", "#39;"];
        for rest in page.split('&').skip(1) {
            prop_assert!(entities.iter().any(|entity| rest.starts_with(entity)), "{name:?} left a bare &");
        }
    }

    #[test]
    fn numbers_of_any_size_are_drawn_or_left_out_without_a_panic(
        value in proptest::num::f64::NORMAL, t in proptest::collection::vec(any::<i64>(), 1..20), count in any::<u32>()
    ) {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        let mut summary = sample::summary();
        for metric in summary.points.iter_mut().flat_map(|point| point.metrics.values_mut()) {
            metric.mean = value;
            metric.ci95 = Some([-value, value]);
        }
        for criterion in &mut summary.criteria {
            criterion.value = Some(serde_json::json!(value));
        }
        sample::write(&run, &summary, 400);
        fs::remove_file(run.join("samples.jsonl")).unwrap();
        let series = |entity: &str, name: &str, cumulative| Series {
            entity: entity.to_owned(),
            name: name.to_owned(),
            unit: "B".to_owned(),
            cumulative,
            value: t.iter().map(|t| *t as f64 * value).filter(|it| it.is_finite()).collect(),
            t_ns: t.iter().copied().filter(|t| (*t as f64 * value).is_finite()).collect(),
        };
        let mut lines = String::new();
        for series in [series("flow.a.b.0", "stream.received_bytes", true), series("p", "port.queue_bytes", false)] {
            let record = SampleRecord { point: "one".to_owned(), trial: 0, step: "one".to_owned(), series };
            lines += &(serde_json::to_string(&record).unwrap() + "\n");
        }
        fs::write(run.join("samples.jsonl"), lines).unwrap();
        let trials = fs::read_to_string(run.join("trials.jsonl")).unwrap();
        let trials = trials.replace("\"start_ns\":0", &format!("\"start_ns\":{}", t[0])).replace("\"count\":[1", &format!("\"count\":[{count}"));
        fs::write(run.join("trials.jsonl"), trials).unwrap();
        if let Ok(folder) = Folder::read(&run) {
            let page = html(&folder);
            prop_assert!(!page.contains("NaN") && !page.contains("inf "));
        }
    }

    #[test]
    fn random_bytes_in_any_file_are_refused_or_noted(bytes in proptest::collection::vec(any::<u8>(), 0..200), which in 0_usize..7) {
        static WHOLE: OnceLock<tempfile::TempDir> = OnceLock::new();
        let whole = WHOLE.get_or_init(|| {
            let directory = tempfile::tempdir().unwrap();
            sample::write(&directory.path().join("run"), &sample::summary(), 400);
            directory
        });
        let whole = whole.path().join("run");
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path();
        let names = ["summary.json", "plan.json", "metrics.json", "environment.json", "trials.jsonl", "samples.jsonl", "timeline.jsonl"];
        for name in names {
            fs::copy(whole.join(name), run.join(name)).unwrap();
        }
        fs::write(run.join(names[which]), bytes).unwrap();
        if let Err(error) = Folder::read(run) {
            prop_assert!(error.to_string().contains(names[which]), "{error}");
        }
    }
}

#[test]
fn a_value_that_is_no_number_is_refused_by_name_and_the_lines_before_it_stay() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    sample::write(&run, &sample::summary(), 400);
    let mut writer = Writer::create(&directory.path().join("second")).unwrap();
    let lines = fs::read_to_string(run.join("samples.jsonl")).unwrap();
    let record: SampleRecord = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    writer.samples(&record).unwrap();
    let mut broken = record.clone();
    broken.series.value[0] = f64::NAN;
    let error = writer.samples(&broken).unwrap_err().to_string();
    assert!(error.contains("second/samples.jsonl") && error.contains("not a number"), "{error}");
    let written = fs::read_to_string(directory.path().join("second/samples.jsonl")).unwrap();
    assert_eq!(written.lines().count(), 1);
    assert!(
        Writer::create(&run).unwrap_err().to_string().contains("timeline.jsonl"),
        "an old run is not overwritten"
    );
}

#[test]
fn the_same_folder_gives_the_same_page() {
    let directory = sample_folder();
    let run = directory.path().join("run");
    assert_eq!(html(&read(&run)), html(&read(&run)));
}

#[test]
fn every_sink_writes_a_summary_with_and_without_a_folder() {
    let directory = sample_folder();
    let run = directory.path().join("run");
    for entry in SINKS {
        for folder in [None, Some(run.as_path())] {
            let mut out = Vec::new();
            entry.build.write(&sample::summary(), folder, &mut out).unwrap();
            // A document of one name or a table that compresses it: what was run is in it.
            let found = out.windows(10).any(|bytes| bytes == b"quickstart") || out.starts_with(b"PAR1");
            assert!(found, "{}", entry.name);
        }
    }
}

// Spec: results.md#results-13
#[test]
fn every_sink_of_tables_makes_its_files_of_a_finished_run_and_of_a_killed_one() {
    let directory = sample_folder();
    let run = directory.path().join("run");
    let written = |tables: &dyn weir_seams::sink::Tables, file: &str| {
        let mut out = Vec::new();
        tables.write_file(file, &run, &mut out).unwrap().map(|notes| (out, notes))
    };
    let tables: Vec<_> = SINKS.iter().filter_map(|entry| entry.build.tables()).collect();
    assert!(!tables.is_empty());
    let mut finished = std::collections::BTreeMap::new();
    for (tables, file) in tables.iter().flat_map(|it| it.files().iter().map(move |file| (it, *file))) {
        // The sample run watched nothing.
        let Some((bytes, notes)) = written(*tables, file) else {
            assert!(["chunks.csv", "failures.csv"].contains(&file), "{file}");
            continue;
        };
        assert!(notes.is_empty() && bytes.len() > 100, "{file}: {} bytes, {notes:?}", bytes.len());
        finished.insert(file, bytes);
    }
    std::fs::remove_file(run.join("summary.json")).unwrap();
    let trials = std::fs::read(run.join("trials.jsonl")).unwrap();
    std::fs::write(run.join("trials.jsonl"), &trials[..trials.len() - 9]).unwrap();
    for (tables, file) in tables.iter().flat_map(|it| it.files().iter().map(move |file| (it, *file))) {
        match written(*tables, file) {
            None => assert!(
                ["points.csv", "points.parquet", "chunks.csv", "failures.csv"].contains(&file),
                "{file} of a killed run"
            ),
            Some((bytes, notes)) if file.starts_with("trials") => {
                assert!(bytes.len() < finished[file].len(), "{file}");
                assert!(notes[0].contains("was cut short"), "{notes:?}");
            }
            Some((bytes, notes)) => assert!(bytes == finished[file] && notes.is_empty(), "{file}: {notes:?}"),
        }
    }
    let csv = String::from_utf8(finished["trials.csv"].clone()).unwrap();
    let rows: Vec<&str> = csv.lines().collect();
    let rows_recorded: usize = Folder::read(&run).unwrap().trials.iter().map(|trial| trial.rows.len()).sum();
    // The cut record had two rows.
    assert_eq!(rows.len(), 1 + rows_recorded + 2, "{}", rows[0]);
    assert!(
        csv.contains(",false,\"the load ran 3.12 s of the planned 3 s, more than 1 % beyond\","),
        "{csv}"
    );
}

// Spec: results.md#failure-2
#[test]
fn what_failed_has_its_table_in_the_report_and_its_rows_in_the_export_and_text_stays_text() {
    let directory = sample_folder();
    let run = directory.path().join("run");
    let failure = |at_ns, code: Option<&str>| FailureRecord {
        point: "one".to_owned(),
        trial: 0,
        step: "one".to_owned(),
        failure: Failure {
            at_ns,
            host: "left-0".to_owned(),
            job: "flow.left-0.right-0.3".to_owned(),
            operation: "receive".to_owned(),
            target: "right-0".to_owned(),
            code: code.map(str::to_owned),
            retries: 0,
            text: "receive failed after 7 bytes: <script>".to_owned(),
        },
    };
    let lines = [failure(1_250_000_000, Some("ECONNRESET")), failure(1_500_000_000, None)];
    let text: String = lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
    // The last line was cut short by a kill.
    fs::write(run.join("failures.jsonl"), text + "{\"point\":").unwrap();
    let folder = read(&run);
    assert!(
        folder.notes[0].contains("failures.jsonl: line 3, the last, was cut short"),
        "{:?}",
        folder.notes
    );
    let page = html(&folder);
    let table = &page[page.find("<h4>Failures").unwrap()..];
    for part in [
        "2 operations failed",
        "<td>ECONNRESET<td class=n>1",
        "1.250 s",
        "flow.left-0.right-0.3 on left-0 → right-0: receive failed after 7 bytes: &lt;script&gt;",
    ] {
        assert!(table.contains(part), "{part}: {}", &table[..900]);
    }
    let csv = SINKS.iter().find(|entry| entry.name == "csv").unwrap().build.tables().unwrap();
    let mut out = Vec::new();
    csv.write_file("failures.csv", &run, &mut out).unwrap().unwrap();
    let out = String::from_utf8(out).unwrap();
    assert_eq!(out.lines().count(), 3, "{out}");
    assert!(out.contains(",1250000000,left-0,flow.left-0.right-0.3,receive,right-0,ECONNRESET,0,"), "{out}");
}

// Spec: results.md#results-7 and results.md#results-8
#[test]
fn a_newer_minor_format_is_read_and_a_newer_major_one_is_refused_in_words() {
    let directory = sample_folder();
    let run = directory.path().join("run");
    for (file, name) in [("summary.json", "weir.summary"), ("plan.json", "weir.results")] {
        let ours = std::fs::read_to_string(run.join(file)).unwrap();
        let with = |version: &str| {
            let found = ours.replace(&format!("\"{name}/1\""), &format!("\"{name}/{version}\""));
            assert!(version == "1" || found != ours, "{file} names its schema");
            std::fs::write(run.join(file), found.replacen('{', "{\"of_a_later_version\": [1, {}],", 1))
                .unwrap();
            Folder::read(&run)
        };
        assert!(with("1").is_ok() && with("1.7").is_ok(), "{file}");
        for version in ["2", "17.3"] {
            let refused = with(version).unwrap_err().to_string();
            let expected = format!("was written by a newer weir: its schema is \"{name}/{version}\"");
            assert!(refused.contains(file) && refused.contains(&expected), "{refused}");
        }
        assert!(with("one").unwrap_err().to_string().contains("this weir reads weir.summary/1"), "{file}");
        std::fs::write(run.join(file), ours).unwrap();
    }
}

#[test]
fn the_json_sink_is_one_document_that_reads_back() {
    let summary = sample::failing_summary();
    assert_eq!(serde_json::from_str::<Summary>(&json(&summary)).unwrap(), summary);
}

#[test]
fn the_verdict_table_of_a_passing_run_fits_80_columns() {
    insta::assert_snapshot!(terminal(&sample::summary(), Style::default()));
}

#[test]
fn the_verdict_table_of_a_failing_run_says_why() {
    insta::assert_snapshot!(terminal(&sample::failing_summary(), Style::default()));
}

fn schema() -> jsonschema::Validator {
    let text = include_str!("../../../docs/specs/summary.schema.json");
    jsonschema::validator_for(&serde_json::from_str(text).unwrap()).unwrap()
}

#[test]
fn summaries_keep_to_the_published_schema() {
    let schema = schema();
    let mut of_pairs = sample::summary();
    of_pairs.points[0].matrix = Some(crate::matrix::tests::matrix(2, 2, |a, _| (a > 0).then_some(5e6)));
    for summary in [sample::summary(), sample::failing_summary(), of_pairs] {
        let document = serde_json::from_str(&json(&summary)).unwrap();
        let problems: Vec<String> =
            schema.iter_errors(&document).map(|it| format!("{} at {}", it, it.instance_path())).collect();
        assert!(problems.is_empty(), "{problems:#?}");
    }
}

/// Every place of a document: the keys and indices that lead there.
fn places(value: &serde_json::Value, at: String, out: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => map.iter().for_each(|(key, value)| {
            let here = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
            out.push(here.clone());
            places(value, here, out);
        }),
        serde_json::Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| places(value, format!("{at}/{index}"), out));
        }
        _ => {}
    }
}

// Spec: results.md#results-4
#[test]
fn a_summary_with_a_wrong_type_or_without_a_required_field_breaks_the_schema() {
    let schema = schema();
    let whole = serde_json::to_value(sample::failing_summary()).unwrap();
    let mut all = Vec::new();
    places(&whole, String::new(), &mut all);
    let optional =
        ["origin", "scale", "results", "metric", "unit", "value", "ci95", "range", "points", "fits", "next"];
    let (mut mistyped, mut lacking) = (0, 0);
    for place in &all {
        let (parent, key) = place.rsplit_once('/').unwrap();
        // Parameters are the scenario's own and may be anything.
        if parent.ends_with("/parameters") {
            continue;
        }
        let mut broken = whole.clone();
        *broken.pointer_mut(place).unwrap() = serde_json::json!([{"not": "this"}]);
        assert!(!schema.is_valid(&broken), "{place} of a wrong type is accepted");
        mistyped += 1;
        let within_metric = parent.contains("/metrics/");
        let named_freely = parent.ends_with("/metrics") || parent.ends_with("/scale");
        let may_lack = optional.contains(&key) && !(within_metric && key == "unit") && place != "/points";
        if may_lack || named_freely {
            continue;
        }
        let mut broken = whole.clone();
        broken.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key);
        assert!(!schema.is_valid(&broken), "{place} may be missing");
        lacking += 1;
    }
    assert!(mistyped > 150 && lacking > 150, "{mistyped} and {lacking} places tried");
}
