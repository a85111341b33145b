//! The rattan emulator and a lab of weir's with the same link, the same iperf3 through both.

use super::Settings;
use super::groups::{ROUNDS, interleaved, limit, next_port, ratio, remember};
use super::process::{self, Line};
use super::record::{Outcome, Row};
use super::statistics::Bound;
use super::{place, tools};
use std::time::Duration;

/// A link as both emulators are told it.
struct Link {
    name: &'static str,
    /// File in bench/labs.
    lab: &'static str,
    rattan: &'static [&'static str],
    /// Weir's goodput over rattan's.
    bound: Bound,
}

static LINKS: &[Link] = &[
    Link {
        name: "1 Gbit/s, 10 ms",
        lab: "rattan-1g.toml",
        rattan: &[
            "--uplink-bandwidth",
            "1Gbps",
            "--uplink-delay",
            "5ms",
            "--uplink-queue",
            "droptail",
            "--uplink-queue-args",
            "{\"byte_limit\":2500000}",
            "--downlink-bandwidth",
            "1Gbps",
            "--downlink-delay",
            "5ms",
            "--downlink-queue",
            "droptail",
            "--downlink-queue-args",
            "{\"byte_limit\":2500000}",
        ],
        bound: Bound::None,
    },
    Link {
        name: "no rate, 10 ms",
        lab: "rattan-unlimited.toml",
        rattan: &["--uplink-delay", "5ms", "--downlink-delay", "5ms"],
        bound: Bound::AtLeast(10.0),
    },
];

/// `rattan link` makes a namespace behind its link and runs the command there; `RATTAN_BASE` is this side's address.
fn through_rattan(settings: &Settings, link: &Link, port: u16) -> Line {
    let mut line = vec![settings.rattan.to_string_lossy().into_owned(), "link".to_owned()];
    line.extend(link.rattan.iter().map(|word| (*word).to_owned()));
    let client = tools::iperf3_stream(settings, "$RATTAN_BASE", port, 1, tools::BLOCK).join(" ");
    line.extend(["--", "bash", "-c", &client].map(str::to_owned));
    line
}

pub fn beside(settings: &Settings) -> Result<Outcome, String> {
    if !settings.rattan.is_file() {
        return Err(format!("{} is missing: scripts/install-bench-peers", settings.shown("rattan")));
    }
    let mut outcome = Outcome::default();
    for link in LINKS {
        let lab = place::lab(settings, link.lab, "right-0", "left-0")?;
        outcome.commands.push(format!("weir lab up bench/labs/{} --name NAME", link.lab));
        let mut arms: [Vec<f64>; 2] = Default::default();
        for round in 0..settings.rounds(ROUNDS) {
            for arm in interleaved(round, 2) {
                let port = next_port();
                // Not one-off: rattan takes its link away as soon as the client has ended, and the server would wait for its last word.
                let serve = tools::iperf3_serve(settings, port, false);
                let (serve, load) = if arm == 0 {
                    let load = tools::iperf3_stream(settings, &lab.server, port, 1, tools::BLOCK);
                    (lab.at_server(serve), lab.at_client(load))
                } else {
                    (serve, through_rattan(settings, link, port))
                };
                remember(&mut outcome, &serve, port);
                remember(&mut outcome, &load, port);
                let mut server = process::start(&settings.scratch, &serve)?;
                server.listening(port)?;
                let client = process::finish(&settings.scratch, &load, limit(settings))?;
                // rattan's own lines may come before and after what the command prints.
                let printed = client
                    .stdout
                    .find('{')
                    .and_then(|start| Some(&client.stdout[start..=client.stdout.rfind('}')?]));
                let goodput = tools::iperf3_goodput(printed.unwrap_or(&client.stdout));
                arms[arm]
                    .push(goodput.map_err(|problem| format!("{}, round {round}: {problem}", link.name))?);
                server.stop(Duration::from_secs(10))?;
            }
        }
        let [ours, theirs] = arms;
        outcome.rows.push(ratio(
            format!("goodput, {}, weir / rattan", link.name),
            link.bound,
            ("weir", &ours),
            ("rattan", &theirs),
        ));
        for (name, values) in [("weir", ours), ("rattan", theirs)] {
            outcome.rows.push(Row {
                name: format!("goodput, {}, {name}", link.name),
                unit: "bit/s",
                bound: Bound::None,
                values,
                arms: vec![],
            });
        }
    }
    outcome.notes.push("rattan's side: its own veth pairs and AF_PACKET sockets, as `rattan link` sets them up, iperf3 -s in the namespace that it was started in. weir's side: a lab of two hosts. Both links 5 ms one way; at 1 Gbit/s both queues hold 2.5 MB.".to_owned());
    outcome.notes.push("Start-up included: iperf3 leaves no second out.".to_owned());
    Ok(outcome)
}
