//! `weir new`: a scenario to start from.

use crate::output::say;
use anyhow::{Context, bail};
use std::io::Write;
use std::path::Path;
use weir_sys::directory::Directory;

/// Templates by name; the word NAME in them becomes the scenario's.
const TEMPLATES: &[(&str, &str)] = &[
    ("quickstart", include_str!("../templates/quickstart.toml")),
    ("sweep", include_str!("../templates/sweep.toml")),
    ("faults", include_str!("../templates/faults.toml")),
];

/// Write a commented scenario to start from, NAME.toml.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  weir new first && weir run first.toml
  weir new loss --from sweep        points, cases, comparisons
  weir new outage --from faults     what happens while a trial runs")]
pub struct Args {
    /// Name of the scenario: a-z, 0-9 and -, at most 63 letters
    name: String,
    /// What to start from
    #[arg(long, default_value = "quickstart", value_parser = TEMPLATES.iter().map(|(name, _)| *name).collect::<Vec<_>>())]
    from: String,
}

pub fn run(args: &Args) -> anyhow::Result<i32> {
    let letters = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let name = args.name.as_str();
    if name.is_empty() || name.len() > 63 || name.starts_with('-') || !name.chars().all(letters) {
        bail!("{name:?} is no name: names have 1 to 63 letters a-z, digits and -, and do not begin with -");
    }
    let Some((_, template)) = TEMPLATES.iter().find(|(known, _)| *known == args.from) else {
        bail!("there is no template {:?}", args.from);
    };
    let shown = format!("{name}.toml");
    let made = Directory::open(Path::new(".")).and_then(|folder| folder.create_new(&shown));
    let mut out = match made {
        Ok(out) => out,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{shown} is there already, and is left as it is; choose another name or move it away");
        }
        Err(error) => return Err(error).with_context(|| format!("cannot create {shown}")),
    };
    out.write_all(template.replace("NAME", name).as_bytes())
        .with_context(|| format!("cannot write {shown}"))?;
    say(format_args!("wrote {shown}; next: weir check {shown}, weir run {shown}"))?;
    Ok(0)
}
