//! Membership within one process: the scheduler holds a seat for each connection and drops it when that ends.

use super::table::Shared;
use weir_seams::membership::{Group, Liveness, Member, Membership, MembershipError, Seat, Watch, check_name};

/// Clones see the same group.
#[derive(Clone, Debug)]
pub struct BuiltIn {
    shared: Shared,
}

impl BuiltIn {
    /// Errors: no group.
    pub fn new(group: &Group) -> Result<Self, MembershipError> {
        group.check()?;
        Ok(BuiltIn { shared: Shared::new(Vec::new()) })
    }
}

impl Membership for BuiltIn {
    fn liveness(&self) -> Liveness {
        Liveness::AtOnce
    }
    fn join(&self, member: &Member) -> Result<Box<dyn Seat>, MembershipError> {
        member.check()?;
        Ok(Box::new(self.shared.join(member)?))
    }
    fn watch(&self) -> Result<Box<dyn Watch>, MembershipError> {
        Ok(Box::new(self.shared.watch()?))
    }
    fn fence(&self, name: &str, incarnation: u64) -> Result<(), MembershipError> {
        check_name("member", name)?;
        self.shared.fence(name, incarnation)
    }
}
