//! A calendar of builders that is drawn up anew from how full they are.

use super::ring::{Ring, Room};
use weir_core::{Instant, Kind, Param, Values};
use weir_seams::scheduler::{Builder, BuilderId, Builders, Scheduler, Wanted};

pub const PARAMS: &[Param] = &[
    Param::new("slots", Kind::Count, "Least number of places in the calendar, and of events between two calendars. There are at least four a builder.")
        .default("512")
        .range(1.0, 4_096.0),
    Param::new("proportional", Kind::Ratio, "How strongly a builder's weight follows how much emptier it is than the mean.")
        .default("0.5")
        .range(0.0, 100.0),
    Param::new("integral", Kind::Ratio, "How strongly it follows the sum of that over all calendars so far.")
        .default("0.5")
        .range(0.0, 100.0),
    Param::new("derivative", Kind::Ratio, "How strongly it follows the change of that since the last calendar.")
        .default("0")
        .range(0.0, 100.0),
];

/// What the sum and the weight are bounded by, as exponents: a builder has at most e⁸ times the weight of another.
const EXPONENT_MAX: f64 = 4.0;

/// Heartbeat n belongs to the builder in place n mod L of a calendar of L places. After L events the calendar is drawn up anew: a builder has one place and
/// a share of the others by its weight, which a PID controller sets from how much of its memory is in use, against the mean of all. A
/// builder's places are spread evenly. Where its event does not fit the next builder by slot that has room gets it.
///
/// Source: the calendar of 512 places of EJFAT's load balancer (arXiv:2303.16351), where each receiver has a set point of its own for how full it is.
pub struct WeightedCalendar {
    slots: usize,
    gains: Gains,
    calendar: Vec<BuilderId>,
    /// By slot.
    controllers: Vec<Controller>,
    /// For drawing up: where in a round a place lies, and whose it is.
    places: Vec<(u64, BuilderId)>,
    /// Events until the next.
    left: usize,
    ring: Ring,
}

#[derive(Clone, Copy)]
struct Gains {
    proportional: f64,
    integral: f64,
    derivative: f64,
}

#[derive(Clone, Copy, Default)]
struct Controller {
    error: f64,
    sum: f64,
    exponent: f64,
}

impl Controller {
    fn step(&mut self, error: f64, gains: Gains) {
        // Bounded, or a builder that was cut off for long would get nothing for as long afterwards.
        self.sum = (self.sum + gains.integral * error).clamp(-EXPONENT_MAX, EXPONENT_MAX);
        let exponent = gains.proportional * error + self.sum + gains.derivative * (error - self.error);
        self.exponent = exponent.clamp(-EXPONENT_MAX, EXPONENT_MAX);
        self.error = error;
    }
}

/// Share of the memory that is in use.
fn fill(builder: &Builder) -> f64 {
    (builder.outstanding_bytes as f64 / builder.memory_bytes.max(1) as f64).min(1.0)
}

impl WeightedCalendar {
    /// `values`: of `PARAMS`.
    pub fn new(values: &Values) -> WeightedCalendar {
        let gain = |key| values.ratio(key).unwrap_or(0.0);
        WeightedCalendar {
            slots: values.count("slots").unwrap_or(1).max(1) as usize,
            gains: Gains {
                proportional: gain("proportional"),
                integral: gain("integral"),
                derivative: gain("derivative"),
            },
            calendar: Vec::new(),
            controllers: Vec::new(),
            places: Vec::new(),
            left: 0,
            ring: Ring::new(Room::Now),
        }
    }

    fn control(&mut self, builders: &Builders) {
        let mean = builders.iter().map(fill).sum::<f64>() / builders.listed().len() as f64;
        for builder in builders.iter() {
            self.controllers[builder.id.0 as usize].step(mean - fill(builder), self.gains);
        }
    }

    /// Allocates the first time after a membership has grown, and then no more.
    fn draw_up(&mut self, builders: &Builders) {
        let count = builders.listed().len();
        let length = self.slots.max(4 * count);
        let weight = |id: &BuilderId| self.controllers[id.0 as usize].exponent.exp();
        let weights: f64 = builders.listed().iter().map(weight).sum();
        self.places.clear();
        // One place each, and the rest by weight; rounding the running sum keeps the total exact.
        let (mut sum, mut given) = (0.0, 0);
        for id in builders.listed() {
            sum += weight(id) / weights;
            let upto = (sum.min(1.0) * (length - count) as f64).round() as u64;
            let own = upto - given + 1;
            given = upto;
            self.places.extend((0..own).map(|place| (((2 * place + 1) << 32) / (2 * own), *id)));
        }
        self.places.sort_unstable();
        self.calendar.clear();
        self.calendar.extend(self.places.iter().map(|(_, id)| *id));
        self.left = self.calendar.len();
    }
}

impl Scheduler for WeightedCalendar {
    fn choose(&mut self, _now: Instant, event: &Wanted, builders: &Builders) -> Option<BuilderId> {
        if builders.listed().is_empty() {
            return None;
        }
        if self.left == 0 {
            if !self.calendar.is_empty() {
                self.control(builders);
            }
            self.draw_up(builders);
        }
        let place = event.heartbeat % self.calendar.len() as u64;
        let id = self.ring.next(self.calendar[place as usize].0, event.bytes)?;
        self.left -= 1;
        Some(id)
    }
    fn on_membership(&mut self, _id: BuilderId, builders: &Builders) {
        self.controllers.resize(builders.slot_count(), Controller::default());
        self.ring.on_membership(builders);
        // Drawn up when it is needed: many may come at once.
        self.calendar.clear();
        self.left = 0;
    }
    fn on_load(&mut self, id: BuilderId, builders: &Builders) {
        self.ring.on_load(id, builders);
    }
}
