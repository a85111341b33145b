//! The words every part of weir shares: units, time, parameters, topology, scenario, records, statistics, models.
//! No I/O and no threads live here; `cargo xtask tidy` checks it.

pub mod behind;
pub mod chunk;
pub mod evidence;
pub mod fabric_page;
pub mod failure;
pub mod fault;
pub mod hosts;
pub mod judge;
pub mod metric;
pub mod model;
pub mod nearest;
pub mod param;
pub mod range;
pub mod record;
pub mod regression;
pub mod scenario;
pub mod schedule;
pub mod seed;
pub mod shown;
pub mod statistics;
pub mod text;
pub mod time;
pub mod times;
pub mod topology;
pub mod units;

pub use param::{Kind, Param, Value, Values};
pub use time::Instant;
pub use units::{BitsPerSecond, Bytes, Hertz};
