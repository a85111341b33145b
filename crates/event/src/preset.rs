//! The balancing schemes of document 002 by their names: each is a scheduler with a death policy.

/// One of the documents' algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    /// Names of entries in `SCHEDULERS` and `DEATH_POLICIES`, both with their defaults.
    pub scheduler: &'static str,
    pub death_policy: &'static str,
}

/// In all of them builders have their turns; they differ in what a death means. The program behind `round-robin` does not notice one
/// (`profile = "o2balancer2"` does as it did); here its deaths are noticed, and it keeps its channels as it did, so that it does what
/// `whitelist` does.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "round-robin",
        about: "builders in turn; channels are made once",
        scheduler: "round-robin",
        death_policy: "whitelist",
    },
    Preset {
        name: "blacklist",
        about: "builders in turn; a dead one's channel is taken down",
        scheduler: "round-robin",
        death_policy: "blacklist",
    },
    Preset {
        name: "re-initialisation",
        about: "builders in turn; a death or a return makes every channel anew",
        scheduler: "round-robin",
        death_policy: "re-initialise",
    },
    Preset {
        name: "whitelist",
        about: "builders in turn; channels stay, those listed as alive are used",
        scheduler: "round-robin",
        death_policy: "whitelist",
    },
];

pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{death_policy, scheduler, send_order};

    #[test]
    fn the_four_algorithms_of_the_documents_are_built_by_their_names() {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        assert_eq!(names, ["round-robin", "blacklist", "re-initialisation", "whitelist"]);
        for preset in PRESETS {
            assert!(scheduler::entry(preset.scheduler).is_some(), "{preset:?}");
            assert!(death_policy::entry(preset.death_policy).is_some(), "{preset:?}");
        }
        assert_eq!(preset("blacklist").map(|preset| preset.death_policy), Some("blacklist"));
        assert_eq!(preset("barrel-shift"), None);
    }

    #[test]
    fn the_guide_has_a_section_for_every_algorithm_names_its_parameters_and_lists_the_presets() {
        let page = include_str!("../../../docs/guide/event-schedulers.md");
        let sections: Vec<(&str, &str)> =
            page.split("\n## ").filter_map(|section| section.split_once('\n')).collect();
        let section = |name: &str| {
            let found = sections.iter().find(|(title, _)| *title == format!("`{name}`"));
            found.unwrap_or_else(|| panic!("no section is about {name}")).1
        };
        for entry in scheduler::SCHEDULERS {
            let text = section(entry.name);
            assert!(text.contains("*Wins*") && text.contains("*Loses*"), "{}", entry.name);
            for param in entry.params {
                assert!(text.contains(&format!("`{}", param.name)), "{}: {}", entry.name, param.name);
            }
        }
        let others = death_policy::DEATH_POLICIES.iter().map(|entry| entry.name);
        for name in others.chain(send_order::SEND_ORDERS.iter().map(|entry| entry.name)) {
            assert!(!section(name).is_empty());
        }
        for Preset { name, scheduler, death_policy, .. } in PRESETS {
            let row = format!("| `{name}` | `{scheduler}` | `{death_policy}` |");
            assert!(page.contains(&row), "{row}");
        }
    }
}
