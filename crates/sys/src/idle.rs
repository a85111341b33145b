//! What an idle CPU may do.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// Takes a 32-bit number of µs for as long as it is open (kernel documentation, "PM Quality Of Service Interface").
const FILE: &str = "/dev/cpu_dma_latency";

/// While this lives no CPU of the machine enters a sleep state: one that is idle looks for work, and a program that is
/// woken runs at once. Costs power, and on a virtual machine the host's time; no program's.
#[derive(Debug)]
pub struct StayAwake {
    _held: File,
}

impl StayAwake {
    /// Errors: where there is no such device, or it may not be written (root may).
    pub fn new() -> io::Result<StayAwake> {
        let said = |error: io::Error| io::Error::new(error.kind(), format!("{FILE}: {error}"));
        let mut held = OpenOptions::new().write(true).open(FILE).map_err(said)?;
        held.write_all(&0_i32.to_ne_bytes()).map_err(said)?;
        Ok(StayAwake { _held: held })
    }
}
