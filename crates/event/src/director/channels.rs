//! Channels from sources to builders, and which builders may be chosen. Rules: `docs/specs/event-building.md#failure-6`.

use super::Director;
use super::members::Builder;
use super::outbox::To;
use crate::message::{BuilderAt, BuilderList, Message};
use std::time::Duration;
use weir_seams::death_policy::Remedy;
use weir_seams::scheduler::{self, BuilderId};

impl Director {
    pub(super) fn builder_list(&self) -> BuilderList {
        let builders = self.members.known_builders().map(|(slot, builder)| BuilderAt {
            slot,
            name: builder.name.clone(),
            address: builder.address,
            incarnation: builder.incarnation,
            listed: self.view.get(BuilderId(slot)).is_some(),
            channel: builder.channel,
        });
        BuilderList { epoch: self.epoch, builders: builders.collect() }
    }

    /// Between two lists to all sources: with many builders the list is long, and they come one by one.
    pub(super) fn list_pause(&self) -> Duration {
        Duration::from_micros(20 * self.members.builders.len() as u64 * self.members.sources.len() as u64)
            .min(Duration::from_millis(200))
    }

    pub(super) fn tell_builders(&mut self) {
        if self.builders_changed && self.now >= self.builders_told + self.list_pause() {
            self.builders_changed = false;
            self.builders_told = self.now;
            let list = self.builder_list();
            self.outbox.send(To::Sources, Message::Builders(list));
        }
    }

    pub(super) fn remedy(&mut self, remedies: &[Remedy]) {
        for remedy in remedies {
            match *remedy {
                Remedy::Unlist(id) => self.want(id, false),
                Remedy::List(id) => self.want(id, true),
                Remedy::CloseChannel(id) => self.set_channel(id.0, false, false),
                Remedy::OpenChannel(id) => self.set_channel(id.0, true, false),
                Remedy::ReopenAll => {
                    self.reopening = true;
                    for slot in 0..self.members.builders.len() as u32 {
                        if self.members.builder(slot).is_some_and(|builder| builder.channel.is_some()) {
                            self.set_channel(slot, true, true);
                        }
                    }
                }
            }
        }
        self.builders_changed |= !remedies.is_empty();
    }

    fn want(&mut self, id: BuilderId, wanted: bool) {
        if let Some(builder) = self.members.builder_mut(id.0) {
            builder.wanted = wanted;
            self.refresh(id.0);
        }
    }

    /// `anew`: also when there is one.
    pub(super) fn set_channel(&mut self, slot: u32, open: bool, anew: bool) {
        let Some(builder) = self.members.builder_mut(slot) else { return };
        if open && builder.channel.is_some() && !anew {
            return;
        }
        builder.none_work();
        builder.broken_since = None;
        builder.channel = None;
        if open {
            builder.generation = builder.generation.wrapping_add(1);
            builder.channel = Some(builder.generation);
        }
        self.builders_changed = true;
        self.refresh(slot);
    }

    /// A source says which of its channels work.
    pub(super) fn on_channel(&mut self, source: u32, changes: &[(u32, bool)]) {
        let now = self.now;
        for (slot, works) in changes {
            let Some(builder) = self.members.builder_mut(*slot) else { continue };
            if (*works && builder.channel.is_none()) || !builder.set_working(source, *works) {
                continue;
            }
            if builder.all_work() {
                builder.broken_since = None;
            } else if !*works && builder.connection.is_some() {
                builder.broken_since.get_or_insert(now);
            }
            self.refresh(*slot);
        }
    }

    pub(super) fn refresh_all(&mut self) {
        for slot in 0..self.members.builders.len() as u32 {
            self.refresh(slot);
        }
    }

    /// Whether every source has a working channel to every builder that is there.
    pub(super) fn all_channels_work(&self) -> bool {
        let there = |builder: &&Builder| builder.connection.is_some() && builder.channel.is_some();
        let mut builders = self.members.builders.iter().flatten().filter(there);
        builders.all(Builder::all_work)
    }

    /// Lists or unlists a builder as things are now.
    pub(super) fn refresh(&mut self, slot: u32) {
        let id = BuilderId(slot);
        let all_work = self.members.builder(slot).is_some_and(Builder::all_work);
        if self.reopening && all_work && self.all_channels_work() {
            self.reopening = false;
        }
        let Some(builder) = self.members.builder(slot) else { return };
        let may = builder.wanted && builder.connection.is_some() && builder.channel.is_some() && all_work;
        let listed = self.view.get(id).is_some();
        if may == listed {
            return;
        }
        if may {
            self.view.list(scheduler::Builder {
                id,
                host: builder.host_number,
                memory_bytes: builder.memory_bytes,
                outstanding_bytes: builder.outstanding_bytes,
                outstanding_events: builder.outstanding_events,
            });
        } else {
            self.view.unlist(id);
        }
        self.scheduler.on_membership(id, &self.view);
        self.epoch += 1;
        self.builders_changed = true;
    }
}
