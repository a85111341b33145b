//! The heat map of a point whose pairs took turns: a table, so that it is read aloud, copied and printed like one.

use super::steps::Point;
use crate::Folder;
use crate::escape::{Html, T, put};
use crate::matrix::{Grid, Place, failures};
use crate::words::plural;
use weir_core::record::{Matrix, StepRecord};
use weir_core::units::human;

/// Rows and columns, of hosts or else of sites; more are in the table of pairs alone.
const NAMES_MAX: usize = 32;
/// Columns up to which names stand upright and cells have room.
const WIDE_MAX: usize = 10;
/// Pairs listed one by one.
const PAIRS_MAX: usize = 1_024;
const FAILURES_MAX: usize = 40;
/// Steps of the colour scale, from nought to the largest value.
const SHADES: [&str; 9] = ["h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8"];

pub(crate) fn figure(folder: &Folder, point: &Point<'_>) -> Html {
    let mut out = Html::new();
    let summary = folder.summary.iter().flat_map(|it| &it.points).find(|it| it.id == point.id);
    let Some(matrix) = summary.and_then(|summary| summary.matrix.as_ref()) else { return out };
    put!(&mut out, "<figure>");
    if let Some(grid) = Grid::of(matrix, NAMES_MAX) {
        put!(&mut out, table(&grid), legend(&grid, matrix));
        put!(&mut out, "<figcaption>", caption(folder, point.plan, matrix, &grid), "</figcaption>");
    }
    put!(&mut out, failed(matrix), every_pair(matrix), "</figure>\n");
    out
}

fn shade(grid: &Grid, value: f64) -> &'static str {
    let share = if grid.most > 0.0 { value / grid.most } else { 0.0 };
    let step = (share * SHADES.len() as f64) as usize;
    SHADES[step.min(SHADES.len() - 1)]
}

fn table(grid: &Grid) -> Html {
    let mut out = Html::new();
    let dense = grid.columns.len() > WIDE_MAX;
    put!(&mut out, "<div class=wide><table class=\"heat", if dense { " dense" } else { "" }, "\">");
    put!(&mut out, "<thead><tr><th scope=col>from ↓ to →");
    for name in &grid.columns {
        put!(&mut out, "<th scope=col><span>", T(name), "</span>");
    }
    put!(&mut out, "</thead><tbody>");
    for (name, places) in grid.rows.iter().zip(&grid.places) {
        put!(&mut out, "<tr><th scope=row>", T(name));
        for place in places {
            put!(&mut out, cell(grid, place));
        }
        put!(&mut out, "\n");
    }
    put!(&mut out, "</tbody></table></div>");
    out
}

fn cell(grid: &Grid, place: &Place) -> Html {
    let mut out = Html::new();
    let frame = if place.local { " local" } else { "" };
    match place.value {
        _ if place.pairs == 0 => put!(&mut out, "<td class=none>"),
        Some(value) => {
            put!(&mut out, "<td class=\"", shade(grid, value), frame, "\">", T(grid.number(value)));
            put!(&mut out, if place.failed > 0 { "†" } else { "" });
        }
        None => put!(&mut out, "<td class=\"dead", frame, "\">✗"),
    }
    out
}

fn legend(grid: &Grid, matrix: &Matrix) -> Html {
    let mut out = Html::new();
    put!(&mut out, "<p class=heatkey><span>0</span>");
    for shade in SHADES {
        put!(&mut out, "<i class=", shade, "></i>");
    }
    put!(&mut out, "<span>", T(human(grid.most, &matrix.unit)), "</span>");
    if grid.places.iter().flatten().any(|place| place.local) {
        put!(&mut out, "<span><i class=local></i>framed: within one site, no distance between</span>");
    }
    if matrix.cells.iter().any(|cell| cell.value.is_none()) {
        put!(&mut out, "<span><i class=dead>✗</i>failed</span>");
    }
    if matrix.cells.iter().any(|cell| cell.value.is_some() && cell.valid_trials < cell.trials) {
        put!(&mut out, "<span>† failed in some trials</span>");
    }
    put!(&mut out, "</p>");
    out
}

fn caption(folder: &Folder, plan: Option<&StepRecord>, matrix: &Matrix, grid: &Grid) -> Html {
    let mut out = Html::new();
    put!(&mut out, "Row to column: ", T(grid.subject(matrix)), "; darker is higher");
    put!(
        &mut out,
        match folder.definition(&matrix.metric).map(|it| it.better.as_str()) {
            Some("higher") => ", and better",
            Some("lower") => ", and worse",
            _ => "",
        }
    );
    put!(&mut out, ". ");
    let rounds = plan.map_or(0, |step| step.rounds.len());
    if rounds > 0 {
        let (pairs, rounds) =
            (plural(matrix.cells.len(), "pair", "pairs"), plural(rounds, "round", "rounds"));
        put!(&mut out, T(pairs), " took turns in ", T(rounds), ". ");
    }
    let mut values: Vec<f64> =
        matrix.cells.iter().filter(|cell| !cell.local).filter_map(|cell| cell.value).collect();
    values.sort_by(f64::total_cmp);
    if let [least, .., most] = values.as_slice() {
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            (values[middle - 1] + values[middle]) / 2.0
        } else {
            values[middle]
        };
        let text = |value: f64| T(human(value, &matrix.unit));
        let of = if matrix.cells.iter().any(|cell| cell.local) { "Pairs between sites: " } else { "Pairs: " };
        put!(&mut out, of, "least ", text(*least), ", median ", text(median), ", most ", text(*most), ".");
    }
    out
}

fn failed(matrix: &Matrix) -> Html {
    let mut out = Html::new();
    let failed = failures(matrix);
    if failed.is_empty() {
        return out;
    }
    put!(&mut out, "<div class=box>", T(plural(failed.len(), "pair does", "pairs do")));
    put!(&mut out, " not count in every trial.<ul>");
    for (cell, text) in failed.iter().take(FAILURES_MAX) {
        put!(&mut out, "<li>", T(&cell.from), " → ", T(&cell.to), ": ", T(text));
    }
    put!(&mut out, "</ul>");
    if failed.len() > FAILURES_MAX {
        put!(&mut out, failed.len() - FAILURES_MAX, " more are in summary.json.");
    }
    put!(&mut out, "</div>");
    out
}

fn every_pair(matrix: &Matrix) -> Html {
    let mut out = Html::new();
    put!(&mut out, "<details><summary>Every pair</summary><div class=wide><table class=tight><thead><tr>");
    put!(&mut out, "<th>from<th>to<th class=n>", T(crate::matrix::short(&matrix.metric)));
    put!(&mut out, "<th class=n>trials that count<th>limited by</thead><tbody>");
    for cell in matrix.cells.iter().take(PAIRS_MAX) {
        let value = cell.value.map_or_else(|| "failed".to_owned(), |value| human(value, &matrix.unit));
        put!(&mut out, "<tr><td>", T(&cell.from), "<td>", T(&cell.to));
        put!(&mut out, if cell.local { " <span class=quiet>(local)</span>" } else { "" });
        put!(&mut out, "<td class=n>", T(value), "<td class=n>", cell.valid_trials as usize, " of ");
        put!(&mut out, cell.trials as usize, "<td>");
        put!(&mut out, T(if cell.value.is_some() { &cell.limiting_factor.name } else { "–" }), "\n");
    }
    put!(&mut out, "</tbody></table></div></details>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::tests::matrix;

    // Spec: results.md#matrix-2
    #[test]
    fn every_place_has_its_number_in_a_cell_that_says_what_it_is() {
        let some = matrix(2, 2, |a, b| (b != 3).then_some(((a + b) * 100) as f64 * 1e6));
        let grid = Grid::of(&some, NAMES_MAX).unwrap();
        let page = table(&grid).into_string();
        assert!(page.contains("<td class=\"h8 local\">500"), "{page}");
        assert!(page.contains("<td class=\"h5\">300"), "{page}");
        assert_eq!(page.matches("<td class=none>").count(), 4, "the diagonal is empty");
        assert_eq!(page.matches("✗").count(), 3);
        assert_eq!(page.matches("dead local").count(), 1);
        let told = failed(&some).into_string();
        assert!(
            told.contains("3 pairs do not count")
                && told.contains("site0-0 → site1-1: failed in 2 of 2 trials")
        );
        assert!(legend(&grid, &some).into_string().contains("framed: within one site"));
    }

    #[test]
    fn the_largest_map_is_of_32_hosts_and_more_are_sites() {
        let drawn = |sites: usize, each: usize| {
            let some = matrix(sites, each, |_, _| Some(1e6));
            let grid = Grid::of(&some, NAMES_MAX).unwrap();
            (grid.rows.len(), table(&grid).into_string().len() < 200_000)
        };
        assert_eq!(drawn(16, 2), (32, true));
        assert_eq!(drawn(17, 2), (17, true));
    }
}
