//! The description for people: for each way its hops as in a traceroute, and what the whole path comes to.

use super::metrics::*;
use super::outcome::{SILENT, way};
use std::collections::BTreeMap;
use std::fmt::Write;
use weir_core::record::{Observed, Row};
use weir_core::statistics::{Pool, Statistic};
use weir_core::units::human;

/// Widest address that has its figures beside it.
const ADDRESS: usize = 26;

/// The values of one entity, by metric.
type Values<'a> = BTreeMap<&'a str, &'a Observed>;

fn statistic(values: &Values<'_>, metric: &str, name: &str) -> Option<f64> {
    let value = *values.get(metric)?;
    Pool::new(&[vec![value]]).estimate(Statistic::parse(name)?)
}

fn seconds(values: &Values<'_>, metric: &str, name: &str) -> String {
    statistic(values, metric, name).map_or("–".to_owned(), |value| human(value, "s"))
}

/// Of a few values the middle one is known less exactly than the least.
fn median(values: &Values<'_>, metric: &str) -> String {
    let least = statistic(values, metric, "min");
    let median = statistic(values, metric, "median").zip(least).map(|(median, least)| median.max(least));
    median.map_or("–".to_owned(), |value| human(value, "s"))
}

fn count(values: &Values<'_>, metric: &str) -> Option<String> {
    statistic(values, metric, "mean").map(|value| format!("{value:.0}"))
}

/// A line of at most 80 columns for each hop, after a line of titles, and lines for the whole of each way.
pub fn describe(rows: &[Row]) -> String {
    let mut entities: BTreeMap<&str, Values<'_>> = BTreeMap::new();
    for row in rows {
        entities.entry(&row.entity).or_default().insert(&row.metric, &row.value);
    }
    let mut out = String::new();
    for (flow, values) in entities.iter().filter(|(entity, _)| entity.starts_with("flow.")) {
        let prefix = format!("hop.{}.", flow.trim_start_matches("flow."));
        let mut hops: Vec<(u8, &str, &Values<'_>)> = entities
            .iter()
            .filter_map(|(entity, values)| {
                let (number, address) = entity.strip_prefix(&prefix)?.split_once('.')?;
                Some((number.parse().ok()?, address, values))
            })
            .collect();
        hops.sort_by_key(|(number, ..)| *number);
        if !out.is_empty() {
            out.push('\n');
        }
        let _ = writeln!(out, "{}", way(flow));
        let _ = writeln!(
            out,
            "hop {:ADDRESS$} {:>8} {:>9} {:>9} {:>9} {:>7}",
            "address", "answered", "least", "median", "full size", "MTU"
        );
        for (number, address, values) in hops {
            let _ = writeln!(out, "{}", hop_line(number, address, values));
        }
        out.push_str(&whole(values));
    }
    out
}

fn hop_line(number: u8, address: &str, values: &Values<'_>) -> String {
    let address = if address == SILENT { "*" } else { address };
    let mut line = format!("{number:>3} {address:ADDRESS$}");
    if address.chars().count() > ADDRESS {
        line = format!("{line}\n{:width$}", "", width = ADDRESS + 4);
    }
    let answered = statistic(values, HOP_ANSWERED, "mean").unwrap_or_default() * 100.0;
    let mtu = count(values, HOP_MTU).unwrap_or_default();
    let _ = write!(
        line,
        " {:>8} {:>9} {:>9} {:>9} {mtu:>7}",
        format!("{answered:.0} %"),
        seconds(values, HOP, "min"),
        median(values, HOP),
        seconds(values, HOP_FULL, "min"),
    );
    line.trim_end().to_owned()
}

/// The path in all.
fn whole(values: &Values<'_>) -> String {
    let bytes = |metric: &str| count(values, metric).map_or("–".to_owned(), |text| format!("{text} B"));
    let percent = |metric: &str| {
        statistic(values, metric, "mean").map_or("–".to_owned(), |share| format!("{:.3} %", share * 100.0))
    };
    let plain = |metric: &str| count(values, metric).unwrap_or("–".to_owned());
    let mut out = String::new();
    let mut say = |name: &str, text: String| {
        let _ = writeln!(out, "  {name:11} {text}");
    };
    say(
        "path MTU",
        format!("{}, the kernel holds {}, TCP segments {}", bytes(MTU), bytes(KERNEL_MTU), bytes(SEGMENT)),
    );
    say(
        "round trip",
        format!(
            "{} least, full size {}, TCP {}",
            seconds(values, SMALL, "min"),
            seconds(values, FULL, "min"),
            seconds(values, TCP, "min")
        ),
    );
    say(
        "datagrams",
        format!(
            "{} lost, {} reordered (extent {}), {} doubled",
            percent(LOST),
            percent(REORDERED),
            plain(EXTENT),
            percent(DUPLICATE)
        ),
    );
    say(
        "TCP",
        format!(
            "{} segments sent again, {} out of order, {} twice",
            plain(RETRANSMITTED),
            plain(OUT_OF_ORDER),
            plain(TCP_DUPLICATES)
        ),
    );
    out
}
