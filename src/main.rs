//! `weir`: builds, loads and proves a data path. Parses, dispatches, and turns the verdict into an exit status.

mod commands;
mod doctor;
mod machine;
mod registry;
mod run;

use clap::Parser;
use std::process::exit;

fn main() {
    let first = std::env::args().nth(1);
    #[cfg(feature = "lab")]
    // Not a command for people: the other end of a lab's TUN devices, started by weir itself.
    if first.as_deref() == Some("fabric-process") {
        exit(weir_lab::fabric_process::main());
    }
    if first.as_deref() != Some("agent") {
        weir_sys::signal::default_broken_pipe();
    }
    let status = match commands::Cli::parse().command.run() {
        Ok(status) => status,
        Err(error) => {
            eprintln!("weir: {}", sentence(&error));
            2
        }
    };
    exit(status);
}

/// The error and what caused it, each said once: many causes are already part of the sentence above them.
/// A far end or a file may have worded a part of it.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for part in error.chain().map(ToString::to_string) {
        if !text.contains(&part) {
            let joint = if text.is_empty() { "" } else { ": " };
            text.push_str(joint);
            text.push_str(&part);
        }
    }
    weir_core::text::shown_lines(&text)
}
