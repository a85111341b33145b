use super::*;
use crate::param::parse_default;
use std::collections::BTreeSet;

fn walk(table: &str, keys: &[Param], check: &mut dyn FnMut(&str, &[Param])) {
    check(table, keys);
    for key in keys {
        if let Kind::Table(inner) = key.kind {
            walk(&format!("{table}.{}", key.name), inner, check);
        }
    }
}

#[test]
fn every_key_is_declared_once_says_something_and_has_a_default_that_parses() {
    let mut check = |table: &str, keys: &[Param]| {
        let mut seen = BTreeSet::new();
        for key in keys {
            assert!(seen.insert(key.name), "{table}.{} is declared twice", key.name);
            assert!(key.about.ends_with(['.', '…']), "{table}.{} says {:?}", key.name, key.about);
            if let Some(default) = key.default {
                parse_default(key.kind, default).unwrap();
            }
        }
    };
    for table in TABLES {
        walk(table.name, table.keys, &mut check);
    }
}
