//! What a part of the page consists of: a table, what it proves, and what a reader must know.

use crate::bench::statistics::Estimate;

/// Whether a limit holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Kept,
    /// The estimate keeps the limit and its interval does not, or the other way round.
    Open,
    Broken,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Kept => "kept",
            Verdict::Open => "open",
            Verdict::Broken => "broken",
        }
    }

    /// Of a figure that is to stay at or below `limit`.
    pub fn at_most(estimate: &Estimate, limit: f64) -> Verdict {
        match (estimate.low > limit, estimate.high <= limit) {
            (true, _) => Verdict::Broken,
            (_, true) => Verdict::Kept,
            _ => Verdict::Open,
        }
    }

    pub fn of(kept: bool) -> Verdict {
        if kept { Verdict::Kept } else { Verdict::Broken }
    }
}

/// A sentence with a limit and the figure that comes nearest to breaking it.
#[derive(Clone, Debug)]
pub struct Claim {
    pub text: String,
    pub limit: String,
    pub worst: String,
    pub verdict: Verdict,
}

#[derive(Clone, Debug, Default)]
pub struct Section {
    pub title: &'static str,
    /// Paragraphs before the table.
    pub text: Vec<String>,
    pub head: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    pub claims: Vec<Claim>,
    /// Paragraphs after it.
    pub notes: Vec<String>,
}

impl Section {
    pub fn markdown(&self) -> String {
        let mut text = format!("## {}\n", self.title);
        for paragraph in &self.text {
            text += &format!("\n{paragraph}\n");
        }
        if !self.rows.is_empty() {
            text += &format!("\n{}", table(&self.head, &self.rows));
        }
        for paragraph in &self.notes {
            text += &format!("\n{paragraph}\n");
        }
        text
    }
}

pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        text += &format!("| {} |\n", row.join(" | "));
    }
    text
}

/// The worst of a claim's rows: the later verdict, and of equal ones the larger figure.
#[derive(Clone, Debug, Default)]
pub struct Worst(Option<(Verdict, f64, String)>);

impl Worst {
    pub fn see(&mut self, verdict: Verdict, figure: f64, shown: String) {
        let worse = self.0.as_ref().is_none_or(|(worst, most, _)| (verdict, figure) > (*worst, *most));
        if worse {
            self.0 = Some((verdict, figure, shown));
        }
    }

    /// `None` when no row was seen: then nothing was measured and nothing is claimed.
    pub fn claim(self, text: &str, limit: &str) -> Option<Claim> {
        let (verdict, _, worst) = self.0?;
        Some(Claim { text: text.to_owned(), limit: limit.to_owned(), worst, verdict })
    }
}

/// A time in the unit that reads best.
pub fn seconds(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        small if small < 1e-3 => (value * 1e6, "µs"),
        middle if middle < 1.0 => (value * 1e3, "ms"),
        _ => (value, "s"),
    };
    format!("{} {unit}", digits(scaled))
}

/// Three significant digits, never an exponent.
pub fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        large if large >= 99.95 => 0,
        middle if middle >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// Estimate and interval of a time.
pub fn seconds_with_interval(estimate: &Estimate) -> String {
    let us = |value: f64| digits(value * 1e6);
    format!("{} ({} to {}) µs", us(estimate.median), us(estimate.low), us(estimate.high))
}

/// A share with so many decimals of a percent.
pub fn percent(share: f64, decimals: usize) -> String {
    format!("{:.decimals$} %", share * 100.0)
}

pub fn percent_with_interval(estimate: &Estimate) -> String {
    let percent = |value: f64| format!("{:+.3}", value * 100.0);
    format!("{} ({} to {}) %", percent(estimate.median), percent(estimate.low), percent(estimate.high))
}

pub fn rate(bits_per_second: Option<f64>) -> String {
    match bits_per_second {
        None => "none".to_owned(),
        Some(rate) if rate >= 1e9 => format!("{} Gbit/s", rate / 1e9),
        Some(rate) => format!("{} Mbit/s", rate / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_within_the_interval_is_open_and_one_below_it_broken() {
        let estimate = Estimate { n: 5, median: 2.0, low: 1.0, high: 3.0 };
        let verdicts = [3.0, 2.5, 1.5, 0.5].map(|limit| Verdict::at_most(&estimate, limit));
        assert_eq!(verdicts, [Verdict::Kept, Verdict::Open, Verdict::Open, Verdict::Broken]);
    }

    #[test]
    fn the_worst_row_is_the_one_with_the_worst_verdict_however_small_its_figure() {
        let mut worst = Worst::default();
        worst.see(Verdict::Kept, 9.0, "nine".to_owned());
        worst.see(Verdict::Broken, 2.0, "two".to_owned());
        worst.see(Verdict::Open, 5.0, "five".to_owned());
        let claim = worst.claim("text", "limit").unwrap();
        assert_eq!((claim.worst.as_str(), claim.verdict), ("two", Verdict::Broken));
        assert!(Worst::default().claim("text", "limit").is_none());
    }

    #[test]
    fn figures_read_without_exponents() {
        let shown = [1.5e-6, 123.4e-6, 0.0123, 12.0].map(seconds);
        assert_eq!(shown, ["1.50 µs", "123 µs", "12.3 ms", "12.0 s"]);
    }
}
