//! From what an ssh client complains about to one message that says what to do.

use super::words::quoted;
use std::process::ExitStatus;
use weir_core::scenario::RealHost;

/// Why a client ended before there was an agent. `by_hand` is the command a person would type.
pub fn explain(said: &str, status: Option<ExitStatus>, host: &RealHost, by_hand: &str) -> String {
    let quote = quoted(said);
    let advice = advice(said, status.and_then(|status| status.code()), host, by_hand);
    let ended = status.map_or_else(
        || "the ssh client fell silent".to_owned(),
        |status| format!("the ssh client {}", weir_sys::process::describe(status)),
    );
    match (quote, advice) {
        (Some(quote), Some(advice)) => format!("{advice}\n  ssh said: {quote}"),
        (Some(quote), None) => format!("{ended}; ssh said: {quote}\n  try by hand: {by_hand} true"),
        (None, Some(advice)) => format!("{advice} ({ended})"),
        (None, None) => format!("{ended} and said nothing; try by hand: {by_hand} true"),
    }
}

fn advice(said: &str, code: Option<i32>, host: &RealHost, by_hand: &str) -> Option<String> {
    let has = |text: &str| said.contains(text);
    if has("REMOTE HOST IDENTIFICATION HAS CHANGED") {
        return Some(format!(
            "its host key is not the one known here: another machine may be answering. If it was installed anew, remove the \
             old key (ssh-keygen -R {}) and log in once by hand: {by_hand}",
            known_as(host)
        ));
    }
    if has("Host key verification failed") || has("host key is known") {
        return Some(format!(
            "its host key is not known here, and weir takes none on trust: log in once by hand, compare the fingerprint and \
             accept it: {by_hand}{}",
            if host.jump.is_some() { " (through the jump host, whose key must be known too)" } else { "" }
        ));
    }
    if has("Permission denied (") || has("Too many authentication failures") {
        return Some(format!(
            "no key of yours is accepted there, and weir never asks for a password: load it (ssh-add), install it \
             (ssh-copy-id), or set `user`; this must work: ssh -o BatchMode=yes {} true",
            by_hand.trim_start_matches("ssh ")
        ));
    }
    if has("Could not resolve hostname") {
        return Some("its address has no entry in the name service: correct `address` in [hosts]".to_owned());
    }
    let unreachable =
        ["Connection refused", "timed out", "No route to host", "Network is unreachable", "Connection reset"];
    if unreachable.iter().any(|text| has(text)) {
        return Some(format!(
            "it cannot be reached: is it up, does sshd listen there, is a firewall or a jump host (`jump`) between? Try: {by_hand}"
        ));
    }
    agent_advice(said, code, host)
}

/// The name under which a client keeps a host's key: another port than ssh's own belongs to it.
fn known_as(host: &RealHost) -> String {
    match host.port {
        Some(port) if port != 22 => format!("'[{}]:{port}'", host.address),
        _ => host.address.clone(),
    }
}

/// What to do about an agent that a login could not start.
pub fn agent_advice(said: &str, code: Option<i32>, host: &RealHost) -> Option<String> {
    match (&host.agent, code) {
        (Some(path), Some(126 | 127)) => Some(format!(
            "{path} is no program that can be run there: install weir {} there, correct `agent`, or leave it out and this \
             one is copied",
            env!("CARGO_PKG_VERSION")
        )),
        (None, Some(1 | 126 | 127)) if ["GLIBC", "exec", "denied"].iter().any(|text| said.contains(text)) => Some(
            "the copied agent cannot be run there (an older C library, or a home without the right to execute?): install weir \
             there and name it with `agent`"
                .to_owned(),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn told(said: &str, code: i32, agent: Option<&str>) -> String {
        let mut host = RealHost::new("a-0", "far");
        host.agent = agent.map(str::to_owned);
        explain(said, Some(ExitStatus::from_raw(code << 8)), &host, "ssh me@far")
    }

    // Spec: agent-protocol.md#ssh-5
    #[test]
    fn each_way_to_fail_says_what_to_do_and_keeps_the_clients_words() {
        for (said, code, agent, wanted) in [
            ("Host key verification failed.", 255, None, "log in once by hand"),
            (
                "No ED25519 host key is known for far and you have requested strict checking.",
                255,
                None,
                "log in once",
            ),
            ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @", 255, None, "ssh-keygen -R far"),
            ("me@far: Permission denied (publickey).", 255, None, "ssh -o BatchMode=yes me@far true"),
            (
                "ssh: Could not resolve hostname far: Name or service not known",
                255,
                None,
                "correct `address`",
            ),
            ("ssh: connect to host far port 22: Connection refused", 255, None, "cannot be reached"),
            ("ssh: connect to host far port 22: Connection timed out", 255, None, "cannot be reached"),
            ("sh: 1: exec: /opt/weir: not found", 127, Some("/opt/weir"), "leave it out"),
            ("/x: version `GLIBC_2.99' not found", 1, None, "older C library"),
        ] {
            let text = told(said, code, agent);
            assert!(text.contains(wanted), "{said:?} became {text:?}");
            let kept = said.trim_matches(|c| c == '@' || c == ' ');
            assert!(text.contains(kept), "{said:?} is not in {text:?}");
        }
        let strange = told("kex_exchange: something new", 255, None);
        assert!(strange.contains("something new") && strange.contains("by hand"), "{strange}");
        assert_eq!(
            told("", 255, None),
            "the ssh client exited with status 255 and said nothing; try by hand: ssh me@far true"
        );
    }

    #[test]
    fn a_changed_key_is_removed_under_the_name_it_is_kept_by() {
        let command = |port| {
            let host = RealHost { port, ..RealHost::new("a-0", "far") };
            explain("REMOTE HOST IDENTIFICATION HAS CHANGED!", None, &host, "ssh far")
        };
        assert!(command(Some(2200)).contains("(ssh-keygen -R '[far]:2200')"), "{}", command(Some(2200)));
        assert!(command(Some(22)).contains("(ssh-keygen -R far)"), "{}", command(Some(22)));
    }

    #[test]
    fn what_the_far_side_says_cannot_steer_the_terminal_or_fill_it() {
        let hostile = format!("\u{1b}[2J\u{7}owned\r{}\n", "x".repeat(100_000));
        let text = quoted(&hostile.repeat(50)).unwrap();
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert!(text.len() < 4000, "{} bytes", text.len());
        assert_eq!(quoted("\n \n@@@@\n"), None);
    }
}
