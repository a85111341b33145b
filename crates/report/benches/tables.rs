//! What keeping a large trial costs: 16 flows sampled each millisecond for 60 s, six series a flow, 5.8 million samples.
//! `cargo bench -p weir-report --bench tables`

use std::fs;
use std::io::BufWriter;
use std::time::Instant;
use weir_core::record::{SampleRecord, Series};
use weir_report::{SINKS, Writer};

const FLOWS: u64 = 16;
const SAMPLES: usize = 60_000;

/// A series as a flow leaves it: timestamps a few microseconds off the millisecond, values that change as TCP's do.
fn series(flow: u64, name: &str, unit: &str) -> Series {
    let mut state = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ name.len() as u64;
    let mut draw = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let cumulative = name.ends_with("bytes") && name.starts_with("stream") || name.contains("retransmitted");
    let mut value = 0.0;
    let mut series = Series {
        entity: format!("flow.left-{flow}.right-{flow}.0"),
        name: name.to_owned(),
        unit: unit.to_owned(),
        cumulative,
        t_ns: Vec::with_capacity(SAMPLES),
        value: Vec::with_capacity(SAMPLES),
    };
    for index in 0..SAMPLES {
        series.t_ns.push(index as i64 * 1_000_000 + (draw() % 40_000) as i64);
        value = match name {
            "stream.received_bytes" => value + (5 + draw() % 10) as f64 * 1_448.0,
            "tcp.retransmitted_segments" => value + f64::from(u8::from(draw() % 500 == 0)),
            "tcp.rtt_seconds" => (16_000 + draw() % 2_000) as f64 / 1e6,
            "tcp.peer_window_bytes" => 3_145_728.0,
            _ => (f64::from(200) + (index % 900) as f64 + (draw() % 3) as f64).floor(),
        };
        series.value.push(value);
    }
    series
}

fn main() {
    let names = [
        ("stream.received_bytes", "B"),
        ("tcp.congestion_window_segments", "segments"),
        ("tcp.in_flight_segments", "segments"),
        ("tcp.peer_window_bytes", "B"),
        ("tcp.retransmitted_segments", "segments"),
        ("tcp.rtt_seconds", "s"),
    ];
    let folder = std::env::temp_dir().join(format!("weir-bench-tables-{}", std::process::id()));
    let mut writer = Writer::create(&folder).expect("room for a gigabyte");
    let mut samples = 0;
    let mut spent = std::time::Duration::ZERO;
    for flow in 0..FLOWS {
        for (name, unit) in names {
            let series = series(flow, name, unit);
            samples += series.t_ns.len();
            let record = SampleRecord {
                point: "many/streams=16".to_owned(),
                trial: 0,
                step: "many".to_owned(),
                series,
            };
            let started = Instant::now();
            writer.samples(&record).expect("room");
            spent += started.elapsed();
        }
    }
    let size = |name: &str| fs::metadata(folder.join(name)).map_or(0, |about| about.len());
    let show = |name: &str, seconds: f64, bytes: u64| {
        let (per_sample, rate) = (bytes as f64 / samples as f64, samples as f64 / seconds / 1e6);
        println!(
            "{name:<16} {seconds:>6.2} s {:>7.1} MB {per_sample:>6.2} B/sample {rate:>6.2} M samples/s",
            bytes as f64 / 1e6
        );
    };
    println!("{samples} samples");
    show("samples.jsonl", spent.as_secs_f64(), size("samples.jsonl"));
    for tables in SINKS.iter().filter_map(|entry| entry.build.tables()) {
        for file in tables.files().iter().filter(|file| file.starts_with("samples")) {
            let started = Instant::now();
            let mut out = BufWriter::new(fs::File::create(folder.join(file)).expect("room"));
            tables.write_file(file, &folder, &mut out).expect("whole lines").expect("a table");
            drop(out);
            show(file, started.elapsed().as_secs_f64(), size(file));
        }
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default());
    fs::remove_dir_all(&folder).expect("it is ours");
}
