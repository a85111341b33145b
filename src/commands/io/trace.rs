//! `weir io trace`: traces of what programs read, imported, made, looked at and recorded.

use crate::commands::single::Scratch;
use crate::output::{say, say_json, tell};
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_core::units::{Bytes, human};
use weir_storage::trace::import::{FORMATS, Format, Imported, format, import};
use weir_storage::trace::show::{Figures, Shape, picture};
use weir_storage::trace::{Record, Trace, make, text};
use weir_sys::directory::{Directory, write_named};

/// Traces of what programs read: import, make, look at and record them
#[derive(Args)]
pub struct TraceArgs {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Read what another program wrote
    #[command(after_help = IMPORT_HELP)]
    Import {
        /// The other program's file
        file: PathBuf,
        /// What it is: see below
        #[arg(long, value_name = "NAME", value_parser = known)]
        format: &'static Format,
        /// Only files below DIR, named from there; unless given, the folder that all have in common
        #[arg(long, value_name = "DIR")]
        below: Option<String>,
        /// Where the trace goes
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Make traces of document 003, for files of a size, from a seed
    #[command(after_help = made_help())]
    Make {
        /// Names, as below; all ten unless given
        names: Vec<String>,
        /// Size of the files that they are for
        #[arg(long, value_name = "SIZE", default_value = "40MB", value_parser = size)]
        file_size: Bytes,
        /// Reads of each trace
        #[arg(long, value_name = "N", default_value_t = make::RECORDS, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
        records: u32,
        /// Another seed makes others alike; replays that name a trace have that of 0
        #[arg(long, value_name = "N", default_value_t = 0)]
        seed: u64,
        /// Folder for NAME.trace, made where there is none
        #[arg(long, value_name = "DIR", default_value = ".")]
        out: PathBuf,
    },
    /// Say what a trace is like, with a picture of offsets against order
    Show {
        file: PathBuf,
        /// Print the figures as JSON and nothing else
        #[arg(long)]
        json: bool,
    },
    /// Run a program and record what it reads and writes, by strace
    Record {
        /// Only files below DIR, named from there; unless given, the folder that all have in common
        #[arg(long, value_name = "DIR")]
        below: Option<String>,
        /// Where the trace goes
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// The program and its arguments
        #[arg(last = true, required = true, value_name = "PROGRAM")]
        program: Vec<String>,
    },
}

const IMPORT_HELP: &str = "\
Formats:
  offset-length   lines of two numbers, offset first (document 003)
  length-offset   lines of two numbers, length first
  fio-iolog       fio --write_iolog, versions 2 and 3
  xrdcl-recorder  the CSV of the recorder plug-in of XRootD's client
  darshan-dxt     the text of darshan-dxt-parser, its POSIX part
  strace          strace -f -ttt -y -e trace=openat,read,pread64,write,pwrite64,lseek,close

Example: weir io trace import job.iolog --format fio-iolog --out job.trace";

fn made_help() -> String {
    let lines: Vec<String> =
        make::ALL.iter().map(|made| format!("  {:<11} {}", made.name, made.about)).collect();
    format!("Names:\n{}", lines.join("\n"))
}

fn known(name: &str) -> Result<&'static Format, String> {
    let all = || FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ");
    format(name).ok_or_else(|| format!("no such format; there are {}", all()))
}

fn size(text: &str) -> Result<Bytes, String> {
    Bytes::parse(text).map_err(|error| error.problem)
}

const STRACE: &str = "strace";
const CALLS: &str =
    "trace=open,openat,creat,read,pread64,readv,preadv,write,pwrite64,writev,pwritev,lseek,close";

pub fn run(args: &TraceArgs) -> anyhow::Result<i32> {
    match &args.command {
        Action::Import { file, format, below, out } => {
            let source = File::open(file).with_context(|| file.display().to_string())?;
            let imported = import(format, BufReader::new(source), below.as_deref());
            let imported = imported.with_context(|| file.display().to_string())?;
            let remark = format!("from {} ({})", file.display(), format.name);
            put(out, &remark, &imported)?;
            Ok(0)
        }
        Action::Make { names, file_size, records, seed, out } => {
            make_all(names, file_size.0, *records, *seed, out)
        }
        Action::Show { file, json } => {
            let trace = Trace::open(file)?;
            show(&trace, *json)?;
            Ok(0)
        }
        Action::Record { below, out, program } => record(below.as_deref(), out, program),
    }
}

/// Writes an imported trace and says what became of it.
fn put(out: &Path, remark: &str, imported: &Imported) -> anyhow::Result<()> {
    let Imported { files, is_timed, records, left_out, elsewhere, folder } = imported;
    write(out, remark, (files, *is_timed), records)?;
    let of_files = match files.len() {
        0 => String::new(),
        1 => format!(" of one file below {}", shown_folder(folder)),
        many => format!(" of {many} files below {}", shown_folder(folder)),
    };
    say(format!("{} operations{of_files} in {}", records.len(), out.display()))?;
    if *elsewhere > 0 {
        tell(format!("{elsewhere} operations are of files elsewhere and left out"));
    }
    if *left_out > 0 {
        tell(format!("{left_out} entries are no reads or writes, failed or moved nothing: left out"));
    }
    Ok(())
}

fn shown_folder(folder: &str) -> &str {
    if folder.is_empty() { "/" } else { folder }
}

fn write(
    out: &Path,
    remark: &str,
    (files, is_timed): (&[String], bool),
    records: &[Record],
) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    text::write(&mut bytes, remark, files, is_timed, records)?;
    write_named(out, &bytes).with_context(|| out.display().to_string())
}

fn make_all(names: &[String], file_bytes: u64, records: u32, seed: u64, out: &Path) -> anyhow::Result<i32> {
    if file_bytes < make::FILE_BYTES_LEAST {
        bail!("--file-size: at least {} B", make::FILE_BYTES_LEAST);
    }
    let mut chosen = Vec::new();
    for name in names {
        let made = make::named(name).with_context(|| {
            let all: Vec<&str> = make::ALL.iter().map(|made| made.name).collect();
            format!("no trace is called {name:?}; there are {}", all.join(", "))
        })?;
        chosen.push(made);
    }
    if chosen.is_empty() {
        chosen.extend(&make::ALL);
    }
    Directory::create(out).with_context(|| out.display().to_string())?;
    for made in chosen {
        let path = out.join(format!("{}.trace", made.name));
        let remark = format!("{}: {}; for files of {file_bytes} B, from seed {seed}", made.name, made.about);
        write(&path, &remark, (&[], false), &made.records(file_bytes, records, seed))?;
        say(path.display())?;
    }
    Ok(0)
}

fn show(trace: &Trace, json: bool) -> anyhow::Result<()> {
    let figures = Figures::of(trace);
    if json {
        return Ok(say_json(serde_json::to_string_pretty(&figures)?)?);
    }
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let mut lines = vec![
        ("operations", format!("{} ({} of them writes)", figures.operations, figures.writes)),
        (
            "files",
            match trace.files.len() {
                0 => "none named: each operation is of every file of a job".to_owned(),
                count => count.to_string(),
            },
        ),
        ("bytes", human(figures.bytes as f64, "B")),
        ("end", format!("{} behind the beginning of a file", human(figures.end_bytes as f64, "B"))),
        ("time", figures.seconds.map_or("none recorded".to_owned(), |seconds| human(seconds, "s"))),
    ];
    if let Some(shape) = &figures.shape {
        let Shape { length_bytes_min, length_bytes_median, length_bytes_max, .. } = *shape;
        lines.extend([
            ("length", format!("{length_bytes_min} to {length_bytes_max} B, median {length_bytes_median} B, mean {:.0} B", shape.length_bytes_mean)),
            ("sequential", format!("{} begin where the one before ended, {} further on", percent(shape.sequential_ratio), percent(shape.forward_ratio))),
            ("reuse", format!("each byte {:.2} times; {} of what lies before the end is asked for", shape.reuse_ratio, percent(shape.touched_ratio))),
        ]);
    }
    for (name, value) in lines {
        say(format!("{name:<12}{value}"))?;
    }
    let picture = picture(trace);
    if !picture.is_empty() {
        say("\noffset")?;
        for line in picture {
            say(format!("  │{line}"))?;
        }
        say(format!("  └{}\n{:>74}", "─".repeat(72), "order"))?;
    }
    Ok(())
}

/// The program's own status is ours.
fn record(below: Option<&str>, out: &Path, program: &[String]) -> anyhow::Result<i32> {
    let scratch = Scratch::new()?;
    let log = scratch.0.join("strace");
    let ran = Command::new(STRACE)
        .args(["-f", "-s", "0", "-ttt", "-y", "-e", CALLS, "-o"])
        .arg(&log)
        .arg("--")
        .args(program)
        .status()
        .with_context(|| format!("{STRACE} could not be started; it is in the package strace"))?;
    let source = File::open(&log).context("strace left no record; it says why above")?;
    let strace = format(STRACE).context("no such format")?;
    let imported = import(strace, BufReader::new(source), below)
        .with_context(|| format!("what {:?} did", program.first().map_or("", String::as_str)))?;
    put(out, &format!("recorded of: {}", program.join(" ")), &imported)?;
    Ok(ran.code().unwrap_or(2))
}
