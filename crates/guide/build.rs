//! Takes the workload out of the guide's page, so that what is shown is what is compiled.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let page = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"))
        .join("../../docs/guide/adding.md");
    println!("cargo::rerun-if-changed={}", page.display());
    let text = fs::read_to_string(&page).expect("the guide has its page");
    let (_, rest) = text.split_once("```rust\n").expect("the page has a block of Rust");
    let (code, _) = rest.split_once("```\n").expect("the block has an end");
    // Documentation of a whole file has no place in one that is included.
    let code: String =
        code.lines().filter(|line| !line.starts_with("//!")).map(|line| format!("{line}\n")).collect();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("adding.rs"), code).expect("room for the workload");
}
