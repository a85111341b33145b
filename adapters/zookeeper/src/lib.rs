//! Membership by Apache ZooKeeper, 3.6 or later: a member is an ephemeral node, which ends with its session.
//!
//! ```text
//! ROOT/RUN/ROLE/NAME          ephemeral: the member as JSON
//! ROOT/RUN/ROLE.fences/NAME   the lowest incarnation that may have the name, in decimal
//! ```
//!
//! A member takes its name in one transaction: it raises the fence to its own incarnation, removes the node of an older one and makes
//! its own. Whatever the order in which two of one name come, the later stays, and the older finds its node gone and the fence above
//! it. The foreign client needs an async runtime: it has one thread of its own for each service opened, and a second, for all of
//! them, that waits for their sockets. Nothing of it is on a data path.

mod line;
mod place;
mod seat;
mod service;
mod watch;
mod words;

pub use service::ZooKeeper;

use weir_core::{Kind, Param};
use weir_seams::Entry;
use weir_seams::membership::MembershipEntry;

const PARAMS: &[Param] = &[
    Param::new("servers", Kind::Text, "ZooKeeper's servers: HOST:PORT, several with commas between.")
        .default("127.0.0.1:2181"),
    Param::new(
        "session_timeout",
        Kind::Duration,
        "A member that is silent for so long is gone. A server grants 2 to 20 of its ticks unless it is set otherwise.",
    )
    .default("5s")
    .range(1e8, 3.6e12),
    Param::new("root", Kind::Text, "The node in ZooKeeper below which everything is kept; made if missing.")
        .default("/weir"),
];

pub static MEMBERSHIPS: &[MembershipEntry] = &[Entry {
    name: "zookeeper",
    about: "ephemeral nodes in Apache ZooKeeper, watched; a session time-out tells who is gone",
    params: PARAMS,
    needs: &[],
    build: |values, group| Ok(Box::new(ZooKeeper::from_values(values, group)?)),
}];
