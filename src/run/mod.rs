//! Carrying out a scenario: labs, fleets, trials, records.

#[cfg(feature = "lab")]
pub mod campaign;
#[cfg(feature = "lab")]
pub mod captures;
pub mod environment;
#[cfg(feature = "lab")]
pub mod faults;
#[cfg(feature = "lab")]
pub mod hosts;
#[cfg(feature = "lab")]
pub mod measure;
#[cfg(feature = "lab")]
pub mod needs;
#[cfg(feature = "lab")]
pub mod outlook;
pub mod progress;
#[cfg(feature = "lab")]
pub mod records;
#[cfg(feature = "lab")]
pub mod resume;
#[cfg(feature = "lab")]
pub mod trial;
#[cfg(feature = "lab")]
pub mod turns;
