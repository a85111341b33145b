//! The roles on real sockets: one thread and one epoll each around a pure core, and threads beside it that let peers in and make
//! connections.

mod builder;
mod hub;
mod news;
mod order;
mod pipe;
mod scheduler;
mod source;
mod way;

pub use builder::BuilderShell;
pub(crate) use news::DIAL_LIMIT;
pub use order::Order;
pub use scheduler::SchedulerShell;
pub use source::SourceShell;
pub use way::CONTROL;

use std::io;
use thiserror::Error;
use weir_transport::handshake::Token;

/// What ended a role that could have gone on: what happened, and where.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ShellError(pub String);

impl ShellError {
    pub(crate) fn of(what: &'static str) -> impl Fn(io::Error) -> ShellError {
        move |error| ShellError(format!("{what}: {error}"))
    }
}

/// The run's token of an opening, from its id.
pub fn token_of(run: &str) -> Option<Token> {
    let mut token = Token::default();
    if run.len() != 2 * token.len() || !run.is_ascii() {
        return None;
    }
    for (place, byte) in token.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&run[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(token)
}
