//! From the samples of a trial to rows and to the facts that name the limiting factor.

use crate::run::fullness;
use crate::run::services::SERVICE_ENTITY;
use weir_core::Instant;
use weir_core::behind::Behind;
use weir_core::evidence::{
    Around, DaemonFacts, DiskFacts, EmulatorFacts, PortFacts, SlotFacts, StackFacts, lateness_allowed_seconds,
};
use weir_core::fabric_page::{self, LATENESS_BUCKETS};
use weir_core::record::{Histogram, Observed, Row, Series};
use weir_core::topology::{DirectedLink, Topology};
use weir_seams::workload::{FaultWindow, Outcome};
use weir_telemetry::service;

/// A stretch of time in nanoseconds from the trial's start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    pub start_ns: i64,
    pub end_ns: i64,
}

/// Counters of a port, `port.…_packets`, by what they say of a path.
const BY_QUEUES: &[&str] = &["dropped_queue", "dropped_buffer", "dropped_early"];
const ON_THE_WIRE: &[&str] = &["dropped_loss", "dropped_burst_loss", "dropped_rule"];
const IN_OUTAGES: &[&str] = &["dropped_outage"];
const UNFIT: &[&str] = &["dropped_mtu", "dropped_hop_limit"];
const CORRUPTED: &[&str] = &["corrupted"];
const REORDERED: &[&str] = &["reordered"];

/// What is known of a step when its trial is over.
pub struct Measured<'a> {
    pub topology: &'a Topology,
    pub pairs: &'a [(usize, usize)],
    /// What the links leave for the payload of all flows together.
    pub ceiling_bits_per_second: Option<f64>,
    /// The whole step, drain included.
    pub whole: Window,
    pub steady: Window,
    /// Timestamps from the trial's start.
    pub series: &'a [Series],
    /// What samplers on the step's hosts gathered.
    pub of_hosts: &'a [Series],
    pub faults: &'a [FaultWindow],
    pub outcomes: &'a [Outcome],
    /// Lateness of the fabric by count and by time, as its page had it before and after.
    pub lateness: Option<(Vec<u64>, Vec<u64>)>,
    pub core_count: usize,
}

/// The kernel counts the time of a core in ticks of 10 ms: by so much it may be off at the two ends of a stretch, which in a short one
/// would be taken for work of others.
const TICKS_SECONDS: f64 = 0.02;

/// Time that something was without a core, or behind.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    ratio: f64,
    longest_seconds: f64,
    mean_seconds: f64,
}

fn allowed_ns(one_way_seconds: f64) -> u64 {
    (lateness_allowed_seconds(one_way_seconds) * 1e9) as u64
}

fn growth(series: &Series, window: Window) -> Option<(f64, f64)> {
    series.growth(window.start_ns, window.end_ns)
}

impl Measured<'_> {
    fn find(&self, entity: &str, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.entity == entity && series.name == name)
    }

    /// Rows of the links, the fabric and the machine.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut row = |entity: &str, metric: &str, value: f64| {
            let (entity, metric) = (entity.to_owned(), metric.to_owned());
            rows.push(Row { entity, metric, value: Observed::Value(value) });
        };
        for link in self.topology.directed_links() {
            let Some(port) = self.port(&link) else { continue };
            if let Some(load) = port.load_ratio {
                row(&link.name, "port.load_ratio", load);
            }
            let dropped = port.dropped_queue + port.dropped_loss + port.dropped_outage + port.dropped_unfit;
            row(&link.name, "port.dropped_packets", dropped as f64);
            if let Some((mean, _)) = self.queue(&link, self.steady) {
                row(&link.name, "port.queue_bytes", mean);
            }
            if let Some((_, most)) = self.queue(&link, self.whole) {
                row(&link.name, "port.queue_bytes_max", most);
            }
        }
        if let Some(busy) = self.fabric_busy() {
            row("trial", "fabric.busy_ratio", busy);
        }
        if let Some(looking) = self.fabric_looking() {
            row("trial", "fabric.looking_ratio", looking);
        }
        let allowed_ns = allowed_ns(self.one_way_seconds());
        if let Some(fabric) = self.fabric_behind(allowed_ns) {
            row("trial", "fabric.behind_ratio", fabric.ratio);
            row("trial", "hosts.waited_ratio", self.ends_waited(allowed_ns).unwrap_or_default().ratio);
        }
        if let Some(idle) = self.machine_idle() {
            row("trial", "machine.busy_ratio", 1.0 - idle);
        }
        if let Some(foreign) = self.foreign_busy() {
            row("trial", "machine.foreign_ratio", foreign);
        }
        if let Some(stolen) = self.machine_stolen() {
            row("trial", "machine.stolen_ratio", stolen);
        }
        let starts = self.outcomes.iter().map(|outcome| outcome.started_ns);
        if let (Some(first), Some(last)) = (starts.clone().min(), starts.max()) {
            row("trial", "control.start_spread_seconds", (last - first) as f64 / 1e9);
        }
        let edges = |window: Window| [window.start_ns, window.end_ns];
        for series in [self.series, self.of_hosts] {
            rows.extend(weir_telemetry::rows(series, edges(self.whole), edges(self.steady)));
        }
        if let Some(histogram) = self.lateness_histogram() {
            let (entity, metric) = ("trial".to_owned(), "fabric.lateness_seconds".to_owned());
            rows.push(Row { entity, metric, value: Observed::Histogram(histogram) });
        }
        rows
    }

    /// What the limiting factor is named from beside the load itself.
    pub fn around(&self, in_lab: bool) -> Around {
        let links = self.topology.directed_links();
        let mut on_path: Vec<usize> = Vec::new();
        for path in self.paths() {
            on_path.extend(path);
        }
        on_path.sort_unstable();
        on_path.dedup();
        let one_way_seconds = self.one_way_seconds();
        let fabric = self.fabric_behind(allowed_ns(one_way_seconds)).unwrap_or_default();
        let ends = self.ends_waited(allowed_ns(one_way_seconds)).unwrap_or_default();
        Around {
            ceiling_bits_per_second: self.ceiling_bits_per_second,
            ports: on_path.into_iter().filter_map(|index| self.port(&links[index])).collect(),
            stack: self.stack(),
            disks: self.disks(),
            daemons: self.daemons(),
            emulator: in_lab.then(|| EmulatorFacts {
                behind_ratio: fabric.ratio,
                behind_seconds_max: fabric.longest_seconds,
                behind_seconds_mean: fabric.mean_seconds,
                end_wait_ratio: ends.ratio,
                end_wait_seconds_max: ends.longest_seconds,
                core_count: self.core_count.max(1) as f64,
                one_way_seconds,
                fabric_busy_ratio: self.fabric_busy().unwrap_or(0.0),
                fabric_looking_ratio: self.fabric_looking().unwrap_or(0.0),
                fabric_wait_ratio: self.fabric_waited().unwrap_or(0.0),
                stolen_ratio: self.machine_stolen().unwrap_or(0.0),
                machine_idle_ratio: self.machine_idle().map_or(1.0, |idle| {
                    // A core that the fabric had to wait for was not to spare while it looked.
                    let waited = self.fabric_waited().unwrap_or(0.0);
                    let spared = (self.fabric_looking().unwrap_or(0.0) - waited).max(0.0);
                    idle + spared / self.core_count.max(1) as f64
                }),
                foreign_busy_ratio: self.foreign_busy().unwrap_or(0.0),
            }),
        }
    }

    /// Disks of services: only of those that the step needs there are some.
    fn disks(&self) -> Vec<DiskFacts> {
        let of_services = self
            .series
            .iter()
            .filter(|series| series.name == "disk.busy_seconds" && series.entity.starts_with(SERVICE_ENTITY));
        let rate = |entity: &str, name: &str| self.share(entity, name).unwrap_or(0.0);
        let facts = |busy: &Series| {
            Some(DiskFacts {
                name: busy.entity.clone(),
                busy_ratio: self.share(&busy.entity, "disk.busy_seconds")?,
                read_bytes_per_second: rate(&busy.entity, "disk.read_bytes"),
                written_bytes_per_second: rate(&busy.entity, "disk.written_bytes"),
                read_bytes: self
                    .find(&busy.entity, "disk.read_bytes")
                    .and_then(|series| growth(series, self.whole))
                    .map_or(0.0, |(bytes, _)| bytes),
            })
        };
        of_services.filter_map(facts).collect()
    }

    /// Daemons of services.
    fn daemons(&self) -> Vec<DaemonFacts> {
        let own = self.series.iter().filter(|series| series.name == service::CPU);
        let steady = [self.steady.start_ns, self.steady.end_ns];
        let level = |entity: &str, name: &str| weir_telemetry::mean(self.find(entity, name)?, steady);
        let facts = |cpu: &Series| {
            let of = |name: &str| level(&cpu.entity, name);
            let slots = |slots: f64, taken: f64| SlotFacts {
                slots,
                taken,
                waiters: of(service::SLOT_WAITERS).unwrap_or(0.0),
                wait_seconds: of(service::SLOT_WAIT).unwrap_or(0.0),
            };
            let host = cpu.entity.rsplit('.').next().unwrap_or_default();
            let of_host = self.topology.hosts.iter().find(|it| it.name == host);
            Some(DaemonFacts {
                name: cpu.entity.clone(),
                host: host.to_owned(),
                host_cores: of_host.and_then(|host| host.limits.cpu_cores),
                cpu_cores: self.share(&cpu.entity, service::CPU)?,
                thread_ratio: self.share(&cpu.entity, service::THREAD_CPU).unwrap_or(0.0),
                slots: of(service::SLOTS).zip(of(service::SLOTS_TAKEN)).map(|(all, taken)| slots(all, taken)),
            })
        };
        own.filter_map(facts).collect()
    }

    /// The links of every path of the step, there and back.
    fn paths(&self) -> impl Iterator<Item = Vec<usize>> {
        let both = self.pairs.iter().flat_map(|(from, to)| [(*from, *to), (*to, *from)]);
        both.map(|(from, to)| self.topology.path(from, to).unwrap_or_default())
    }

    /// Delay of the shortest path.
    fn one_way_seconds(&self) -> f64 {
        let links = self.topology.directed_links();
        let delays = self.paths().map(|path| path.iter().map(|index| links[*index].delay_ns).sum::<u64>());
        delays.min().unwrap_or(0) as f64 / 1e9
    }

    /// The time beyond what is allowed, against the length of the step.
    fn beyond(&self, allowed_ns: u64, behind: &Behind) -> Taken {
        let whole_ns = (self.whole.end_ns - self.whole.start_ns).max(1) as f64;
        Taken {
            ratio: behind.beyond_ns(allowed_ns) as f64 / whole_ns,
            longest_seconds: behind.longest_ns() as f64 / 1e9,
            mean_seconds: behind.area_ns2() / whole_ns / 1e9,
        }
    }

    fn fabric_behind(&self, allowed_ns: u64) -> Option<Taken> {
        let (before, after) = self.lateness.as_ref()?;
        let time = |page: &Vec<u64>| page.get(LATENESS_BUCKETS..).unwrap_or_default().to_vec();
        Some(self.beyond(allowed_ns, &Behind::between(&time(before), &time(after))))
    }

    /// Of the thread on a host that waited longest for a core.
    fn ends_waited(&self, allowed_ns: u64) -> Option<Taken> {
        let all = self.outcomes.iter().map(|outcome| self.beyond(allowed_ns, &outcome.waits));
        all.max_by(|one, other| one.ratio.total_cmp(&other.ratio))
    }

    /// Over all hosts of the step.
    fn stack(&self) -> StackFacts {
        let sum = |name: &str| {
            let of_all = self.of_hosts.iter().filter(|series| series.name == name);
            let grown = of_all.filter_map(|it| it.growth_around(self.steady.start_ns, self.steady.end_ns));
            grown.sum::<f64>() as u64
        };
        StackFacts {
            out_of_order_segments: sum("stack.out_of_order_segments"),
            reordering_count: sum("stack.reordering_count"),
        }
    }

    fn port(&self, link: &DirectedLink) -> Option<PortFacts> {
        let sent = self.find(&link.name, "port.wire_bytes")?;
        let load_ratio = link.rate.and_then(|rate| {
            let (bytes, seconds) = growth(sent, self.steady)?;
            Some(bytes * 8.0 / (rate.as_f64() * seconds))
        });
        let grown = |window: Window, kinds: &[&str]| -> u64 {
            let of_kinds =
                kinds.iter().filter_map(|kind| self.find(&link.name, &format!("port.{kind}_packets")));
            let counts = of_kinds.filter_map(|it| it.growth_around(window.start_ns, window.end_ns));
            counts.sum::<f64>() as u64
        };
        let queue_seconds = link
            .rate
            .zip(self.queue(link, self.steady))
            .map_or(0.0, |(rate, (mean, _))| mean * 8.0 / rate.as_f64());
        Some(PortFacts {
            name: link.name.clone(),
            load_ratio,
            dropped_queue: grown(self.whole, BY_QUEUES),
            dropped_loss: grown(self.whole, ON_THE_WIRE),
            dropped_outage: grown(self.whole, IN_OUTAGES),
            dropped_unfit: grown(self.whole, UNFIT),
            corrupted: grown(self.whole, CORRUPTED),
            reordered_steady: grown(self.steady, REORDERED),
            dropped_queue_steady: grown(self.steady, BY_QUEUES),
            dropped_otherwise_steady: [ON_THE_WIRE, IN_OUTAGES, UNFIT, CORRUPTED]
                .into_iter()
                .map(|kinds| grown(self.steady, kinds))
                .sum(),
            queue_seconds,
            missed_rate_ratio: self.missed_rate(link, sent).unwrap_or(0.0),
        })
    }

    /// How far the link stayed below its rate while its queue was never nearly empty.
    fn missed_rate(&self, link: &DirectedLink, sent: &Series) -> Option<f64> {
        let queue = self.find(&link.name, "port.queue_bytes")?;
        let ran_empty = self.find(&link.name, "port.ran_empty");
        let undisturbed = |t: i64| !self.faults.iter().any(|fault| t >= fault.start_ns && t <= fault.end_ns);
        let inside = |t: i64| t >= self.steady.start_ns && t <= self.steady.end_ns && undisturbed(t);
        fullness::missed_rate(link.rate?.as_f64(), queue, ran_empty, sent, inside)
    }

    /// Mean and largest of the samples in a window.
    fn queue(&self, link: &DirectedLink, window: Window) -> Option<(f64, f64)> {
        let series = self.find(&link.name, "port.queue_bytes")?;
        let inside = series.t_ns.iter().zip(&series.value);
        let values: Vec<f64> = inside
            .filter(|(t, _)| **t >= window.start_ns && **t <= window.end_ns)
            .map(|(_, value)| *value)
            .collect();
        let most = values.iter().copied().reduce(f64::max)?;
        Some((values.iter().sum::<f64>() / values.len() as f64, most))
    }

    /// What a counter of seconds grew by in the steady state, against its length.
    fn share(&self, entity: &str, name: &str) -> Option<f64> {
        let (grown, seconds) = growth(self.find(entity, name)?, self.steady)?;
        Some(grown / seconds)
    }

    /// As `share`, of all cores' time.
    fn machine_share(&self, name: &str) -> Option<f64> {
        Some(self.share("machine", name)? / self.core_count.max(1) as f64)
    }

    fn fabric_busy(&self) -> Option<f64> {
        self.share("process.fabric", "cpu.process_seconds")
    }

    /// What of it was spent looking for packets that were not there.
    fn fabric_looking(&self) -> Option<f64> {
        self.share("process.fabric", "fabric.looking_seconds")
    }

    /// What it waited for a core that other programs had.
    fn fabric_waited(&self) -> Option<f64> {
        self.share("process.fabric", "cpu.process_wait_seconds")
    }

    fn machine_stolen(&self) -> Option<f64> {
        self.machine_share("cpu.stolen_seconds")
    }

    fn machine_idle(&self) -> Option<f64> {
        Some((1.0 - self.machine_share("cpu.busy_seconds")?).max(0.0))
    }

    /// What the machine was busy with beside the run's own processes, as a share of all cores. Interrupts count as the run's
    /// own: its packets cause them.
    fn foreign_busy(&self) -> Option<f64> {
        let machine = self.find("machine", "cpu.busy_seconds")?;
        let interrupts = self.find("machine", "cpu.interrupt_seconds")?;
        let (busy, seconds) = growth(machine, self.steady)?;
        let (of_interrupts, _) = growth(interrupts, self.steady)?;
        let own = self.series.iter().filter(|it| [service::CPU, "cpu.process_seconds"].contains(&&*it.name));
        let own: f64 = own.filter_map(|series| growth(series, self.steady)).map(|(grown, _)| grown).sum();
        let cores = self.core_count.max(1) as f64;
        Some((busy - of_interrupts - own - cores * TICKS_SECONDS).max(0.0) / seconds / cores)
    }

    fn lateness_histogram(&self) -> Option<Histogram> {
        let (before, after) = self.lateness.as_ref()?;
        let mut histogram = Histogram { min_ns: u64::MAX, ..Histogram::default() };
        for (bucket, (after, before)) in after.iter().zip(before).enumerate().take(LATENESS_BUCKETS) {
            let count = after.saturating_sub(*before);
            if count > 0 {
                let value = fabric_page::lateness_bucket_ns(bucket) as u64;
                histogram.value_ns.push(value);
                histogram.count.push(count);
                histogram.min_ns = histogram.min_ns.min(value);
                histogram.max_ns = value;
                histogram.sum_ns += value as f64 * count as f64;
            }
        }
        (!histogram.count.is_empty()).then_some(histogram)
    }
}

/// Moves timestamps from the machine's clock to the trial's.
pub fn to_trial_clock(series: &mut [Series], trial_start: Instant) {
    let start = i64::try_from(trial_start.as_ns()).unwrap_or(i64::MAX);
    for t in series.iter_mut().flat_map(|series| &mut series.t_ns) {
        *t -= start;
    }
}
