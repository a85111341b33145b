//! Labs made of a text written on the spot.

use super::{Ran, run};
use std::fs;

/// A lab of the sites `left` and `right` with a host each, and `rest`, which says what lies between them. `keys` are further
/// ones of the one and of the other site.
pub fn two_sites(keys: [&str; 2], rest: &str) -> String {
    let [left, right] = keys;
    format!(
        r#"
[lab]
[[lab.site]]
name = "left"
hosts = 1
access = {{ rate = "1Gbit/s", delay = "20us", mtu = 1500 }}
{left}
[[lab.site]]
name = "right"
hosts = 1
access = {{ rate = "1Gbit/s", delay = "20us", mtu = 1500 }}
{right}
{rest}
"#
    )
}

/// Two sites and one link, `wan`, with these keys.
pub fn over(keys: &str) -> String {
    two_sites(["", ""], &format!("[[lab.link]]\nname = \"wan\"\nbetween = [\"left\", \"right\"]\n{keys}"))
}

/// `lab up`, where tests that were killed may have left a lab of this name, up or dead.
pub fn bring_up(file: &str, name: &str) {
    run(&["lab", "down", name]);
    let up = run(&["lab", "up", file, "--name", name]);
    assert_eq!(up.status, 0, "{}", up.stderr);
}

/// A lab under this name, taken down at the end.
pub struct NamedLab(pub &'static str);

impl NamedLab {
    pub fn up(name: &'static str, text: &str) -> NamedLab {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lab.toml");
        fs::write(&file, text).unwrap();
        bring_up(file.to_str().unwrap(), name);
        NamedLab(name)
    }
    pub fn exec(&self, host: &str, command: &[&str]) -> Ran {
        let mut arguments = vec!["lab", "exec", self.0, host, "--"];
        arguments.extend(command);
        run(&arguments)
    }
}

impl Drop for NamedLab {
    fn drop(&mut self) {
        run(&["lab", "down", self.0]);
    }
}
