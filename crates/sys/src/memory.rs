//! What this process takes of the machine's memory (`proc(5)`: status, clear_refs).

use std::fs;

/// The most memory that is resident, from a moment on.
#[derive(Clone, Copy, Debug)]
pub struct ResidentPeak {
    begun_bytes: u64,
}

impl ResidentPeak {
    /// The mark is set back for the whole process: of two that watch, the later sees its own stretch only.
    pub fn begin() -> ResidentPeak {
        // Where it cannot be set back the mark is that of the whole life of the process, which is no less.
        let _ = fs::write("/proc/self/clear_refs", "5");
        ResidentPeak { begun_bytes: status_bytes("VmRSS:").unwrap_or(0) }
    }

    /// Bytes above what was resident at the beginning, at the most since; 0 where the kernel does not say.
    pub fn grown_bytes(&self) -> u64 {
        status_bytes("VmHWM:").unwrap_or(0).saturating_sub(self.begun_bytes)
    }
}

fn status_bytes(key: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_does_not_count_and_what_is_freed_does() {
        let before = std::hint::black_box(vec![1u8; 64 << 20]);
        let peak = ResidentPeak::begin();
        drop(std::hint::black_box(vec![1u8; 32 << 20]));
        let grown = peak.grown_bytes();
        assert!((30 << 20..60 << 20).contains(&grown), "{grown}");
        assert_eq!(before[before.len() / 2], 1);
    }
}
