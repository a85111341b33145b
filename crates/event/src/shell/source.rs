//! The source on real sockets.

use super::hub::Hub;
use super::news::{Dialer, News};
use super::order::Order;
use super::way::Way;
use super::{ShellError, token_of};
use crate::source::{Action, ChannelId, Source};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use weir_core::Instant;
use weir_seams::membership::{Seat, SeatChange};
use weir_sys::{clock, socket};
use weir_transport::Key;
use weir_transport::dial::Call;
use weir_transport::handshake::Mode;
use weir_transport::tcp_options::TcpOptions;

/// Slices of one write: header and payload of 256 fragments. The kernel takes 1,024.
const SLICES: usize = 512;
/// Slices that are smaller than this, one with another, are put together before they are written: the kernel takes longer to find the
/// next than a copy costs.
const TOGETHER_BYTES_MAX: usize = 512;
/// Writes before the loop looks at what else there is.
const WRITES_PER_TURN: usize = 64;
/// How soon an order to stop is seen.
const NOTICE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy)]
enum Dial {
    Scheduler,
    Channel(ChannelId),
}

pub struct SourceShell {
    pub core: Source,
    hub: Hub,
    dialer: Dialer,
    way: Way,
    /// The connection to the scheduler.
    control: Option<u64>,
    /// Connections to builders, both ways.
    channels: BTreeMap<u64, ChannelId>,
    connections: BTreeMap<ChannelId, u64>,
    /// Under way, by number.
    dials: BTreeMap<u64, Dial>,
    next_dial: u64,
    ended: Option<String>,
    seat: Option<(u64, Box<dyn Seat>)>,
    granted_bytes: u64,
    /// Small fragments, to be written at once.
    together: Vec<u8>,
}

impl SourceShell {
    /// `data` are the settings of connections to builders.
    pub fn new(
        core: Source,
        scheduler: SocketAddr,
        key: Option<Key>,
        data: TcpOptions,
    ) -> Result<SourceShell, ShellError> {
        let hub = Hub::new().map_err(ShellError::of("cannot watch connections"))?;
        let dialer = Dialer::new(key, data, hub.desk());
        Ok(SourceShell {
            core,
            hub,
            dialer,
            way: Way::to(scheduler),
            control: None,
            channels: BTreeMap::new(),
            connections: BTreeMap::new(),
            dials: BTreeMap::new(),
            next_dial: 0,
            ended: None,
            seat: None,
            granted_bytes: 0,
            together: Vec::new(),
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

    /// Runs until the scheduler ends the run, `order` says stop, or what cannot be mended happens; why it ended.
    pub fn run(&mut self, order: &dyn Order) -> Result<String, ShellError> {
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
            self.perform(now);
            let more = self.write(now);
            self.perform(now);
            self.flush(now);
            if let Some(why) = self.ended.take() {
                return Ok(why);
            }
            order.report(self.core.figures().sent);
            let limit = if more { Duration::ZERO } else { self.core.wake_at().since(now).min(NOTICE) };
            let (ready, news) =
                self.hub.wait(limit).map_err(ShellError::of("cannot wait for connections"))?;
            let now = clock::monotonic();
            self.hub.complaints().iter().for_each(|words| order.warn(words));
            for item in news {
                self.on_news(item, now, order);
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

    /// Bytes of grants heard from builders.
    pub fn granted_bytes(&self) -> u64 {
        self.granted_bytes
    }

    fn perform(&mut self, now: Instant) {
        while let Some(action) = self.core.poll() {
            match action {
                Action::Call => {
                    self.dial(Dial::Scheduler, self.way.call());
                }
                Action::HangUp => self.hang_up(),
                Action::Send(message) => {
                    if let Some(number) = self.control
                        && self.hub.send(number, &message).is_err()
                    {
                        self.lose(number, now);
                    }
                    self.core.recycle(message);
                }
                Action::Open { channel, address } => {
                    let token = self.core.run().and_then(|run| token_of(run));
                    match (token, self.core.slot()) {
                        (Some(token), Some(slot)) => {
                            let call = Call { address, mode: Mode::Data, token, flow: u32::from(slot) };
                            self.dial(Dial::Channel(channel), call);
                        }
                        _ => self.core.on_channel_closed(channel, now),
                    }
                }
                Action::Close(channel) => {
                    if let Some(number) = self.connections.remove(&channel) {
                        self.channels.remove(&number);
                        self.hub.close(number);
                    }
                    self.dials.retain(|_, dial| !matches!(dial, Dial::Channel(other) if *other == channel));
                }
                Action::End(why) => self.ended = Some(why),
            }
        }
    }

    fn dial(&mut self, dial: Dial, call: Call) {
        self.next_dial += 1;
        self.dials.insert(self.next_dial, dial);
        self.dialer.dial(self.next_dial, call);
    }

    fn hang_up(&mut self) {
        if let Some(number) = self.control.take() {
            self.hub.close(number);
        }
        self.dials.retain(|_, dial| !matches!(dial, Dial::Scheduler));
    }

    fn on_news(&mut self, news: News, now: Instant, order: &dyn Order) {
        // Nobody is let in here; a connection that is not wanted any more is closed.
        let News::Dialled { number, result } = news else { return };
        let Some(dial) = self.dials.remove(&number) else { return };
        let made = match dial {
            Dial::Scheduler => self.way.on_dialled(result, &mut self.hub, order),
            Dial::Channel(_) => result.ok().and_then(|stream| self.hub.add(stream).ok()),
        };
        match (dial, made) {
            (Dial::Scheduler, Some(number)) => {
                self.control = Some(number);
                self.core.on_connected(now);
            }
            (Dial::Scheduler, None) => self.core.on_closed(now),
            (Dial::Channel(channel), Some(number)) => {
                self.channels.insert(number, channel);
                self.connections.insert(channel, number);
                self.core.on_channel_open(channel, now);
            }
            (Dial::Channel(channel), None) => self.core.on_channel_closed(channel, now),
        }
    }

    /// Sends fragments as grants and connections allow; whether there is more.
    fn write(&mut self, now: Instant) -> bool {
        for _ in 0..WRITES_PER_TURN {
            let Some(channel) = self.core.turn() else { return false };
            let Some(number) = self.connections.get(&channel).copied() else {
                // Its end is news that the core does not have yet.
                self.core.on_blocked(channel, now);
                continue;
            };
            let Some(pipe) = self.hub.pipe(number) else { continue };
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.core.gather(channel, now, &mut slices);
            if count == 0 {
                self.core.on_blocked(channel, now);
                continue;
            }
            match send(pipe.stream(), &slices[..count], &mut self.together) {
                Ok(bytes) => self.core.on_written(channel, bytes as u64, now),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.core.on_blocked(channel, now);
                    if self.hub.wait_for_room(number, true).is_err() {
                        self.lose(number, now);
                    }
                }
                Err(_) => self.lose(number, now),
            }
        }
        true
    }

    fn serve(&mut self, number: u64, now: Instant) {
        let channel = self.channels.get(&number).copied();
        if let Some(channel) = channel {
            self.core.on_writable(channel, now);
        } else if self.control != Some(number) {
            return;
        }
        self.look_at_queues(now);
        let (core, before) = (&mut self.core, self.hub.heard_bytes());
        let served = self.hub.serve(number, |message| {
            match channel {
                Some(channel) => core.on_builder_message(channel, &message, now),
                None => core.on_message(&message, now),
            }
            Some(message)
        });
        if channel.is_some() {
            self.granted_bytes += self.hub.heard_bytes() - before;
        }
        if served.is_err() {
            self.lose(number, now);
        }
    }

    /// What builders' hosts have not acknowledged, which the answer to a probe speaks of.
    fn look_at_queues(&mut self, now: Instant) {
        let waiting: Vec<ChannelId> = self.core.unacknowledged().collect();
        for channel in waiting {
            let Some(pipe) = self.connections.get(&channel).and_then(|number| self.hub.pipe(*number)) else {
                continue;
            };
            if let Ok(bytes) = socket::unacknowledged_bytes(pipe.stream().as_fd()) {
                self.core.on_unacknowledged(channel, bytes, now);
            }
        }
    }

    fn flush(&mut self, now: Instant) {
        for (number, _) in self.hub.flush() {
            self.lose(number, now);
        }
    }

    /// A connection has ended.
    fn lose(&mut self, number: u64, now: Instant) {
        self.hub.close(number);
        if self.control == Some(number) {
            self.control = None;
            self.core.on_closed(now);
        } else if let Some(channel) = self.channels.remove(&number) {
            self.connections.remove(&channel);
            self.core.on_channel_closed(channel, now);
        }
    }
}

fn are_small(slices: &[IoSlice<'_>]) -> bool {
    let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
    slices.len() > 2 && bytes <= TOGETHER_BYTES_MAX * slices.len()
}

/// Sends some of what the slices hold; how much the connection took. `together` is memory for small ones.
fn send(mut stream: &TcpStream, slices: &[IoSlice<'_>], together: &mut Vec<u8>) -> io::Result<usize> {
    if !are_small(slices) {
        return stream.write_vectored(slices);
    }
    together.clear();
    slices.iter().for_each(|slice| together.extend_from_slice(slice));
    stream.write(together)
}
