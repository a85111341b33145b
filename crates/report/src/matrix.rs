//! The matrix of a point whose pairs took turns, laid out in rows and columns: shared by the terminal and the page.

use crate::words::plural;
use weir_core::record::{Matrix, MatrixCell};
use weir_core::units::human;

/// What one place of the grid shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Place {
    /// Mean of the pairs' values; `None` where no pair of the place counts.
    pub value: Option<f64>,
    /// Pairs that are asked for here; none on the diagonal of hosts.
    pub pairs: usize,
    /// Pairs within one site, which are a control.
    pub local: bool,
    /// Pairs that do not count in every trial.
    pub failed: usize,
}

/// Rows send (or ask), columns receive (or answer).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grid {
    pub rows: Vec<String>,
    pub columns: Vec<String>,
    /// `[row][column]`
    pub places: Vec<Vec<Place>>,
    /// Rows and columns are sites, since there are too many hosts.
    pub by_site: bool,
    /// Largest value of all places; nought without any.
    pub most: f64,
    /// What values are multiplied by to be shown, and the unit that they then have.
    factor: f64,
    unit: String,
}

impl Grid {
    /// By host, or by site where more than `most` hosts send or receive; `None` where more than `most` sites do.
    pub fn of(matrix: &Matrix, most: usize) -> Option<Grid> {
        Grid::by(matrix, false, most, |host| host).or_else(|| Grid::by(matrix, true, most, site_of))
    }

    fn by(matrix: &Matrix, by_site: bool, most_names: usize, name: impl Fn(&str) -> &str) -> Option<Grid> {
        let mut order: Vec<&str> = Vec::new();
        let all = matrix.cells.iter().map(|cell| &cell.from).chain(matrix.cells.iter().map(|cell| &cell.to));
        let mut known = std::collections::BTreeMap::new();
        for host in all {
            let place = name(host);
            known.entry(place).or_insert_with(|| {
                order.push(place);
                order.len() - 1
            });
        }
        // A folder from elsewhere must not decide how much room this takes.
        if order.len() > 2 * most_names {
            return None;
        }
        let mut sums = vec![vec![(Place::default(), 0.0, 0_usize); order.len()]; order.len()];
        for cell in &matrix.cells {
            let (place, sum, count) = &mut sums[known[name(&cell.from)]][known[name(&cell.to)]];
            place.pairs += 1;
            place.local |= cell.local;
            place.failed += usize::from(!is_whole(cell));
            if let Some(value) = cell.value {
                *sum += value;
                *count += 1;
            }
        }
        let mut most = 0.0_f64;
        let mut finished = |(place, sum, count): (Place, f64, usize)| {
            let value = (count > 0).then(|| sum / count as f64);
            most = most.max(value.unwrap_or(0.0));
            Place { value, ..place }
        };
        let places: Vec<Vec<Place>> =
            sums.into_iter().map(|row| row.into_iter().map(&mut finished).collect()).collect();
        let used = |of: &dyn Fn(usize) -> bool| (0..order.len()).filter(|index| of(*index)).collect();
        let rows: Vec<usize> = used(&|row| places[row].iter().any(|place| place.pairs > 0));
        let columns: Vec<usize> = used(&|column| places.iter().any(|row| row[column].pairs > 0));
        if rows.len() > most_names || columns.len() > most_names {
            return None;
        }
        let (factor, unit) = scale(most, &matrix.unit);
        Some(Grid {
            places: rows
                .iter()
                .map(|row| columns.iter().map(|column| places[*row][*column].clone()).collect())
                .collect(),
            rows: rows.iter().map(|index| order[*index].to_owned()).collect(),
            columns: columns.iter().map(|index| order[*index].to_owned()).collect(),
            by_site,
            most,
            factor,
            unit,
        })
    }

    /// `total goodput in Mbit/s, mean over trials`
    pub fn subject(&self, matrix: &Matrix) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" in {}", self.unit) };
        let over = if self.by_site { "trials and pairs of the sites" } else { "trials" };
        format!("{}{unit}, {} over {over}", short(&matrix.metric), matrix.statistic)
    }

    /// A value with three significant digits, in the grid's unit.
    pub fn number(&self, value: f64) -> String {
        let shown = value * self.factor;
        match shown.abs() {
            0.0 => "0".to_owned(),
            size if size >= 99.95 => format!("{shown:.0}"),
            size if size >= 9.995 => format!("{shown:.1}"),
            size if size >= 0.01 => format!("{shown:.2}"),
            _ => format!("{shown:.0e}"),
        }
    }
}

/// Whether the pair counts in every valid trial, and there is one.
fn is_whole(cell: &MatrixCell) -> bool {
    cell.valid_trials == cell.trials && cell.value.is_some()
}

/// Pairs that do not count in every trial: names, and why.
pub(crate) fn failures(matrix: &Matrix) -> Vec<(&MatrixCell, String)> {
    let failed = matrix.cells.iter().filter(|cell| !is_whole(cell));
    failed
        .map(|cell| {
            let missing = cell.trials.saturating_sub(cell.valid_trials) as usize;
            let reason = cell.failure.as_deref().unwrap_or("nothing was measured");
            let of = plural(cell.trials as usize, "trial", "trials");
            (cell, format!("failed in {missing} of {of}: {reason}"))
        })
        .collect()
}

/// `a-b-7` is host 7 of site `a-b`.
fn site_of(host: &str) -> &str {
    host.rsplit_once('-').map_or(host, |(site, _)| site)
}

/// `stream.total_goodput_bits_per_second`, whose unit is said beside it: `total goodput`.
pub(crate) fn short(metric: &str) -> String {
    let quantity = metric.split_once('.').map_or(metric, |(_, quantity)| quantity);
    let units = ["_bits_per_second", "_bytes_per_second", "_per_second", "_seconds", "_bytes"];
    let bare = units.iter().find_map(|unit| quantity.strip_suffix(unit)).unwrap_or(quantity);
    bare.replace('_', " ")
}

/// The unit that the largest value is told in, and what leads to it: all places of a grid are told in one.
fn scale(most: f64, unit: &str) -> (f64, String) {
    if unit == "1" {
        return (100.0, "%".to_owned());
    }
    // `human` knows which prefixes a unit takes: what it makes of the largest value says which one this is.
    let text = human(most, unit);
    let told = text.split_once(' ').and_then(|(number, unit)| Some((number.parse::<f64>().ok()?, unit)));
    match told {
        Some((number, told)) if most > 0.0 && number > 0.0 => {
            (10_f64.powf((number / most).log10().round()), told.to_owned())
        }
        _ => (1.0, unit.to_owned()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use weir_core::evidence::LINK_RATE;
    use weir_core::record::LimitingFactor;

    pub(crate) fn cell(from: &str, to: &str, value: Option<f64>) -> MatrixCell {
        MatrixCell {
            from: from.to_owned(),
            to: to.to_owned(),
            local: site_of(from) == site_of(to),
            value,
            trials: 2,
            valid_trials: if value.is_some() { 2 } else { 0 },
            failure: value.is_none().then(|| format!("host {to}: its agent was lost")),
            limiting_factor: LimitingFactor::new(&LINK_RATE, 1.0, Vec::new()),
        }
    }

    /// Hosts of sites, each with each; `value` of row and column.
    pub(crate) fn matrix(sites: usize, each: usize, value: impl Fn(usize, usize) -> Option<f64>) -> Matrix {
        let name = |host: usize| format!("site{}-{}", host / each, host % each);
        let all = (0..sites * each).flat_map(|a| (0..sites * each).map(move |b| (a, b)));
        Matrix {
            metric: "stream.total_goodput_bits_per_second".to_owned(),
            unit: "bit/s".to_owned(),
            statistic: "mean".to_owned(),
            cells: all.filter(|(a, b)| a != b).map(|(a, b)| cell(&name(a), &name(b), value(a, b))).collect(),
        }
    }

    // Spec: results.md#matrix-2
    #[test]
    fn hosts_keep_one_order_on_both_sides_and_many_become_sites() {
        let small = matrix(2, 2, |a, b| Some((a * 10 + b) as f64 * 1e6));
        let grid = Grid::of(&small, 32).unwrap();
        assert_eq!(grid.rows, ["site0-0", "site0-1", "site1-0", "site1-1"]);
        assert_eq!(grid.columns, grid.rows);
        assert_eq!(grid.places[2][1].value, Some(21e6));
        assert_eq!(grid.places[1][1].pairs, 0);
        assert!(grid.places[2][3].local && !grid.places[2][1].local);
        let grid = Grid::of(&small, 3).unwrap();
        assert_eq!(grid.rows, ["site0", "site1"]);
        assert_eq!(grid.places[0][1].value, Some((2.0 + 3.0 + 12.0 + 13.0) / 4.0 * 1e6));
        assert!(grid.places[0][0].local && grid.by_site);
        assert_eq!(Grid::of(&matrix(5, 1, |_, _| None), 4), None);
    }

    #[test]
    fn a_grid_is_told_in_one_unit() {
        let told = |most: f64, unit: &str| {
            let one = Matrix {
                unit: unit.to_owned(),
                cells: vec![cell("a-0", "b-0", Some(most))],
                ..matrix(1, 1, |_, _| None)
            };
            let grid = Grid::of(&one, 8).unwrap();
            (grid.number(most), grid.number(most / 40.0), grid.unit)
        };
        assert_eq!(told(941.4e6, "bit/s"), ("941".to_owned(), "23.5".to_owned(), "Mbit/s".to_owned()));
        assert_eq!(told(0.0312, "s").0, "31.2");
        assert_eq!(told(0.02, "1"), ("2.00".to_owned(), "0.05".to_owned(), "%".to_owned()));
        assert_eq!(told(0.0, "1").0, "0");
        assert!(told(1234.0, "1/s").0.len() >= 3);
    }

    #[test]
    fn a_pair_that_failed_in_some_trials_is_told_with_the_reason() {
        let mut some = matrix(2, 1, |a, _| (a == 0).then_some(5e6));
        some.cells[0].valid_trials = 1;
        some.cells[0].failure = Some("late".to_owned());
        let told: Vec<String> = failures(&some).into_iter().map(|(_, text)| text).collect();
        assert_eq!(
            told,
            ["failed in 1 of 2 trials: late", "failed in 2 of 2 trials: host site0-0: its agent was lost"]
        );
        let grid = Grid::of(&some, 8).unwrap();
        assert_eq!((grid.places[0][1].failed, grid.places[0][1].value), (1, Some(5e6)));
        assert_eq!((grid.places[1][0].failed, grid.places[1][0].value), (1, None));
    }
}
