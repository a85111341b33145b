//! What the registry knows of an implementation.

use weir_core::Param;

/// One implementation of a seam: feeds the command line's values, `weir list`, the guide and the conformance suite.
#[derive(Clone, Copy)]
pub struct Entry<B: 'static> {
    /// Command-line value, scenario value, anchor in the guide.
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    /// Declared here and nowhere else.
    pub params: &'static [Param],
    /// Probed before a run starts.
    pub needs: &'static [Need],
    pub build: B,
}

/// Something the machine must offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// CAP_NET_ADMIN and CAP_SYS_ADMIN: root in practice.
    Root,
    /// `/dev/net/tun`.
    Tun,
    /// `ssh`, the OpenSSH client, 8.4 or later.
    SshClient,
}

/// Claims every entry must keep, whatever its seam.
pub mod conformance {
    use super::Entry;
    use std::collections::BTreeSet;
    use weir_core::{Bytes, Kind, Param, Value, Values};

    /// A name that is a word of the command line, a description of one line, parameters that are declared once, say what they are, and have
    /// defaults that can be read.
    pub fn check<B>(entry: &Entry<B>) {
        let name = entry.name;
        let word = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        assert!(name.starts_with(|first: char| first.is_ascii_lowercase()), "{name:?}");
        assert!(name.len() <= 63 && name.chars().all(word), "{name:?} is no name");
        assert!(!entry.about.is_empty() && !entry.about.contains('\n'), "{name}: not described in one line");
        let mut seen = BTreeSet::new();
        for param in entry.params {
            assert!(seen.insert(param.name), "{name}: parameter {} is declared twice", param.name);
            assert!(!param.about.is_empty(), "{name}: parameter {} says nothing of itself", param.name);
        }
        Values::defaults(entry.params);
    }

    /// Names are told apart, and each entry is fit to be listed.
    pub fn check_all<B>(entries: &[Entry<B>]) {
        let mut seen = BTreeSet::new();
        for entry in entries {
            assert!(seen.insert(entry.name), "{}: two entries have this name", entry.name);
            check(entry);
        }
    }

    /// Values that `param` takes: every choice, both flags, both bounds, some size and some count.
    pub fn values_of(param: &Param) -> Vec<Value> {
        let bounds = [param.range.0, param.range.1].into_iter().filter(|bound| bound.is_finite());
        let mut values: Vec<Value> = match param.kind {
            Kind::Choice(choices) => choices.iter().map(|choice| Value::Text((*choice).to_owned())).collect(),
            Kind::Flag => vec![Value::Flag(false), Value::Flag(true)],
            Kind::Count => bounds.chain([7.0]).map(|bound| Value::Count(bound as u64)).collect(),
            Kind::Ratio => bounds.map(Value::Ratio).collect(),
            Kind::Size => bounds.chain([1_000.0]).map(|bound| Value::Size(Bytes(bound as u64))).collect(),
            _ => Vec::new(),
        };
        values.retain(|value| param.allows(value));
        values
    }

    /// The defaults, and for each parameter the defaults with other values of it.
    pub fn variants(params: &[Param]) -> Vec<Values> {
        let defaults = Values::defaults(params);
        let mut all = vec![defaults.clone()];
        for param in params {
            for other in values_of(param) {
                let mut values = defaults.clone();
                values.set(param.name, other);
                all.push(values);
            }
        }
        all
    }
}
