//! The tables of a run, read by a program that shares no code with ours: DuckDB, for parquet and for csv.

use crate::support::{repository, run};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER: &str = "tests/folders/0.1.0-quickstart";

/// What DuckDB answers to a query, as the rows' values.
fn asked(query: &str) -> Value {
    let python = std::env::var_os("WEIR_PYTHON")
        .map_or_else(|| repository().join("target/readers/bin/python"), PathBuf::from);
    assert!(
        python.exists(),
        "no {}: run scripts/ensure-lab --for-tests, or name a Python that has duckdb with WEIR_PYTHON",
        python.display()
    );
    let script = "import duckdb, json, sys; print(json.dumps(duckdb.sql(sys.argv[1]).fetchall()))";
    let output = Command::new(python).args(["-c", script, query]).output().unwrap();
    assert!(output.status.success(), "{query}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn exported(out: &Path, format: &str) {
    let ran = run(&["export", FOLDER, format, "--out", out.to_str().unwrap()]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(ran.stderr, "");
    assert!(ran.stdout.lines().all(|line| Path::new(line).is_file()), "{}", ran.stdout);
}

fn lines(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(repository().join(FOLDER).join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

// Spec: results.md#results-13
#[test]
fn another_program_reads_from_parquet_and_from_csv_what_was_recorded() {
    let directory = tempfile::tempdir().unwrap();
    exported(directory.path(), "--parquet");
    exported(directory.path(), "--csv");
    let samples = lines("samples.jsonl");
    let trials = lines("trials.jsonl");
    for ending in ["parquet", "csv"] {
        let file = |name: &str| format!("'{}'", directory.path().join(format!("{name}.{ending}")).display());
        let all = |columns: &str, name: &str| {
            let rows = asked(&format!("select {columns} from {}", file(name)));
            rows.as_array().expect("rows").clone().into_iter()
        };
        // Every sample of every series, in the order of the lines, exact to the last digit.
        let mut rows = all("point, step, trial, entity, name, unit, cumulative, t_ns, value", "samples");
        for series in &samples {
            let values = series["value"].as_array().unwrap().iter();
            for (t_ns, value) in series["t_ns"].as_array().unwrap().iter().zip(values) {
                let row = rows.next().unwrap_or_else(|| panic!("{ending} ends before {series}"));
                let names = ["point", "step", "trial", "entity", "name", "unit", "cumulative"];
                for (index, name) in names.iter().enumerate() {
                    assert_eq!(row[index], series[name], "{ending}: {row}");
                }
                assert_eq!((&row[7], row[8].as_f64()), (t_ns, value.as_f64()), "{ending}: {row}");
            }
        }
        assert_eq!(rows.next(), None, "{ending}: more samples than were recorded");
        // Every value of every trial, and what is known of distributions.
        let columns = "point, trial, valid, limiting_factor, entity, metric, count, value, \"min\", \"max\"";
        let mut rows = all(columns, "trials");
        for (trial, of) in trials
            .iter()
            .flat_map(|trial| trial["rows"].as_array().unwrap().iter().map(move |row| (trial, row)))
        {
            let row = rows.next().unwrap_or_else(|| panic!("{ending} ends before {of}"));
            let factor = &trial["limiting_factor"]["name"];
            let expected =
                [&trial["point"], &trial["trial"], &trial["valid"], factor, &of["entity"], &of["metric"]];
            for (index, expected) in expected.into_iter().enumerate() {
                assert_eq!(row[index], *expected, "{ending}: {row}");
            }
            let number = |index: usize| row[index].as_f64();
            match of.get("value") {
                Some(value) => {
                    assert_eq!((number(6), number(7)), (Some(1.0), value.as_f64()), "{ending}: {row}");
                    assert_eq!((number(8), number(9)), (None, None), "{ending}: {row}");
                }
                None => {
                    let histogram = &of["histogram"];
                    let seconds = |key: &str| histogram[key].as_f64().map(|ns| ns / 1e9);
                    assert_eq!(
                        (number(8), number(9)),
                        (seconds("min_ns"), seconds("max_ns")),
                        "{ending}: {row}"
                    );
                    let counts = histogram["count"].as_array().unwrap().iter();
                    assert_eq!(
                        number(6),
                        Some(counts.map(|it| it.as_f64().unwrap()).sum()),
                        "{ending}: {row}"
                    );
                }
            }
        }
        assert_eq!(rows.next(), None, "{ending}: more rows than were recorded");
    }
    let points = asked(&format!(
        "select count(*), min(verdict) from '{}' where metric = 'stream.total_goodput_bits_per_second'",
        directory.path().join("points.csv").display()
    ));
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(repository().join(FOLDER).join("summary.json")).unwrap())
            .unwrap();
    let with = summary["points"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|point| point["metrics"].get("stream.total_goodput_bits_per_second").is_some());
    assert_eq!(points, serde_json::json!([[with.count(), summary["verdict"]]]));
}

#[test]
fn parquet_says_which_kind_each_column_is_and_compresses_with_zstd() {
    let directory = tempfile::tempdir().unwrap();
    exported(directory.path(), "--parquet");
    let file = directory.path().join("samples.parquet");
    let kinds =
        asked(&format!("select column_name, column_type from (describe select * from '{}')", file.display()));
    let expected = [
        ("point", "VARCHAR"),
        ("step", "VARCHAR"),
        ("trial", "BIGINT"),
        ("entity", "VARCHAR"),
        ("name", "VARCHAR"),
        ("unit", "VARCHAR"),
        ("cumulative", "BOOLEAN"),
        ("t_ns", "BIGINT"),
        ("value", "DOUBLE"),
    ];
    assert_eq!(kinds, serde_json::json!(expected));
    let codecs = asked(&format!("select distinct compression from parquet_metadata('{}')", file.display()));
    assert_eq!(codecs, serde_json::json!([["ZSTD"]]));
}

#[test]
fn what_cannot_be_exported_is_refused_in_words() {
    for (arguments, expected) in [
        (vec![FOLDER], "say in which form: --csv"),
        (vec!["docs", "--csv"], "docs is not the folder of a run"),
        (vec!["nowhere", "--csv"], "nowhere is not the folder of a run"),
        (vec![FOLDER, "--csv", "--out", "/dev/null/x"], "cannot create /dev/null/x"),
    ] {
        let mut all = vec!["export"];
        all.extend(&arguments);
        let ran = run(&all);
        assert_eq!(ran.status, 2, "{arguments:?}");
        assert!(ran.stderr.contains(expected), "{arguments:?}: {}", ran.stderr);
    }
}
