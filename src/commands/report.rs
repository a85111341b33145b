//! `weir report`: draws a run's page again from its records.

use crate::output::{say, tell};
use anyhow::Context;
use std::io::Write;
use std::path::PathBuf;
use weir_core::text::{SHOWN_BYTES_MAX, shown};
use weir_sys::directory::{self, Directory};

/// Draw the report of a run again from its results folder
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir report results/quickstart/2026-01-01T12-00-00Z-4f2a
  weir report results/quickstart/2026-01-01T12-00-00Z-4f2a --out quickstart.html")]
pub struct Args {
    /// Results folder of a run: results/NAME/TIME
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Where to write the page [default: DIR/report.html]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Exit status 0 when the page is drawn, whatever the verdict on it.
pub fn run(args: &Args) -> anyhow::Result<i32> {
    let folder = weir_report::Folder::read(&args.directory)?.or_shown(crate::registry::shown);
    let page = weir_report::html(&folder);
    let path = args.out.clone().unwrap_or_else(|| args.directory.join("report.html"));
    let written = match &args.out {
        Some(file) => directory::write_named(file, page.as_bytes()),
        None => Directory::open(&args.directory).and_then(|folder| {
            folder.replace("report.html", |file| file.write_all(page.as_bytes()).map(Some)).map(drop)
        }),
    };
    written.with_context(|| format!("cannot write {}", path.display()))?;
    for note in &folder.notes {
        tell(format_args!("weir: {note}"));
    }
    say(shown(&path.display().to_string(), SHOWN_BYTES_MAX))?;
    Ok(0)
}
