//! What of a real host may reach a command line, and where its workloads may listen.
//!
//! Texts of `[hosts]` end up on the command line of a login client. The scenario decoder refuses what has no business there;
//! the rules here are asked again by whoever starts the process, so that a plan made in another way gains nothing.

use crate::scenario::RealHost;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

/// Longest user, address, path or jump that is taken.
const TEXT_BYTES_MAX: usize = 255;

/// Ports `first` to `last`, both included, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "[u16; 2]", into = "[u16; 2]")]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// `None` unless `0 < first <= last`.
    pub fn new(first: u16, last: u16) -> Option<PortRange> {
        (first > 0 && first <= last).then_some(PortRange { first, last })
    }

    /// Calls `bind` with each port of `range` (with 0, any free one, without a range) until one is not in use.
    /// Errors: those of `bind`; `AddrInUse` when all are taken.
    pub fn bind<T>(range: Option<PortRange>, mut bind: impl FnMut(u16) -> io::Result<T>) -> io::Result<T> {
        let Some(range) = range else { return bind(0) };
        for port in range.first..=range.last {
            match bind(port) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                other => return other,
            }
        }
        let text = format!("every port of {range} is in use; widen data_ports or stop what listens there");
        Err(io::Error::new(io::ErrorKind::AddrInUse, text))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.first, self.last)
    }
}

impl TryFrom<[u16; 2]> for PortRange {
    type Error = String;
    fn try_from([first, last]: [u16; 2]) -> Result<PortRange, String> {
        PortRange::new(first, last).ok_or_else(|| format!("{first}-{last} is no range of ports"))
    }
}

impl From<PortRange> for [u16; 2] {
    fn from(range: PortRange) -> [u16; 2] {
        [range.first, range.last]
    }
}

/// All characters are letters, digits or `marks`, and the first is no dash: nothing a shell or a client takes for something
/// else.
fn check_text(what: &str, text: &str, marks: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > TEXT_BYTES_MAX {
        return Err(format!("{what} has {} bytes; it has 1 to {TEXT_BYTES_MAX}", text.len()));
    }
    if text.starts_with('-') {
        return Err(format!("{what} {text:?} begins with a dash, like an option"));
    }
    match text.chars().find(|c| !c.is_ascii_alphanumeric() && !marks.contains(*c)) {
        Some(c) => Err(format!("{what} {text:?} has a {c:?}; letters, digits and {marks:?} are taken")),
        None => Ok(()),
    }
}

/// `[USER@]HOST[:PORT]`, several separated by commas.
fn check_jump(jump: &str) -> Result<(), String> {
    for hop in jump.split(',') {
        let (user, host) = match hop.split_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, hop),
        };
        user.map_or(Ok(()), |user| check_text("user of jump", user, "._+-"))?;
        check_text("jump", host, "._:%[]-")?;
    }
    Ok(())
}

impl RealHost {
    /// A host with nothing but a name and an address, reached by ssh.
    pub fn new(name: &str, address: &str) -> RealHost {
        RealHost {
            name: name.to_owned(),
            address: address.to_owned(),
            port: None,
            launcher: "ssh".to_owned(),
            user: None,
            jump: None,
            agent: None,
            data_interface: None,
            data_ports: None,
        }
    }

    /// Every text that may reach a command line. Errors: the first that may not, in words.
    pub fn check(&self) -> Result<(), String> {
        let optional = |what: &str, text: &Option<String>, marks: &str| {
            text.as_deref().map_or(Ok(()), |text| check_text(what, text, marks))
        };
        check_text("address", &self.address, "._:%-")?;
        optional("user", &self.user, "._+-")?;
        optional("agent", &self.agent, "._/+@~-")?;
        self.jump.as_deref().map_or(Ok(()), check_jump)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_shell_or_a_client_could_take_for_something_else_gets_through() {
        let hostile = [
            "-oProxyCommand=touch${IFS}x",
            "--",
            "-l",
            "a;b",
            "a b",
            "a$b",
            "a`b`",
            "a\nb",
            "a\0b",
            "a'b",
            "a\"b",
            "a|b",
            "a&b",
            "a>b",
            "a<b",
            "a(b",
            "a\\b",
            "a*b",
            "a?b",
            "a#b",
            "a!b",
            "a=b",
            "",
            "ü",
        ];
        let refused = |what: &str, set: &dyn Fn(&mut RealHost)| {
            let mut host = RealHost::new("a-0", "fine");
            set(&mut host);
            assert!(host.check().is_err(), "{what} was taken");
        };
        for text in hostile {
            let text = || text.to_owned();
            refused(&format!("address {:?}", text()), &|host| host.address = text());
            refused(&format!("user {:?}", text()), &|host| host.user = Some(text()));
            refused(&format!("agent {:?}", text()), &|host| host.agent = Some(text()));
            refused(&format!("jump {:?}", text()), &|host| host.jump = Some(text()));
            refused(&format!("jump gate,{:?}", text()), &|host| host.jump = Some(format!("gate,{}", text())));
            refused(&format!("jump {:?}@gate", text()), &|host| host.jump = Some(format!("{}@gate", text())));
        }
        let mut good = RealHost::new("a-0", "fd00::1%eth0");
        good.jump = Some("me@gate.org:2222,[fd00::2]:22,inner".to_owned());
        good.agent = Some("~/bin/weir-0.1".to_owned());
        assert_eq!(good.check(), Ok(()));
    }

    // Spec: agent-protocol.md#data-2
    #[test]
    fn a_range_of_ports_is_tried_in_order_and_never_left() {
        let range = PortRange::new(5201, 5203);
        let in_use = || io::Error::from(io::ErrorKind::AddrInUse);
        let mut tried = Vec::new();
        let got = PortRange::bind(range, |port| {
            tried.push(port);
            if port < 5203 { Err(in_use()) } else { Ok(port) }
        });
        assert_eq!((got.unwrap(), tried), (5203, vec![5201, 5202, 5203]));
        let all = PortRange::bind::<()>(range, |_| Err(in_use())).unwrap_err();
        assert!(all.to_string().contains("5201-5203"), "{all}");
        let denied = PortRange::bind::<()>(range, |_| Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(denied.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(PortRange::bind(None, Ok).unwrap(), 0);
        assert_eq!(PortRange::bind(PortRange::new(65535, 65535), Ok).unwrap(), 65535);
        assert_eq!((PortRange::new(0, 5), PortRange::new(9, 3)), (None, None));
    }
}
