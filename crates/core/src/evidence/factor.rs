//! What may bound a trial, each declared once by who can see it. Here are those that more than one capability may name.

/// A limiting factor.
#[derive(Clone, Copy, Debug)]
pub struct Factor {
    /// `link-rate`, as scenarios and records write it.
    pub name: &'static str,
    /// Of two that hold the lower is named. Of each factor another.
    pub rank: u16,
    pub about: &'static str,
    /// What to try, in words.
    pub next: &'static str,
    /// The command that tries or confirms it; empty where there is none.
    pub command: &'static str,
}

impl PartialEq for Factor {
    fn eq(&self, other: &Factor) -> bool {
        self.name == other.name
    }
}

impl Factor {
    /// `next` with the command behind it, in one line.
    pub fn advice(&self) -> String {
        match self.command {
            "" => self.next.to_owned(),
            command => format!("{}: {command}", self.next),
        }
    }
}

pub static EMULATOR_LIMITED: Factor = Factor {
    name: "emulator-limited",
    rank: 0,
    about: "The machine that carries the lab could not keep up, or was taken away from it.",
    next: "end other programs, ask for less, or run on a machine with more cores; see what this one can carry",
    command: "weir doctor",
};
pub static GENERATOR_LIMITED: Factor = Factor {
    name: "generator-limited",
    rank: 1,
    about: "The load's own clock could not be followed: less was asked than planned.",
    next: "ask for a lower rate, or spread it over more hosts; see whether this host's cores are free",
    command: "weir doctor",
};
pub static LINK_RATE: Factor = Factor {
    name: "link-rate",
    rank: 20,
    about: "A link on the path carried what its rate allows.",
    next: "nothing is to be had from the ends; see what the path can carry at most",
    command: "weir net path HOST",
};
pub static SOURCE_APPLICATION: Factor = Factor {
    name: "source-application",
    rank: 50,
    about: "The load asked for no more: its source gave less than could have been carried.",
    next: "ask for more (`source_rate`, `rate`), or leave the limit out",
    command: "weir explain source_rate",
};
pub static RECEIVER_CPU: Factor = Factor {
    name: "receiver-cpu",
    rank: 70,
    about: "The busiest receiving thread had no CPU left, or waited for one.",
    next: "receive on more threads or hosts, or free the core; see what this host can do",
    command: "weir doctor",
};
pub static SENDER_CPU: Factor = Factor {
    name: "sender-cpu",
    rank: 90,
    about: "The busiest sending thread had no CPU left, or waited for one.",
    next: "send from more threads or hosts, or free the core; see what this host can do",
    command: "weir doctor",
};
pub static REORDERING: Factor = Factor {
    name: "reordering",
    rank: 100,
    about: "Packets overtook each other, and what had arrived was sent again.",
    next: "look for paths of unequal length that share one flow's packets",
    command: "weir net watch HOST",
};
pub static QUEUE: Factor = Factor {
    name: "queue",
    rank: 110,
    about: "A queue on the path was too small for its bursts, or so long that everything waits in it.",
    next: "compare a deeper and a shallower queue, or pace the senders (`tcp.pacing`)",
    command: "weir explain queue",
};
pub static LOSS: Factor = Factor {
    name: "loss",
    rank: 120,
    about: "Segments were lost, and the congestion window held the senders back.",
    next: "find where they are lost, and when",
    command: "weir net watch HOST",
};
pub static UNKNOWN: Factor = Factor {
    name: "unknown",
    rank: u16::MAX,
    about: "Nothing that was looked at explains it.",
    next: "ask for more, or look at the series beside it",
    command: "weir report DIR",
};

/// What every load may meet.
pub static SHARED: &[&Factor] = &[
    &EMULATOR_LIMITED,
    &GENERATOR_LIMITED,
    &LINK_RATE,
    &SOURCE_APPLICATION,
    &RECEIVER_CPU,
    &SENDER_CPU,
    &REORDERING,
    &QUEUE,
    &LOSS,
    &UNKNOWN,
];
