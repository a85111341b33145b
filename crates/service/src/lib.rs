//! Real systems as services: a recipe says what a system is made of, and this brings it up on hosts, sees that it lives, and takes
//! it down. Its rules are numbered in docs/specs/services.md.

mod bring_up;
mod daemon;
mod error;
mod faults;
mod library;
mod recipe;
mod running;
mod template;

pub use bring_up::{Fill, Folder, Ground, Prepared, Setting, prepare};
pub use daemon::Daemon;
pub use error::ServiceError;
pub use faults::FAULTS;
pub use library::{Builtin, Library};
pub use recipe::Recipe;
pub use running::Running;
pub use template::shares_disks;
