//! Measures one point after the other, tells how far each is, and prints what came of them.

use super::super::flags::Flags;
use super::{Common, Protocol, key, resolve};
use crate::output::{say, say_json, tell};
use anyhow::bail;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;
use weir_core::metric::Metric;
use weir_core::record::{CriterionResult, Summary, Verdict};
use weir_core::scenario::plan::ramp_length;
use weir_core::text::{SHOWN_BYTES_MAX, shown};
use weir_core::units::human;
use weir_core::{Value, Values};
use weir_net::adhoc::summary::{Point, point_id, summarise};
use weir_net::adhoc::table::table;
use weir_net::adhoc::{Client, Job, Keep, Measurement, Progress};
use weir_net::iperf3;

/// Who asks the other end.
enum Asking {
    Weir(Client),
    Iperf3(iperf3::Client),
}

impl Asking {
    fn new(common: &Common, workload: &str) -> anyhow::Result<Asking> {
        match common.protocol {
            Protocol::Weir => {
                let address = resolve(&common.host, common.protocol.port())?;
                Ok(Asking::Weir(Client::new(address, key(common.key_file.as_deref())?)))
            }
            Protocol::Iperf3 if !matches!(workload, "stream" | "udp") => {
                bail!("--protocol iperf3: iperf3 has no {workload} test; stream and udp are what it knows")
            }
            Protocol::Iperf3 if common.key_file.is_some() => {
                bail!("--protocol iperf3: iperf3 has no keys; leave --key-file out")
            }
            Protocol::Iperf3 => {
                let address = resolve(&common.host, common.protocol.port())?;
                Ok(Asking::Iperf3(iperf3::Client { address }))
            }
        }
    }

    /// Whether it can be asked for.
    fn check(&self, job: &Job) -> anyhow::Result<()> {
        match self {
            Asking::Weir(_) => Ok(()),
            Asking::Iperf3(_) => Ok(iperf3::Client::check(job)?),
        }
    }
}

/// The points that one command has measured so far.
pub struct Measuring {
    asking: Asking,
    workload: &'static str,
    json: bool,
    live: bool,
    points: Vec<Point>,
    /// What is to be said of the next point.
    remarks: Vec<String>,
}

impl Measuring {
    /// From here on an interrupt ends the measurement, not the program.
    pub fn begin(common: &Common, workload: &'static str) -> anyhow::Result<Measuring> {
        let asking = Asking::new(common, workload)?;
        weir_sys::signal::count_interrupts();
        let live = !common.json && std::io::stderr().is_terminal();
        Ok(Measuring { asking, workload, json: common.json, live, points: Vec::new(), remarks: Vec::new() })
    }

    /// Measures a point: `values` in all, of which `swept` name it.
    pub fn point(
        &mut self,
        values: &Values,
        swept: Vec<(String, Value)>,
        job: &Job,
    ) -> anyhow::Result<&Point> {
        self.keeping(values, swept, job, &mut |_| Ok(()))
    }

    /// Measures the only point of a command; `keep` takes its fine series as they come.
    pub fn point_keeping(&mut self, values: &Values, job: &Job, keep: Keep<'_>) -> anyhow::Result<&Point> {
        self.keeping(values, Vec::new(), job, keep)
    }

    fn keeping(
        &mut self,
        values: &Values,
        swept: Vec<(String, Value)>,
        job: &Job,
        keep: Keep<'_>,
    ) -> anyhow::Result<&Point> {
        let (workload, live) = (self.workload, self.live);
        let id = point_id(workload, &swept);
        let mut last = Progress::default();
        let steady = steady_after(values);
        // Of what lasts for hours nobody wants a line a second.
        let seconds_between = if workload == "watch" { 10 } else { 1 };
        let mut watch = |progress: Progress| {
            if progress.elapsed.as_secs() < last.elapsed.as_secs() + seconds_between {
                return;
            }
            // An end that has said nothing since is waited for: half a rate would be a wrong one.
            let Some(line) = progress_line(&id, workload, &last, &progress, steady) else { return };
            if live {
                tell(line);
            }
            last = progress;
        };
        let interrupts = &weir_sys::signal::interrupts;
        let measured = match &self.asking {
            Asking::Weir(client) => client.measure_keeping(job, values, interrupts, &mut watch, keep),
            Asking::Iperf3(client) => client.measure(job, values, interrupts, &mut watch),
        };
        let mut measurement = match measured {
            Ok(measurement) => measurement,
            Err(error) if self.points.is_empty() => return Err(error.into()),
            // The points before it are reported all the same.
            Err(error) => {
                Measurement { invalid: Some(error.to_string()), stopped: true, ..Measurement::default() }
            }
        };
        measurement.warnings.append(&mut self.remarks);
        self.points.push(Point { parameters: swept, measurement });
        Ok(self.points.last().expect("one was just put there"))
    }

    /// Forgets the last point, which will be measured again: of the next one it is said what came of this.
    pub fn once_more(&mut self, came: &str) {
        let Some(last) = self.points.pop() else { return };
        self.remarks.extend(last.measurement.warnings);
        self.remarks.push(format!("measured once more: {came}"));
    }

    /// The document of all points so far, `results` where they are kept.
    pub fn summary(&self, results: Option<&Path>) -> Summary {
        let summary = summarise(self.workload, definitions(self.workload), &self.points);
        Summary { results: results.map(|path| path.display().to_string()), ..summary }
    }

    /// Prints the table or the document of what is kept in `results`, and gives the exit status.
    pub fn finish_in(self, results: Option<&Path>) -> anyhow::Result<i32> {
        let summary = self.summary(results);
        self.print(summary, None)
    }

    /// Prints the table or the document, with what was judged of the points, and gives the exit status.
    pub fn finish(self, judged: Option<CriterionResult>) -> anyhow::Result<i32> {
        let mut summary = self.summary(None);
        let why = judged.as_ref().map(|judged| judged.why.clone());
        if let Some(judged) = judged {
            if judged.verdict != Verdict::Pass {
                summary.verdict = judged.verdict;
            }
            summary.criteria.push(judged);
        }
        self.print(summary, why)
    }

    fn print(self, summary: Summary, why: Option<String>) -> anyhow::Result<i32> {
        let definitions = definitions(self.workload);
        if self.json {
            say_json(weir_report::json(&summary))?;
        } else {
            say(table(self.workload, definitions, &self.points).trim_end())?;
            if let Some(why) = why {
                say(format_args!("\n{}", shown(&why, SHOWN_BYTES_MAX)))?;
            }
        }
        Ok(if summary.verdict == Verdict::Pass { 0 } else { 3 })
    }
}

/// Every combination of the flags' values, one point each.
pub fn sweep(
    common: &Common,
    workload: &'static str,
    flags: &Flags,
    job: impl Fn(&Values) -> anyhow::Result<Job>,
) -> anyhow::Result<i32> {
    // Everything is checked before the first byte is sent.
    let points = flags.points()?;
    let jobs: Vec<Job> = points.iter().map(|(values, _)| job(values)).collect::<anyhow::Result<_>>()?;
    let mut measuring = Measuring::begin(common, workload)?;
    for job in &jobs {
        measuring.asking.check(job)?;
    }
    for ((values, swept), job) in points.into_iter().zip(&jobs) {
        if measuring.point(&values, swept, job)?.measurement.stopped {
            break;
        }
    }
    measuring.finish(None)
}

/// What the workload measures.
pub fn definitions(workload: &str) -> &'static [Metric] {
    let entry = weir_net::WORKLOADS.iter().find(|entry| entry.name == workload);
    entry.map_or(&[], |entry| entry.build.metrics())
}

/// From the start to the steady state.
pub fn steady_after(values: &Values) -> Duration {
    let of = |key: &str| values.duration(key).unwrap_or_default();
    ramp_length(of("ramp"), values.count("streams").unwrap_or(1)).saturating_add(of("warm_up"))
}

/// What was counted since `last`, marked where a part of it is warm-up and counts nowhere. `None`: an end has said nothing since.
fn progress_line(
    id: &str,
    workload: &str,
    last: &Progress,
    now: &Progress,
    steady: Duration,
) -> Option<String> {
    let a_second = now.rate_since(last)?;
    let rate = match workload {
        "latency" => format!("{a_second:.0} round trips/s"),
        "path" => format!("{} answers", now.count()),
        "connect" => format!("{a_second:.0} connections/s"),
        _ => human(a_second * 8.0, "bit/s"),
    };
    let mark = if last.elapsed < steady { "  warm-up" } else { "" };
    Some(format!("{id}  {:>4.0} s  {rate}{mark}", now.elapsed.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_net::adhoc::Counted;

    #[test]
    fn a_line_has_each_ends_rate_over_its_own_time_and_says_what_is_warm_up() {
        let at = |milliseconds, count| Counted { at: Duration::from_millis(milliseconds), count };
        let progress =
            |seconds, near, far| Progress { elapsed: Duration::from_secs(seconds), ends: vec![near, far] };
        let line = |last: &Progress, now: &Progress| {
            progress_line("stream", "stream", last, now, Duration::from_millis(1_500))
        };
        // The far end's first word came late: it is of 1.9 s, and not of the second between two lines.
        let first = progress(1, at(1_000, 125_000), at(100, 12_500));
        assert_eq!(line(&Progress::default(), &first).unwrap(), "stream     1 s  2 Mbit/s  warm-up");
        let silent = progress(2, at(2_000, 250_000), at(100, 12_500));
        assert_eq!(line(&first, &silent), None);
        let second = progress(2, at(2_000, 250_000), at(2_000, 250_000));
        assert_eq!(line(&first, &second).unwrap(), "stream     2 s  2 Mbit/s  warm-up");
        let third = progress(3, at(3_000, 375_000), at(3_000, 375_000));
        assert_eq!(line(&second, &third).unwrap(), "stream     3 s  2 Mbit/s");
    }
}
