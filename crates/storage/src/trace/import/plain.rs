//! Lines of two numbers.

use super::{Gathered, NextLine};
use crate::trace::text::number;
use crate::trace::{LENGTH_BYTES_MAX, OFFSET_MAX, Record, TraceError};

pub fn offset_first(lines: &mut dyn NextLine, out: &mut Gathered) -> Result<(), TraceError> {
    read(lines, out, true)
}

pub fn length_first(lines: &mut dyn NextLine, out: &mut Gathered) -> Result<(), TraceError> {
    read(lines, out, false)
}

fn read(lines: &mut dyn NextLine, out: &mut Gathered, is_offset_first: bool) -> Result<(), TraceError> {
    while let Some((line, text)) = lines.next_line()? {
        if text.starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = text.split([' ', '\t', ',', ';']).filter(|field| !field.is_empty()).collect();
        let [first, second] = fields[..] else {
            return Err(TraceError::line(line, format!("{} fields, and two are expected", fields.len())));
        };
        let (offset, length) = if is_offset_first { (first, second) } else { (second, first) };
        let wrong = |problem| TraceError::line(line, problem);
        let offset = number("offset", offset, OFFSET_MAX).map_err(wrong)?;
        let length_bytes = number("length", length, LENGTH_BYTES_MAX).map_err(wrong)? as u32;
        if length_bytes == 0 {
            out.left_out += 1;
            continue;
        }
        out.records.push(Record { offset, length_bytes, ..Record::default() });
    }
    Ok(())
}
