//! What the machine must offer, probed before anything starts.

use anyhow::bail;
use std::fs::OpenOptions;
use std::process::{Command, Stdio};
use weir_seams::entry::Need;
use weir_sys::process::User;

/// Errors: the first need that is not met, and how to meet it.
pub fn probe(needs: &[Need]) -> anyhow::Result<()> {
    for need in needs {
        match need {
            Need::Root => {
                if User::real().uid != 0 {
                    bail!("a lab makes network namespaces and needs root: run again with sudo");
                }
            }
            Need::SshClient => {
                if let Err(error) = Command::new("ssh").arg("-V").stderr(Stdio::null()).status() {
                    bail!(
                        "real hosts are reached by the OpenSSH client, and `ssh` cannot be started ({error}): install                          it (package openssh-client)"
                    );
                }
            }
            Need::Tun => {
                if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
                    bail!(
                        "a lab's hosts are TUN devices and /dev/net/tun cannot be opened ({error}): \
                         load it with `modprobe tun`"
                    );
                }
            }
        }
    }
    Ok(())
}
