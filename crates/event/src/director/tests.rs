//! Claims under virtual time: the director among scripted peers, with faults drawn from a seed.

mod claims;
mod parts;
mod peers;
mod recovery;
mod world;
