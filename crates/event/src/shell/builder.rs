//! The builder on real sockets.

use super::hub::Hub;
use super::news::{Dialer, Door, News};
use super::order::Order;
use super::way::Way;
use super::{ShellError, token_of};
use crate::builder::{Action, Builder, Built, Refusal};
use std::collections::BTreeSet;
use std::io::{ErrorKind, IoSliceMut, Read};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use weir_core::Instant;
use weir_seams::membership::{Seat, SeatChange};
use weir_sys::clock;
use weir_transport::Key;
use weir_transport::gate::Admitted;
use weir_transport::handshake::{Mode, Status};
use weir_transport::tcp_options::TcpOptions;

/// What is read beyond the fragment that is coming: small fragments come many at once.
const BESIDE_BYTES: usize = 256 * 1024;
/// Where fragments are this large: enough for the header of the next one.
const BESIDE_LARGE_BYTES: usize = 1024;
const LARGE_BYTES: u32 = 32 * 1024;
/// Reads of one connection before the others have their turn.
const READS_PER_TURN: usize = 16;
const NOTICE: Duration = Duration::from_millis(20);

pub struct BuilderShell {
    pub core: Builder,
    hub: Hub,
    dialer: Dialer,
    _door: Door,
    way: Way,
    control: Option<u64>,
    /// The dial to the scheduler that counts.
    dial: Option<u64>,
    next_dial: u64,
    /// Connections of sources.
    links: BTreeSet<u64>,
    beside: Vec<u8>,
    ended: Option<String>,
    seat: Option<(u64, Box<dyn Seat>)>,
}

impl BuilderShell {
    /// `listener` is where sources connect, with the settings of their connections.
    pub fn new(
        core: Builder,
        scheduler: SocketAddr,
        listener: TcpListener,
        key: Option<Key>,
    ) -> Result<BuilderShell, ShellError> {
        let hub = Hub::new().map_err(ShellError::of("cannot watch connections"))?;
        let door =
            Door::open(listener, key.clone(), hub.desk()).map_err(ShellError::of("cannot let sources in"))?;
        let control = TcpOptions { nodelay: true, ..TcpOptions::unasked() };
        let dialer = Dialer::new(key, control, hub.desk());
        Ok(BuilderShell {
            core,
            hub,
            dialer,
            _door: door,
            way: Way::to(scheduler),
            control: None,
            dial: None,
            next_dial: 0,
            links: BTreeSet::new(),
            beside: vec![0; BESIDE_BYTES],
            ended: None,
            seat: None,
        })
    }

    /// Takes part in a membership service for as long as this lives.
    pub fn take_seat(&mut self, seat: Box<dyn Seat>) -> Result<(), ShellError> {
        let number = self.hub.attend(seat.ready()).map_err(ShellError::of("cannot watch the seat"))?;
        self.seat = Some((number, seat));
        Ok(())
    }

    /// Another may have the name now: then this one has to end.
    fn look_at_seat(&mut self, order: &dyn Order) {
        let Some((_, seat)) = &mut self.seat else { return };
        while let Some(change) = seat.next() {
            match change {
                SeatChange::Held => {}
                SeatChange::Lapsed(why) => order.warn(&why),
                SeatChange::Fenced { why, .. } => self.core.stop(&why),
            }
        }
    }

    /// Runs until the scheduler ends the run, `order` says stop, or what cannot be mended happens; why it ended. `built` hears of every
    /// event.
    pub fn run(
        &mut self,
        order: &dyn Order,
        mut built: impl FnMut(Built, Instant),
    ) -> Result<String, ShellError> {
        let mut stopping = false;
        loop {
            let now = clock::monotonic();
            if !stopping && order.stopping() {
                stopping = true;
                self.core.stop("it was told to stop");
            }
            if self.core.wake_at() <= now {
                self.core.on_wake(now);
            }
            self.perform(now, &mut built);
            for (number, _) in self.hub.flush() {
                self.lose(number, now);
            }
            if let Some(why) = self.ended.take() {
                return Ok(why);
            }
            order.report(self.core.figures().complete);
            let limit = self.core.wake_at().since(now).min(NOTICE);
            let (mut ready, news) =
                self.hub.wait(limit).map_err(ShellError::of("cannot wait for connections"))?;
            let now = clock::monotonic();
            self.hub.complaints().iter().for_each(|words| order.warn(words));
            for item in news {
                self.on_news(item, now, order)?;
            }
            // The scheduler's word first: it may be the assignment of what the sources have sent.
            if let Some(at) = ready.iter().position(|number| self.control == Some(*number)) {
                ready.swap(0, at);
            }
            for number in &ready {
                if self.seat.as_ref().is_some_and(|(seat, _)| seat == number) {
                    self.look_at_seat(order);
                } else {
                    self.serve(*number, now);
                }
            }
            self.hub.give_back(ready);
        }
    }

    fn perform(&mut self, now: Instant, built: &mut impl FnMut(Built, Instant)) {
        while let Some(action) = self.core.poll() {
            match action {
                Action::Call => {
                    self.next_dial += 1;
                    self.dial = Some(self.next_dial);
                    self.dialer.dial(self.next_dial, self.way.call());
                }
                Action::HangUp => {
                    self.dial = None;
                    if let Some(number) = self.control.take() {
                        self.hub.close(number);
                    }
                }
                Action::Send(message) => {
                    if let Some(number) = self.control
                        && self.hub.send(number, &message).is_err()
                    {
                        self.lose(number, now);
                    }
                    self.core.recycle(message);
                }
                Action::SendTo { link, message } => {
                    if self.hub.send(link, &message).is_err() {
                        self.lose(link, now);
                    }
                }
                Action::Cut { link, .. } => {
                    self.links.remove(&link);
                    self.hub.close(link);
                }
                Action::Built(event) => built(event, now),
                Action::End(why) => self.ended = Some(why),
            }
        }
    }

    fn on_news(&mut self, news: News, now: Instant, order: &dyn Order) -> Result<(), ShellError> {
        match news {
            News::Arrived(client) => self.on_arrival(*client, now),
            News::Dialled { number, result } if self.dial == Some(number) => {
                self.dial = None;
                match self.way.on_dialled(result, &mut self.hub, order) {
                    Some(number) => {
                        self.control = Some(number);
                        self.core.on_connected(now);
                    }
                    None => self.core.on_closed(now),
                }
            }
            News::Dialled { .. } => {}
            News::Broken(error) => return Err(ShellError(format!("the data port broke: {error}"))),
        }
        Ok(())
    }

    fn on_arrival(&mut self, client: Admitted, now: Instant) {
        let (mode, flow, token) = (client.hello.mode, client.hello.flow, client.hello.token);
        if mode != Mode::Data || self.core.run().and_then(|run| token_of(run)) != Some(token) {
            return client.refuse(Status::UnknownSession);
        }
        if let Some(refusal) = self.core.would_refuse(flow) {
            return client.refuse(match refusal {
                Refusal::NoRun => Status::UnknownSession,
                Refusal::NotListed => Status::UnknownFlow,
            });
        }
        // One that left before it heard the welcome comes again by itself.
        let Some(link) = client.welcome().ok().and_then(|stream| self.hub.add(stream).ok()) else { return };
        self.links.insert(link);
        if self.core.on_source(link, flow, now).is_err() {
            self.links.remove(&link);
            self.hub.close(link);
        }
    }

    fn serve(&mut self, number: u64, now: Instant) {
        if self.control == Some(number) {
            let core = &mut self.core;
            let served = self.hub.serve(number, |message| {
                core.on_message(&message, now);
                Some(message)
            });
            if served.is_err() {
                self.lose(number, now);
            }
        } else if self.links.contains(&number) && !self.read(number, now) {
            self.lose(number, now);
        }
    }

    /// Reads what a source has sent; false when its connection has ended.
    fn read(&mut self, link: u64, now: Instant) -> bool {
        if self.hub.flush_one(link).is_err() {
            return false;
        }
        for _ in 0..READS_PER_TURN {
            let Some(pipe) = self.hub.pipe(link) else { return false };
            let mut stream = pipe.stream();
            // What is read beyond a fragment is copied to its place, which large ones are spared.
            let large = self.core.fragment_bytes(link) >= LARGE_BYTES;
            let more = if large { BESIDE_LARGE_BYTES } else { BESIDE_BYTES };
            let space = self.core.space(link);
            let own = space.len();
            let room = own + more;
            let mut both = [IoSliceMut::new(space), IoSliceMut::new(&mut self.beside[..more])];
            let count = match stream.read_vectored(&mut both) {
                Ok(0) => return false,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            let taken = self.core.on_filled(link, count.min(own), now);
            let rest = &self.beside[..count.saturating_sub(own)];
            // A source that breaks the rules is cut off; it may come again.
            if taken.and_then(|()| self.core.on_bytes(link, rest, now)).is_err() {
                return false;
            }
            if count < room {
                return true;
            }
        }
        true
    }

    fn lose(&mut self, number: u64, now: Instant) {
        self.hub.close(number);
        if self.control == Some(number) {
            self.control = None;
            self.core.on_closed(now);
        } else if self.links.remove(&number) {
            self.core.on_source_closed(number);
        }
    }
}
