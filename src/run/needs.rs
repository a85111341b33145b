//! What the machine must offer, probed before anything starts.

use crate::doctor::{self, Severity};
use anyhow::bail;
use std::fs::OpenOptions;
use std::process::{Command, Stdio};
use weir_seams::entry::Need;
use weir_sys::process::User;

/// Errors: the first need that is not met, and how to meet it, as `weir doctor` would say.
pub fn probe(needs: &[Need]) -> anyhow::Result<()> {
    let met = |need: &Need| match need {
        Need::Root => User::real().uid == 0,
        Need::SshClient => Command::new("ssh").arg("-V").stderr(Stdio::null()).status().is_ok(),
        Need::Tun => OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok(),
    };
    if needs.iter().all(met) {
        return Ok(());
    }
    if needs.contains(&Need::Root) && !met(&Need::Root) {
        bail!("a lab makes network namespaces and needs root: run again with sudo");
    }
    if needs.contains(&Need::SshClient) && !met(&Need::SshClient) {
        bail!(
            "real hosts are reached by the OpenSSH client, and `ssh` cannot be started: install it (package openssh-client)"
        );
    }
    // Only now the whole look, which takes a while.
    let found = doctor::needed(&doctor::Facts::read());
    match found.into_iter().find(|finding| finding.severity == Severity::Problem) {
        Some(finding) => {
            let mend = finding.mend.map_or(String::new(), |mend| format!("\n  {mend}"));
            bail!("{}{mend}\n  everything else that a lab needs: weir doctor", finding.text)
        }
        None => bail!("a lab cannot run here; `weir doctor` says why"),
    }
}
