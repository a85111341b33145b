//! `weir lab capture`.

use super::LabName;
use super::state::State;
use crate::capture::{Capturing, Request, open};
use crate::error::LabError;

/// Begins a capture in a lab that is up.
///
/// Errors: no such lab, a dead one, or a port that it does not have.
pub fn capture(name: &LabName, request: &Request) -> Result<Capturing, LabError> {
    State::find(name)?.must_be_up()?;
    open(&name.socket(), request)
}
