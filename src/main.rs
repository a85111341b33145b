//! `weir`: builds, loads and proves a data path. Parses, dispatches, and turns the verdict into an exit status.

mod commands;
mod doctor;
mod machine;
mod output;
mod registry;
mod run;

use clap::Parser;
use std::process::exit;

fn main() {
    weir_sys::signal::failed_writes_are_errors();
    #[cfg(feature = "lab")]
    if let Some(status) = std::env::args_os().nth(1).and_then(|first| {
        let of_lab = weir_lab::hidden(&first).or_else(|| weir_disk::hidden(&first));
        of_lab.or_else(|| run::services::hidden(&first))
    }) {
        exit(status);
    }
    let ended = match commands::Cli::try_parse() {
        Ok(cli) => cli.command.run(),
        Err(said) => output::help(&said),
    };
    exit(output::exit_status(ended));
}
