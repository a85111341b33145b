//! The page, from the run's folder where there is one.

use crate::Folder;
use std::io;
use std::path::Path;
use weir_core::record::Summary;
use weir_seams::sink::Sink;

pub(crate) struct HtmlPage;

impl Sink for HtmlPage {
    fn write(
        &self,
        summary: &Summary,
        folder: Option<&Path>,
        out: &mut (dyn io::Write + Send),
    ) -> io::Result<()> {
        let folder = match folder {
            Some(path) => {
                let mut folder = Folder::read(path).map_err(io::Error::other)?;
                folder.summary = Some(summary.clone());
                folder.notes.retain(|note| !note.starts_with("summary.json"));
                folder
            }
            None => Folder::of_summary(summary.clone()),
        };
        out.write_all(crate::html(&folder).as_bytes())
    }
}
