//! `weir export`: a run's records as tables for other programs.

use crate::output::{say, tell};
use crate::registry;
use anyhow::{Context, bail};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use weir_seams::sink::Tables;

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
    fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let mut notes = Vec::new();
    for format in formats {
        let tables = registry::tables(format).with_context(|| format!("{format} is not in this build"))?;
        for path in write(tables, directory, out, &mut notes)? {
            say(path.display())?;
        }
    }
    notes.sort();
    notes.dedup();
    for note in notes {
        tell(format_args!("weir: {note}"));
    }
    Ok(0)
}

/// Makes every file of `tables` in `out` from the records in `directory`. Each is written beside and renamed, so that it is
/// there whole or not at all. Gives the paths of those made.
pub fn write(
    tables: &dyn Tables,
    directory: &Path,
    out: &Path,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    for name in tables.files() {
        let (path, partial) = (out.join(name), out.join(format!("{name}.partial")));
        let written = File::create(&partial).and_then(|file| {
            let mut file = BufWriter::with_capacity(1 << 18, file);
            let found = tables.write_file(name, directory, &mut file)?;
            file.flush()?;
            Ok(found)
        });
        match written {
            Ok(Some(found)) => {
                notes.extend(found);
                fs::rename(&partial, &path).with_context(|| format!("cannot write {}", path.display()))?;
                made.push(path);
            }
            Ok(None) => {
                fs::remove_file(&partial).with_context(|| format!("cannot remove {}", partial.display()))?
            }
            Err(error) => {
                // Best effort: the error that matters is the one reported.
                let _ = fs::remove_file(&partial);
                return Err(error).with_context(|| format!("cannot write {}", path.display()));
            }
        }
    }
    Ok(made)
}
