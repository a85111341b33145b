//! The flags that name a membership service, the same for every role.

use crate::registry;
use anyhow::{Context, anyhow, bail};
use weir_core::Values;
use weir_core::param::parse_default;
use weir_event::director::GroupRole;
use weir_seams::membership::{Group, Membership, Watch};

/// The connections themselves are the membership: no other service is asked.
const BUILT_IN: &str = "built-in";

#[derive(clap::Args)]
pub struct Members {
    /// Who says which peers take part: `weir list membership`; the same for every role
    #[arg(long, value_name = "NAME", default_value = BUILT_IN)]
    membership: String,
    /// A parameter of it, like servers=zk1:2181,zk2:2181
    #[arg(long, value_name = "KEY=VALUE")]
    membership_set: Vec<String>,
    /// Under which name it keeps the peers of this system
    #[arg(long, value_name = "NAME", default_value = "event")]
    run: String,
}

#[derive(Clone, Copy)]
pub enum MembersOf {
    Sources,
    Builders,
}

impl Members {
    /// `None` where no service is asked. No service is waited for.
    pub fn open(&self, of: MembersOf) -> anyhow::Result<Option<Box<dyn Membership>>> {
        let all = registry::memberships();
        let Some(entry) = all.iter().find(|entry| entry.name == self.membership) else {
            let names: Vec<&str> = all.iter().map(|entry| entry.name).collect();
            bail!("--membership {:?}: there are {}", self.membership, names.join(", "));
        };
        let mut values = Values::defaults(entry.params);
        for pair in &self.membership_set {
            let (name, text) = pair
                .split_once('=')
                .ok_or_else(|| anyhow!("--membership-set {pair:?}: write it as KEY=VALUE"))?;
            let Some(param) = entry.params.iter().find(|param| param.name == name) else {
                bail!(
                    "--membership-set {pair:?}: {} takes no {name:?}; see weir list membership",
                    entry.name
                );
            };
            let value = parse_default(param.kind, text)
                .map_err(|error| anyhow!("--membership-set {pair:?}: {}", error.problem))?;
            if !param.allows(&value) {
                bail!("--membership-set {pair:?}: out of range; see weir list membership");
            }
            values.set(param.name, value);
        }
        if entry.name == BUILT_IN {
            return Ok(None);
        }
        let role = match of {
            MembersOf::Sources => "sources",
            MembersOf::Builders => "builders",
        };
        let group = Group { run: self.run.clone(), role: role.to_owned() };
        let opened = group.check().and_then(|()| (entry.build)(&values, &group));
        Ok(Some(opened.with_context(|| format!("--membership {}", entry.name))?))
    }

    /// For a scheduler: who may join, by role.
    pub fn watches(&self) -> anyhow::Result<Vec<(GroupRole, Box<dyn Watch>)>> {
        let mut watches = Vec::new();
        for (of, role) in [(MembersOf::Sources, GroupRole::Source), (MembersOf::Builders, GroupRole::Builder)]
        {
            if let Some(service) = self.open(of)? {
                watches.push((role, service.watch().context("--membership")?));
            }
        }
        Ok(watches)
    }
}
