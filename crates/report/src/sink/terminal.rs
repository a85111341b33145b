//! The verdict table.

use crate::matrix::{Grid, failures};
use crate::words::{bound_text, criterion_value, interval_text, judged_word, scale_text, verdict_word};
use std::io;
use std::path::Path;
use weir_core::record::{CriterionResult, Matrix, PointSummary, Summary, Verdict};
use weir_seams::sink::Sink;

/// How to write to this terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    pub color: bool,
    /// Columns; less than 60 is taken as 60.
    pub width: usize,
}

impl Default for Style {
    fn default() -> Self {
        Style { color: false, width: 80 }
    }
}

const WIDTH_MIN: usize = 60;
const WIDTH_MAX: usize = 120;
const VALUE_MAX: usize = 18;
const BOUND_MAX: usize = 18;
/// Criteria and points listed at most; more are in `summary.json`.
const ROWS_MAX: usize = 200;
/// Points whose matrix is written, and its rows and columns: of hosts, else of sites.
const MATRICES_MAX: usize = 8;
const MATRIX_MAX: usize = 8;
/// Pairs of a matrix whose failures are told.
const FAILURES_MAX: usize = 8;

/// The verdict table: each criterion with value, bound and, where it does not hold, why; then what limited each point; then
/// where the report is. Every line fits `style.width`; control characters in names are made visible; without colour all
/// signs of our own are ASCII.
pub fn terminal(summary: &Summary, style: Style) -> String {
    let mut page =
        Page { out: String::new(), color: style.color, width: style.width.clamp(WIDTH_MIN, WIDTH_MAX) };
    page.heading(summary);
    page.criteria(&summary.criteria);
    page.points(&summary.points);
    for point in summary.points.iter().take(MATRICES_MAX) {
        if let Some(matrix) = &point.matrix {
            page.matrix(&point.id, matrix);
        }
    }
    for warning in summary.warnings.iter().take(ROWS_MAX) {
        page.wrapped("warning: ", warning);
    }
    page.more(summary.warnings.len(), "warnings");
    if let Some(results) = &summary.results {
        page.wrapped("report   ", &format!("{}/report.html", results.trim_end_matches('/')));
    }
    page.out
}

/// Longest text of a scenario that is shown whole, in bytes.
const TEXT_BYTES_MAX: usize = 2_000;

struct Page {
    out: String,
    color: bool,
    width: usize,
}

/// One criterion as it will be written.
struct Row<'a> {
    criterion: &'a CriterionResult,
    mark: String,
    text: String,
    value: String,
    bound: String,
}

impl Page {
    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    fn more(&mut self, count: usize, what: &str) {
        if count > ROWS_MAX {
            self.line(&format!("  and {} more {what} in summary.json", count - ROWS_MAX));
        }
    }

    fn wrapped(&mut self, lead: &str, text: &str) {
        for (index, part) in wrap(&self.clean(text), self.width - lead.len()).into_iter().enumerate() {
            let indent = if index == 0 { lead.to_owned() } else { " ".repeat(lead.len()) };
            self.line(&(indent + &part));
        }
    }

    /// Escape sequences in a name must not reach the terminal; where there may be none, neither must our signs beyond ASCII.
    fn clean(&self, text: &str) -> String {
        let mut out = String::new();
        for letter in weir_core::text::shown(text, TEXT_BYTES_MAX).chars() {
            match letter {
                '≥' if !self.color => out.push_str(">="),
                '≤' if !self.color => out.push_str("<="),
                'µ' if !self.color => out.push('u'),
                '·' | '–' if !self.color => out.push('-'),
                '…' if !self.color => out.push_str("..."),
                '’' if !self.color => out.push('\''),
                other => out.push(other),
            }
        }
        out
    }

    fn mark(&self, verdict: Verdict) -> &'static str {
        match verdict {
            _ if self.color => verdict_word(Some(verdict)),
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::Inconclusive => "inconclusive",
        }
    }

    fn judged(&self, criterion: &CriterionResult) -> String {
        match &criterion.otherwise {
            Some(_) if self.color => self.clean(&judged_word(criterion)),
            Some(word) => self.clean(word),
            None => self.mark(criterion.verdict).to_owned(),
        }
    }

    fn painted(&self, verdict: Verdict) -> String {
        self.in_color(verdict, self.mark(verdict))
    }

    fn in_color(&self, verdict: Verdict, text: &str) -> String {
        let code = match verdict {
            Verdict::Pass => "32",
            Verdict::Fail => "31",
            Verdict::Inconclusive => "33",
        };
        if self.color { format!("\u{1b}[1;{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn heading(&mut self, summary: &Summary) {
        let mut name = self.clean(&summary.scenario);
        if let Some(scale) = scale_text(&summary.scale) {
            name += &format!(" (scaled {})", self.clean(&scale));
        }
        let indent = columns(self.mark(summary.verdict)) + 2;
        for (index, part) in wrap(&name, self.width - indent).into_iter().enumerate() {
            let lead = if index == 0 { self.painted(summary.verdict) + "  " } else { " ".repeat(indent) };
            self.line(&(lead + &part));
        }
        self.line("");
    }

    fn criteria(&mut self, criteria: &[CriterionResult]) {
        if criteria.is_empty() {
            return;
        }
        let rows: Vec<Row<'_>> = criteria
            .iter()
            .take(ROWS_MAX)
            .map(|criterion| Row {
                criterion,
                mark: self.judged(criterion),
                text: self.clean(&criterion.text),
                value: self.clean(&criterion_value(criterion)),
                bound: self.clean(&bound_text(criterion)),
            })
            .collect();
        let widest = |of: &dyn Fn(&Row<'_>) -> usize| rows.iter().map(of).max().unwrap_or(0);
        let mark_width = widest(&|row| columns(&row.mark)) + 2;
        let value_width = widest(&|row| columns(&row.value)).clamp(5, VALUE_MAX);
        let bound_width = widest(&|row| columns(&row.bound)).clamp(5, BOUND_MAX);
        let text_width = self.width - mark_width - value_width - bound_width - 4;
        let lead = " ".repeat(mark_width);
        self.line(&format!(
            "{lead}{:text_width$}  {:>value_width$}  {:>bound_width$}",
            "criterion", "value", "bound"
        ));
        for row in &rows {
            let texts = wrap(&row.text, text_width);
            let values = wrap(&row.value, value_width);
            let bounds = wrap(&row.bound, bound_width);
            for index in 0..texts.len().max(values.len()).max(bounds.len()) {
                let at = |parts: &[String]| parts.get(index).cloned().unwrap_or_default();
                let lead = match index {
                    0 => {
                        self.in_color(row.criterion.verdict, &row.mark)
                            + &" ".repeat(mark_width - columns(&row.mark))
                    }
                    _ => lead.clone(),
                };
                let (text, value) = (pad(&at(&texts), text_width), right(&at(&values), value_width));
                self.line(&format!("{lead}{text}  {value}  {}", right(&at(&bounds), bound_width)));
            }
            if row.criterion.verdict != Verdict::Pass {
                for part in wrap(&self.why(row.criterion), self.width - mark_width - 2) {
                    self.line(&format!("{lead}  {part}"));
                }
            }
        }
        self.more(criteria.len(), "criteria");
        self.line("");
    }

    fn why(&self, criterion: &CriterionResult) -> String {
        let why = self.clean(&criterion.why);
        match interval_text(criterion.ci95, criterion.range, criterion.unit.as_deref()) {
            Some(interval) if why.is_empty() => self.clean(&interval),
            Some(interval) => format!("{why} ({})", self.clean(&interval)),
            None => why,
        }
    }

    fn points(&mut self, points: &[PointSummary]) {
        if points.is_empty() {
            return;
        }
        self.line("limited by");
        let names: Vec<String> = points.iter().take(ROWS_MAX).map(|point| self.clean(&point.id)).collect();
        let name_width = names.iter().map(|name| columns(name)).max().unwrap_or(0).clamp(4, self.width / 2);
        for (point, name) in points.iter().zip(&names) {
            let factor = &point.limiting_factor;
            let mut said = self.clean(&factor.name);
            if point.valid_trials < point.trials {
                said += &format!(", {} of {} trials valid", point.valid_trials, point.trials);
            }
            if let Some(evidence) = factor.evidence.first() {
                said += &format!(": {}", self.clean(evidence));
            }
            let (names, texts) = (wrap(name, name_width), wrap(&said, self.width - name_width - 4));
            for row in 0..names.len().max(texts.len()) {
                let at = |parts: &[String]| parts.get(row).cloned().unwrap_or_default();
                self.line(&format!("  {}  {}", pad(&at(&names), name_width), at(&texts)));
            }
        }
        self.more(points.len(), "points");
        self.line("");
    }
}

impl Page {
    /// The matrix of a point, where it has room: rows send, columns receive.
    fn matrix(&mut self, id: &str, matrix: &Matrix) {
        if let Some(grid) = Grid::of(matrix, MATRIX_MAX) {
            self.wrapped("", &format!("{id}: {}; rows to columns", grid.subject(matrix)));
            self.grid(&grid);
        } else {
            let text = format!(
                "{id}: {} pairs of too many sites for this table; the report has them",
                matrix.cells.len()
            );
            self.wrapped("", &text);
        }
        let failed = failures(matrix);
        for (cell, text) in failed.iter().take(FAILURES_MAX) {
            self.wrapped("  ", &format!("{} to {}: {text}", cell.from, cell.to));
        }
        if failed.len() > FAILURES_MAX {
            self.line(&format!("  and {} more pairs in summary.json", failed.len() - FAILURES_MAX));
        }
        self.line("");
    }

    fn grid(&mut self, grid: &Grid) {
        let names: Vec<String> = grid.rows.iter().map(|name| self.clean(name)).collect();
        let name_width = names.iter().map(|name| columns(name)).max().unwrap_or(0).min(self.width / 4);
        let room = (self.width - name_width - 2) / grid.columns.len().max(1) - 2;
        // Host numbers stay in sight where the names are too long: the site above, the number below.
        let heads: Vec<[String; 2]> = grid
            .columns
            .iter()
            .map(|name| {
                let name = self.clean(name);
                let (site, number) = match name.rsplit_once('-') {
                    Some((site, number)) if !grid.by_site => (site.to_owned(), format!("-{number}")),
                    _ => (name, String::new()),
                };
                [cut(&site, room), cut(&number, room)]
            })
            .collect();
        let widest = heads.iter().flatten().map(|head| columns(head)).max().unwrap_or(0);
        let width = widest.clamp(6.min(room), room);
        for row in 0..2 {
            let line = heads.iter().map(|head| format!("  {}", right(&head[row], width)));
            let line: String = line.collect();
            if !line.trim().is_empty() {
                self.line(&(" ".repeat(name_width + 2) + &line));
            }
        }
        for (name, places) in names.iter().zip(&grid.places) {
            let mut line = format!("  {}", pad(&cut(name, name_width), name_width));
            for place in places {
                let mut text = match place.value {
                    _ if place.pairs == 0 => ".".to_owned(),
                    Some(value) => grid.number(value),
                    None => "FAIL".to_owned(),
                };
                if place.local && place.value.is_some() {
                    text.insert(0, '=');
                }
                if place.failed > 0 && place.value.is_some() {
                    text.push('!');
                }
                line += &format!("  {}", right(&text, width));
            }
            self.line(&line);
        }
        let all = || grid.places.iter().flatten();
        let mut notes = Vec::new();
        if all().any(|place| place.local) {
            notes.push("= within one site");
        }
        if all().any(|place| place.failed > 0 && place.value.is_some()) {
            notes.push("! failed in some trials");
        }
        if !notes.is_empty() {
            self.line(&format!("  {}", notes.join("; ")));
        }
    }
}

/// The beginning of a text, of so many columns at most.
fn cut(text: &str, width: usize) -> String {
    let mut used = 0;
    let fits = |letter: &char| {
        used += columns_of(*letter);
        used <= width
    };
    text.chars().take_while(fits).collect()
}

/// Columns a letter takes: none for combining marks and joiners, two for East Asian wide ones and pictographs.
fn columns_of(letter: char) -> usize {
    match letter as u32 {
        0x300..=0x36f | 0x483..=0x489 | 0x591..=0x5bd | 0x610..=0x61a | 0x64b..=0x65f | 0x200b..=0x200d => 0,
        0x20d0..=0x20ff | 0xfe00..=0xfe0f | 0xfe20..=0xfe2f => 0,
        0x1100..=0x115f | 0x2e80..=0x303e | 0x3041..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff => 2,
        0xfe30..=0xfe4f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1f64f | 0x1f900..=0x1f9ff => 2,
        0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

fn columns(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

fn pad(text: &str, width: usize) -> String {
    text.to_owned() + &" ".repeat(width.saturating_sub(columns(text)))
}

fn right(text: &str, width: usize) -> String {
    " ".repeat(width.saturating_sub(columns(text))) + text
}

/// `text`, with what steers a terminal made visible, behind `lead`; further lines are indented as far.
pub fn wrapped(lead: &str, text: &str, width: usize) -> String {
    let mut page = Page { out: String::new(), color: true, width: width.clamp(WIDTH_MIN, WIDTH_MAX) };
    page.wrapped(lead, text);
    page.out
}

/// Breaks at spaces, and inside words that are longer than a line. At least one line.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = columns(word);
        if used > 0 && used + 1 + length <= width {
            if let Some(line) = lines.last_mut() {
                line.push(' ');
                line.push_str(word);
            }
            used += 1 + length;
            continue;
        }
        if used > 0 {
            lines.push(String::new());
            used = 0;
        }
        for letter in word.chars() {
            if used + columns_of(letter) > width {
                lines.push(String::new());
                used = 0;
            }
            if let Some(line) = lines.last_mut() {
                line.push(letter);
            }
            used += columns_of(letter);
        }
    }
    lines
}

pub(crate) struct Terminal;

impl Sink for Terminal {
    fn write(
        &self,
        summary: &Summary,
        _folder: Option<&Path>,
        out: &mut (dyn io::Write + Send),
    ) -> io::Result<()> {
        out.write_all(terminal(summary, Style::default()).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::tests::matrix;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_line_is_wider_than_it_may_be_and_none_carries_an_escape(
            name in "\\PC{0,80}|[\\x00-\\x1fa-z ]{0,80}", text in "\\PC{0,200}", why in "[a-z\\x1b\\[ ]{0,200}", width in 60_usize..120
        ) {
            let mut summary = crate::sample::summary();
            summary.scenario = name.clone();
            for criterion in &mut summary.criteria {
                criterion.text = text.clone();
                criterion.why = why.clone();
                criterion.verdict = Verdict::Fail;
            }
            summary.points[0].id = name;
            for line in terminal(&summary, Style { color: false, width }).lines() {
                prop_assert!(columns(line) <= width, "{} columns: {line}", columns(line));
                prop_assert!(!line.contains(char::is_control), "{line:?}");
            }
        }
    }

    // Spec: results.md#matrix-3
    #[test]
    fn a_matrix_of_up_to_eight_is_written_within_80_columns() {
        let mut summary = crate::sample::summary();
        let mut with = |matrix: Matrix| {
            summary.points[0].matrix = Some(matrix);
            terminal(&summary, Style::default())
        };
        let text = with(matrix(4, 2, |a, b| (b != 5).then_some((900 + a + b) as f64 * 1e6)));
        assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
        let row = text.lines().find(|line| line.starts_with("  site0-0")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["site0-0", ".", "=901", "902", "903", "904", "FAIL", "906", "907"]);
        assert!(
            text.contains("site0-0 to site2-1: failed in 2 of 2 trials: host site2-1: its agent was"),
            "{text}"
        );
        let by_site = with(matrix(5, 2, |_, _| Some(5e6)));
        assert!(by_site.contains("mean over trials and pairs of the sites"), "{by_site}");
        assert!(
            by_site
                .lines()
                .any(|line| line.split_whitespace().eq(["site4", "5.00", "5.00", "5.00", "5.00", "=5.00"]))
        );
        assert!(with(matrix(9, 1, |_, _| Some(5e6))).contains("the report has them"));
    }

    #[test]
    fn without_colour_every_letter_of_ours_is_ascii() {
        let text = terminal(&crate::sample::failing_summary(), Style::default());
        assert!(text.is_ascii(), "{text}");
    }

    #[test]
    fn colour_is_written_only_where_it_is_wanted() {
        let summary = crate::sample::summary();
        assert!(!terminal(&summary, Style { color: false, width: 80 }).contains('\u{1b}'));
        assert!(terminal(&summary, Style { color: true, width: 80 }).contains("\u{1b}[1;32m✓ pass\u{1b}[0m"));
    }
}
