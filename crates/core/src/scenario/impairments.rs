//! What a wire does to packets beside delay and independent loss: the keys that say it, declared and read here for every wire.

use super::reader::Reader;
use crate::param::{Kind, Param};
use crate::topology::{BurstLoss, Impairments, Jitter, Reorder};

/// How many there are.
pub(super) const COUNT: usize = 4;

pub(super) const KEYS: [Param; COUNT] = [
    Param::new(
        "jitter",
        Kind::Table(JITTER),
        "Delay added to each packet, drawn anew: a time, with which packets stay in order, or { by, reorder }.",
    ),
    Param::new(
        "burst_loss",
        Kind::Table(BURST_LOSS),
        "Loss in bursts (Gilbert 1960, Elliott 1963), beside `loss`: a good and a bad state, one move a packet.",
    ),
    Param::ratio("corrupt", "Probability that one bit of a packet is inverted on the wire.").default("0%"),
    Param::new("reorder", Kind::Table(REORDER), "A share of the packets takes longer and may be overtaken."),
];

const JITTER: &[Param] = &[
    Param::delay("by", "The largest addition to the delay; every packet draws its own, uniform from 0.")
        .required(),
    Param::new("reorder", Kind::Flag, "True lets packets overtake each other; false keeps their order.")
        .default("false"),
];

const BURST_LOSS: &[Param] = &[
    Param::ratio("bad", "Long-run share of packets that meet the bad state.").required().range(0.0, 0.99),
    Param::new("length", Kind::Count, "Mean length of a stay in the bad state, in packets.")
        .required()
        .range(1.0, 1e9),
    Param::ratio("loss", "Probability of loss in the bad state.").default("100%"),
];

const REORDER: &[Param] = &[
    Param::ratio("share", "Share of the packets that take longer, chosen at random.").required(),
    Param::delay("by", "How much longer.").required(),
];

/// What a wire's keys say; `None` (and problems) where one is wrong.
pub(super) fn read(reader: &Reader<'_>) -> Option<Impairments> {
    Some(Impairments {
        jitter: read_jitter(reader)?,
        burst_loss: read_burst_loss(reader)?,
        corrupt: match reader.has("corrupt") {
            true => reader.ratio("corrupt")?,
            false => reader.ratio("corrupt").unwrap_or(0.0),
        },
        reorder: match reader.has("reorder") {
            false => None,
            true => {
                let body = reader.table("reorder")?;
                let (share, by_ns) = (body.ratio("share"), body.duration_ns("by"));
                Some(Reorder { share: share?, by_ns: by_ns? })
            }
        },
    })
}

fn read_jitter(reader: &Reader<'_>) -> Option<Option<Jitter>> {
    let Some(node) = reader.node("jitter") else { return Some(None) };
    if node.as_table().is_none() {
        return Some(Some(Jitter { by_ns: reader.duration_ns("jitter")?, reorder: false }));
    }
    let body = reader.table("jitter")?;
    let (by_ns, reorder) = (body.duration_ns("by"), body.flag("reorder"));
    Some(Some(Jitter { by_ns: by_ns?, reorder: reorder? }))
}

fn read_burst_loss(reader: &Reader<'_>) -> Option<Option<BurstLoss>> {
    if !reader.has("burst_loss") {
        return Some(None);
    }
    let body = reader.table("burst_loss")?;
    let (bad, length, loss) = (body.ratio("bad"), body.count("length"), body.ratio("loss"));
    let (bad, length, loss) = (bad?, length? as f64, loss?);
    // The good state is left with probability bad / (length (1 − bad)), which cannot be above 1.
    let most = length / (length + 1.0);
    if bad > most {
        body.problems().add_help(
            body.place_of("bad"),
            format!("`bad` is {bad}, more than stays of {length} packets can add up to"),
            format!("between two stays at least one packet meets the good state: at most {most:.4}"),
        );
        return None;
    }
    Some(Some(BurstLoss { bad, length_packets: length, loss }))
}
