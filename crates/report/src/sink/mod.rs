//! The sinks: each renders a finished record.

mod csv;
mod html;
pub(crate) mod json;
#[cfg(feature = "parquet")]
mod parquet;
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
    Entry {
        name: "csv",
        about: "tables of points, trials and samples, RFC 4180",
        params: &[],
        needs: &[],
        build: &csv::CsvTables,
    },
    #[cfg(feature = "parquet")]
    Entry {
        name: "parquet",
        about: "tables of trials and samples in columns, zstd",
        params: &[],
        needs: &[],
        build: &parquet::ParquetTables,
    },
];
