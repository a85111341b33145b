//! The roles on real sockets: one thread and one epoll each around a pure core, and threads beside it that let peers in and make
//! connections.

mod hub;
mod news;
mod pipe;
