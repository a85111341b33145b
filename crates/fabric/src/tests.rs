//! Claims about the whole fabric.

mod faults;
mod horizon;
pub(crate) mod lab;
mod order;
mod routers;
mod timing;
mod wires;
