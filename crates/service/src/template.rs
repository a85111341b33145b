//! Texts of recipes with what a host and a service have in them.

use crate::error::ServiceError;
use crate::recipe::{Argument, EachArgument, Recipe, option_values};
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;
use std::collections::BTreeMap;
use weir_core::scenario::{Role, Service};
use weir_core::topology::Topology;

/// What a recipe's texts may say of a host.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HostWords {
    pub name: String,
    pub address: String,
    pub address6: String,
}

/// What a recipe's texts may say of the files that are put on a service, dealt over its servers in turn.
#[derive(Clone, Debug, Serialize)]
pub struct ContentWords {
    /// Of file `n` with its number for `{n}`.
    pub path: String,
    pub files: u64,
}

/// What a recipe's texts may use, for one process on one host.
#[derive(Clone, Debug, Serialize)]
pub struct Words {
    /// The service's name.
    pub service: String,
    pub host: HostWords,
    /// The hosts of each role, in order; of a role that the service does not have none.
    pub role: BTreeMap<&'static str, Vec<HostWords>>,
    /// The number of this host among those of its role.
    pub number: usize,
    /// Options by name: texts, plain numbers, bytes, seconds, `true` or `false`.
    pub option: BTreeMap<String, OptionValue>,
    /// Folder on the host's disk where files of the recipe lie; root's.
    pub state: String,
    /// Folder of what it keeps; its processes' own.
    pub data: String,
    /// The folders that a server spreads what it keeps over, one for each of its disks. All have the same; the first is `data`.
    pub disks: Vec<String>,
    /// One of them, in what is said for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// Folder for its sockets and process numbers, which its processes may write.
    pub run: String,
    /// Folder of its logs.
    pub log: String,
    /// Folder that all hosts of the service have in common, as they would a disk array.
    pub shared: String,
    /// The account that its processes run as.
    pub user: String,
    /// The folder at which clients have it, and with what options; empty where it is not mounted.
    pub mount: String,
    pub mount_options: String,
    /// The files that are put on it before it starts; none where none are.
    pub content: Option<ContentWords>,
    /// The URL of the service from which it gets what it does not have; empty where there is none.
    pub origin: String,
    /// A host, in what is said for each of some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub each: Option<HostWords>,
}

impl Words {
    /// What is known of a host before anything is there; the folders are empty.
    pub fn of(
        service: &Service,
        recipe: &Recipe,
        host: HostWords,
        role: BTreeMap<&'static str, Vec<HostWords>>,
    ) -> Words {
        let user = recipe.user.clone().unwrap_or_else(|| "root".to_owned());
        let option = option_values(recipe.schema.options, &service.options);
        let [state, data, run, log, shared] = [const { String::new() }; 5];
        let (mount, mount_options) = match &service.mount {
            Some(mount) => (mount.at.clone(), mount.options.clone()),
            None => (String::new(), String::new()),
        };
        Words {
            service: service.name.clone(),
            host,
            role,
            number: 0,
            option,
            state,
            data,
            disks: Vec::new(),
            disk: None,
            run,
            log,
            shared,
            user,
            mount,
            mount_options,
            content: service
                .content
                .as_ref()
                .map(|content| ContentWords { path: content.path.clone(), files: content.files }),
            origin: service.origin.as_ref().map(|origin| origin.at.clone()).unwrap_or_default(),
            each: None,
        }
    }
}

impl Words {
    /// What `each` is in what is said for each host of a role, one after the other; of none it stays what it is.
    pub fn each_of(&self, role: Option<Role>) -> Vec<Option<HostWords>> {
        match role {
            Some(role) => self.role.get(role.name()).into_iter().flatten().cloned().map(Some).collect(),
            None => vec![self.each.clone()],
        }
    }
}

/// The hosts of every role.
pub fn role_words(
    service: &Service,
    words_of: &dyn Fn(usize) -> HostWords,
) -> BTreeMap<&'static str, Vec<HostWords>> {
    let of_role = |role: Role| {
        let own = service.place.iter().filter(|(own, _)| *own == role).flat_map(|(_, hosts)| hosts);
        (role.name(), own.map(|host| words_of(*host)).collect())
    };
    Role::ALL.into_iter().map(of_role).collect()
}

/// The arguments of a command, without those that come out empty.
pub fn arguments(file: &str, run: &[Argument], words: &Words) -> Result<Vec<String>, ServiceError> {
    let mut all = Vec::new();
    for argument in run {
        match argument {
            Argument::One(text) => all.push(fill(file, text, words)?),
            Argument::Each(EachArgument { each, disks, word }) => {
                let disks = match disks {
                    true => words.disks.iter().cloned().map(Some).collect(),
                    false => vec![words.disk.clone()],
                };
                for disk in disks {
                    for each in words.each_of(*each) {
                        let words = Words { each, disk: disk.clone(), ..words.clone() };
                        all.push(fill(file, word, &words)?);
                    }
                }
            }
        }
    }
    all.retain(|argument| !argument.is_empty());
    Ok(all)
}

/// Whether a text of the recipe comes out as something; `unsaid`: what holds where there is none.
pub fn holds(
    recipe: &Recipe,
    text: Option<&String>,
    words: &Words,
    unsaid: bool,
) -> Result<bool, ServiceError> {
    text.map_or(Ok(unsaid), |text| Ok(!fill(&recipe.file, text, words)?.trim().is_empty()))
}

/// Whether all servers of a service have one storage, so that each of them takes over what another served.
///
/// Errors: what the recipe says cannot be filled in.
pub fn shares_disks(service: &Service, recipe: &Recipe) -> Result<bool, ServiceError> {
    let words = Words::of(service, recipe, HostWords::default(), BTreeMap::new());
    holds(recipe, recipe.shared.as_ref(), &words, false)
}

/// Where clients find a service: its mount, or the recipe's URL at the first host of its entry.
///
/// Errors: for people.
pub fn address(service: &Service, recipe: &Recipe, topology: &Topology) -> Result<String, ServiceError> {
    if let Some(mount) = &service.mount {
        return Ok(mount.at.clone());
    }
    let wrong = |text: &str| ServiceError::Recipe { file: recipe.file.clone(), text: text.to_owned() };
    let url =
        recipe.url.as_ref().ok_or_else(|| wrong("it has no `url`, so a service of it needs a `mount`"))?;
    let words_of = |host: usize| HostWords {
        name: topology.hosts[host].name.clone(),
        address: Topology::ipv4(host).to_string(),
        address6: Topology::ipv6(host).to_string(),
    };
    let first = |role: &Role| service.place.iter().find(|(own, _)| own == role)?.1.first().copied();
    let entry = recipe.entry.iter().find_map(first);
    let entry = entry.ok_or_else(|| wrong("the service has no host of a role in `entry`"))?;
    fill(&recipe.file, url, &Words::of(service, recipe, words_of(entry), role_words(service, &words_of)))
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum OptionValue {
    Text(String),
    Whole(u64),
    Number(f64),
    Flag(bool),
}

/// Fills in a text. Errors name the recipe's file and the line.
pub fn fill(file: &str, text: &str, words: &Words) -> Result<String, ServiceError> {
    let wrong = |error: minijinja::Error| {
        let line = error.line().map(|line| format!(" in line {line}")).unwrap_or_default();
        let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
        ServiceError::Recipe { file: file.to_owned(), text: format!("{}{detail}{line}", error.kind()) }
    };
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_keep_trailing_newline(true);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.render_str(text, words).map_err(wrong)
}
