//! The links of a lab and the switches and routers between them.

use crate::action::{Action, DropReason};
use crate::calendar::{Calendar, NEVER, is_arrival, key_ns};
use crate::counters::{LinkCounters, Totals};
use crate::link::{Link, Out};
use crate::packet::{Network, Packet, PacketMeta, Refusal};
use crate::queue::Buffer;
use crate::route::Routes;
use crate::slack::slack_ns;
use crate::timeline::Timeline;
use weir_core::Instant;
use weir_core::schedule::Change;
use weir_core::topology::{End, Stage, Topology};

/// Moves packets over a topology's directed links, numbered as `Topology::directed_links`.
///
/// Time comes from the caller and never runs backwards here: an earlier `now` than one already seen counts as that one.
/// Calls may come late; every departure follows from the one before, not from the time of the call.
#[derive(Debug)]
pub struct Fabric {
    links: Vec<Link>,
    /// Where each link leads.
    ends: Vec<End>,
    /// By how much a delivery is later than the arrival at a link's far end that leads to it, at least.
    slack_ns: Vec<u64>,
    /// The site of each host.
    sites: Vec<usize>,
    stages: Vec<Stage>,
    /// Of `host.H.auxiliary.forward` for the first host; `None` without an auxiliary network.
    auxiliary: Option<usize>,
    routes: Routes,
    calendar: Calendar,
    timeline: Timeline,
    out: Out,
    clock_ns: u64,
}

impl Fabric {
    /// Each link draws from a generator of its own, split from `seed` by the link's name.
    pub fn new(topology: &Topology, seed: u64) -> Self {
        let directed = topology.directed_links();
        let routes = Routes::new(topology);
        let mut out = Out::default();
        // Of the stage that each link leaves.
        let buffers: Vec<Option<(usize, u64)>> = topology
            .sites
            .iter()
            .map(|site| {
                let bytes_max = site.buffer?.0;
                out.buffers.push(Buffer { bytes: 0, bytes_max });
                Some((out.buffers.len() - 1, bytes_max))
            })
            .collect();
        let buffer_of = |end: End| match end {
            End::Site(stage) => buffers[stage],
            End::Host(_) | End::AuxiliaryHost(_) | End::AuxiliarySwitch => None,
        };
        let links = directed.iter().cloned().enumerate();
        let links = links.map(|(index, own)| {
            let buffer = buffer_of(own.from);
            Link::new(index, own, seed, buffer)
        });
        Fabric {
            links: links.collect(),
            slack_ns: slack_ns(topology, &directed, &routes),
            ends: directed.iter().map(|link| link.to).collect(),
            sites: topology.hosts.iter().map(|host| host.site).collect(),
            routes,
            calendar: Calendar::new(directed.len()),
            timeline: Timeline::default(),
            stages: topology.sites.iter().map(|site| site.stage).collect(),
            auxiliary: topology.auxiliary.map(|_| 2 * (topology.hosts.len() + topology.links.len())),
            out,
            clock_ns: 0,
        }
    }

    /// Takes a buffer that `host` sent at `now` by its interface on `meta.network`, after carrying out everything planned up to
    /// then.
    ///
    /// Panics if there is no such host; a destination that does not exist, or is a router that does not answer, is
    /// `DropReason::Unroutable`.
    pub fn ingress(&mut self, host: usize, buffer: u32, meta: PacketMeta, now: Instant) {
        self.advance(now);
        let packet = Packet::whole(buffer, host, &meta);
        self.out.totals.entered += u64::from(packet.count);
        let site = self.sites[host];
        let link = self.own_link(meta.network, host);
        let reachable = match meta.network {
            Network::Data => self.routes.next(site, meta.to).is_some(),
            Network::Auxiliary => meta.to < self.sites.len(),
        };
        match link {
            Some(link) if reachable && meta.to != host => self.enter(link, packet, self.clock_ns),
            _ => {
                self.out.totals.unroutable += u64::from(packet.count);
                let (link, at) = (link.unwrap_or(2 * host), Instant::from_ns(self.clock_ns));
                let reason = DropReason::Unroutable;
                self.out.actions.push_back(Action::Drop { packet, link, reason, at });
            }
        }
    }

    /// What `PacketMeta::to` is in an echo request to the router at `stage`, an index into `Topology::sites`.
    pub fn router(&self, stage: usize) -> usize {
        self.routes.router(stage)
    }

    /// The link by which a host sends on a network; `None` if there is no such network.
    #[inline]
    fn own_link(&self, network: Network, host: usize) -> Option<usize> {
        match network {
            Network::Data => Some(2 * host),
            Network::Auxiliary => self.auxiliary.map(|first| first + 2 * host),
        }
    }

    /// When something is to be carried out next; `None` if nothing is planned.
    pub fn wake_at(&self) -> Option<Instant> {
        let (key, _) = self.calendar.first();
        let event_ns = (key != NEVER).then_some(key_ns(key));
        let next_ns = match (event_ns, self.timeline.next_at_ns()) {
            (Some(event), Some(change)) => Some(event.min(change)),
            (event, change) => event.or(change),
        };
        next_ns.map(Instant::from_ns)
    }

    /// A time before which nothing that is inside now is delivered; `None` if nothing is on its way. Not later than the next
    /// delivery and often just that: what lies between only has to be carried out by then, because the core's time is the
    /// model's. Packets handed in later have deliveries of their own. Of actions not yet polled, the time of the first.
    pub fn deliver_at(&self) -> Option<Instant> {
        if let Some(Action::Deliver { planned: at, .. } | Action::Drop { at, .. } | Action::Seen { at, .. }) =
            self.out.actions.front()
        {
            return Some(*at);
        }
        let deliver_ns =
            self.calendar.least(|link| self.links[link].arrival_ns_min().saturating_add(self.slack_ns[link]));
        (deliver_ns != NEVER).then_some(Instant::from_ns(deliver_ns))
    }

    /// Carries out everything planned up to and including `now`, in time order. At one instant changes come first, then
    /// departures, then arrivals, and among these the lower link first.
    pub fn advance(&mut self, now: Instant) {
        let now_ns = now.as_ns();
        loop {
            let (key, link) = self.calendar.first();
            let at_ns = key_ns(key);
            if let Some(change) = self.timeline.take_due(now_ns.min(at_ns)) {
                self.links[change.link].set(change.set);
                continue;
            }
            if at_ns > now_ns || key == NEVER {
                break;
            }
            if is_arrival(key) {
                self.arrive_at_end(link, at_ns);
            } else {
                self.links[link].depart(at_ns, &mut self.out);
                self.calendar.set(link, self.links[link].next_key());
            }
        }
        self.clock_ns = self.clock_ns.max(now_ns);
    }

    #[inline]
    fn arrive_at_end(&mut self, link: usize, at_ns: u64) {
        let emerged = self.links[link].emerge();
        self.calendar.set(link, self.links[link].next_key());
        let Some(packet) = emerged else { return };
        match self.ends[link] {
            End::Host(host) | End::AuxiliaryHost(host) => {
                self.out.totals.delivered += u64::from(packet.count);
                let planned = Instant::from_ns(at_ns);
                self.out.actions.push_back(Action::Deliver { host, packet, planned });
            }
            End::Site(stage) => self.forward(stage, packet, link, at_ns),
            End::AuxiliarySwitch => {
                let first = self.auxiliary.expect("its switch is only where it is");
                self.enter(first + 2 * packet.to() + 1, packet, at_ns);
            }
        }
    }

    #[inline]
    fn forward(&mut self, stage: usize, packet: Packet, by: usize, at_ns: u64) {
        let Some(next) = self.routes.next(stage, packet.to()) else {
            self.echo(stage, packet, by, at_ns);
            return;
        };
        match self.stages[stage] {
            Stage::Site | Stage::Switch => self.enter(next, packet, at_ns),
            Stage::Router { replies } => self.route(stage, next, replies, packet, at_ns),
        }
    }

    fn route(&mut self, stage: usize, next: usize, replies: bool, mut packet: Packet, at_ns: u64) {
        if !packet.spend_hop() {
            self.refuse(stage, next, replies, packet, Refusal::TimeExceeded, at_ns);
            return;
        }
        if self.links[next].fits(&packet) {
            self.enter(next, packet, at_ns);
            return;
        }
        let (kept, too_large) = self.links[next].by_size(packet);
        if let Some(too_large) = too_large {
            let mtu = self.links[next].mtu();
            self.refuse(stage, next, replies, too_large, Refusal::TooBig { mtu }, at_ns);
        }
        if let Some(packet) = kept {
            self.enter(next, packet, at_ns);
        }
    }

    /// The router at `stage` does not forward the run by link `next`, and answers each of its segments if it may.
    #[cold]
    fn refuse(&mut self, stage: usize, next: usize, replies: bool, packet: Packet, why: Refusal, at_ns: u64) {
        let reason = match why {
            Refusal::TimeExceeded => DropReason::HopLimit,
            Refusal::TooBig { .. } => DropReason::Mtu,
        };
        let sender = packet.from().filter(|_| replies);
        let back = sender.and_then(|sender| self.routes.next(stage, sender as usize));
        let back = back.filter(|_| packet.answered(stage, why).is_some());
        self.links[next].refuse(packet, reason, back.is_some(), at_ns, &mut self.out);
        let Some(back) = back else { return };
        let mut left = Some(packet);
        while let Some(run) = left {
            let (segment, rest) = run.cut(1);
            left = rest;
            if let Some(answer) = segment.answered(stage, why) {
                self.enter(back, answer, at_ns);
            }
        }
    }

    /// The router at `stage` has been reached by link `by`, and replies to its echo requests.
    #[cold]
    fn echo(&mut self, stage: usize, packet: Packet, by: usize, at_ns: u64) {
        assert_eq!(
            packet.to(),
            self.routes.router(stage),
            "a packet enters only where its whole path exists"
        );
        let sender = packet.from().and_then(|sender| self.routes.next(stage, sender as usize));
        // Its checksum says that a bit is wrong, as a frame's would have on the link that inverted it.
        let back = sender.filter(|_| packet.count == 1 && packet.inverted_bit().is_none());
        let Some(back) = back else {
            self.links[by].lose(packet, at_ns, &mut self.out);
            return;
        };
        self.out.totals.delivered += 1;
        self.out.totals.answered += 1;
        self.enter(back, packet.echoed(stage), at_ns);
    }

    #[inline]
    fn enter(&mut self, link: usize, packet: Packet, at_ns: u64) {
        self.links[link].arrive(at_ns, packet, &mut self.out);
        self.calendar.set(link, self.links[link].next_key());
    }

    /// The next thing to do, in the order in which it came about; `None` when all has been done.
    pub fn poll(&mut self) -> Option<Action> {
        self.out.actions.pop_front()
    }

    /// Plans changes at their absolute times, beside those already planned; one in the past is carried out at once. A
    /// change of a link that does not exist changes nothing.
    pub fn schedule(&mut self, changes: &[Change]) {
        for change in changes {
            if let Some(link) = self.links.get_mut(change.link) {
                link.expect(&change.set);
            }
        }
        let link_count = self.links.len();
        changes.iter().filter(|change| change.link < link_count).for_each(|change| {
            self.timeline.add(change.clone());
        });
        while let Some(change) = self.timeline.take_due(self.clock_ns) {
            self.links[change.link].set(change.set);
        }
    }

    /// Forgets the changes still to come and restores every link's own settings.
    pub fn clear_schedule(&mut self) {
        self.timeline.clear();
        for link in &mut self.links {
            link.restore();
        }
    }

    /// Panics if there is no such link.
    pub fn counters(&self, link: usize) -> &LinkCounters {
        &self.links[link].counters
    }

    /// Counts over all links.
    pub fn totals(&self) -> &Totals {
        &self.out.totals
    }

    /// Directed links.
    pub fn link_count(&self) -> usize {
        self.links.len()
    }

    /// Whether super-packets are split when they enter directed link `link`.
    pub fn splits(&self, link: usize) -> bool {
        self.links[link].splits()
    }

    /// Segments inside: waiting, being sent, propagating.
    pub fn queued_segments(&self) -> u64 {
        let Totals { entered, answered, delivered, dropped, unroutable } = self.out.totals;
        entered + answered - delivered - dropped - unroutable
    }

    /// IP bytes that wait for the host's own link to its switch on a network. A shell that stops reading from the host while
    /// they are many makes the host's own interface queue hold packets back, as a real one does. 0 without such a network.
    pub fn hold_bytes(&self, network: Network, host: usize) -> u64 {
        self.own_link(network, host).map_or(0, |link| self.links[link].counters.queue_bytes)
    }

    /// Whether what passes directed link `link` is said as `Action::Seen` from now on. Panics if there is no such link.
    pub fn capture(&mut self, link: usize, on: bool) {
        self.links[link].capture(on);
    }
}
