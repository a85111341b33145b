//! What the user sees while a run goes on: on standard error, and only on a terminal.

use crate::output::tell;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::ops::Range;
use std::time::Duration;
use weir_core::Instant;
use weir_core::units::human;

/// Longest name of a step that is shown whole; more does not fit beside the bar.
const LABEL_BYTES_MAX: usize = 120;

/// A line with a bar, what is under way, its rate, and the time to finish.
pub struct Progress {
    bar: ProgressBar,
    total: Duration,
    /// Planned time of the trials that have ended.
    finished: Duration,
    /// How much of the plan of this one is behind.
    inside: Duration,
    last: Option<(usize, u64, Instant)>,
    rate: Option<f64>,
    label: String,
}

impl Progress {
    /// `total` is the planned time of all trials.
    pub fn new(total: Duration, quiet: bool) -> Self {
        let visible = !quiet && std::io::stderr().is_terminal();
        let target =
            if visible { ProgressDrawTarget::stderr_with_hz(5) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(millis(total)), target);
        let style = ProgressStyle::with_template("  {bar:24} {percent:>3} %  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─"));
        Progress {
            bar,
            total,
            finished: Duration::ZERO,
            inside: Duration::ZERO,
            last: None,
            rate: None,
            label: String::new(),
        }
    }

    /// A step of a trial begins.
    pub fn begin(&mut self, label: String) {
        self.label = weir_core::text::shown(&label, LABEL_BYTES_MAX);
        (self.last, self.rate) = (None, None);
        self.draw();
    }

    /// `done` bytes so far of the step with this index, which began `elapsed` ago; `planned` is its place in the trial.
    pub fn moved(
        &mut self,
        step: usize,
        done: u64,
        now: Instant,
        elapsed: Duration,
        planned: &Range<Duration>,
    ) {
        if let Some((index, before, at)) = self.last
            && index == step
            && now.since(at) >= Duration::from_millis(200)
        {
            self.rate = Some(done.saturating_sub(before) as f64 * 8.0 / now.since(at).as_secs_f64());
            self.last = Some((step, done, now));
        } else if self.last.is_none_or(|(index, ..)| index != step) {
            self.last = Some((step, done, now));
        }
        self.inside = self.inside.max((planned.start + elapsed).min(planned.end));
        self.draw();
    }

    /// A step has ended, as long as it may have taken.
    pub fn end(&mut self, planned: &Range<Duration>) {
        self.inside = self.inside.max(planned.end);
        self.draw();
    }

    /// A trial has ended that was planned to take so long.
    pub fn end_trial(&mut self, planned: Duration) {
        self.finished += planned;
        self.inside = Duration::ZERO;
        self.draw();
    }

    fn draw(&self) {
        let done = (self.finished + self.inside).min(self.total);
        let left = (self.total - done).as_secs_f64().ceil();
        // Latency steps count operations; only a bulk rate is worth showing.
        let rate = self
            .rate
            .filter(|rate| *rate > 1e5)
            .map(|rate| format!("  {}", human(rate, "bit/s")))
            .unwrap_or_default();
        self.bar.set_position(millis(done));
        self.bar.set_message(format!("{}{rate}  {left:.0} s left", self.label));
    }

    /// Prints a line above the bar.
    pub fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            tell(line);
        } else {
            self.bar.suspend(|| tell(line));
        }
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
