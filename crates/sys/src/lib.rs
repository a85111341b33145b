//! Linux mechanisms: sockets and `TCP_INFO`, namespaces, TUN devices, shared memory, processes, clocks.
//! Every `unsafe` of weir is in this crate, each with the reason why it is sound.

pub mod address;
pub mod bell;
pub mod clock;
pub mod control_group;
pub mod directory;
pub mod epoll;
pub mod errno;
pub mod file;
pub mod holder;
pub mod idle;
pub mod interface;
pub mod limits;
pub mod memory;
pub mod mount;
pub mod netns;
pub mod offload;
pub mod path_probe;
pub mod poll;
pub mod probe;
pub mod process;
pub mod ring;
pub mod shared_memory;
pub mod signal;
pub mod socket;
pub mod sysctl;
pub mod tcp_info;
pub mod trusted;
pub mod tun;
