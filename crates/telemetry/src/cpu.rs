//! CPU time of cores and of processes.

use crate::proc_file::{ProcFile, entity};
use weir_core::Instant;
use weir_core::record::Series;
use weir_seams::sampler::{Sampler, SamplerTarget, SeriesView};

/// Kernel clock ticks a second in `/proc`; 100 on every Linux that weir supports (`USER_HZ` is part of the ABI).
pub(crate) const TICKS_PER_SECOND: f64 = 100.0;

fn counter(entity: String, name: &str) -> Series {
    Series {
        entity,
        name: name.to_owned(),
        unit: "s".to_owned(),
        cumulative: true,
        t_ns: Vec::new(),
        value: Vec::new(),
    }
}

fn push(series: &mut Series, now: Instant, value: f64) {
    series.t_ns.push(i64::try_from(now.as_ns()).unwrap_or(i64::MAX));
    series.value.push(value);
}

/// Busy seconds of each core, and of all together (`machine`, or `host.NAME` on a real host): user, nice, system, irq, softirq and steal; and the parts of
/// all together that interrupts and the hypervisor took.
pub struct CoreSampler {
    whole: String,
    stat: ProcFile,
    interrupts: Series,
    stolen: Series,
    series: Vec<Series>,
}

/// Of irq, softirq and steal.
const INTERRUPTS: &str = "cpu.interrupt_seconds";
/// Of steal alone.
const STOLEN: &str = "cpu.stolen_seconds";

impl CoreSampler {
    pub fn new(target: &SamplerTarget) -> Self {
        let whole = entity(&target.host, None);
        CoreSampler {
            stat: ProcFile::open("/proc/stat"),
            interrupts: counter(whole.clone(), INTERRUPTS),
            stolen: counter(whole.clone(), STOLEN),
            whole,
            series: Vec::new(),
        }
    }
}

/// One `cpu…` line of `/proc/stat`, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CoreTicks<'a> {
    name: &'a str,
    /// Everything but idle and iowait.
    busy: u64,
    /// Of irq, softirq and steal among them.
    interrupts: u64,
    stolen: u64,
}

/// `None` for any other line.
fn busy_ticks(line: &str) -> Option<CoreTicks<'_>> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next().filter(|name| name.starts_with("cpu"))?;
    let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest time is already in user.
    let interrupts: u64 = ticks.iter().skip(5).take(3).sum();
    let programs: u64 = ticks.iter().take(3).sum();
    let stolen = ticks.get(7).copied().unwrap_or(0);
    (ticks.len() >= 5).then_some(CoreTicks { name, busy: programs + interrupts, interrupts, stolen })
}

impl Sampler for CoreSampler {
    fn sample(&mut self, now: Instant) {
        let Some(text) = self.stat.read() else { return };
        for (index, core) in text.lines().map_while(busy_ticks).enumerate() {
            let name = core.name;
            if name == "cpu" {
                push(&mut self.interrupts, now, core.interrupts as f64 / TICKS_PER_SECOND);
                push(&mut self.stolen, now, core.stolen as f64 / TICKS_PER_SECOND);
            }
            if self.series.len() <= index {
                let entity =
                    if name == "cpu" { self.whole.clone() } else { format!("{}.{name}", self.whole) };
                self.series.push(counter(entity, "cpu.busy_seconds"));
            }
            push(&mut self.series[index], now, core.busy as f64 / TICKS_PER_SECOND);
        }
    }
    fn show(&self, to: &mut dyn FnMut(SeriesView<'_>)) {
        self.series.iter().chain([&self.interrupts, &self.stolen]).for_each(|series| to(series.into()));
    }
    fn take(&mut self) -> Vec<Series> {
        let mut all = std::mem::take(&mut self.series);
        for (series, name) in [(&mut self.interrupts, INTERRUPTS), (&mut self.stolen, STOLEN)] {
            all.push(std::mem::replace(series, counter(self.whole.clone(), name)));
        }
        all
    }
}

/// CPU seconds of given processes, all threads, user and system; and how long the first thread of each could have run and
/// waited for a core.
pub struct ProcessSampler {
    processes: Vec<Process>,
}

struct Process {
    stat: ProcFile,
    ran: Series,
    schedstat: ProcFile,
    waited: Series,
}

impl ProcessSampler {
    /// `processes`: the name each goes by in records, and its process id.
    pub fn new(processes: &[(String, u32)]) -> Self {
        let watch = |(name, id): &(String, u32)| Process {
            stat: ProcFile::open(&format!("/proc/{id}/stat")),
            ran: counter(format!("process.{name}"), "cpu.process_seconds"),
            schedstat: ProcFile::open(&format!("/proc/{id}/schedstat")),
            waited: counter(format!("process.{name}"), "cpu.process_wait_seconds"),
        };
        ProcessSampler { processes: processes.iter().map(watch).collect() }
    }
}

/// utime + stime of `/proc/PID/stat`. The command's name may hold spaces and parentheses, so fields are counted from the
/// last `)`.
pub(crate) fn process_ticks(text: &str) -> Option<u64> {
    let after_name = &text[text.rfind(')')? + 1..];
    let mut words = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = words.next()?.parse().ok()?;
    let system: u64 = words.next()?.parse().ok()?;
    Some(user + system)
}

/// Nanoseconds waited for a core, of `/proc/PID/schedstat` (time run, time waited, time slices).
fn waited_ns(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

impl Sampler for ProcessSampler {
    fn sample(&mut self, now: Instant) {
        for process in &mut self.processes {
            if let Some(ticks) = process.stat.read().and_then(process_ticks) {
                push(&mut process.ran, now, ticks as f64 / TICKS_PER_SECOND);
            }
            if let Some(waited_ns) = process.schedstat.read().and_then(waited_ns) {
                push(&mut process.waited, now, waited_ns as f64 / 1e9);
            }
        }
    }
    fn show(&self, to: &mut dyn FnMut(SeriesView<'_>)) {
        let both = self.processes.iter().flat_map(|process| [&process.ran, &process.waited]);
        both.for_each(|series| to(series.into()));
    }
    fn take(&mut self) -> Vec<Series> {
        let fresh = |series: &mut Series| {
            let next = counter(series.entity.clone(), &series.name);
            std::mem::replace(series, next)
        };
        let both = self.processes.iter_mut().flat_map(|process| [&mut process.ran, &mut process.waited]);
        both.map(fresh).filter(|series| !series.t_ns.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_counts_neither_idle_nor_waiting_for_disks() {
        let all = CoreTicks { name: "cpu", busy: 40, interrupts: 9, stolen: 4 };
        assert_eq!(busy_ticks("cpu  10 1 20 1000 50 2 3 4 0 0"), Some(all));
        assert_eq!(busy_ticks("intr 5 6 7"), None);
        assert_eq!(busy_ticks("cpu0 what"), None);
    }

    #[test]
    fn a_process_named_like_a_field_does_not_shift_the_fields() {
        let text = "7 (a) 1 2 (x) y) R 1 2 3 4 5 6 7 8 9 10 70 30 0 0 20 0 1 0 100";
        assert_eq!(process_ticks(text), Some(100));
        assert_eq!(process_ticks("nonsense"), None);
    }

    #[test]
    fn this_process_uses_cpu_time_and_the_series_shows_it() {
        let mut sampler = ProcessSampler::new(&[("own".to_owned(), std::process::id())]);
        sampler.sample(Instant::from_ns(1));
        let mut sum = 0u64;
        for number in 0..200_000_000u64 {
            sum = std::hint::black_box(sum ^ number);
        }
        sampler.sample(Instant::from_ns(2));
        let series = sampler.take().remove(0);
        assert_eq!(series.t_ns, [1, 2]);
        assert!(series.value[1] > series.value[0], "{series:?}");
    }
}
