//! The answering end of a flow: replies to requests, accounts for the train, takes the transfer.

use super::found::Received;
use super::plan::PathPlan;
use super::probe::{HERE, TRANSFER, left};
use super::transfer;
use crate::rendezvous::Flow;
use crate::threads::Guard;
use crate::udp::account::Account;
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use weir_core::Instant;
use weir_seams::workload::Control;
use weir_sys::clock;
use weir_transport::datagram::{HEADER_BYTES, Header, Kind};
use weir_transport::udp::{Association, DATAGRAM_BYTES_MAX, is_peers};

/// Longest wait before the connection and the orders are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How many flows of this end still answer. Ways back begin when there are none, so that they do not meet the ways there.
pub struct Turns(AtomicUsize);

impl Turns {
    pub const LOOK: Duration = Duration::from_millis(5);

    pub fn new(answering: usize) -> Turns {
        Turns(AtomicUsize::new(answering))
    }
    pub fn over(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
    /// Called once for each that answers.
    pub fn done(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

pub struct Answerer<'a> {
    pub plan: &'a PathPlan,
    pub control: &'a Control,
    pub guard: &'a Guard,
}

impl Answerer<'_> {
    pub fn run(&self, flow: &Flow, association: &Association, received: &mut Received) -> io::Result<()> {
        let mut account = Account::new(0)?;
        let result = self.answer(&flow.stream, association, &mut account);
        received.distinct = account.distinct;
        received.duplicate = account.duplicate;
        received.reordered = account.reordered;
        received.extent_max = account.extent_max;
        result?;
        received.out_of_order = transfer::receive(&flow.stream, self.plan.transfer_bytes, self.guard)?;
        Ok(())
    }

    /// Until the probing end says that the transfer begins.
    fn answer(&self, stream: &TcpStream, association: &Association, account: &mut Account) -> io::Result<()> {
        let socket = &association.socket;
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(LOOK))?;
        stream.set_nonblocking(true)?;
        let mut bytes = vec![0; DATAGRAM_BYTES_MAX + 1];
        let mut reply = [0; HEADER_BYTES];
        let (mut moved, mut looked) = (0, Instant::ZERO);
        loop {
            let came = socket.recv(&mut bytes);
            let now = clock::monotonic();
            match came {
                Ok(count) => match association.header(&bytes[..count]) {
                    Some(Header { tag, kind: Kind::Request, number }) => {
                        Header { tag, kind: Kind::Reply, number }.write(&mut reply);
                        // A reply that cannot be sent is one that is lost.
                        let _ = socket.send(&reply);
                        moved += 1;
                    }
                    Some(Header { kind: Kind::Message, number, .. }) if count >= HEADER_BYTES + 8 => {
                        let mut sent = [0; 8];
                        sent.copy_from_slice(&bytes[HEADER_BYTES..HEADER_BYTES + 8]);
                        account.on_datagram(number, u64::from_le_bytes(sent), now.as_ns());
                        moved += 1;
                    }
                    _ => {
                        association.reopened(&bytes[..count]);
                    }
                },
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) if is_peers(&error) => {}
                Err(error) => return Err(error),
            }
            self.guard.moved(moved);
            if self.control.is_cut() {
                return Err(io::Error::new(ErrorKind::Interrupted, "cut short"));
            }
            if now.since(looked) < LOOK {
                continue;
            }
            looked = now;
            loop {
                let (mut word, mut input) = ([0; 1], stream);
                match input.read(&mut word) {
                    Ok(1) if word[0] == HERE => moved += 1,
                    Ok(1) if word[0] == TRANSFER => {
                        return stream.set_nonblocking(false);
                    }
                    Ok(1) => {
                        let text = format!("the other end says {}, which is no word", word[0]);
                        return Err(io::Error::new(ErrorKind::InvalidData, text));
                    }
                    Ok(_) => return Err(left(ErrorKind::UnexpectedEof.into())),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(left(error)),
                }
            }
        }
    }
}
