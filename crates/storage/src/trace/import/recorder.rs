//! The CSV that the recorder plug-in of XRootD's client writes: a line for each call, in the order in which they ended. A file's
//! number is used again after it is closed.

use super::{Gathered, NextLine, TraceError, path_of, seconds};
use std::collections::BTreeMap;

pub fn read(lines: &mut dyn NextLine, out: &mut Gathered) -> Result<(), TraceError> {
    let mut open: BTreeMap<String, String> = BTreeMap::new();
    out.is_timed = true;
    while let Some((line, text)) = lines.next_line()? {
        one(&text, &mut open, out).map_err(|problem| TraceError::line(line, problem))?;
    }
    Ok(())
}

fn one(text: &str, open: &mut BTreeMap<String, String>, out: &mut Gathered) -> Result<(), String> {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let fields: Vec<&str> = inner.ok_or("not a line of quoted fields")?.split("\",\"").collect();
    let [id, action, start, arguments, _, status, ..] = fields[..] else {
        return Err(format!("{} fields, and a call has 7", fields.len()));
    };
    let at_ns = seconds(start)?;
    let mut arguments = arguments.split(';');
    let mut next = |what: &str| arguments.next().ok_or_else(|| format!("{action} without {what}"));
    if !status.contains("SUCCESS") {
        out.left_out += 1;
        return Ok(());
    }
    let is_write = matches!(action, "Write" | "PgWrite" | "VectorWrite");
    match action {
        "Open" => {
            open.insert(id.to_owned(), path_of(next("a URL")?).to_owned());
            out.left_out += 1;
        }
        "Close" => {
            open.remove(id);
            out.left_out += 1;
        }
        "Read" | "PgRead" | "Write" | "PgWrite" => {
            let path = open.get(id).ok_or("of a file that is not open")?;
            out.add(at_ns, path, is_write, (next("an offset")?, next("a length")?))?;
        }
        "VectorRead" | "VectorWrite" => {
            let path = open.get(id).ok_or("of a file that is not open")?;
            // Pairs, and one number more: the call's time-out.
            let all: Vec<&str> = arguments.collect();
            for pair in all.chunks_exact(2) {
                out.add(at_ns, path, is_write, (pair[0], pair[1]))?;
            }
        }
        _ => out.left_out += 1,
    }
    Ok(())
}
