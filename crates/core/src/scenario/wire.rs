//! What links and access links have in common: what a wire does to packets, and the queue before it.

use super::reader::{Context, Default as Written, Hop, Reader, TreePath, data_of};
use super::schema;
use super::tree::{Data, Node, Table};
use crate::param::Value;
use crate::topology::{Discipline, Queue};
use crate::units::Bytes;

/// `over` laid on `base`, key by key, inner tables too. A key written in its short form is spelled out first, so that a
/// single key of it can be laid over.
pub(super) fn laid_over(base: &Table, over: &Table) -> Table {
    let mut merged = base.clone();
    for entry in &over.entries {
        let Some(inner) = entry.node.as_table() else {
            merged.set(&entry.key, entry.key_at, entry.node.clone());
            continue;
        };
        let below = merged.get(&entry.key).map(|node| spelled_out(&entry.key, node));
        let laid = match below.as_ref().and_then(Node::as_table) {
            Some(below) => laid_over(below, inner),
            None => inner.clone(),
        };
        merged.set(&entry.key, entry.key_at, Node { data: Data::Table(laid), at: entry.node.at });
    }
    merged
}

/// `jitter = "1ms"` as `{ by = "1ms" }`; anything else as it is.
pub(super) fn spelled_out(key: &str, node: &Node) -> Node {
    match (schema::shorthand(key), &node.data) {
        (Some(inner), data) if !matches!(data, Data::Table(_)) => {
            let mut table = Table::default();
            table.set(inner, node.at, node.clone());
            Node { data: Data::Table(table), at: node.at }
        }
        _ => node.clone(),
    }
}

/// Where defaults that were computed are noted, if anywhere.
pub(super) struct Notes<'a> {
    pub context: &'a Context<'a>,
    /// Of the queue.
    pub path: TreePath,
}

impl Notes<'_> {
    fn add(&self, key: &str, value: &Value) {
        let mut path = self.path.clone();
        path.push(Hop::Key(key.to_owned()));
        let node = Node { data: data_of(value), at: Default::default() };
        self.context.defaults.borrow_mut().insert(path, Written { node, computed: true });
    }
}

/// Reads a `queue` table. `default` is the limit where neither is written; without one a limit must be given.
pub(super) fn read_queue(queue: &Reader<'_>, default: Option<Bytes>, notes: &Notes<'_>) -> Option<Queue> {
    let bytes = if queue.has("bytes") { Some(queue.size("bytes")?) } else { None };
    let packets = if queue.has("packets") { Some(queue.count("packets")?) } else { None };
    let bytes = match (bytes, packets, default) {
        (None, None, Some(default)) => {
            notes.add("bytes", &Value::Size(default));
            Some(default)
        }
        (None, None, None) => {
            queue.problems().add_help(
                queue.at,
                "`queue` of an access link without a limit",
                "give `bytes` or `packets`, or leave `queue` out: then the host's interface holds packets back",
            );
            return None;
        }
        _ => bytes,
    };
    Some(Queue { bytes, packets, discipline: read_discipline(queue, bytes, notes)? })
}

fn read_discipline(queue: &Reader<'_>, limit: Option<Bytes>, notes: &Notes<'_>) -> Option<Discipline> {
    let chosen = queue.text("discipline")?;
    let problems = queue.problems();
    let own =
        [("min", "red"), ("max", "red"), ("probability", "red"), ("target", "codel"), ("interval", "codel")];
    if let Some((key, of)) = own.into_iter().find(|(key, of)| queue.has(key) && chosen != *of) {
        problems.add_help(
            queue.place_of(key),
            format!("`{key}` is of the discipline {of:?}, and this queue's is {chosen:?}"),
            format!("write discipline = {of:?}, or leave `{key}` out; a case can set both"),
        );
        return None;
    }
    let computed = |key: &str, value: Value| {
        notes.add(key, &value);
        value
    };
    Some(match chosen.as_str() {
        "red" => {
            let max = match (queue.has("max"), limit) {
                (true, _) => queue.size("max")?,
                (false, Some(limit)) => Bytes(limit.0 / 2),
                (false, None) => {
                    let help = "give `max` (and `min`), or a limit in `bytes`, half of which it is otherwise";
                    problems.add_help(
                        queue.at,
                        "`max` of red is in bytes, and this queue's limit in packets",
                        help,
                    );
                    return None;
                }
            };
            let min = if queue.has("min") { queue.size("min")? } else { Bytes(max.0 / 3) };
            let probability = if queue.has("probability") { queue.ratio("probability")? } else { 0.1 };
            if min >= max {
                problems
                    .add(queue.place_of("min"), format!("`min` {min} of red is not below its `max` {max}"));
                return None;
            }
            for (key, value) in [
                ("max", Value::Size(max)),
                ("min", Value::Size(min)),
                ("probability", Value::Ratio(probability)),
            ] {
                if !queue.has(key) {
                    computed(key, value);
                }
            }
            Discipline::Red { min_bytes: min.0, max_bytes: max.0, probability }
        }
        "codel" => {
            let duration = |key: &str, default_ms: u64| {
                if queue.has(key) {
                    return queue.duration_ns(key);
                }
                computed(key, Value::Duration(std::time::Duration::from_millis(default_ms)));
                Some(default_ms * 1_000_000)
            };
            let (target_ns, interval_ns) = (duration("target", 5), duration("interval", 100));
            Discipline::Codel { target_ns: target_ns?, interval_ns: interval_ns? }
        }
        _ => Discipline::DropTail,
    })
}
