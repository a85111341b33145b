//! Sink: renders a finished record.

use std::io;
use std::path::Path;
use weir_core::record::Summary;

/// Where a summary goes and what else may be read for it.
pub trait Sink {
    /// Renders `summary`; `folder` holds the run's other files where there are any.
    fn write(&self, summary: &Summary, folder: Option<&Path>, out: &mut dyn io::Write) -> io::Result<()>;
}

pub type SinkEntry = crate::Entry<&'static (dyn Sink + Sync)>;
