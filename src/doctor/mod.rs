//! What this host can and cannot do for weir, and how to mend it.

pub mod facts;
pub mod findings;
pub mod stillness;

pub use facts::Facts;
#[cfg(feature = "lab")]
pub use findings::needed;
pub use findings::{Finding, Path, Severity, findings};
