//! Flags whose lists are sweeps.

use anyhow::bail;
use weir_core::param::{Kind, parse_default};
use weir_core::{Value, Values};

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

#[cfg(test)]
mod tests {
    use super::*;
    use weir_net::adhoc::summary::point_id;

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
