//! `weir generate`: shell completions and manual pages, from the same source as the help.

use crate::output;
use anyhow::Context;
use clap::CommandFactory;
use std::io::{self, Write};
use std::path::PathBuf;
use weir_sys::directory::Directory;

/// Write shell completions or manual pages.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir generate completion bash > /etc/bash_completion.d/weir\n  weir generate man /usr/local/share/man/man1"
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Print completions for a shell
    Completion { shell: clap_complete::Shell },
    /// Write a manual page for each command into a folder
    Man { folder: PathBuf },
}

pub fn run(args: &Args) -> anyhow::Result<i32> {
    let mut command = super::Cli::command();
    match &args.what {
        What::Completion { shell } => {
            // Made first: the generator panics where a write fails.
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut command, "weir", &mut text);
            output::Output.write_all(&text)?;
        }
        What::Man { folder } => {
            let out =
                Directory::create(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            let mut command = command.disable_help_subcommand(true);
            command.build();
            manuals(command, &out).with_context(|| format!("cannot write to {}", folder.display()))?;
        }
    }
    Ok(0)
}

/// A page for the command and for each that it has.
fn manuals(command: clap::Command, out: &Directory) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        manuals(below.clone(), out)?;
    }
    let page = clap_mangen::Man::new(command);
    out.replace(&page.get_filename(), |file| page.render(file).map(Some)).map(drop)
}
