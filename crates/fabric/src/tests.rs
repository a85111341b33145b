//! Claims about the whole fabric.

mod disciplines;
mod faults;
mod horizon;
pub(crate) mod lab;
mod networks;
mod order;
mod routers;
mod timing;
mod wires;
