//! The sinks: each renders a finished record.

mod html;
pub(crate) mod json;
pub(crate) mod terminal;

use weir_seams::Entry;
use weir_seams::sink::SinkEntry;

pub static SINKS: &[SinkEntry] = &[
    Entry {
        name: "terminal",
        about: "verdict table of 80 columns, plain text",
        params: &[],
        needs: &[],
        build: &terminal::Terminal,
    },
    Entry {
        name: "json",
        about: "the summary document weir.summary/1",
        params: &[],
        needs: &[],
        build: &json::Json,
    },
    Entry {
        name: "html",
        about: "self-contained page: verdict, topology, series, distributions, environment",
        params: &[],
        needs: &[],
        build: &html::HtmlPage,
    },
];
