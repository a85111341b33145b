//! Everything found wrong with a scenario, each with its place, rendered with the line and carets under it.

use super::plan::Language;
use crate::text;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

/// More than anyone reads; a file of garbage must not produce a report as large as itself.
const PROBLEMS_MAX: usize = 50;
/// Lines longer than this are shown only around the place.
const SHOWN_BYTES_MAX: usize = 160;

/// A span of one of the texts a scenario is made of: the file, or one `--set`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// 0 is the file; the others count the overrides.
    pub source: usize,
    /// In bytes.
    pub start: usize,
    pub end: usize,
}

impl Place {
    pub fn new(source: usize, span: Range<usize>) -> Place {
        Place { source, start: span.start, end: span.end }
    }
}

#[derive(Clone, Debug)]
struct Source {
    /// The file's name or `--set PATH=VALUE`.
    name: String,
    text: String,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file's name, or `--set PATH=VALUE`.
    pub origin: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// In bytes of the file (or of `PATH=VALUE`).
    pub span: Range<usize>,
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    source: usize,
}

/// All problems of a scenario, in the order of their places.
#[derive(Clone, Debug)]
pub struct ScenarioErrors {
    pub problems: Vec<Problem>,
    /// How many more were found than are kept.
    pub further: usize,
    sources: Vec<Source>,
}

impl ScenarioErrors {
    /// One problem with the file as a whole, such as that it cannot be read.
    pub fn of_file(file: &str, message: impl Into<String>, help: Option<String>) -> Self {
        let problems = Problems::new(file, "", Language::NONE);
        problems.add_helped(Place::default(), message, help);
        problems.into_errors()
    }

    /// The report for people, with `styled` in colour.
    pub fn render(&self, styled: bool) -> String {
        let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
        let mut out = String::new();
        for problem in &self.problems {
            let source = &self.sources[problem.source];
            let message = text::shown(&problem.message, text::SHOWN_BYTES_MAX);
            let title = Level::ERROR.primary_title(message.as_str());
            let (shown, first_line, span) = excerpt(&source.text, &problem.span);
            let shown = harmless(shown);
            let name = text::shown(&source.name, text::SHOWN_BYTES_MAX);
            let path = if problem.source == 0 { name.as_str() } else { "--set" };
            let mut group = if shown.is_empty() {
                title.element(annotate_snippets::Origin::path(path))
            } else {
                title.element(
                    Snippet::source(shown.as_str())
                        .line_start(first_line)
                        .path(path)
                        .annotation(AnnotationKind::Primary.span(span)),
                )
            };
            let help = problem.help.as_deref().map(|help| text::shown(help, text::SHOWN_BYTES_MAX));
            if let Some(help) = &help {
                group = group.element(Level::HELP.message(help.as_str()));
            }
            out.push_str(&renderer.render(&[group]));
            out.push_str("\n\n");
        }
        let count = self.problems.len() + self.further;
        let name = text::shown(&self.sources[0].name, text::SHOWN_BYTES_MAX);
        let plural = if count == 1 { "problem" } else { "problems" };
        out.push_str(&format!("{count} {plural} in {name}; nothing was started"));
        if self.further > 0 {
            out.push_str(&format!(" ({} not shown)", self.further));
        }
        out
    }
}

impl fmt::Display for ScenarioErrors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.render(false))
    }
}
impl std::error::Error for ScenarioErrors {}

/// The lines a span touches (one line of a longer span), cut to a readable width; the number of the first; the span in it.
fn excerpt<'a>(text: &'a str, span: &Range<usize>) -> (&'a str, usize, Range<usize>) {
    let start = floor_char(text, span.start);
    let line_start = text[..start].rfind('\n').map_or(0, |index| index + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |index| start + index);
    let first_line = text[..start].matches('\n').count() + 1;
    let from = floor_char(text, line_start.max(start.saturating_sub(SHOWN_BYTES_MAX / 2)));
    let to = floor_char(text, line_end.min(start + SHOWN_BYTES_MAX)).max(start);
    let end = floor_char(text, span.end.clamp(start, to)).max(start);
    (&text[from..to], first_line, start - from..end - from)
}

/// A piece of a file without what steers a terminal, each letter as long as before: the places in it stay right. What is of one
/// byte the renderer makes visible itself.
fn harmless(piece: &str) -> String {
    let letters = piece.chars().map(|letter| match (text::visible(letter), letter.len_utf8()) {
        (Some(_), 2) => '\u{b7}',
        (Some(_), 3) => '\u{fffd}',
        _ => letter,
    });
    letters.collect()
}

fn floor_char(text: &str, index: usize) -> usize {
    let mut index = index.min(text.len());
    while !text.is_char_boundary(index) {
        index -= 1;
    }
    index
}

/// Collects problems while a scenario is read.
#[derive(Debug)]
pub(super) struct Problems<'a> {
    sources: RefCell<Vec<Source>>,
    found: RefCell<Found>,
    pub language: Language<'a>,
}

#[derive(Debug, Default)]
struct Found {
    list: Vec<(Place, String, Option<String>)>,
    // Every configuration is decoded by itself, so what is wrong with all of them is found once for each.
    seen: BTreeSet<(Place, String)>,
    further: usize,
    /// Every problem as often as it was met.
    met: usize,
}

impl<'a> Problems<'a> {
    pub fn new(file: &str, text: &str, language: Language<'a>) -> Problems<'a> {
        let file = Source { name: file.to_owned(), text: text.to_owned() };
        Problems { sources: RefCell::new(vec![file]), found: RefCell::default(), language }
    }
    /// Makes a further text known; its places carry the number returned.
    pub fn add_source(&self, name: String, text: &str) -> usize {
        let mut sources = self.sources.borrow_mut();
        sources.push(Source { name, text: text.to_owned() });
        sources.len() - 1
    }
    pub fn add(&self, at: Place, message: impl Into<String>) {
        self.add_helped(at, message, None);
    }
    pub fn add_help(&self, at: Place, message: impl Into<String>, help: impl Into<String>) {
        self.add_helped(at, message, Some(help.into()));
    }
    pub fn add_helped(&self, at: Place, message: impl Into<String>, help: Option<String>) {
        let found = &mut *self.found.borrow_mut();
        let message = message.into();
        found.met += 1;
        if found.seen.contains(&(at, message.clone())) {
            return;
        }
        if found.list.len() >= PROBLEMS_MAX {
            found.further += 1;
            return;
        }
        found.seen.insert((at, message.clone()));
        found.list.push((at, message, help));
    }
    pub fn any(&self) -> bool {
        !self.found.borrow().list.is_empty()
    }
    /// How often a problem was met so far, the same one again included: grows whenever something is wrong.
    pub fn count(&self) -> usize {
        self.found.borrow().met
    }
    /// True once no further problem would be shown, so that looking for more is pointless.
    pub fn full(&self) -> bool {
        self.found.borrow().list.len() >= PROBLEMS_MAX
    }
    pub fn line(&self, at: Place) -> usize {
        let text = &self.sources.borrow()[at.source].text;
        text[..floor_char(text, at.start)].matches('\n').count() + 1
    }
    pub fn into_errors(self) -> ScenarioErrors {
        let sources = self.sources.into_inner();
        let mut found = self.found.into_inner();
        found.list.sort_by_key(|(at, ..)| *at);
        let problems = found
            .list
            .into_iter()
            .map(|(at, message, help)| {
                let source = &sources[at.source];
                let before = &source.text[..floor_char(&source.text, at.start)];
                let line_start = before.rfind('\n').map_or(0, |index| index + 1);
                Problem {
                    origin: source.name.clone(),
                    line: before.matches('\n').count() + 1,
                    column: before[line_start..].chars().count() + 1,
                    span: at.start..at.end,
                    message,
                    help,
                    source: at.source,
                }
            })
            .collect();
        ScenarioErrors { problems, further: found.further, sources }
    }
}
