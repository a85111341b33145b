//! Labs made of a text written on the spot.

use super::{Ran, run};
use std::fs;

/// A lab under this name, taken down at the end.
pub struct NamedLab(pub &'static str);

impl NamedLab {
    pub fn up(name: &'static str, text: &str) -> NamedLab {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lab.toml");
        fs::write(&file, text).unwrap();
        let up = run(&["lab", "up", file.to_str().unwrap(), "--name", name]);
        assert_eq!(up.status, 0, "{}", up.stderr);
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
