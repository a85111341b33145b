use super::help::{possible, start, two_sites};
use std::process::Command;
use std::time::Duration;
use weir_sys::netns::run_in;

#[test]
fn ping_finds_the_configured_round_trip() {
    if !possible() {
        return;
    }
    let lab = start(&two_sites(Some(1_000_000_000), Duration::from_millis(16), 1500));
    let output = run_in(lab.namespace(0), || {
        Command::new("ping").args(["-c", "10", "-i", "0.02", "10.64.0.2"]).output().unwrap()
    })
    .unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    println!("{:?}", lab.notes());
    assert!(output.status.success());
}
