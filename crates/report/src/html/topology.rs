//! The lab as a picture: sites with their hosts, links with what they impose.

use crate::Folder;
use crate::escape::{Html, T, put};
use crate::words::plural;
use weir_core::record::ConfigurationRecord;
use weir_core::topology::{Direction, Discipline, Link, Queue, Stage, TcpProfile, Topology};
use weir_core::units::{human, share};

/// Sites beyond which a picture is a tangle; the table remains.
const SITES_DRAWN_MAX: usize = 16;
const ROWS_MAX: usize = 500;
const BOX: (f64, f64) = (196.0, 96.0);

pub(crate) fn section(folder: &Folder) -> Html {
    let mut out = Html::new();
    let Some(plan) = &folder.plan else { return out };
    let Some(first) = plan.configurations.iter().find(|it| !it.topology.sites.is_empty()) else { return out };
    put!(&mut out, "<h2>Topology</h2>\n");
    let others = plan.configurations.iter().filter(|it| it.topology != first.topology).count();
    if first.topology.sites.len() <= SITES_DRAWN_MAX {
        put!(
            &mut out,
            "<figure><div class=wide>",
            picture(&first.topology),
            "</div><figcaption>",
            caption(first, others),
            "</figcaption>"
        );
    } else {
        put!(
            &mut out,
            "<figure><figcaption>",
            plural_sites(first.topology.sites.len()),
            " are too many to draw; the table lists them. "
        );
        put!(&mut out, caption(first, others), "</figcaption>");
    }
    put!(&mut out, "<details><summary>Links and access as a table</summary>", table(first));
    for configuration in plan.configurations.iter().filter(|it| it.topology != first.topology).take(20) {
        put!(&mut out, table(configuration));
    }
    put!(&mut out, "</details></figure>\n");
    out
}

fn plural_sites(count: usize) -> Html {
    let mut out = Html::new();
    put!(&mut out, T(plural(count, "site", "sites")));
    out
}

fn caption(configuration: &ConfigurationRecord, others: usize) -> Html {
    let mut out = Html::new();
    put!(
        &mut out,
        "What the fabric emulates between the hosts’ kernels; rates include framing, queues are drop-tail"
    );
    let topology = &configuration.topology;
    let otherwise = |queue: &Queue| queue.discipline != Discipline::DropTail;
    if topology.links.iter().any(|link| otherwise(&link.forward.queue) || otherwise(&link.backward.queue)) {
        put!(&mut out, " unless said");
    }
    put!(&mut out, ".");
    if let Some(auxiliary) = topology.auxiliary {
        put!(
            &mut out,
            " Not drawn: the auxiliary network, a second interface of every host at one switch, ",
            T(rate(auxiliary.rate)),
            " and ",
            T(seconds(auxiliary.delay_ns as f64)),
            " to it."
        );
    }
    if others > 0 {
        put!(&mut out, " Drawn: configuration <b>", T(&configuration.id), "</b>; ");
        put!(
            &mut out,
            T(plural(others, "other differs", "others differ")),
            " and ",
            if others == 1 { "is" } else { "are" },
            " in the table."
        );
    }
    out
}

fn rate(rate: Option<weir_core::BitsPerSecond>) -> String {
    rate.map_or_else(|| "unshaped".to_owned(), |rate| human(rate.as_f64(), "bit/s"))
}

fn seconds(ns: f64) -> String {
    human(ns / 1e9, "s")
}

fn queue(queue: &Queue) -> String {
    let bytes = queue.bytes.map(|bytes| binary(bytes.0));
    let packets = queue.packets.map(|packets| format!("{packets} packets"));
    let room = [bytes, packets].into_iter().flatten().collect::<Vec<_>>().join(" or ");
    match queue.discipline {
        Discipline::DropTail => room,
        Discipline::Red { min_bytes, max_bytes, .. } => {
            format!("{room} RED {}–{}", binary(min_bytes), binary(max_bytes))
        }
        Discipline::Codel { target_ns, .. } => format!("{room} CoDel {}", seconds(target_ns as f64)),
    }
}

/// What a direction does to packets beside rate, delay and queue, in a few words each.
fn effects(direction: &Direction) -> Vec<String> {
    let mut all = Vec::new();
    if direction.loss > 0.0 {
        all.push(format!("loss {}", loss(direction.loss)));
    }
    all.extend(direction.impairments.words());
    all
}

/// Buffers are powers of two more often than of ten.
fn binary(bytes: u64) -> String {
    let text = weir_core::Bytes(bytes).to_string();
    match text.split_once(|letter: char| letter.is_ascii_alphabetic()) {
        Some((number, _)) if number.len() <= 4 => format!("{number} {}", &text[number.len()..]),
        _ => human(bytes as f64, "B"),
    }
}

fn loss(loss: f64) -> String {
    if loss == 0.0 { "none".to_owned() } else { share(loss) }
}

/// What one direction imposes, for a label.
fn direction_line(direction: &Direction) -> String {
    let mut parts = vec![rate(direction.rate)];
    parts.extend(effects(direction));
    let held = queue(&direction.queue);
    parts.extend((!held.is_empty()).then(|| format!("queue {held}")));
    parts.join(" · ")
}

fn link_lines(link: &Link, topology: &Topology) -> Vec<String> {
    let rtt = seconds(link.forward.delay_ns as f64 + link.backward.delay_ns as f64);
    if link.forward == link.backward {
        let head = format!("{} · RTT {rtt}", rate(link.forward.rate));
        let effects = effects(&link.forward);
        let mut rest = Vec::new();
        let held = queue(&link.forward.queue);
        if !held.is_empty() {
            rest.push(format!("queue {held}"));
        }
        rest.push(format!("MTU {}", link.mtu));
        let parts = [vec![head], wrapped(&effects.join(" · ")), vec![rest.join(" · ")]].concat();
        return parts.into_iter().filter(|line| !line.is_empty()).collect();
    }
    let to = |site: usize| topology.sites.get(site).map_or("?", |site| site.name.as_str());
    let mut lines = vec![format!("RTT {rtt} · MTU {}", link.mtu)];
    for (direction, to) in [(&link.forward, to(link.between[1])), (&link.backward, to(link.between[0]))] {
        lines.extend(wrapped(&format!("to {}: {}", shortened(to, 20), direction_line(direction))));
    }
    lines
}

/// Broken between its parts into lines that a label has room for.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in text.split(" · ") {
        match lines.last_mut() {
            Some(line) if line.chars().count() + part.chars().count() + 3 <= 48 => {
                line.push_str(" · ");
                line.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
    }
    lines
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        text.to_owned()
    } else {
        text.chars().take(most - 1).collect::<String>() + "…"
    }
}

/// Positions of the sites' centres and the size of the drawing: a row for up to three, as high as its `tallest` label, otherwise
/// a ring.
fn places(count: usize, tallest: f64) -> (Vec<(f64, f64)>, f64, f64) {
    if count <= 3 {
        let height = (tallest + 12.0).max(130.0);
        let gap = if count <= 2 { 960.0 - BOX.0 } else { (960.0 - BOX.0) / 2.0 };
        let left = if count == 1 { 480.0 } else { BOX.0 / 2.0 };
        return ((0..count).map(|index| (left + gap * index as f64, height / 2.0)).collect(), 960.0, height);
    }
    let height = 190.0 + 36.0 * count as f64;
    // On a ring, the first at the upper left, clockwise; stretched so that the outermost touch the edges.
    let angle = |index: usize| {
        std::f64::consts::TAU * (index as f64 + 0.5) / count as f64 - std::f64::consts::FRAC_PI_2
    };
    let across: Vec<f64> = (0..count).map(|index| angle(index).sin()).collect();
    let down: Vec<f64> = (0..count).map(|index| -angle(index).cos()).collect();
    let stretched = |all: &[f64], from: f64, to: f64| -> Vec<f64> {
        let low = all.iter().copied().fold(f64::INFINITY, f64::min);
        let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        all.iter().map(|it| from + (it - low) / (high - low) * (to - from)).collect()
    };
    let across = stretched(&across, 60.0 + BOX.0 / 2.0, 900.0 - BOX.0 / 2.0);
    let down = stretched(&down, 2.0 + BOX.1 / 2.0, height - 2.0 - BOX.1 / 2.0);
    (across.into_iter().zip(down).collect(), 960.0, height)
}

/// The slot of each stage: along the links from a stage with the fewest, so that a chain is drawn as one and few links cross.
fn slots(topology: &Topology) -> Vec<usize> {
    let count = topology.sites.len();
    let mut neighbours = vec![Vec::new(); count];
    for link in &topology.links {
        let [a, b] = link.between;
        neighbours[a].push(b);
        neighbours[b].push(a);
    }
    let mut slots = vec![usize::MAX; count];
    let mut next = 0;
    let mut ways: Vec<usize> = (0..count).collect();
    // The last is taken first: stages with fewest links before others, and of those the first of the file.
    ways.sort_by_key(|site| std::cmp::Reverse((neighbours[*site].len(), *site)));
    while let Some(site) = ways.pop() {
        if slots[site] != usize::MAX {
            continue;
        }
        slots[site] = next;
        next += 1;
        let mut onward = neighbours[site].clone();
        onward.sort_by_key(|site| std::cmp::Reverse((neighbours[*site].len(), *site)));
        ways.extend(onward);
    }
    slots
}

fn picture(topology: &Topology) -> Html {
    let mut out = Html::new();
    let tallest =
        topology.links.iter().map(|link| label_rect(link, &link_lines(link, topology), 0.0, 0.0).height);
    let tallest = tallest.fold(0.0, f64::max);
    let (of_slot, width, mut height) = places(topology.sites.len(), tallest);
    let slots = slots(topology);
    let places: Vec<(f64, f64)> = slots.iter().map(|slot| of_slot[*slot]).collect();
    let in_a_row = topology.sites.len() <= 3;
    // Links that share both ends, or in a row run past a site between, get a lane of their own.
    let mut lanes: Vec<([usize; 2], usize)> = Vec::new();
    for link in &topology.links {
        let [one, other] = link.between.map(|site| slots[site]);
        let ends = [one.min(other), one.max(other)];
        let lane = lanes.iter().filter(|(other, _)| *other == ends).count();
        let past = usize::from(in_a_row && ends[1] - ends[0] > 1);
        lanes.push((ends, lane + past));
    }
    let deepest = lanes.iter().map(|(_, lane)| *lane).max().unwrap_or(0);
    if in_a_row {
        height += 72.0 * deepest as f64;
    }
    put!(
        &mut out,
        "<svg class=plot role=img viewBox=\"0 0 ",
        width,
        " ",
        height,
        "\" aria-label=\"Topology of the lab\">"
    );
    let mut labels = Html::new();
    let mut taken: Vec<Rect> = places
        .iter()
        .map(|(x, y)| Rect { x: x - BOX.0 / 2.0, y: y - BOX.1 / 2.0, width: BOX.0, height: BOX.1 })
        .collect();
    for (link, (_, lane)) in topology.links.iter().zip(&lanes) {
        let ((x0, y0), (x1, y1)) = (places[link.between[0]], places[link.between[1]]);
        let sag = 72.0 * *lane as f64;
        let (x, y) = ((x0 + x1) / 2.0, (y0 + y1) / 2.0 + sag);
        if *lane == 0 {
            put!(&mut out, "<path class=wire d=\"M", x0, " ", y0, "L", x1, " ", y1, "\"/>");
        } else {
            put!(
                &mut out,
                "<path class=wire d=\"M",
                x0,
                " ",
                y0,
                "Q",
                x,
                " ",
                y + sag,
                " ",
                x1,
                " ",
                y1,
                "\"/>"
            );
        }
        // In the middle, or where links cross there, further along.
        let lines = link_lines(link, topology);
        let along = |share: f64| {
            let (x, y) = if *lane == 0 { (x0 + (x1 - x0) * share, y0 + (y1 - y0) * share) } else { (x, y) };
            label_rect(link, &lines, x, y)
        };
        let shares = if in_a_row { &[0.5][..] } else { &[0.5, 0.38, 0.62, 0.3, 0.7] };
        let free = |rect: &Rect| taken.iter().all(|other| !other.meets(rect));
        let rect = shares.iter().map(|share| along(*share)).find(free).unwrap_or_else(|| along(0.5));
        put!(&mut labels, label(link, &lines, &rect));
        taken.push(rect);
    }
    for (site, (x, y)) in places.iter().enumerate() {
        put!(&mut out, site_box(topology, site, *x, *y));
    }
    put!(&mut out, labels, "</svg>");
    out
}

/// Where something lies in the drawing, by its upper left corner.
struct Rect {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Rect {
    fn meets(&self, other: &Rect) -> bool {
        self.x < other.x + other.width
            && other.x < self.x + self.width
            && self.y < other.y + other.height
            && other.y < self.y + self.height
    }
}

/// What a label around `x`, `y` covers, by the number of its letters.
fn label_rect(link: &Link, lines: &[String], x: f64, y: f64) -> Rect {
    let letters = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let widest = letters.max(link.name.chars().count() + 2);
    let (width, height) = ((6.3 * widest.min(64) as f64) + 18.0, 23.0 + 16.0 * lines.len() as f64);
    Rect { x: x - width / 2.0, y: y - (height - 4.0) / 2.0, width, height }
}

fn label(link: &Link, lines: &[String], rect: &Rect) -> Html {
    let mut out = Html::new();
    let (x, top) = (rect.x + rect.width / 2.0, rect.y);
    put!(&mut out, "<rect class=label x=", rect.x, " y=", top, " width=", rect.width);
    put!(&mut out, " height=", rect.height, " />");
    put!(
        &mut out,
        "<text class=strong text-anchor=middle x=",
        x,
        " y=",
        top + 14.0,
        ">",
        T(shortened(&link.name, 40)),
        "</text>"
    );
    for (index, line) in lines.iter().enumerate() {
        put!(
            &mut out,
            "<text class=soft text-anchor=middle x=",
            x,
            " y=",
            top + 31.0 + 16.0 * index as f64,
            ">"
        );
        put!(&mut out, T(shortened(line, 64)), "</text>");
    }
    out
}

fn site_box(topology: &Topology, site: usize, x: f64, y: f64) -> Html {
    let mut out = Html::new();
    let about = &topology.sites[site];
    let (left, top) = (x - BOX.0 / 2.0, y - BOX.1 / 2.0);
    // Corners tell a stage without hosts from a site, also on paper.
    let round = if about.stage == Stage::Site { 4.0 } else { 22.0 };
    put!(
        &mut out,
        "<rect class=site rx=",
        round,
        " x=",
        left,
        " y=",
        top,
        " width=",
        BOX.0,
        " height=",
        BOX.1,
        " />"
    );
    put!(
        &mut out,
        "<text class=strong x=",
        left + 12.0,
        " y=",
        top + 21.0,
        ">",
        T(shortened(&about.name, 24)),
        "</text>"
    );
    let lines = match about.stage {
        Stage::Site => site_lines(topology, site),
        Stage::Switch => vec!["switch".to_owned()],
        Stage::Router { replies: true } => vec!["router".to_owned()],
        Stage::Router { replies: false } => vec!["router, answers nothing".to_owned()],
    };
    let shared = about.buffer.map(|buffer| format!("{} shared by its ports", binary(buffer.0)));
    for (index, line) in lines.iter().chain(&shared).enumerate() {
        put!(
            &mut out,
            "<text class=soft x=",
            left + 12.0,
            " y=",
            top + 42.0 + 17.0 * index as f64,
            ">",
            T(shortened(line, 32)),
            "</text>"
        );
    }
    out
}

/// Hosts of a site, their TCP and their access.
fn site_lines(topology: &Topology, site: usize) -> Vec<String> {
    let hosts: Vec<_> = topology.hosts.iter().filter(|host| host.site == site).collect();
    let profile = match topology.sites[site].tcp_profile {
        TcpProfile::Stock => "stock TCP",
        TcpProfile::Modern => "modern TCP",
        TcpProfile::Legacy => "legacy TCP",
    };
    let mut lines = vec![match hosts.as_slice() {
        [] => "no hosts".to_owned(),
        [one] => one.name.clone(),
        [first, second] => format!("{}, {}", first.name, second.name),
        [first, .., last] => format!("{} … {}", first.name, last.name),
    }];
    if hosts.len() > 2 {
        lines.push(format!("{} hosts, {profile}", hosts.len()));
    } else {
        lines.push(profile.to_owned());
    }
    if let Some(first) = hosts.first() {
        let alike = hosts.iter().all(|host| host.access == first.access);
        let access = &first.access;
        lines.push(if alike {
            format!("access {} · {}", rate(access.rate), seconds(access.delay_ns as f64))
        } else {
            "access differs by host".to_owned()
        });
    }
    lines
}

fn table(configuration: &ConfigurationRecord) -> Html {
    let mut out = Html::new();
    let topology = &configuration.topology;
    if !configuration.id.is_empty() {
        put!(&mut out, "<h4>", T(&configuration.id), "</h4>");
    }
    put!(&mut out, "<div class=wide><table class=tight><thead><tr><th>link<th>from<th>to");
    put!(
        &mut out,
        "<th class=n>rate<th class=n>delay, one way<th class=n>loses and delays<th class=n>queue<th class=n>MTU</thead><tbody>"
    );
    let site = |index: usize| topology.sites.get(index).map_or("?", |site| site.name.as_str());
    for link in topology.links.iter().take(ROWS_MAX) {
        for (direction, from, to) in [(&link.forward, 0, 1), (&link.backward, 1, 0)] {
            put!(
                &mut out,
                "<tr><td>",
                T(&link.name),
                "<td>",
                T(site(link.between[from])),
                "<td>",
                T(site(link.between[to]))
            );
            put!(
                &mut out,
                "<td class=n>",
                T(rate(direction.rate)),
                "<td class=n>",
                T(seconds(direction.delay_ns as f64))
            );
            let effects = effects(direction);
            let effects = if effects.is_empty() { "none".to_owned() } else { effects.join(", ") };
            put!(
                &mut out,
                "<td class=n>",
                T(effects),
                "<td class=n>",
                T(queue(&direction.queue)),
                "<td class=n>",
                link.mtu as usize
            );
        }
    }
    for host in topology.hosts.iter().take(ROWS_MAX) {
        let access = &host.access;
        put!(
            &mut out,
            "<tr><td>access<td>",
            T(&host.name),
            "<td>",
            T(site(host.site)),
            "<td class=n>",
            T(rate(access.rate))
        );
        put!(&mut out, "<td class=n>", T(seconds(access.delay_ns as f64)), "<td class=n>none<td class=n>");
        put!(
            &mut out,
            T(access.queue.as_ref().map_or_else(|| "holds back".to_owned(), queue)),
            "<td class=n>",
            access.mtu as usize
        );
    }
    put!(&mut out, "</tbody></table></div>");
    if topology.links.len().max(topology.hosts.len()) > ROWS_MAX {
        put!(&mut out, "<p class=quiet>The rest is in plan.json.</p>");
    }
    out
}
