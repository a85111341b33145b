//! The text of Darshan's extended tracing (DXT), process after process.

use super::{Gathered, NextLine, TraceError, seconds};

const FILE: &str = ", file_name: ";

pub fn read(lines: &mut dyn NextLine, out: &mut Gathered) -> Result<(), TraceError> {
    let mut file: Option<String> = None;
    out.is_timed = true;
    while let Some((line, text)) = lines.next_line()? {
        if let Some(rest) = text.strip_prefix("# DXT, file_id: ") {
            file = rest.split_once(FILE).map(|(_, name)| name.to_owned());
            continue;
        }
        if text.starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let wrong = |problem: String| TraceError::line(line, problem);
        // Some file systems add where the data lies.
        let [module, _, action, _, offset, length, start, _, ..] = fields[..] else {
            return Err(wrong(format!("{} fields, and an operation has 8", fields.len())));
        };
        if module != "X_POSIX" {
            // What MPI-IO was asked for stands in the POSIX part again.
            out.left_out += 1;
            continue;
        }
        let is_write = match action {
            "read" => false,
            "write" => true,
            _ => return Err(wrong(format!("{action:?} is neither read nor write"))),
        };
        let path =
            file.as_deref().ok_or_else(|| wrong("no `# DXT, file_id` above it names a file".to_owned()))?;
        let at_ns = seconds(start).map_err(wrong)?;
        out.add(at_ns, path, is_write, (offset, length)).map_err(wrong)?;
    }
    Ok(())
}
