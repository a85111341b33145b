//! How the datagrams of a flow find their way: beside each connection its acceptor listens over UDP and says first of all where,
//! with a key that was made for this flow alone.

use crate::rendezvous::{self, Body, Flow, Side};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use weir_core::hosts::PortRange;
use weir_seams::workload::{Assignment, Control, WorkloadError};
use weir_transport::address::{Shown, at_port};
use weir_transport::associate;
use weir_transport::tcp_options::TcpOptions;
use weir_transport::udp::{Association, UdpGate};
use weir_transport::{Key, key};

const SECRET_BYTES: usize = 32;
/// Port and secret.
const GREETING_BYTES: usize = 2 + SECRET_BYTES;
/// How long the word about the port, and the association, may take to come.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest wait before the orders are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// The association belongs to its key; it needs no session.
const NO_TOKEN: [u8; 16] = [0; 16];

/// What an end has for the datagrams of one flow.
pub enum Meeting {
    Here(Place),
    There(Directions),
}

pub struct Place {
    gate: UdpGate,
    greeting: [u8; GREETING_BYTES],
}

pub struct Directions {
    address: SocketAddr,
    key: Key,
}

fn key_of(secret: &[u8]) -> io::Result<Key> {
    Key::from_bytes(secret).map_err(|error| io::Error::other(error.to_string()))
}

impl Place {
    /// Listens at a free port beside `address`, within `ports` if there are some.
    fn open(address: SocketAddr, ports: Option<PortRange>) -> io::Result<Place> {
        let secret: [u8; SECRET_BYTES] = key::random()?;
        let gate = PortRange::bind(ports, |port| {
            UdpGate::bind(at_port(address, port), Some(key_of(&secret).map_err(io::Error::other)?))
        })?;
        let mut greeting = [0; GREETING_BYTES];
        greeting[..2].copy_from_slice(&gate.address()?.port().to_le_bytes());
        greeting[2..].copy_from_slice(&secret);
        Ok(Place { gate, greeting })
    }
}

impl Directions {
    fn hear(mut flow: &TcpStream) -> io::Result<Directions> {
        let mut greeting = [0; GREETING_BYTES];
        flow.set_nonblocking(false)?;
        flow.set_read_timeout(Some(LIMIT))?;
        flow.read_exact(&mut greeting)?;
        flow.set_read_timeout(None)?;
        let port = u16::from_le_bytes([greeting[0], greeting[1]]);
        let address = at_port(flow.peer_addr()?, port);
        Ok(Directions { address, key: key_of(&greeting[2..])? })
    }
}

impl Meeting {
    /// The association, made now. Errors: it could not be made in time, with what to do.
    pub fn meet(self, control: &Control) -> io::Result<Association> {
        match self {
            Meeting::There(Directions { address, key }) => {
                associate::open(address, NO_TOKEN, 0, Some(&key), LIMIT).map_err(|error| {
                    let text = format!(
                        "{} does not answer over UDP: {error}; does a firewall let UDP through?",
                        Shown(address)
                    );
                    io::Error::new(ErrorKind::TimedOut, text)
                })
            }
            Meeting::Here(Place { mut gate, .. }) => {
                let until = Instant::now() + LIMIT;
                while Instant::now() < until && !control.is_cut() {
                    if let Some(arrival) = gate.next(LOOK, |token, _| *token == NO_TOKEN)? {
                        return Ok(arrival.association);
                    }
                }
                let text = "the other end never came over UDP; does a firewall let UDP through?";
                Err(io::Error::new(ErrorKind::TimedOut, text))
            }
        }
    }
}

/// Both ends of the flows of an assignment; meetings are by the index of the flow.
pub fn prepare(
    assignment: &Assignment,
    options: &TcpOptions,
) -> Result<(Side, BTreeMap<u32, Meeting>), WorkloadError> {
    if assignment.role != rendezvous::ACCEPT {
        let side = Side::prepare(assignment, options)?;
        let meetings = if let Side::Connect(flows) = &side { hear_all(flows)? } else { BTreeMap::new() };
        return Ok((side, meetings));
    }
    let body = Body::of(assignment)?;
    let (mut greetings, mut meetings) = (BTreeMap::new(), BTreeMap::new());
    for flow in &body.flows {
        let place = Place::open(SocketAddr::new(body.address, 0), assignment.data_ports)
            .map_err(|error| WorkloadError::new(format!("host {}: {error}", assignment.host)))?;
        greetings.insert(flow.index, place.greeting);
        meetings.insert(flow.index, Meeting::Here(place));
    }
    let side = Side::prepare_greeting(assignment, options, move |index, mut stream: &TcpStream| {
        greetings.get(&index).map_or(Ok(()), |greeting| stream.write_all(greeting))
    })?;
    Ok((side, meetings))
}

/// Opens a place for each flow, at the address that the flow has come to, and tells it.
pub fn open_and_greet(flows: &[Flow]) -> io::Result<BTreeMap<u32, Meeting>> {
    let opened = flows.iter().map(|flow| {
        let place = Place::open(flow.stream.local_addr()?, None)?;
        (&flow.stream).write_all(&place.greeting)?;
        Ok((flow.spec.index, Meeting::Here(place)))
    });
    opened.collect()
}

/// Where the datagrams of flows go that are told of it.
pub fn hear_all(flows: &[Flow]) -> Result<BTreeMap<u32, Meeting>, WorkloadError> {
    let heard = flows.iter().map(|flow| {
        let directions = Directions::hear(&flow.stream).map_err(|error| {
            let entity = &flow.spec.entity;
            WorkloadError::new(format!("{entity}: where its datagrams go was not told: {error}"))
        })?;
        Ok((flow.spec.index, Meeting::There(directions)))
    });
    heard.collect()
}
