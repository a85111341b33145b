//! What ZooKeeper's errors mean for who runs weir, and what to do.

use zookeeper_client::Error;

/// After `servers` (as configured) has failed with `error`.
pub(crate) fn of(servers: &str, error: &Error) -> String {
    let advice = match error {
        Error::NoHosts | Error::Timeout | Error::ConnectionLoss => {
            "does not answer; is it running, and is this its client port? It is tried again and again"
        }
        Error::SessionExpired | Error::SessionMoved | Error::ClientClosed => {
            "has ended the session: it heard nothing for the time-out, or has lost its data. A new one is begun"
        }
        Error::NoAuth | Error::AuthFailed | Error::InvalidAcl => {
            "does not permit it: its ACL must let this client create, read and delete below `root`; or name another root"
        }
        Error::Unimplemented => "is too old: 3.6 or later is needed, for watches that last",
        Error::NotReadOnly => "has no majority and only lets read; start its other servers",
        Error::QuotaExceeded => "has a quota below `root` that is used up; raise it there",
        Error::NotEmpty => "has nodes below a member's own; remove them there",
        Error::NoChildrenForEphemerals => "has an ephemeral node where a folder should be; remove it there",
        _ => return format!("ZooKeeper ({servers}): {error}; it is tried again"),
    };
    format!("ZooKeeper ({servers}) {advice} ({error})")
}
