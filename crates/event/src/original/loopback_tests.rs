//! The roles over real sockets on loopback, with few heartbeats and short waits. What is asserted are counts: a machine that is busy
//! with other things makes these tests slow and not wrong.

use super::account::{BuilderAccount, SchedulerAccount, SourceAccount};
use super::builder::{Builder, BuilderPlan};
use super::conductor::ConductorPlan;
use super::frame;
use super::limiter::LimiterKind;
use super::line::DATA_TOKEN;
use super::model::Load;
use super::rules::{FullQueue, Grouping, Rules};
use super::scheduler::{Scheduler, SchedulerPlan};
use super::source::{Source, SourcePlan};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use weir_seams::workload::Control;
use weir_sys::clock::monotonic;
use weir_sys::socket::{self, Buffer};
use weir_transport::handshake::{self, Mode};
use weir_transport::key::Key;
use weir_transport::tcp_options::TcpOptions;

const LONG: Duration = Duration::from_secs(30);
const MS: Duration = Duration::from_millis(1);

fn key() -> Key {
    Key::from_bytes(b"a key of sixteen bytes at least").unwrap()
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

#[derive(Clone)]
struct Setting {
    rules: Rules,
    rate_hz: f64,
    heartbeats: u64,
    fragment_bytes: u64,
    sources: u32,
    builders: u32,
    drain: Duration,
    /// Payload bytes a second that reach the builders, all together.
    narrow: Option<f64>,
    /// This builder dies when it has so many bytes.
    dies: Option<(u32, u64)>,
}

impl Setting {
    /// Ready before they begin, at the latest from the first builder on; a clock without a burst; a second for the last
    /// acknowledgements. Nothing else is changed.
    fn new(rules: Rules, sources: u32, builders: u32) -> Setting {
        let rules = Rules {
            ready_check: true,
            dormant: true,
            register_wait: Duration::ZERO,
            limiter: LimiterKind::Absolute,
            stop_wait: Duration::from_secs(1),
            ..rules
        };
        Setting {
            rules,
            rate_hz: 500.0,
            heartbeats: 200,
            fragment_bytes: 1_000,
            sources,
            builders,
            drain: 20 * Duration::from_secs(1),
            narrow: None,
            dies: None,
        }
    }
}

struct Ran {
    scheduler: SchedulerAccount,
    sources: Vec<SourceAccount>,
    builders: Vec<BuilderAccount>,
}

impl Ran {
    fn sum(&self, of: impl Fn(&BuilderAccount) -> u64) -> u64 {
        self.builders.iter().map(of).sum()
    }
}

/// Runs it again where the machine was away for so long that fixed waits were over before their time: what is `meant` did not
/// come about then.
fn run_as_meant(setting: &Setting, meant: impl Fn(&Ran) -> bool) -> Ran {
    let mut ran = run(setting);
    for _ in 0..5 {
        if meant(&ran) {
            break;
        }
        ran = run(setting);
    }
    ran
}

fn run(setting: &Setting) -> Ran {
    let key = Some(key());
    let control = Control::new(monotonic() + 20 * MS);
    let Setting { rules, .. } = setting;
    let conductor = ConductorPlan {
        rules: rules.clone(),
        rate_hz: setting.rate_hz,
        heartbeats: setting.heartbeats,
        sources: u64::from(setting.sources),
        builders: u64::from(setting.builders),
        drain: setting.drain,
    };
    let plan = SchedulerPlan { conductor, interval: 10 * MS, key: key.clone() };
    let scheduler = Scheduler::prepare(plan, listener()).unwrap();
    let address = scheduler.address().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let mut builders = Vec::new();
        for number in 0..setting.builders {
            let listener = listener();
            let announced =
                setting.narrow.map(|rate| relay(listener.local_addr().unwrap(), rate, Arc::clone(&over)));
            let plan = BuilderPlan {
                rules: rules.clone(),
                number,
                sources: setting.sources,
                scheduler: address,
                announced,
                key: key.clone(),
                interval: 10 * MS,
                drain: setting.drain,
                limit: LONG,
            };
            let builder = Builder::prepare(plan, listener).unwrap();
            let own = Control::new(control.start_at());
            let watched = Arc::clone(&own);
            let over = Arc::clone(&over);
            if let Some((_, bytes)) = setting.dies.filter(|dies| dies.0 == number) {
                scope.spawn(move || {
                    while watched.progress() < bytes && !over.load(Ordering::Relaxed) {
                        thread::sleep(MS);
                    }
                    watched.abort();
                });
            }
            builders.push(scope.spawn(move || builder.run(&own).unwrap()));
        }
        let sources: Vec<_> = (0..setting.sources)
            .map(|number| {
                let plan = SourcePlan {
                    rules: rules.clone(),
                    number,
                    sources: setting.sources,
                    fragment_bytes: setting.fragment_bytes,
                    scheduler: address,
                    key: key.clone(),
                    tcp: TcpOptions::unasked(),
                    interval: 10 * MS,
                    drain: setting.drain,
                    limit: LONG,
                };
                let (source, control) = (Source::prepare(plan).unwrap(), &control);
                scope.spawn(move || source.run(control).unwrap())
            })
            .collect();
        let scheduler = scheduler.run(&control).unwrap();
        let sources = sources.into_iter().map(|it| it.join().unwrap()).collect();
        over.store(true, Ordering::Relaxed);
        Ran { scheduler, sources, builders: builders.into_iter().map(|it| it.join().unwrap()).collect() }
    })
}

/// Passes connections on to `to`, from the sources to it at so many bytes a second, by an absolute clock from its first byte.
fn relay(to: SocketAddr, bytes_per_second: f64, over: Arc<AtomicBool>) -> SocketAddr {
    let listener = listener();
    // Little room in the kernel, so that what is not passed on waits at the source.
    socket::set_buffer(listener.as_fd(), Buffer::Receive, 32 << 10).unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            let Ok((near, _)) = listener.accept() else {
                thread::sleep(MS);
                continue;
            };
            let far = TcpStream::connect(to).unwrap();
            near.set_nonblocking(false).unwrap();
            let (near_back, far_back) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            thread::spawn(move || pass(far_back, near_back, None));
            let over = Arc::clone(&over);
            thread::spawn(move || pass(near, far, Some((bytes_per_second, over))));
        }
    });
    address
}

fn pass(mut from: TcpStream, mut to: TcpStream, narrow: Option<(f64, Arc<AtomicBool>)>) {
    let mut buffer = [0; 16 << 10];
    let (mut passed, mut start) = (0.0, None);
    from.set_read_timeout(Some(20 * MS)).unwrap();
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if narrow.as_ref().is_some_and(|(_, over)| over.load(Ordering::Relaxed)) {
                    break;
                }
                continue;
            }
            Err(_) => break,
        };
        passed += count as f64;
        if let Some((rate, over)) = &narrow {
            let start = *start.get_or_insert(monotonic());
            let due = start + Duration::from_secs_f64(passed / rate);
            while monotonic() < due && !over.load(Ordering::Relaxed) {
                thread::sleep(due.since(monotonic()).min(5 * MS));
            }
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

// Spec: event-original.md#roles-1
#[test]
fn with_time_for_everything_every_heartbeat_is_acknowledged_in_both_versions() {
    for (rules, builders) in [(Rules::baseline(), 1), (Rules::round_robin(), 3)] {
        let setting = Setting::new(rules, 1, builders);
        let ran = run(&setting);
        let scheduler = &ran.scheduler;
        assert_eq!(
            (scheduler.heartbeats, scheduler.distinct, scheduler.unknown),
            (200, 200, 0),
            "{scheduler:?}"
        );
        assert_eq!(scheduler.undelivered_ratio(), Some(0.0));
        let source = &ran.sources[0];
        assert_eq!((source.heard, source.missed, source.dropped), (200, 0, 0));
        assert_eq!(source.bytes_sent, ran.sum(|it| it.bytes_received));
        assert_eq!(ran.sum(|it| it.payload_bytes), 200 * 1_000);
        // Each builder its turn.
        for builder in &ran.builders {
            assert!(builder.fragments.abs_diff(200 / u64::from(builders)) <= 1, "{builder:?}");
        }
    }
}

// Spec: event-original.md#limiter-1
#[test]
fn the_burst_after_the_waits_is_there_over_sockets_too_and_absent_with_the_absolute_clock() {
    let ahead = |limiter| {
        let setting = Setting::new(Rules::baseline(), 1, 1);
        let wait = 1_000 * MS;
        let rules =
            Rules { ready_check: false, start_wait: wait, channel_wait: wait, limiter, ..setting.rules };
        let ran = run(&Setting { rules, rate_hz: 200.0, ..setting });
        assert_eq!(ran.scheduler.heartbeats, 200);
        ran.scheduler.ahead_max
    };
    let (burst, none) = (ahead(LimiterKind::Adaptive), ahead(LimiterKind::Absolute));
    assert!(burst > 8.0 && none < 2.0, "{burst} {none}");
}

// Spec: event-original.md#wire-1
#[test]
fn a_data_message_costs_9_bytes_in_the_baseline_and_35_in_round_robin() {
    for (rules, more) in [(Rules::baseline(), 9), (Rules::round_robin(), 35)] {
        let setting = Setting { heartbeats: 10, ..Setting::new(rules, 1, 1) };
        assert_eq!(run(&setting).sources[0].bytes_sent, 10 * (1_000 + more));
    }
}

/// The second source subscribes when heartbeats are under way: fixed waits, as the original has them.
fn late(rules: Rules) -> Setting {
    let setting = Setting::new(rules, 2, 1);
    let rules = Rules {
        ready_check: false,
        start_wait: 500 * MS,
        channel_wait: 100 * MS,
        channel_rebuild: false,
        late_source: 1_100 * MS,
        ..setting.rules
    };
    Setting { rules, rate_hz: 100.0, heartbeats: 200, ..setting }
}

fn came_late(ran: &Ran) -> bool {
    let first = |source: &SourceAccount| source.first_heard_ns.unwrap_or(0);
    first(&ran.sources[1]) > ran.scheduler.first_beat_ns.unwrap_or(u64::MAX / 2) + 50_000_000
}

// Spec: event-original.md#broadcast-1
#[test]
fn what_is_broadcast_before_a_source_subscribes_is_lost_to_it() {
    let ran = run_as_meant(&late(Rules::baseline()), came_late);
    let source = &ran.sources[1];
    // The channels were among it: it hears heartbeats and knows of no builder.
    assert!(source.missed > 0 && source.missed + source.heard == 200, "{source:?}");
    assert_eq!((source.no_channel, source.fragments_sent), (source.heard, 0));
}

/// Likewise, but what it has not heard was kept for it: it sends everything, late.
fn late_but_whole(rules: Rules) -> Ran {
    let mut setting = late(rules);
    setting.rules.keep_broadcasts = true;
    let ran = run_as_meant(&setting, came_late);
    assert_eq!((ran.sources[1].missed, ran.sources[1].heard, ran.sources[1].fragments_sent), (0, 200, 200));
    assert_eq!(ran.sum(|it| it.fragments), 400);
    ran
}

// Spec: event-original.md#grouping-1 event-original.md#grouping-2 event-original.md#grouping-3 event-original.md#broadcast-2
#[test]
fn grouping_by_arrival_mixes_heartbeats_when_one_source_is_late_and_keyed_grouping_does_not() {
    let ran = late_but_whole(Rules::baseline());
    assert!(ran.sum(|it| it.mixed) > 0, "{:?}", ran.builders);
    assert_eq!((ran.sum(|it| it.acknowledged), ran.sum(|it| it.mismatched)), (200, 0));
    // Nobody has noticed: as many acknowledgements as heartbeats.
    assert_eq!(ran.scheduler.acknowledgements, 200);

    let ran = late_but_whole(Rules::round_robin());
    let mismatched = ran.sum(|it| it.mismatched);
    assert!(mismatched > 0, "{:?}", ran.builders);
    assert_eq!((ran.sum(|it| it.mixed), ran.sum(|it| it.acknowledged)), (0, 200 - mismatched));
    assert_eq!(ran.sum(|it| it.discarded), 2 * mismatched);
    assert_eq!(ran.builders[0].mismatched_at.len() as u64, mismatched);

    let ran = late_but_whole(Rules { grouping: Grouping::Keyed, ..Rules::round_robin() });
    assert_eq!((ran.sum(|it| it.mixed), ran.sum(|it| it.mismatched)), (0, 0));
    assert_eq!((ran.scheduler.distinct, ran.scheduler.repeated), (200, 0));
}

/// Hardly anything reaches the builder.
fn stuck(change: impl Fn(&mut Rules)) -> SourceAccount {
    let setting = Setting::new(Rules::baseline(), 1, 1);
    let mut rules = Rules { stop_wait: 50 * MS, ..setting.rules };
    change(&mut rules);
    let setting =
        Setting { rules, fragment_bytes: 100_000, narrow: Some(1_000.0), drain: 200 * MS, ..setting };
    let ran = run(&setting);
    assert!(ran.scheduler.unacknowledged_ratio().unwrap() > 0.9, "{:?}", ran.scheduler);
    ran.sources.into_iter().next().unwrap()
}

// Spec: event-original.md#send-1 event-original.md#send-2
#[test]
fn sends_never_wait_and_drop_only_what_finds_its_queue_full() {
    let small = stuck(|it| it.send_queue_bytes = 1_000_000);
    assert_eq!((small.heard, small.missed), (200, 0));
    assert!(small.dropped > 0 && small.queue_bytes_max <= 1_000_000, "{small:?}");
    assert_eq!(small.fragments_sent + small.left_fragments + small.dropped + small.cut, 200);

    let large = stuck(|_| ());
    assert_eq!((large.heard, large.dropped), (200, 0));
    assert!(large.queue_bytes_max > 10_000_000, "{}", large.queue_bytes_max);
    let queue = &large.series[0];
    assert_eq!((queue.name.as_str(), queue.t_ns.len()), ("event.queue_bytes", queue.value.len()));
    assert!(queue.value.iter().any(|bytes| *bytes > 1e6));

    let patient = stuck(|it| (it.send_queue_bytes, it.full_queue) = (1_000_000, FullQueue::Wait));
    assert_eq!(patient.dropped, 0);
    assert!(patient.heard < 200, "{patient:?}");
}

// Spec: event-original.md#stop-1 event-original.md#stop-2
#[test]
fn behind_a_narrow_link_the_share_not_acknowledged_follows_the_formula_and_comes_later() {
    let setting = Setting::new(Rules::baseline(), 1, 1);
    let rules = Rules { stop_wait: 200 * MS, ..setting.rules };
    let setting = Setting {
        rules,
        rate_hz: 200.0,
        heartbeats: 400,
        fragment_bytes: 20_000,
        narrow: Some(2_000_000.0),
        ..setting
    };
    let ran = run(&setting);
    let load = Load {
        rate_hz: setting.rate_hz,
        fragment_bytes: setting.fragment_bytes,
        sources_at_bottleneck: 1,
        heartbeat_share: 1.0,
        capacity_bits_per_second: 16e6,
        run: ran.scheduler.run(),
        stop_wait: ran.scheduler.listened(),
    };
    let expected = load.unacknowledged_ratio(&setting.rules).unwrap();
    let seen = ran.scheduler.unacknowledged_ratio().unwrap();
    // 0.45. A machine that is away for a third of a second when it counts is 0.08 off.
    assert!((seen - expected).abs() < 0.15 && seen > 0.2, "{seen} instead of {expected}");
    assert_eq!(ran.scheduler.undelivered_ratio(), Some(0.0), "{:?}", ran.scheduler);
}

fn with_a_death(change: impl Fn(&mut Rules)) -> Ran {
    let setting = Setting::new(Rules::round_robin(), 1, 2);
    let mut rules = setting.rules.clone();
    change(&mut rules);
    let length = 1_000 + 35;
    run(&Setting {
        rules,
        rate_hz: 100.0,
        heartbeats: 300,
        dies: Some((1, 20 * length)),
        drain: 100 * MS,
        ..setting
    })
}

// Spec: event-original.md#failure-1
#[test]
fn a_dead_builder_is_never_noticed_and_has_its_turn_to_the_end() {
    let ran = with_a_death(|_| ());
    let (alive, dead) = (&ran.builders[0], &ran.builders[1]);
    assert!(dead.fragments < 100, "{dead:?}");
    assert_eq!(alive.fragments, 150);
    // What was in the kernel when it died is lost, the rest still waits for it.
    assert!(ran.sources[0].left_fragments > 0);
    assert_eq!(ran.scheduler.heartbeats - ran.scheduler.distinct, 150 - dead.acknowledged);
    assert_eq!(ran.scheduler.builders_gone, 1);

    let ran = with_a_death(|it| it.notice_dead = true);
    assert!(ran.builders[0].fragments > 200, "{:?}", ran.builders);
    assert!(ran.scheduler.distinct > 290, "{:?}", ran.scheduler);
}

/// Heartbeats missed and heard, and rebuilds, of a source whose rebuild takes longer than the scheduler's wait.
fn rebuilding(change: impl Fn(&mut Rules)) -> (u64, u64, u64) {
    let second = Duration::from_secs(1);
    let setting = Setting::new(Rules::baseline(), 1, 1);
    let mut rules = Rules {
        ready_check: false,
        start_wait: second,
        channel_wait: second / 2,
        rebuild_time: second * 3 / 2,
        ..setting.rules
    };
    change(&mut rules);
    let setting = Setting { rules, rate_hz: 100.0, heartbeats: 150, drain: second / 2, ..setting };
    // It had subscribed when the channels were sent.
    let ran = run_as_meant(&setting, |ran| ran.sources[0].told == 1 && ran.sources[0].heard > 0);
    (ran.sources[0].missed, ran.sources[0].heard, ran.sources[0].rebuilds)
}

// Spec: event-original.md#start-2
#[test]
fn a_source_that_is_still_rebuilding_when_heartbeats_begin_misses_the_first() {
    let (missed, heard, rebuilds) = rebuilding(|_| ());
    assert!(missed > 0 && missed + heard == 150 && rebuilds == 1, "{missed} {heard} {rebuilds}");
    assert_eq!(rebuilding(|it| it.channel_rebuild = false), (0, 150, 0));
    assert_eq!(rebuilding(|it| it.ready_check = true), (0, 150, 1));
}

// Spec: event-original.md#wire-2
#[test]
fn strangers_and_garbage_cost_a_connection_and_nothing_else() {
    let key = key();
    let plan = BuilderPlan {
        rules: Rules::baseline(),
        number: 0,
        sources: 1,
        scheduler: "127.0.0.1:1".parse().unwrap(),
        announced: None,
        key: Some(key.clone()),
        interval: MS,
        drain: LONG,
        limit: LONG,
    };
    let builder = Builder::prepare(plan, listener()).unwrap();
    let address = builder.address().unwrap();
    let control = Control::new(monotonic());
    let open = |token, key: &Key| {
        let stream = TcpStream::connect(address).unwrap();
        handshake::open(&stream, Mode::Data, token, 0, Some(key), LONG).map(|()| stream)
    };
    let account = thread::scope(|scope| {
        let running = scope.spawn(|| builder.run(&control).unwrap());
        assert!(open(DATA_TOKEN, &Key::from_bytes(b"another key, just as long").unwrap()).is_err());
        assert!(open([9; 16], &key).is_err());
        // Flags that are none; a part of 2^63 bytes.
        let garbage = [vec![0xff; 100], [&[2][..], &(1u64 << 63).to_be_bytes()].concat()];
        for bytes in &garbage {
            let mut stream = open(DATA_TOKEN, &key).unwrap();
            stream.write_all(bytes).unwrap();
            assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
        }
        let mut stream = open(DATA_TOKEN, &key).unwrap();
        let mut message = Vec::new();
        // A payload too short to say what it is, and a whole one.
        frame::put(&mut message, &[1, 2, 3], false);
        frame::put(&mut message, &[frame::stamp(7, 0).as_slice(), &[0; 500]].concat(), false);
        stream.write_all(&message).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        control.abort();
        running.join().unwrap()
    });
    assert_eq!((account.garbage, account.sources_gone), (3, 3));
    assert_eq!((account.fragments, account.acknowledged), (1, 1));
}
