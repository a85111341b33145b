//! Flags whose lists are sweeps.

use anyhow::{Context, bail};
use weir_core::param::{Kind, parse_default};
use weir_core::{Bytes, Value, Values};

/// The values of one measurement, and the swept ones among them by name.
pub type Combination = (Values, Vec<(String, Value)>);

/// Values of one flag, parsed; a list is a dimension of the sweep.
pub struct Flag {
    pub name: &'static str,
    /// Its key in the table `tcp`, where it belongs there.
    pub in_tcp: bool,
    pub values: Vec<Value>,
}

#[derive(Default)]
pub struct Flags(pub Vec<Flag>);

impl Flags {
    pub fn add(
        &mut self,
        name: &'static str,
        kind: Kind,
        texts: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> anyhow::Result<()> {
        self.put(name, false, kind, texts)
    }

    pub fn tcp(
        &mut self,
        name: &'static str,
        kind: Kind,
        texts: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> anyhow::Result<()> {
        self.put(name, true, kind, texts)
    }

    fn put(
        &mut self,
        name: &'static str,
        in_tcp: bool,
        kind: Kind,
        texts: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> anyhow::Result<()> {
        let mut values = Vec::new();
        for text in texts {
            let flag = name.replace('_', "-");
            let value = parse_default(kind, text.as_ref().trim())
                .map_err(|error| anyhow::anyhow!("--{flag}: {}", error.problem))?;
            values.push(value);
        }
        if !values.is_empty() {
            self.0.push(Flag { name, in_tcp, values });
        }
        Ok(())
    }

    /// Every combination: the values of the measurement, and the swept ones among them.
    pub fn points(&self) -> anyhow::Result<Vec<Combination>> {
        const POINTS_MAX: usize = 10_000;
        let mut points = vec![(Values::default(), Vec::new())];
        for flag in &self.0 {
            if points.len() * flag.values.len() > POINTS_MAX {
                bail!("the lists make more than {POINTS_MAX} points");
            }
            let mut more = Vec::with_capacity(points.len() * flag.values.len());
            for (values, swept) in points {
                for value in &flag.values {
                    let (mut values, mut swept) = (values.clone(), swept.clone());
                    put(&mut values, flag.name, flag.in_tcp, value.clone());
                    if flag.values.len() > 1 {
                        swept.push((flag.name.to_owned(), value.clone()));
                    }
                    more.push((values, swept));
                }
            }
            points = more;
        }
        Ok(points)
    }
}

/// Sets a key, of the table `tcp` where it belongs there.
pub fn put(values: &mut Values, name: &str, in_tcp: bool, value: Value) {
    if in_tcp {
        let mut tcp = values.table("tcp").unwrap_or_default();
        tcp.set(name, value);
        values.set("tcp", Value::Table(tcp.0));
    } else {
        values.set(name, value);
    }
}

/// `SIZE`, `A..B` (A, ten times as much, and so on, and B), `A..B*FACTOR`.
pub fn sizes_of(text: &str) -> anyhow::Result<Vec<Value>> {
    let parsed = |text: &str| match parse_default(Kind::Size, text.trim()) {
        Ok(Value::Size(size)) => Ok(size.0),
        Ok(_) => bail!("--sizes: {text:?} is no size"),
        Err(error) => bail!("--sizes: {}", error.problem),
    };
    let Some((from, rest)) = text.split_once("..") else {
        return Ok(vec![Value::Size(Bytes(parsed(text)?))]);
    };
    let (to, factor) = rest.split_once('*').unwrap_or((rest, "10"));
    let (from, to) = (parsed(from)?, parsed(to)?);
    let factor: u64 = factor.trim().parse().ok().filter(|factor| *factor >= 2).with_context(|| {
        format!("--sizes {text}: {:?} is no factor; a whole number from 2 on is needed", factor.trim())
    })?;
    if from == 0 || from > to {
        bail!("--sizes {text}: a range goes from a size above zero to a larger one");
    }
    let mut all: Vec<u64> = std::iter::successors(Some(from), |size| size.checked_mul(factor))
        .take_while(|size| *size < to)
        .collect();
    all.push(to);
    Ok(all.into_iter().map(|size| Value::Size(Bytes(size))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_net::adhoc::summary::point_id;

    #[test]
    fn sizes_are_listed_or_range_by_a_factor() {
        let sizes = |text: &str| {
            let all = sizes_of(text).unwrap();
            let bytes = |value| if let Value::Size(size) = value { size.0 } else { panic!("{value:?}") };
            all.into_iter().map(bytes).collect::<Vec<u64>>()
        };
        assert_eq!(sizes("30MB"), [30_000_000]);
        assert_eq!(sizes("1B..2kB"), [1, 10, 100, 1_000, 2_000]);
        assert_eq!(sizes("1KiB..4KiB*2"), [1024, 2048, 4096]);
        assert_eq!(sizes("5B..5B"), [5]);
        for bad in ["1B..", "2kB..1kB", "0B..1kB", "1B..1kB*1", "1B..1kB*x", "x"] {
            assert!(sizes_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lists_are_multiplied_and_single_values_name_no_point() {
        let mut flags = Flags::default();
        flags.add("streams", Kind::Count, ["1", "4"]).unwrap();
        flags.add("duration", Kind::Duration, ["1s"]).unwrap();
        flags.tcp("window", Kind::Size, ["64KiB", "1MiB"]).unwrap();
        let ids: Vec<String> =
            flags.points().unwrap().iter().map(|(_, swept)| point_id("stream", swept)).collect();
        assert_eq!(
            ids,
            [
                "stream/streams=1,window=64KiB",
                "stream/streams=1,window=1MiB",
                "stream/streams=4,window=64KiB",
                "stream/streams=4,window=1MiB"
            ]
        );
    }
}
