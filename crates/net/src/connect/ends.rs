//! The two ends of a connect step, a thread for each flow: one connection after the other, each with a request and a response.

use super::outcome::{Made, Phases, Report};
use super::plan::{Close, ConnectPlan};
use crate::door::{Door, Link, TOKEN_BYTES, Way};
use crate::latency::pingpong::Until;
use crate::rendezvous::Flow;
use crate::stream::engine::wait_for_start;
use crate::threads::{self, Guard};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use weir_seams::workload::Control;
use weir_sys::poll::{self, Interest};
use weir_sys::{clock, socket};

/// The byte after the token: another connection, or the flow's last, which is none that counts.
const MORE: u8 = 1;
const LAST: u8 = 0;
/// How long a stranger's connection may say nothing.
const TOKEN_LIMIT: Duration = Duration::from_secs(1);

pub struct End<'a> {
    pub plan: &'a ConnectPlan,
    pub control: &'a Control,
    pub guard: &'a Guard,
}

fn now_ns() -> u64 {
    clock::monotonic().as_ns()
}

impl End<'_> {
    pub fn run(&self, flow: Flow, link: Option<Link>) -> Report {
        let Flow { spec, stream } = flow;
        let makes = matches!(link, Some(Link::Way(_)));
        let mut report = Report { entity: spec.entity.clone(), ..Report::default() };
        let result = threads::prepare(&stream).and_then(|()| match link {
            Some(Link::Way(way)) => self.make(&way, &mut report),
            Some(Link::Door(door)) => self.take(&stream, door),
            None => Err(io::Error::other("the flow was told of no way: this is a bug of weir")),
        });
        // How a connection broke that was cut from here tells nothing.
        if let (Err(error), false) = (result, self.control.is_cut()) {
            let operation = if makes { "connect" } else { "accept" };
            report.failure = Some(spec.failure(operation, &self.guard.explain(error)));
        }
        if self.control.aborted() || report.failure.is_some() {
            // The peer must not wait for what will not come.
            let _ = socket::reset_on_close(stream.as_fd());
        }
        report
    }

    /// The client's end.
    fn make(&self, way: &Way, report: &mut Report) -> io::Result<()> {
        let plan = self.plan;
        let mut phases = Phases::new()?;
        let mut made = Made { entity: report.entity.clone(), ..Made::default() };
        let mut request = [way.token.as_slice(), &[MORE]].concat();
        request.resize(TOKEN_BYTES + 1 + plan.request_bytes as usize, 0x57);
        let mut response = vec![0; plan.response_bytes as usize];
        let start = self.control.start_at();
        if !wait_for_start(self.control, start) {
            return Ok(());
        }
        let (count_max, end_ns) = match plan.until {
            Until::Count(count) => (count, u64::MAX),
            Until::Duration(duration) => (u64::MAX, (start + duration).as_ns()),
        };
        let counted_from_ns = (start + plan.warm_up).as_ns();
        let (mut done, mut failed) = (0, None);
        let mut before_ns = now_ns();
        while done < count_max && before_ns < end_ns && !self.control.stopping() {
            match self.one(way, &request, &mut response) {
                Ok([connected_ns, answered_ns, closed_ns]) => {
                    done += 1;
                    self.guard.moved(done);
                    if closed_ns >= counted_from_ns && closed_ns <= end_ns {
                        phases.handshake.record(connected_ns - before_ns);
                        phases.exchange.record(answered_ns - connected_ns);
                        phases.close.record(closed_ns - answered_ns);
                        phases.total.record(closed_ns - before_ns);
                        made.connections += 1;
                        made.last_ns = closed_ns.saturating_sub(start.as_ns());
                    }
                    self.control.advance(1);
                    before_ns = closed_ns;
                }
                Err(error) => {
                    failed = Some(io::Error::new(
                        error.kind(),
                        format!("connection {done}: {}", explained(&error)),
                    ));
                    break;
                }
            }
        }
        if done < count_max && before_ns < end_ns {
            made.ended_early_ns = Some(now_ns().saturating_sub(start.as_ns()));
        }
        report.made = Some((made, phases));
        if let Some(error) = failed {
            return Err(error);
        }
        if self.control.is_cut() {
            return Ok(());
        }
        // The server waits at its door until it is told.
        request[TOKEN_BYTES] = LAST;
        self.one(way, &request, &mut response).map(drop)
    }

    /// One connection: when it was connected, answered, closed.
    fn one(&self, way: &Way, request: &[u8], response: &mut [u8]) -> io::Result<[u64; 3]> {
        let mut stream = way.connect_quickly(&self.plan.tcp)?;
        let connected_ns = now_ns();
        stream.write_all(request)?;
        stream.read_exact(response)?;
        let answered_ns = now_ns();
        match self.plan.close {
            Close::Server => {
                if stream.read(&mut [0])? > 0 {
                    return Err(io::Error::new(ErrorKind::InvalidData, "the response is too long"));
                }
            }
            Close::Client => {}
            Close::Reset => socket::reset_on_close(stream.as_fd())?,
        }
        drop(stream);
        Ok([connected_ns, answered_ns, now_ns()])
    }

    /// The server's end.
    fn take(&self, flow: &TcpStream, door: Door) -> io::Result<()> {
        let plan = self.plan;
        let (listener, token) = door.into_waiting()?;
        self.guard.attend_with_flow(listener.as_fd());
        let mut request = vec![0; TOKEN_BYTES + 1 + plan.request_bytes as usize];
        let response = vec![0x57; plan.response_bytes as usize];
        if !wait_for_start(self.control, self.control.start_at()) {
            return Ok(());
        }
        let mut done = 0;
        loop {
            let (mut stream, _) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(_) if self.control.is_cut() => return Ok(()),
                Err(error) if passes(&error) => continue,
                // Shut down from outside: the client has left, or nothing came for too long.
                Err(_) if poll::wait(flow.as_fd(), Interest::Readable, Duration::ZERO)? => {
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, "the client ended the flow"));
                }
                Err(error) => return Err(error),
            };
            stream.set_read_timeout(Some(TOKEN_LIMIT))?;
            // A client that left in between is its own end's to report, a stranger is nobody's.
            if stream.read_exact(&mut request).is_err() || request[..TOKEN_BYTES] != token {
                continue;
            }
            if stream.write_all(&response).is_err() {
                continue;
            }
            done += 1;
            self.guard.moved(done);
            match plan.close {
                Close::Server => drop(stream),
                // Until the client has closed, so that TIME-WAIT is its.
                Close::Client | Close::Reset => {
                    let _ = stream.read(&mut [0]);
                    let _ = stream.shutdown(Shutdown::Both);
                }
            }
            if request[TOKEN_BYTES] == LAST {
                return Ok(());
            }
        }
    }
}

fn passes(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted)
}

/// Says what to do where the client has no port left.
fn explained(error: &io::Error) -> String {
    if error.kind() == ErrorKind::AddrNotAvailable {
        return format!(
            "{error}; close = \"server\" keeps those of earlier connections at the other end, \"reset\" nowhere"
        );
    }
    error.to_string()
}
