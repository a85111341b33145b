//! Kernel settings below `/proc/sys/net`, which belong to the network namespace of the thread that touches them.

use std::fs;
use std::io;
use std::path::PathBuf;

/// The settings of a namespace that is not the process's own: nothing of weir changes the machine's own settings.
pub struct Sysctls {
    _made_here: (),
}

/// Reads a setting of the calling thread's namespace; surrounding white space is taken off.
pub fn read(name: &str) -> io::Result<String> {
    Ok(fs::read_to_string(Sysctls::path(name))?.trim().to_owned())
}

impl Sysctls {
    /// Errors: `PermissionDenied` when the calling thread is in its process's own namespace.
    pub fn of_this_thread() -> io::Result<Self> {
        if crate::netns::at_home()? {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "this thread is in the machine's own network namespace, whose settings are not ours to change",
            ));
        }
        Ok(Sysctls { _made_here: () })
    }

    fn path(name: &str) -> PathBuf {
        // Names have dots for slashes as in sysctl(8).
        PathBuf::from(format!("/proc/sys/{}", name.replace('.', "/")))
    }

    /// Reads `net.ipv4.tcp_rmem`; surrounding white space is taken off.
    pub fn read(&self, name: &str) -> io::Result<String> {
        read(name)
    }
    pub fn write(&self, name: &str, value: &str) -> io::Result<()> {
        fs::write(Self::path(name), value)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_settings_of_the_machine_itself_are_refused() {
        let refused = super::Sysctls::of_this_thread().err().expect("must be refused at home");
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    }
}
