//! Flags made from the parameters of workloads; a list is a sweep.

use anyhow::bail;
use clap::{Arg, ArgAction};
use weir_core::param::{Kind, Param, parse_default};
use weir_core::{Value, Values};

/// How a value is called in help.
fn value_name(kind: Kind) -> String {
    match kind {
        Kind::Choice(choices) => choices.join("|"),
        Kind::Count => "N".to_owned(),
        Kind::Ratio => "SHARE".to_owned(),
        Kind::Rate | Kind::Frequency => "RATE".to_owned(),
        Kind::Size => "SIZE".to_owned(),
        Kind::Duration => "TIME".to_owned(),
        _ => "TEXT".to_owned(),
    }
}

/// A flag of a parameter: a switch, or a list, which is a sweep. A switch says the opposite of the parameter's default.
pub fn flag(param: &'static Param) -> Arg {
    let about = param.about.trim_end_matches('.').to_owned();
    let default = param.default.filter(|_| param.kind != Kind::Flag);
    let help = default.map_or(about.clone(), |default| format!("{about} [default: {default}]"));
    let arg = Arg::new(param.name)
        .required(param.required && param.kind == Kind::Texts)
        .long(param.name.replace('_', "-"))
        .help(help);
    match param.kind {
        Kind::Flag => arg.action(ArgAction::SetTrue),
        // Several are one value and no sweep.
        Kind::Texts => arg.value_name("TEXT…").num_args(1..),
        kind => arg.value_name(format!("{}[,…]", value_name(kind))).value_delimiter(','),
    }
}

/// What was given of a parameter, as it was written: none where it was not, and of a switch its value.
pub fn texts(matches: &clap::ArgMatches, param: &Param) -> Vec<String> {
    match param.kind {
        Kind::Flag => {
            let said = if param.default == Some("true") { "false" } else { "true" };
            matches.get_flag(param.name).then(|| said.to_owned()).into_iter().collect()
        }
        _ => {
            let all = matches.get_many::<String>(param.name).into_iter().flatten();
            all.map(|text| text.trim().to_owned()).collect()
        }
    }
}

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
    pub fn put(
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
        flags.put("streams", false, Kind::Count, ["1", "4"]).unwrap();
        flags.put("duration", false, Kind::Duration, ["1s"]).unwrap();
        flags.put("window", true, Kind::Size, ["64KiB", "1MiB"]).unwrap();
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
