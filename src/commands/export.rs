//! `weir export`: a run's records as tables for other programs.

use crate::output::{say, tell};
use crate::registry;
use anyhow::{Context, bail};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use weir_core::text::{SHOWN_BYTES_MAX, shown};
use weir_seams::sink::Tables;
use weir_sys::directory::Directory;

/// Write a run's trials and samples as tables for other programs
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir export results/quickstart/2026-01-01T12-00-00Z-4f2a --csv
  weir export results/quickstart/2026-01-01T12-00-00Z-4f2a --csv --out tables
  duckdb -c \"select metric, avg(value) from 'tables/trials.csv' where valid group by 1\"

Writes trials.csv, samples.csv, of a run that finished points.csv, and of a run that watched a path chunks.csv, its
fine series. A text that a spreadsheet would take for a formula gets an apostrophe in front. What each column is:
docs/specs/results.md.")]
pub struct Args {
    /// Results folder of a run: results/NAME/TIME
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Comma-separated values, as RFC 4180 has them
    #[arg(long)]
    csv: bool,
    /// trials.parquet and samples.parquet, which a run that finished has already
    #[cfg(feature = "parquet")]
    #[arg(long)]
    parquet: bool,
    /// Where to write the files [default: DIR]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Exit status 0 when the tables are written, whatever the verdict on the run.
pub fn run(args: &Args) -> anyhow::Result<i32> {
    let mut formats = Vec::new();
    formats.extend(args.csv.then_some("csv"));
    #[cfg(feature = "parquet")]
    formats.extend(args.parquet.then_some("parquet"));
    if formats.is_empty() {
        bail!("say in which form: --csv{}", if cfg!(feature = "parquet") { " or --parquet" } else { "" });
    }
    let directory = &args.directory;
    if !["plan.json", "trials.jsonl", "samples.jsonl"].iter().any(|name| directory.join(name).is_file()) {
        bail!("{} is not the folder of a run; give results/NAME/TIME", directory.display());
    }
    let out = args.out.as_deref().unwrap_or(directory);
    let out = Directory::create(out).with_context(|| format!("cannot create {}", out.display()))?;
    let mut notes = Vec::new();
    for format in formats {
        let tables = registry::tables(format).with_context(|| format!("{format} is not in this build"))?;
        for path in write(tables, directory, &out, &mut notes)? {
            say(shown(&path.display().to_string(), SHOWN_BYTES_MAX))?;
        }
    }
    notes.sort();
    notes.dedup();
    for note in notes {
        tell(format_args!("weir: {note}"));
    }
    Ok(0)
}

/// Makes every file of `tables` in `out` from the records in `directory`, each whole or not at all. Gives the paths of those made.
pub fn write(
    tables: &dyn Tables,
    directory: &Path,
    out: &Directory,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    for name in tables.files() {
        let path = out.path().join(name);
        let written = out.replace(name, |file| {
            let mut file = BufWriter::with_capacity(1 << 18, file);
            let found = tables.write_file(name, directory, &mut file)?;
            file.flush()?;
            Ok(found)
        });
        if let Some(found) = written.with_context(|| format!("cannot write {}", path.display()))? {
            notes.extend(found);
            made.push(path);
        }
    }
    Ok(made)
}
