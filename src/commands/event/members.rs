//! The flags that name a membership service, the same for every role.

use crate::registry;
use anyhow::{Context, anyhow, bail};
use weir_core::param::{Member, MemberSchema, Seam};
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

static SEAM: Seam = Seam {
    name: "membership",
    members: || {
        let all = registry::memberships();
        all.iter().map(|entry| MemberSchema { name: entry.name, params: entry.params }).collect()
    },
};

/// Sets each `KEY=VALUE` of a flag that may be repeated. Errors: the first that the member does not take.
pub fn set_pairs(member: &mut Member, seam: &Seam, flag: &str, pairs: &[String]) -> anyhow::Result<()> {
    for pair in pairs {
        member.set_pair(seam, flag, pair).map_err(|error| anyhow!(error.problem))?;
    }
    Ok(())
}

impl Members {
    /// `None` where no service is asked. No service is waited for.
    pub fn open(&self, of: MembersOf) -> anyhow::Result<Option<Box<dyn Membership>>> {
        let all = registry::memberships();
        let Some(entry) = all.iter().find(|entry| entry.name == self.membership) else {
            let names: Vec<&str> = all.iter().map(|entry| entry.name).collect();
            bail!("--membership {:?}: there are {}", self.membership, names.join(", "));
        };
        let mut member = Member::named(entry.name);
        set_pairs(&mut member, &SEAM, "--membership-set", &self.membership_set)?;
        if entry.name == BUILT_IN {
            return Ok(None);
        }
        let role = match of {
            MembersOf::Sources => "sources",
            MembersOf::Builders => "builders",
        };
        let group = Group { run: self.run.clone(), role: role.to_owned() };
        let opened = group.check().and_then(|()| (entry.build)(&member.values(entry.params), &group));
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
