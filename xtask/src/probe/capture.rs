//! What passed the links of a lab at the instants of its model: a capture of its fabric's, read back by tshark.

use std::path::Path;
use std::process::Command;

/// One packet of a probe on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// In the order in which the links were asked for.
    pub link: usize,
    /// When the link's serialiser took it up, or refused it, in ns of the experiment's clock.
    pub at_ns: u64,
    /// The packet's number, from its first bytes.
    pub number: usize,
    pub dropped: bool,
}

const FIELDS: [&str; 4] = ["frame.interface_name", "frame.time_epoch", "frame.comment", "udp.payload"];

/// All packets of a file whose time stamps count from the start of the experiment's clock.
pub fn read(file: &Path, links: &[String]) -> Result<Vec<Sighting>, String> {
    let fields = FIELDS.iter().flat_map(|field| ["-e", field]);
    let output = Command::new("tshark")
        .args(["-n", "-T", "fields", "-r"])
        .arg(file)
        .args(fields)
        .output()
        .map_err(|problem| format!("tshark: {problem}"))?;
    if !output.status.success() {
        return Err(format!("tshark: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| sighting(line, links).ok_or_else(|| format!("tshark said {line:?}"))).collect()
}

fn sighting(line: &str, links: &[String]) -> Option<Sighting> {
    let words: Vec<&str> = line.split('\t').collect();
    let [name, time, comment, payload] = words[..] else { return None };
    let (whole, fraction) = time.split_once('.')?;
    let at_ns = whole.parse::<u64>().ok()? * 1_000_000_000 + format!("{fraction:0<9}").parse::<u64>().ok()?;
    Some(Sighting {
        link: links.iter().position(|link| *link == name)?,
        at_ns,
        number: u64::from_str_radix(payload.get(..16)?, 16).ok()?.try_into().ok()?,
        dropped: comment.starts_with("dropped"),
    })
}

/// When each packet was taken up by a link, by its number; `None` for one that was not.
pub fn taken_up(sightings: &[Sighting], link: usize, count: usize) -> Vec<Option<u64>> {
    let mut at_ns = vec![None; count];
    for sighting in sightings.iter().filter(|it| it.link == link && !it.dropped && it.number < count) {
        at_ns[sighting.number] = Some(sighting.at_ns);
    }
    at_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_fields_is_a_packet_to_the_nanosecond() {
        let line = "link.wire.forward\t12.000000005\tdropped: queue full\t00000000000001025a5a";
        let links = ["up", "link.wire.forward"].map(str::to_owned);
        let seen = sighting(line, &links).unwrap();
        assert_eq!(seen, Sighting { link: 1, at_ns: 12_000_000_005, number: 0x102, dropped: true });
        let whole = sighting("up\t3.5\t\t0000000000000001", &links).unwrap();
        assert_eq!((whole.at_ns, whole.dropped), (3_500_000_000, false));
        for other in ["up\t3.5\t\t00", "up\t3.5\t", "elsewhere\t3.5\t\t0000000000000001"] {
            assert_eq!(sighting(other, &links), None, "{other}");
        }
    }
}
