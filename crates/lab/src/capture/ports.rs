//! Which ports are meant.

use thiserror::Error;

/// A port that the lab does not have.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("no port is called {wanted:?}; the lab has {}", some(known))]
pub struct UnknownPort {
    pub wanted: String,
    pub known: Vec<String>,
}

fn some(known: &[String]) -> String {
    const SHOWN: usize = 12;
    let shown = known.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if known.len() > SHOWN { format!("{shown}, … ({} in all)", known.len()) } else { shown }
}

/// The directed links that the words name, by index, ascending: a full name (`link.wan.forward`), one without its direction
/// (`link.wan`, `host.left-0.access`), or without the first word too (`wan`, `left-0`), which is a host's access link. `*` stands
/// for any letters.
///
/// Errors: a word that names none.
pub fn matching(words: &[String], names: &[String]) -> Result<Vec<usize>, UnknownPort> {
    let mut found = Vec::new();
    for word in words {
        let before = found.len();
        found.extend((0..names.len()).filter(|index| is_meant(word, &names[*index])));
        if found.len() == before {
            return Err(UnknownPort { wanted: word.clone(), known: names.to_vec() });
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn is_meant(word: &str, name: &str) -> bool {
    let link = name.rsplit_once('.').map_or(name, |(link, _)| link);
    let bare = link.split_once('.').map_or(link, |(_, bare)| bare);
    let host = bare.strip_suffix(".access");
    [Some(name), Some(link), Some(bare), host].into_iter().flatten().any(|text| glob(word, text))
}

/// Whether `pattern`, in which `*` stands for any letters, fits all of `text`.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        let links = ["host.left-0.access", "host.right-0.access", "link.wan", "host.left-0.auxiliary"];
        links.iter().flat_map(|link| [format!("{link}.forward"), format!("{link}.backward")]).collect()
    }
    fn meant(words: &[&str]) -> Result<Vec<usize>, UnknownPort> {
        matching(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), &names())
    }

    #[test]
    fn a_port_is_named_in_full_or_without_what_goes_without_saying() {
        assert_eq!(meant(&["link.wan.backward"]).unwrap(), [5]);
        assert_eq!(meant(&["link.wan"]).unwrap(), [4, 5]);
        assert_eq!(meant(&["wan"]).unwrap(), [4, 5]);
        assert_eq!(meant(&["left-0"]).unwrap(), [0, 1], "not the second interface");
        assert_eq!(meant(&["host.left-0.auxiliary"]).unwrap(), [6, 7]);
        assert_eq!(meant(&["host.*.access.forward", "wan"]).unwrap(), [0, 2, 4, 5]);
        assert_eq!(meant(&["*"]).unwrap().len(), 8);
        assert_eq!(meant(&["wan", "link.wan"]).unwrap(), [4, 5], "once, however often it is named");
    }

    #[test]
    fn a_port_that_is_not_there_is_refused_with_those_that_are() {
        for word in ["", "wa", "an", "link", "forward", "left", "wan.forward.x", "*x"] {
            assert!(meant(&[word]).is_err(), "{word}");
        }
        let text = meant(&["wam"]).unwrap_err().to_string();
        assert!(text.contains("\"wam\"") && text.contains("link.wan.forward"), "{text}");
    }
}
