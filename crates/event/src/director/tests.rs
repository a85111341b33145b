//! Claims under virtual time: the director among scripted peers, with faults drawn from a seed.

mod claims;
mod garbage;
mod hand;
mod parts;
mod peers;
mod recovery;
mod rules;
mod speed;
mod world;
