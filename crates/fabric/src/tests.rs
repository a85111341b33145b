//! Claims about the whole fabric.

mod faults;
mod horizon;
mod lab;
mod order;
mod timing;
