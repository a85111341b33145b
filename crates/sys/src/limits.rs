//! What the system grants a process: page size, open files, locked memory.

use std::io;

/// Bytes of a memory page.
pub fn page_bytes() -> u64 {
    // Safety: no memory is passed.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// A resource whose use the system bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Open descriptors (`ulimit -n`).
    OpenFiles,
    /// Bytes that may be locked in memory (`ulimit -l`); rings of `io_uring` on older kernels count.
    LockedBytes,
}

/// The bounds of this process: the one in force and the one up to which it may raise that itself. `None` is unlimited.
pub fn limit(resource: Resource) -> io::Result<(Option<u64>, Option<u64>)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let which = match resource {
        Resource::OpenFiles => libc::RLIMIT_NOFILE,
        Resource::LockedBytes => libc::RLIMIT_MEMLOCK,
    };
    // Safety: the pointer is to a struct that outlives the call.
    if unsafe { libc::getrlimit(which as _, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let bound = |value: libc::rlim_t| (value != libc::RLIM_INFINITY).then_some(value);
    Ok((bound(limit.rlim_cur), bound(limit.rlim_max)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_limits_are_those_of_this_system() {
        assert!(page_bytes().is_power_of_two() && page_bytes() >= 4096);
        let (soft, hard) = limit(Resource::OpenFiles).unwrap();
        assert!(soft.unwrap_or(u64::MAX) <= hard.unwrap_or(u64::MAX));
        assert!(soft.is_none_or(|files| files >= 3));
    }
}
