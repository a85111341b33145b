//! Recipes: `NAME/system.toml` and the templates beside it. Data, and no code: commands are lists of arguments.

use crate::daemon::found;
use crate::error::ServiceError;
use crate::template::OptionValue;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_core::param::parse_default;
use weir_core::scenario::{Priority, Role, RoleNeed, Service, SystemSchema};
use weir_core::{Kind, Param, Value, Values, units};

/// A start that says no limit has failed after this time.
const WITHIN_DEFAULT: &str = "20s";

/// A system's recipe, checked.
#[derive(Debug)]
pub struct Recipe {
    pub schema: SystemSchema,
    /// Debian's packages that bring its programs.
    pub packages: Vec<String>,
    /// What must be there before anything is started.
    pub programs: Vec<String>,
    /// The command that installs it where no package does.
    install: Option<String>,
    /// Prints its version.
    pub version: Vec<String>,
    /// The account of its processes; root unless given.
    pub user: Option<String>,
    /// What clients name it by; a text with words of the first host of `entry`.
    pub url: Option<String>,
    /// The roles at whose first host clients begin: the first of them that the service has.
    pub entry: Vec<Role>,
    /// The folder on its servers into which content goes before it starts; a text with words.
    pub content: Option<String>,
    /// On how many servers each file of it lies; a text with words.
    pub copies: Option<String>,
    /// A text: where it comes out as something, all servers have one storage, `shared`, and their disks are one array before it.
    pub shared: Option<String>,
    pub files: Vec<FilePart>,
    /// In the order in which they begin.
    pub steps: Vec<StartStep>,
    /// Where it came from, for messages.
    pub file: String,
    /// Templates by name.
    pub templates: BTreeMap<String, String>,
}

/// A file of configuration on each host of some roles.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePart {
    #[serde(deserialize_with = "roles")]
    pub roles: Vec<Role>,
    /// It is written only where this, a text with words, is not empty.
    pub only: Option<String>,
    /// Below the folder `state`.
    pub path: String,
    pub template: String,
}

/// Something that begins on all hosts of some roles at once, and is waited for.
#[derive(Debug)]
pub struct StartStep {
    pub roles: Vec<Role>,
    pub name: String,
    /// It is part of the start only where this, a text with words, is not empty.
    pub only: Option<String>,
    /// Where this, a text with words, is not empty, and the service's caches are emptied: a daemon begins anew; a command, which is then no
    /// part of the start, is run while those are down.
    pub cold: Option<String>,
    /// It begins only where the service has hosts of all of these.
    pub with: Vec<Role>,
    pub run: Vec<Argument>,
    /// It stays; else it is waited for until it ends.
    pub stays: bool,
    /// On the first host of its roles alone.
    pub once: bool,
    /// A command that is run for each host of this role, one after the other.
    pub each: Option<Role>,
    /// A command that fails is tried again as long as there is time.
    pub again: bool,
    pub ready: Vec<Ready>,
    pub within: Duration,
    /// Where a daemon says what it counts.
    pub counters: Option<CountersPart>,
    pub transfers: Option<TransfersPart>,
    pub drain: Option<DrainPart>,
}

/// Where a daemon says which files are open on it, as XRootD's detailed monitoring does.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransfersPart {
    /// A port of its host's loopback, to which it sends; a text with words, which may come out empty: it sends nothing then.
    pub port: String,
}

/// How a daemon is told that nobody new is to be sent to it, and that it is over.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrainPart {
    /// Those of the step's that it is for.
    #[serde(deserialize_with = "roles")]
    pub roles: Vec<Role>,
    /// Below `run`; a text with words.
    pub socket: String,
    /// Lines.
    pub out: Vec<String>,
    pub back: Vec<String>,
}

/// Where a daemon says what its slots do, and in which of its words.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountersPart {
    /// Below `run`; a text with words.
    pub socket: Option<String>,
    /// The same of a file that the daemon writes anew each time.
    pub file: Option<String>,
    /// What is asked for at the socket.
    #[serde(default = "metrics_path")]
    pub path: String,
    slots: Option<String>,
    taken: Option<String>,
    waiters: Option<String>,
    wait: Option<String>,
}

fn metrics_path() -> String {
    "/metrics".to_owned()
}

impl CountersPart {
    /// In the order of `weir_telemetry::service::COUNTERS`.
    pub fn samples(&self) -> [Option<String>; 4] {
        [&self.slots, &self.taken, &self.waiters, &self.wait].map(Clone::clone)
    }
}

/// How one sees that a process works.
#[derive(Clone, Debug)]
pub enum Ready {
    /// It accepts connections at this port of its host; a text with words.
    Port(String),
    /// Its log, or that of another step's daemon on the host, has this text.
    Line { text: String, log: Option<String> },
    /// A command ends with 0; tried again until it does.
    Command(Vec<Argument>),
}

/// An argument of a command. One that comes out empty is left out.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Argument {
    /// A text with words.
    One(String),
    /// The same for each of several things.
    Each(EachArgument),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EachArgument {
    /// Hosts of this role, which it calls `each`.
    #[serde(default, deserialize_with = "some_role")]
    pub each: Option<Role>,
    /// And a server's disks, which it calls `disk`: the first of all hosts, then the second of all.
    #[serde(default)]
    pub disks: bool,
    pub word: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    about: String,
    #[serde(default)]
    packages: Vec<String>,
    #[serde(default)]
    programs: Vec<String>,
    install: Option<String>,
    #[serde(default)]
    version: Vec<String>,
    user: Option<String>,
    url: Option<String>,
    #[serde(default, deserialize_with = "roles")]
    entry: Vec<Role>,
    content: Option<String>,
    copies: Option<String>,
    shared: Option<String>,
    #[serde(default)]
    mounts: bool,
    disks: Option<u32>,
    #[serde(default)]
    origins: Vec<String>,
    role: Vec<WrittenRole>,
    #[serde(default)]
    option: BTreeMap<String, WrittenOption>,
    #[serde(default)]
    file: Vec<FilePart>,
    #[serde(default)]
    step: Vec<WrittenStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRole {
    #[serde(deserialize_with = "role")]
    name: Role,
    least: usize,
    most: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenOption {
    kind: String,
    default: Option<String>,
    about: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenStep {
    #[serde(deserialize_with = "roles")]
    roles: Vec<Role>,
    #[serde(default, deserialize_with = "roles")]
    with: Vec<Role>,
    daemon: Option<String>,
    command: Option<String>,
    only: Option<String>,
    cold: Option<String>,
    run: Vec<Argument>,
    #[serde(default)]
    once: bool,
    #[serde(default, deserialize_with = "some_role")]
    each: Option<Role>,
    #[serde(default)]
    again: bool,
    #[serde(default)]
    ready: Vec<WrittenReady>,
    within: Option<String>,
    counters: Option<CountersPart>,
    transfers: Option<TransfersPart>,
    drain: Option<DrainPart>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenReady {
    port: Option<String>,
    line: Option<String>,
    log: Option<String>,
    command: Option<Vec<Argument>>,
}

fn role<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Role, D::Error> {
    let name = String::deserialize(deserializer)?;
    let found = Role::ALL.into_iter().find(|role| role.name() == name);
    found.ok_or_else(|| {
        let all: Vec<&str> = Role::ALL.into_iter().map(Role::name).collect();
        serde::de::Error::custom(format!("{name:?} is none of the roles {}", all.join(", ")))
    })
}

fn some_role<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Role>, D::Error> {
    role(deserializer).map(Some)
}

fn roles<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Role>, D::Error> {
    #[derive(Deserialize)]
    struct One(#[serde(deserialize_with = "role")] Role);
    Ok(Vec::<One>::deserialize(deserializer)?.into_iter().map(|One(role)| role).collect())
}

impl Recipe {
    /// Reads a recipe. `name` is what services call it; `templates` the other files beside it, by name. What it declares lives as long
    /// as the program.
    ///
    /// Errors: with the file, the line, and what is wrong.
    pub fn read(
        name: &str,
        file: &str,
        text: &str,
        templates: BTreeMap<String, String>,
    ) -> Result<Recipe, ServiceError> {
        let wrong = |text: String| ServiceError::Recipe { file: file.to_owned(), text };
        let written: Written =
            toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
        let mut options = Vec::new();
        for (name, option) in &written.option {
            options.push(declared(name, option).map_err(wrong)?);
        }
        for part in &written.file {
            if !templates.contains_key(&part.template) {
                return Err(wrong(format!("it lacks the template {:?} beside it", part.template)));
            }
            let plain = |word: &str| !word.is_empty() && word != ".." && word != ".";
            if !part.path.split('/').all(plain) {
                return Err(wrong(format!("`path` {:?} is no path below its state folder", part.path)));
            }
        }
        let mut steps = Vec::new();
        for step in written.step {
            steps.push(start_step(step).map_err(wrong)?);
        }
        if written.url.is_some() && written.entry.is_empty() {
            return Err(wrong(
                "it has a `url` and no `entry`, the roles whose first host clients begin at".to_owned(),
            ));
        }
        let drained = steps.iter().filter_map(|step| step.drain.as_ref());
        let drains = drained.flat_map(|drain| drain.roles.iter().copied()).collect();
        let needs = written.role.iter();
        let roles =
            needs.map(|role| RoleNeed { role: role.name, least: role.least, most: role.most }).collect();
        Ok(Recipe {
            schema: SystemSchema {
                name: name.to_owned().leak(),
                about: written.about.leak(),
                roles,
                options: options.leak(),
                mounts: written.mounts,
                // What servers cannot be given a client writes; a system without processes keeps nothing, whatever is said of it.
                takes_content: written.content.is_some() || written.mounts || steps.is_empty(),
                disks_most: written.disks.unwrap_or(u32::from(written.content.is_some() || steps.is_empty())),
                drains,
                origins: written.origins,
            },
            packages: written.packages,
            programs: written.programs,
            install: written.install,
            version: written.version,
            user: written.user,
            url: written.url,
            entry: written.entry,
            content: written.content,
            copies: written.copies,
            shared: written.shared,
            files: written.file,
            steps,
            file: file.to_owned(),
            templates,
        })
    }

    /// Errors: the first of its programs that is not there.
    pub fn check_installed(&self, service: &str) -> Result<(), ServiceError> {
        let missing = self.programs.iter().find(|program| found(program).is_err());
        missing.map_or(Ok(()), |program| {
            Err(ServiceError::Missing {
                service: service.to_owned(),
                program: program.clone(),
                install: self.install(),
            })
        })
    }

    /// The command that installs what it needs.
    pub fn install(&self) -> String {
        self.install.clone().unwrap_or_else(|| format!("apt-get install -y {}", self.packages.join(" ")))
    }
}

impl StartStep {
    /// One that is not in the recipe.
    pub fn command(name: &str) -> StartStep {
        StartStep {
            roles: Vec::new(),
            name: name.to_owned(),
            only: None,
            cold: None,
            with: Vec::new(),
            run: Vec::new(),
            stays: false,
            once: true,
            each: None,
            again: false,
            ready: Vec::new(),
            within: Duration::ZERO,
            counters: None,
            transfers: None,
            drain: None,
        }
    }
}

fn start_step(step: WrittenStep) -> Result<StartStep, String> {
    let (name, stays) = match (step.daemon, step.command) {
        (Some(name), None) => (name, true),
        (None, Some(name)) => (name, false),
        _ => return Err("a step is either a `daemon` or a `command`, with its name".to_owned()),
    };
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!("the name of a step, {name:?}, is of letters, digits and hyphens"));
    }
    if (step.again || step.each.is_some()) && stays {
        return Err(format!("step {name}: a daemon is neither tried again nor started for each host"));
    }
    if (step.counters.is_some() || step.transfers.is_some() || step.drain.is_some()) && !stays {
        return Err(format!("step {name}: `counters`, `transfers` and `drain` are a daemon's"));
    }
    if step.cold.is_some() && !stays && !step.ready.is_empty() {
        return Err(format!("step {name}: the end of a `cold` command is waited for, and nothing else"));
    }
    if step.counters.as_ref().is_some_and(|part| part.socket.is_some() == part.file.is_some()) {
        return Err(format!("step {name}: `counters` are at a `socket` or in a `file`"));
    }
    if step.run.is_empty() || step.roles.is_empty() {
        return Err(format!("step {name}: `run` or `roles` is empty"));
    }
    let within = step.within.as_deref().unwrap_or(WITHIN_DEFAULT);
    let within =
        units::parse_duration(within).map_err(|error| format!("step {name}: `within`: {}", error.problem))?;
    let mut ready = Vec::new();
    for written in step.ready {
        ready.push(match written {
            WrittenReady { port: Some(port), line: None, log: None, command: None } => Ready::Port(port),
            WrittenReady { port: None, line: Some(text), log, command: None } => Ready::Line { text, log },
            WrittenReady { port: None, line: None, log: None, command: Some(run) } if !run.is_empty() => {
                Ready::Command(run)
            }
            _ => {
                return Err(format!(
                    "step {name}: `ready` is a `port`, a `line` (of another's `log`), or a `command`"
                ));
            }
        });
    }
    Ok(StartStep {
        roles: step.roles,
        name,
        only: step.only,
        cold: step.cold,
        with: step.with,
        run: step.run,
        stays,
        once: step.once,
        each: step.each,
        again: step.again,
        ready,
        within,
        counters: step.counters,
        transfers: step.transfers,
        drain: step.drain,
    })
}

/// Kinds that options may have, as a recipe writes them.
const KINDS: &[(&str, Kind)] = &[
    ("text", Kind::Text),
    ("count", Kind::Count),
    ("ratio", Kind::Ratio),
    ("rate", Kind::Rate),
    ("size", Kind::Size),
    ("duration", Kind::Duration),
    ("flag", Kind::Flag),
];

fn declared(name: &str, option: &WrittenOption) -> Result<Param, String> {
    let Some((_, kind)) = KINDS.iter().find(|(kind, _)| *kind == option.kind) else {
        let kinds: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
        return Err(format!("option {name}: `kind` {:?} is none of {}", option.kind, kinds.join(", ")));
    };
    let mut param = Param::new(name.to_owned().leak(), *kind, option.about.clone().leak());
    if let Some(default) = &option.default {
        let parsed = parse_default(*kind, default);
        parsed.map_err(|error| format!("option {name}: `default` {default:?}: {}", error.problem))?;
        param = param.default(default.clone().leak());
    }
    Ok(param)
}

/// Options as texts of a recipe use them; one that is not said and has no default is empty.
pub fn option_values(declared: &[Param], values: &Values) -> BTreeMap<String, OptionValue> {
    let plain = |value: &Value| match value {
        Value::Count(number) => OptionValue::Whole(*number),
        Value::Size(size) => OptionValue::Whole(size.0),
        Value::Flag(flag) => OptionValue::Flag(*flag),
        Value::Text(text) => OptionValue::Text(text.clone()),
        other => OptionValue::Number(other.as_number().unwrap_or(f64::NAN)),
    };
    let of = |param: &Param| {
        let said = values.0.get(param.name).map(plain);
        (param.name.to_owned(), said.unwrap_or_else(|| OptionValue::Text(String::new())))
    };
    declared.iter().map(of).collect()
}

/// Options that are not what the recipe has them by itself, and priorities that are not low, as texts by name.
pub fn tuning(declared: &[Param], service: &Service) -> BTreeMap<String, String> {
    let own = |param: &Param| {
        let said = service.options.0.get(param.name)?;
        let default = param.default.and_then(|text| parse_default(param.kind, text).ok());
        let text = match said {
            Value::Text(text) => text.clone(),
            other => other.to_json().to_string().trim_matches('"').to_owned(),
        };
        (default.as_ref() != Some(said)).then(|| (param.name.to_owned(), text))
    };
    let of_role = |(role, priority): &(Role, Priority)| {
        (format!("priority.{}", role.name()), priority.name().to_owned())
    };
    declared.iter().filter_map(own).chain(service.priority.iter().map(of_role)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"about = "A server"
url = "x://{{ host.name }}"
entry = ["server"]
[[role]]
name = "server"
least = 1
most = 2
[option.slots]
kind = "count"
default = "4"
about = "How many at once."
[[file]]
roles = ["server"]
path = "etc/x.cf"
template = "x.cf"
[[step]]
daemon = "x"
roles = ["server"]
run = ["x", "{{ option.slots }}"]
ready = [{ port = "80" }, { line = "up", log = "y" }, { command = ["true"] }]
within = "3s"
"#;

    fn read(text: &str) -> Result<Recipe, ServiceError> {
        let templates = [("x.cf".to_owned(), "slots {{ option.slots }}".to_owned())].into();
        Recipe::read("x", "x/system.toml", text, templates)
    }

    // Spec: services.md#service-12
    #[test]
    fn a_recipe_says_what_it_says_and_a_wrong_one_is_refused_with_what_is_wrong() {
        let recipe = read(GOOD).unwrap();
        assert_eq!(recipe.schema.roles, [RoleNeed { role: Role::Server, least: 1, most: 2 }]);
        assert_eq!(recipe.schema.options[0].default, Some("4"));
        assert_eq!((recipe.steps[0].within, recipe.steps[0].ready.len()), (Duration::from_secs(3), 3));
        for (from, to, says) in [
            ("least = 1", "leest = 1", "unknown field `leest`"),
            ("name = \"server\"", "name = \"sever\"", "\"sever\" is none of the roles"),
            ("kind = \"count\"", "kind = \"number\"", "`kind` \"number\" is none of"),
            ("default = \"4\"", "default = \"four\"", "option slots: `default`"),
            ("template = \"x.cf\"", "template = \"y.cf\"", "lacks the template \"y.cf\""),
            ("etc/x.cf", "../x.cf", "no path below its state folder"),
            ("daemon = \"x\"", "daemon = \"x\"\ncommand = \"y\"", "either a `daemon` or a `command`"),
            ("daemon = \"x\"", "daemon = \"../x\"", "letters, digits and hyphens"),
            ("run = [\"x\", \"{{ option.slots }}\"]", "run = []", "`run` or `roles` is empty"),
            ("line = \"up\"", "port = \"81\"", "`ready` is a `port`"),
            ("within = \"3s\"", "within = \"3\"", "step x: `within`"),
            ("within = \"3s\"", "again = true", "step x: a daemon is neither tried again"),
            (
                "within = \"3s\"",
                "counters = { slots = \"x\" }",
                "`counters` are at a `socket` or in a `file`",
            ),
            ("daemon = \"x\"", "command = \"x\"\ncold = \"yes\"", "the end of a `cold` command"),
            ("entry = [\"server\"]\n", "", "no `entry`"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let error = read(&text).unwrap_err().to_string();
            assert!(error.starts_with("x/system.toml: ") && error.contains(says), "{to}: {error}");
        }
    }
}
