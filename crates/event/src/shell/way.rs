//! A role's way to the scheduler.

use super::hub::Hub;
use super::order::Order;
use std::net::{SocketAddr, TcpStream};
use weir_transport::dial::Call;
use weir_transport::handshake::{Mode, Token};

/// Of the opening of a connection to a scheduler: `docs/specs/event-building.md#connections-1`.
pub const CONTROL: Token = *b"weir event ctrl\n";

pub struct Way {
    scheduler: SocketAddr,
    /// Why it is not reached.
    why: Option<String>,
}

impl Way {
    pub fn to(scheduler: SocketAddr) -> Way {
        Way { scheduler, why: None }
    }

    pub fn call(&self) -> Call {
        Call { address: self.scheduler, mode: Mode::Control, token: CONTROL, flow: 0 }
    }

    /// It was dialled: the connection's number, if one was made. A reason that was not said before is said.
    pub fn on_dialled(
        &mut self,
        result: Result<TcpStream, String>,
        hub: &mut Hub,
        order: &dyn Order,
    ) -> Option<u64> {
        let made = result.and_then(|stream| hub.add(stream).map_err(|error| error.to_string()));
        let before = std::mem::replace(&mut self.why, made.as_ref().err().cloned());
        if let Some(why) = self.why.as_ref().filter(|why| before.as_ref() != Some(*why)) {
            let scheduler = self.scheduler;
            order.warn(&format!(
                "the scheduler at {scheduler} is not reached ({why}); it is tried again until it is"
            ));
        }
        made.ok()
    }
}
