//! Apache Parquet: trials and samples as columns, read by everything that analyses data.

use crate::table::{self, Cell, Cells, Column, Kind, Rows};
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use std::io;
use std::path::Path;
use std::sync::Arc;
use weir_core::record::{RESULTS_SCHEMA, Summary};
use weir_seams::sink::{Sink, Tables};

/// Rows of a row group. Readers take a group into memory, and we hold one while it fills: 16 MB for the two columns of samples
/// that differ in every row.
const GROUP_ROWS_MAX: usize = 1 << 20;
/// Bytes that a group may take while it fills: records of trials have texts that differ from row to row.
const GROUP_BYTES_MAX: usize = 40 << 20;
/// What the structures around one text take.
const TEXT_BYTES: usize = 80;
/// Values of a repeated text that are handed over at once.
const BATCH: usize = 4_096;

/// What one column of the row group under way holds.
enum Buffer {
    /// Texts with how often each is repeated; a series repeats its names a thousand times.
    Texts(Vec<(Option<ByteArray>, usize)>),
    Integers(Vec<i64>),
    Numbers(Vec<f64>),
    Flags(Vec<bool>),
}

struct Filling {
    kind: Kind,
    optional: bool,
    buffer: Buffer,
    /// For each row of an optional column that is no text: 1 where there is a value.
    present: Vec<i16>,
}

/// Writes one file; `finish` writes what makes it readable.
struct Parquet<W: io::Write + Send> {
    /// Taken when the columns are known.
    out: Option<W>,
    writer: Option<SerializedFileWriter<W>>,
    columns: Vec<Filling>,
    rows: usize,
    bytes: usize,
}

fn broken(error: ParquetError) -> io::Error {
    match error {
        // The disk's own error says more than that there was one.
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(inner) => *inner,
            Err(inner) => io::Error::other(inner),
        },
        other => io::Error::other(other),
    }
}

fn properties(columns: &[Column]) -> Result<WriterProperties, ParquetError> {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_created_by(format!("weir {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(vec![KeyValue::new(
            "weir.schema".to_owned(),
            RESULTS_SCHEMA.to_owned(),
        )]));
    for column in columns.iter().filter(|column| column.name.ends_with("_ns")) {
        // Times ascend in steps that hardly differ.
        let path = ColumnPath::from(column.name.clone());
        builder = builder
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    Ok(builder.build())
}

fn schema(columns: &[Column]) -> Result<Type, ParquetError> {
    let fields = columns.iter().map(|column| {
        let (physical, logical) = match column.kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Integer => (Physical::INT64, None),
            Kind::Number => (Physical::DOUBLE, None),
            Kind::Flag => (Physical::BOOLEAN, None),
        };
        let repetition = if column.optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let field = Type::primitive_type_builder(&column.name, physical);
        field.with_repetition(repetition).with_logical_type(logical).build().map(Arc::new)
    });
    Type::group_type_builder("weir").with_fields(fields.collect::<Result<_, _>>()?).build()
}

impl<W: io::Write + Send> Parquet<W> {
    fn new(out: W) -> Self {
        Parquet { out: Some(out), writer: None, columns: Vec::new(), rows: 0, bytes: 0 }
    }

    fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        if let Some(writer) = self.writer.take() {
            writer.close().map_err(broken)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(writer) = self.writer.as_mut().filter(|_| self.rows > 0) else { return Ok(()) };
        let mut group = writer.next_row_group().map_err(broken)?;
        let mut columns = self.columns.iter_mut();
        while let Some(mut column) = group.next_column().map_err(broken)? {
            let Some(filling) = columns.next() else { break };
            filling.write(column.untyped()).map_err(broken)?;
            column.close().map_err(broken)?;
        }
        group.close().map_err(broken)?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

impl<W: io::Write + Send> Rows for Parquet<W> {
    fn begin(&mut self, columns: &[Column]) -> io::Result<()> {
        let out = self.out.take().ok_or_else(|| io::Error::other("the columns are known already"))?;
        let schema = schema(columns).map_err(broken)?;
        let properties = properties(columns).map_err(broken)?;
        let writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties));
        self.writer = Some(writer.map_err(broken)?);
        self.columns = columns.iter().map(Filling::new).collect();
        Ok(())
    }

    fn rows(&mut self, count: usize, cells: &[Cells<'_>]) -> io::Result<()> {
        for (column, cells) in self.columns.iter_mut().zip(cells) {
            self.bytes += column.add(count, *cells)?;
        }
        self.rows += count;
        let full = self.rows >= GROUP_ROWS_MAX || self.bytes >= GROUP_BYTES_MAX;
        if full { self.flush() } else { Ok(()) }
    }
}

impl Filling {
    fn new(column: &Column) -> Self {
        let buffer = match column.kind {
            Kind::Text => Buffer::Texts(Vec::new()),
            Kind::Integer => Buffer::Integers(Vec::new()),
            Kind::Number => Buffer::Numbers(Vec::new()),
            Kind::Flag => Buffer::Flags(Vec::new()),
        };
        Filling { kind: column.kind, optional: column.optional, buffer, present: Vec::new() }
    }

    /// Gives how many bytes that takes.
    fn add(&mut self, count: usize, cells: Cells<'_>) -> io::Result<usize> {
        let absent = matches!(cells, Cells::Same(Cell::Absent));
        if absent && !self.optional {
            return Err(io::Error::other("a column that always has a value has none"));
        }
        let mut bytes = count * size_of::<f64>();
        if self.optional && self.kind != Kind::Text {
            bytes += count * size_of::<i16>();
            self.present.resize(self.present.len() + count, i16::from(!absent));
        }
        if let (Buffer::Texts(texts), Cells::Same(cell)) = (&mut self.buffer, cells) {
            let text = match cell {
                Cell::Text(text) => Some(text),
                Cell::Absent => None,
                _ => return Err(io::Error::other("a value is not of its column's kind")),
            };
            match texts.last_mut() {
                Some((last, times)) if last.as_ref().map(ByteArray::data) == text.map(str::as_bytes) => {
                    *times += count;
                    return Ok(0);
                }
                _ => texts.push((text.map(ByteArray::from), count)),
            }
            return Ok(TEXT_BYTES + text.map_or(0, str::len));
        }
        match (&mut self.buffer, cells) {
            (_, Cells::Same(Cell::Absent)) => bytes -= count * size_of::<f64>(),
            (Buffer::Integers(all), Cells::Same(Cell::Integer(one))) => all.resize(all.len() + count, one),
            (Buffer::Integers(all), Cells::Integers(some)) => all.extend_from_slice(some),
            (Buffer::Numbers(all), Cells::Same(Cell::Number(one))) => all.resize(all.len() + count, one),
            (Buffer::Numbers(all), Cells::Numbers(some)) => all.extend_from_slice(some),
            (Buffer::Flags(all), Cells::Same(Cell::Flag(one))) => all.resize(all.len() + count, one),
            _ => return Err(io::Error::other("a value is not of its column's kind")),
        }
        Ok(bytes)
    }

    /// Hands the row group's values to the column's writer and forgets them.
    fn write(&mut self, writer: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        let present = std::mem::take(&mut self.present);
        let levels = (self.optional && self.kind != Kind::Text).then_some(present.as_slice());
        match (&mut self.buffer, writer) {
            (Buffer::Texts(texts), ColumnWriter::ByteArrayColumnWriter(writer)) => {
                for (text, times) in texts.drain(..) {
                    let mut left = times;
                    while left > 0 {
                        let some = left.min(BATCH);
                        let values = text.as_ref().map_or_else(Vec::new, |text| vec![text.clone(); some]);
                        let levels = self.optional.then(|| vec![i16::from(text.is_some()); some]);
                        writer.write_batch(&values, levels.as_deref(), None)?;
                        left -= some;
                    }
                }
            }
            (Buffer::Integers(all), ColumnWriter::Int64ColumnWriter(writer)) => {
                writer.write_batch(&std::mem::take(all), levels, None)?;
            }
            (Buffer::Numbers(all), ColumnWriter::DoubleColumnWriter(writer)) => {
                writer.write_batch(&std::mem::take(all), levels, None)?;
            }
            (Buffer::Flags(all), ColumnWriter::BoolColumnWriter(writer)) => {
                writer.write_batch(&std::mem::take(all), levels, None)?;
            }
            _ => return Err(ParquetError::General("a column is of another type than its schema".to_owned())),
        }
        Ok(())
    }
}

pub(crate) struct ParquetTables;

impl Sink for ParquetTables {
    fn write(
        &self,
        summary: &Summary,
        _folder: Option<&Path>,
        out: &mut (dyn io::Write + Send),
    ) -> io::Result<()> {
        let mut parquet = Parquet::new(out);
        table::points(summary, &mut parquet)?;
        parquet.finish()
    }

    fn tables(&self) -> Option<&dyn Tables> {
        Some(self)
    }
}

const TRIALS: &str = "trials.parquet";
const SAMPLES: &str = "samples.parquet";

impl Tables for ParquetTables {
    fn files(&self) -> &'static [&'static str] {
        &[TRIALS, SAMPLES]
    }

    fn write_file(
        &self,
        file: &str,
        folder: &Path,
        out: &mut (dyn io::Write + Send),
    ) -> io::Result<Option<Vec<String>>> {
        let mut parquet = Parquet::new(out);
        let notes = match file {
            TRIALS => table::trials(folder, &mut parquet),
            SAMPLES => table::samples(folder, &mut parquet),
            _ => Err(io::Error::other(format!("parquet has no {file}"))),
        }?;
        parquet.finish()?;
        Ok(Some(notes))
    }
}
