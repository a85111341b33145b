//! What the registry knows of an implementation.

use weir_core::Param;

/// One implementation of a seam: feeds the command line's values, `weir list`, the guide and the conformance suite.
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
