//! What strace saw: `strace -f -ttt -y`. Where a call has no offset its file's position is followed.

use super::{Gathered, NextLine, TraceError, seconds};
use std::collections::BTreeMap;

/// A position belongs to a number and what it is of: the number alone is used again.
type Positions = BTreeMap<(u32, String), u64>;

pub fn read(lines: &mut dyn NextLine, out: &mut Gathered) -> Result<(), TraceError> {
    let mut positions = Positions::new();
    // What a process has begun and not ended, by its number.
    let mut begun: BTreeMap<String, (u64, String)> = BTreeMap::new();
    out.is_timed = true;
    while let Some((line, text)) = lines.next_line()? {
        let wrong = |problem: String| TraceError::line(line, problem);
        let (process, at_ns, rest) = split(&text).map_err(wrong)?;
        let (at_ns, call) = if let Some(head) = rest.strip_suffix("<unfinished ...>") {
            begun.insert(process, (at_ns, head.trim_end().to_owned()));
            continue;
        } else if let Some(tail) = rest.strip_prefix("<... ") {
            let Some((since_ns, head)) = begun.remove(&process) else { continue };
            let tail = tail.split_once(" resumed>").map_or("", |(_, tail)| tail);
            (since_ns, format!("{head}{tail}"))
        } else {
            (at_ns, rest.to_owned())
        };
        one(at_ns, &call, &mut positions, out).map_err(wrong)?;
    }
    Ok(())
}

/// Process, time and what it did. Errors: there is no time.
fn split(text: &str) -> Result<(String, u64, &str), String> {
    let no_time = || "no time since the epoch before the call: strace needs -ttt".to_owned();
    let text = text.strip_prefix("[pid ").unwrap_or(text).trim_start();
    let (first, rest) = text.split_once(char::is_whitespace).ok_or_else(no_time)?;
    if first.contains('.') {
        return Ok((String::new(), seconds(first).map_err(|_| no_time())?, rest.trim_start()));
    }
    let process = first.trim_end_matches(']').to_owned();
    let (time, rest) = rest.trim_start().split_once(char::is_whitespace).ok_or_else(no_time)?;
    if !time.contains('.') || process.bytes().any(|byte| !byte.is_ascii_digit()) {
        return Err(no_time());
    }
    Ok((process, seconds(time).map_err(|_| no_time())?, rest.trim_start()))
}

/// A descriptor with what it is of: `3</data/f>`.
fn descriptor(text: &str) -> Option<(u32, &str)> {
    let (number, rest) = text.split_once('<')?;
    let end = [">,", ">)"].iter().filter_map(|end| rest.find(end)).min();
    let path = end.map_or_else(|| rest.split('>').next().unwrap_or(rest), |end| &rest[..end]);
    Some((number.parse().ok()?, path))
}

fn one(at_ns: u64, call: &str, positions: &mut Positions, out: &mut Gathered) -> Result<(), String> {
    // Signals and ends of processes are no calls.
    let Some((name, arguments)) = call.split_once('(').filter(|_| !call.starts_with(['+', '-'])) else {
        return Ok(());
    };
    let Some((arguments, result)) = arguments.rsplit_once(" = ") else { return Ok(()) };
    let result = result.trim();
    let digits = result.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(result.len());
    let Ok(count) = result[..digits].parse::<u64>() else {
        // It failed, or its process ended.
        out.left_out += 1;
        return Ok(());
    };
    if matches!(name, "open" | "openat" | "openat2" | "creat") {
        if let Some((number, path)) = descriptor(result) {
            positions.insert((number, path.to_owned()), 0);
        }
        return Ok(());
    }
    let (is_write, has_offset) = match name {
        "read" | "readv" => (false, false),
        "pread64" | "preadv" => (false, true),
        "write" | "writev" => (true, false),
        "pwrite64" | "pwritev" => (true, true),
        "lseek" => {
            if let Some((number, path)) = descriptor(arguments) {
                positions.insert((number, path.to_owned()), count);
            }
            return Ok(());
        }
        _ => return Ok(()),
    };
    let (number, path) = descriptor(arguments).ok_or("no file at the descriptor: strace needs -y")?;
    let is_file =
        path.starts_with('/') && !["/dev/", "/proc/", "/sys/"].iter().any(|of| path.starts_with(of));
    if !is_file || count == 0 {
        out.left_out += 1;
        return Ok(());
    }
    let offset = if has_offset {
        let last = arguments.trim_end().trim_end_matches(')').rsplit(", ").next().unwrap_or_default();
        last.trim().to_owned()
    } else {
        let position = positions.entry((number, path.to_owned())).or_insert(0);
        let offset = *position;
        *position = offset.saturating_add(count);
        offset.to_string()
    };
    out.add(at_ns, path, is_write, (&offset, &count.to_string()))
}
