//! Carrying out a scenario: labs, fleets, trials, records.

pub mod campaign;
pub mod environment;
pub mod faults;
pub mod measure;
pub mod needs;
pub mod progress;
pub mod trial;
