//! fio's iolog: version 2, with waits between operations, and version 3, with a time before each, in microseconds as fio 3.33
//! writes them.

use super::{Gathered, NextLine, TraceError};
use crate::trace::text::number;

const MICROSECOND_NS: u64 = 1_000;
const TIME_MAX: u64 = u64::MAX / 4 / MICROSECOND_NS;

pub fn read(lines: &mut dyn NextLine, out: &mut Gathered) -> Result<(), TraceError> {
    let first = lines.next_line()?;
    let version = match first.as_ref().map(|(_, text)| text.as_str()) {
        Some("fio version 2 iolog") => 2,
        Some("fio version 3 iolog") => 3,
        _ => {
            let problem = "neither `fio version 2 iolog` nor `fio version 3 iolog`";
            return Err(TraceError::line(first.map_or(1, |(line, _)| line), problem));
        }
    };
    out.is_timed = version == 3;
    let mut waited_us = 0_u64;
    while let Some((line, text)) = lines.next_line()? {
        one(&text, version, &mut waited_us, out).map_err(|problem| TraceError::line(line, problem))?;
    }
    Ok(())
}

fn one(text: &str, version: u8, waited_us: &mut u64, out: &mut Gathered) -> Result<(), String> {
    let mut fields = text.split_whitespace();
    let mut next = |what: &str| fields.next().ok_or_else(|| format!("no {what}"));
    let at_us = match version {
        3 => number("time", next("time")?, TIME_MAX)?,
        _ => *waited_us,
    };
    let (path, action) = (next("file")?, next("action")?);
    match action {
        "read" | "write" => {
            let (offset, length) = (next("offset")?, next("length")?);
            out.add(at_us * MICROSECOND_NS, path, action == "write", (offset, length))?;
        }
        "wait" if version == 2 => {
            let more = number("wait", next("time of the wait")?, TIME_MAX)?;
            *waited_us = waited_us.saturating_add(more).min(TIME_MAX);
            out.is_timed = true;
        }
        "add" | "open" | "close" | "trim" | "sync" | "datasync" => out.left_out += 1,
        _ => return Err(format!("{action:?} is no action of this format")),
    }
    match fields.next() {
        // A trim has its place, a wait of version 2 may have one.
        Some(_) if matches!(action, "read" | "write") => Err("more fields than an operation has".to_owned()),
        _ => Ok(()),
    }
}
