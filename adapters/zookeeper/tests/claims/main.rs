//! Claims about membership by ZooKeeper, with a real server and with hostile ones.

mod hostile_server;
mod real_server;
mod support;
