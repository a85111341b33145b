//! The name of a target: `SCHEME://HOST:PORT/PATH?option=value`, `SCHEME:PATH`, or a plain path.

use super::TargetEntry;
use std::fmt;
use weir_core::param::parse_default;
use weir_core::{Param, Values};

/// Longest that is taken.
const BYTES_MAX: usize = 4_096;
/// The scheme of a plain path.
const PLAIN: &str = "posix";

/// A target's URL in its parts. Nothing in it is decoded: a path is what the target takes it for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetUrl {
    pub scheme: String,
    /// `HOST`, `HOST:PORT`, `USER@HOST`, …; absent where no `//` follows the scheme.
    pub authority: Option<String>,
    /// What follows, a slash at its beginning included.
    pub path: String,
    /// Name and value, as they are written.
    pub options: Vec<(String, String)>,
}

impl TargetUrl {
    /// Errors: a sentence for people.
    pub fn parse(text: &str) -> Result<TargetUrl, String> {
        if text.is_empty() {
            return Err("a target is a path or a URL such as root://HOST//PATH, not an empty text".to_owned());
        }
        if text.len() > BYTES_MAX || text.chars().any(char::is_control) {
            return Err(format!("a target has at most {BYTES_MAX} bytes, none of them a control character"));
        }
        let (scheme, rest) = with_scheme(text).unwrap_or((PLAIN, text));
        let (rest, options) = match rest.rsplit_once('?') {
            Some((rest, options)) => (rest, options),
            None => (rest, ""),
        };
        if rest.contains('?') {
            return Err(format!(
                "{text:?}: the path of a target has no question mark; options follow the only one"
            ));
        }
        let option = |text: &str| match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
            _ => Err(format!("the option {text:?} of the target is not NAME=VALUE")),
        };
        let options =
            options.split('&').filter(|text| !text.is_empty()).map(option).collect::<Result<_, _>>()?;
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) if scheme != PLAIN => {
                let end = rest.find('/').unwrap_or(rest.len());
                (Some(rest[..end].to_owned()), rest[end..].to_owned())
            }
            _ => (None, rest.to_owned()),
        };
        Ok(TargetUrl { scheme: scheme.to_owned(), authority, path, options })
    }

    /// The kind of target it names, and its options as that kind declares them.
    ///
    /// Errors: a sentence that names what there is.
    pub fn resolve(&self, entries: &'static [TargetEntry]) -> Result<(&'static TargetEntry, Values), String> {
        let entry = entries.iter().find(|entry| entry.name == self.scheme).ok_or_else(|| {
            let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
            format!(
                "no target is called {:?}; there are {} (`weir list target`)",
                self.scheme,
                names.join(", ")
            )
        })?;
        entry.build.check(self)?;
        Ok((entry, read_options(entry.name, entry.params, &self.options)?))
    }

    /// The same with `name` below it.
    pub fn below(&self, name: &str) -> String {
        if name.is_empty() {
            self.path.clone()
        } else {
            format!("{}/{name}", self.path.trim_end_matches('/'))
        }
    }
}

/// Host and port, as they are written, of `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
pub fn host_and_port(authority: &str) -> (&str, Option<&str>) {
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => authority.rsplit_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    }
}

/// As it is written.
impl fmt::Display for TargetUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.scheme != PLAIN || self.path.is_empty() || with_scheme(&self.path).is_some() {
            write!(formatter, "{}:", self.scheme)?;
        }
        if let Some(authority) = &self.authority {
            write!(formatter, "//{authority}")?;
        }
        formatter.write_str(&self.path)?;
        for (index, (name, value)) in self.options.iter().enumerate() {
            write!(formatter, "{}{name}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

/// What stands before the first colon, where that is a word, and what after it.
fn with_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let mut letters = scheme.bytes();
    let is_word = letters.next().is_some_and(|first| first.is_ascii_lowercase())
        && letters.all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'+');
    is_word.then_some((scheme, rest))
}

fn read_options(scheme: &str, params: &[Param], options: &[(String, String)]) -> Result<Values, String> {
    let mut values = Values::defaults(params);
    for (name, text) in options {
        let param = params.iter().find(|param| param.name == name).ok_or_else(|| {
            let names: Vec<&str> = params.iter().map(|param| param.name).collect();
            let there = if names.is_empty() { "it has none".to_owned() } else { names.join(", ") };
            format!("a {scheme} target has no option {name:?}; {there}")
        })?;
        let value = parse_default(param.kind, text)
            .map_err(|error| format!("the option {name:?} of the target: {}", error.problem))?;
        if !param.allows(&value) {
            let (least, most) = param.range;
            return Err(format!("the option {name:?} of the target is {text}, not from {least} to {most}"));
        }
        values.set(param.name, value);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(text: &str) -> (String, Option<String>, String, usize) {
        let url = TargetUrl::parse(text).unwrap();
        assert_eq!(url.to_string(), text);
        (url.scheme, url.authority, url.path, url.options.len())
    }

    // Spec: storage.md#url-1
    #[test]
    fn a_url_has_its_parts_and_a_plain_path_stays_one() {
        let of = |scheme: &str, authority: Option<&str>, path: &str, options| {
            (scheme.to_owned(), authority.map(str::to_owned), path.to_owned(), options)
        };
        assert_eq!(parts("root://h:1094//store/f?a=1&b=2"), of("root", Some("h:1094"), "//store/f", 2));
        assert_eq!(parts("/data/f"), of("posix", None, "/data/f", 0));
        assert_eq!(parts("//data/f"), of("posix", None, "//data/f", 0));
        assert_eq!(parts("a:b/c"), of("a", None, "b/c", 0));
        assert_eq!(parts("./a:b"), of("posix", None, "./a:b", 0));
        assert_eq!(parts("null:"), of("null", None, "", 0));
        assert_eq!(parts("s3://bucket"), of("s3", Some("bucket"), "", 0));
        assert_eq!(TargetUrl::parse("posix:/x").unwrap(), TargetUrl::parse("/x").unwrap());
    }

    #[test]
    fn what_is_no_target_is_refused_in_words() {
        for (text, said) in
            [("", "empty"), ("a\nb", "control"), ("/x?direct", "NAME=VALUE"), ("/x?=1", "NAME=")]
        {
            assert!(TargetUrl::parse(text).unwrap_err().contains(said), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_comes_back_the_same(text in ".{0,80}") {
            if let Ok(url) = TargetUrl::parse(&text) {
                let again = TargetUrl::parse(&url.to_string());
                prop_assert_eq!(again, Ok(url));
            }
        }
    }
}
