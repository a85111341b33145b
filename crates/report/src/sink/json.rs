//! The summary document and nothing else.

use std::io;
use std::path::Path;
use weir_core::record::Summary;
use weir_seams::sink::Sink;

/// The document `weir.summary/1`, indented, with a newline at its end.
pub fn json(summary: &Summary) -> String {
    // A summary has string keys only and no type of its own that may refuse, so this cannot fail.
    let mut text = serde_json::to_string_pretty(summary).unwrap_or_default();
    text.push('\n');
    text
}

pub(crate) struct Json;

impl Sink for Json {
    fn write(
        &self,
        summary: &Summary,
        _folder: Option<&Path>,
        out: &mut (dyn io::Write + Send),
    ) -> io::Result<()> {
        out.write_all(json(summary).as_bytes())
    }
}
