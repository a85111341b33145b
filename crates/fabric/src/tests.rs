//! Claims about the whole fabric.

mod faults;
mod lab;
mod order;
mod timing;
