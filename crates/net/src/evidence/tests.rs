//! From facts to factors: each cause alone is named, and without it the factor is another.

use super::*;
use weir_core::behind::Behind;
use weir_core::evidence::{
    EMULATOR_LIMITED, EmulatorFacts, GENERATOR_LIMITED, PortFacts, StackFacts, lateness_allowed_seconds,
};
use weir_core::record::LimitingFactor;

/// What is known of a load over TCP, or of one that says nothing of its transport.
#[derive(Clone, Debug, Default)]
struct Facts {
    transport: Option<TransportFacts>,
    ceiling_bits_per_second: Option<f64>,
    ports: Vec<PortFacts>,
    stack: StackFacts,
    emulator: Option<EmulatorFacts>,
    generator: Option<GeneratorFacts>,
}

fn limiting_factor(facts: &Facts) -> LimitingFactor {
    let around = Around {
        ceiling_bits_per_second: facts.ceiling_bits_per_second,
        ports: facts.ports.clone(),
        stack: facts.stack,
        disks: Vec::new(),
        daemons: Vec::new(),
        emulator: facts.emulator,
    };
    let (load, candidates) = of_flows(facts.transport.as_ref(), facts.generator, &around);
    weir_core::evidence::limiting_factor(&around, &load, &candidates)
}

fn busy_flow() -> TransportFacts {
    TransportFacts {
        flow_count: 1,
        observed_seconds: 10.0,
        busy_seconds: 10.0,
        sent_segments: 100_000,
        goodput_bits_per_second: 500e6,
        rtt_seconds: 0.016,
        ..TransportFacts::default()
    }
}
fn link(load: f64) -> PortFacts {
    PortFacts { name: "link.wan.forward".to_owned(), load_ratio: Some(load), ..PortFacts::default() }
}
fn calm() -> EmulatorFacts {
    EmulatorFacts {
        behind_ratio: 0.001,
        behind_seconds_max: 0.002,
        behind_seconds_mean: 0.0,
        end_wait_ratio: 0.001,
        end_wait_seconds_max: 0.002,
        core_count: 2.0,
        one_way_seconds: 0.008,
        fabric_busy_ratio: 0.3,
        fabric_looking_ratio: 0.0,
        fabric_wait_ratio: 0.01,
        stolen_ratio: 0.01,
        machine_idle_ratio: 0.4,
        foreign_busy_ratio: 0.02,
    }
}
fn named(transport: TransportFacts, port: PortFacts, emulator: EmulatorFacts) -> String {
    limiting_factor(&Facts {
        transport: Some(transport),
        ports: vec![port],
        emulator: Some(emulator),
        ..Facts::default()
    })
    .name
}

#[test]
fn each_cause_alone_is_named_and_without_it_the_factor_is_unknown() {
    assert_eq!(named(busy_flow(), link(0.5), calm()), UNKNOWN.name);
    assert_eq!(named(busy_flow(), link(0.985), calm()), LINK_RATE.name);
    let windowed = TransportFacts { receive_window_limited_seconds: 9.0, ..busy_flow() };
    assert_eq!(named(windowed, link(0.5), calm()), RECEIVE_WINDOW.name);
    let lossy = TransportFacts { retransmitted_segments: 80, ..busy_flow() };
    assert_eq!(named(lossy, link(0.5), calm()), LOSS.name);
    let late = EmulatorFacts { behind_ratio: 0.02, ..calm() };
    let one_stall = EmulatorFacts { behind_ratio: 0.009, behind_seconds_max: 0.09, ..calm() };
    assert_eq!(named(busy_flow(), link(0.5), one_stall), UNKNOWN.name);
    assert_eq!(named(busy_flow(), link(0.5), late), EMULATOR_LIMITED.name);
    let saturated = EmulatorFacts { fabric_busy_ratio: 0.99, ..calm() };
    assert_eq!(named(busy_flow(), link(0.5), saturated), EMULATOR_LIMITED.name);
    let looking = EmulatorFacts { fabric_looking_ratio: 0.3, ..saturated };
    assert_eq!(named(busy_flow(), link(0.5), looking), UNKNOWN.name);
    let kept_waiting = EmulatorFacts { fabric_busy_ratio: 0.85, fabric_wait_ratio: 0.06, ..calm() };
    let robbed = EmulatorFacts { fabric_busy_ratio: 0.85, stolen_ratio: 0.06, ..calm() };
    let neither = EmulatorFacts { fabric_busy_ratio: 0.85, ..calm() };
    assert_eq!(
        [kept_waiting, robbed, neither].map(|emulator| named(busy_flow(), link(0.5), emulator)),
        [EMULATOR_LIMITED.name, EMULATOR_LIMITED.name, UNKNOWN.name]
    );
    let full_machine = EmulatorFacts { machine_idle_ratio: 0.01, ..calm() };
    assert_eq!(named(busy_flow(), link(0.5), full_machine), EMULATOR_LIMITED.name);
    let missed = PortFacts { missed_rate_ratio: 0.01, ..link(0.96) };
    assert_eq!(named(busy_flow(), missed, calm()), EMULATOR_LIMITED.name);
}

// Spec: evidence.md#fitness-1
#[test]
fn a_full_link_is_an_excuse_only_where_its_receivers_got_what_it_carried() {
    let struggling = EmulatorFacts {
        behind_ratio: 0.2,
        behind_seconds_max: 0.1,
        behind_seconds_mean: 0.0,
        end_wait_ratio: 0.2,
        end_wait_seconds_max: 0.1,
        core_count: 2.0,
        one_way_seconds: 0.0003,
        fabric_busy_ratio: 1.0,
        fabric_looking_ratio: 0.0,
        fabric_wait_ratio: 0.2,
        stolen_ratio: 0.2,
        machine_idle_ratio: 0.0,
        foreign_busy_ratio: 0.5,
    };
    let name = |got: f64| {
        let facts = Facts {
            transport: Some(TransportFacts { goodput_bits_per_second: got * 0.995 * 941.5e6, ..busy_flow() }),
            ceiling_bits_per_second: Some(941.5e6),
            ports: vec![link(0.995)],
            emulator: Some(struggling),
            ..Facts::default()
        };
        limiting_factor(&facts).name
    };
    assert_eq!(
        [name(1.0), name(1.001), name(0.997)],
        [LINK_RATE.name, LINK_RATE.name, EMULATOR_LIMITED.name]
    );
}

// Spec: evidence.md#fitness-3
#[test]
fn beside_a_full_link_what_others_took_is_kept_with_the_factor_and_what_the_lab_itself_took_is_not() {
    let kept_waiting = EmulatorFacts { end_wait_ratio: 0.2, foreign_busy_ratio: 0.3, ..calm() };
    let disturbed = |load: f64, emulator: EmulatorFacts| {
        let facts = Facts {
            transport: Some(TransportFacts { goodput_bits_per_second: load * 941.5e6, ..busy_flow() }),
            ceiling_bits_per_second: Some(941.5e6),
            ports: vec![link(load)],
            emulator: Some(emulator),
            ..Facts::default()
        };
        let factor = limiting_factor(&facts);
        (factor.name, factor.disturbed.is_some())
    };
    assert_eq!(disturbed(0.995, kept_waiting), (LINK_RATE.name.to_owned(), true));
    assert_eq!(
        disturbed(0.995, EmulatorFacts { foreign_busy_ratio: 0.01, ..kept_waiting }),
        (LINK_RATE.name.to_owned(), false)
    );
    assert_eq!(
        disturbed(0.995, EmulatorFacts { end_wait_ratio: 0.005, ..kept_waiting }),
        (LINK_RATE.name.to_owned(), false)
    );
    assert_eq!(disturbed(0.5, kept_waiting), (EMULATOR_LIMITED.name.to_owned(), false));
}

#[test]
fn a_busy_machine_does_not_hide_a_cause_that_explains_the_rate() {
    let full_machine = EmulatorFacts { machine_idle_ratio: 0.0, ..calm() };
    let windowed = TransportFacts { receive_window_limited_seconds: 9.0, ..busy_flow() };
    assert_eq!(named(windowed, link(0.5), full_machine), RECEIVE_WINDOW.name);
}

#[test]
fn a_machine_that_other_programs_fill_judges_nothing_but_a_full_link() {
    let disturbed =
        EmulatorFacts { machine_idle_ratio: 0.0, foreign_busy_ratio: 0.5, end_wait_ratio: 0.0, ..calm() };
    let lossy = TransportFacts { retransmitted_segments: 80, ..busy_flow() };
    assert_eq!(named(lossy, link(0.5), disturbed), EMULATOR_LIMITED.name);
    assert_eq!(named(lossy, link(0.995), disturbed), LINK_RATE.name);
    let room_left = EmulatorFacts { machine_idle_ratio: 0.2, foreign_busy_ratio: 0.5, ..calm() };
    assert_eq!(named(lossy, link(0.5), room_left), LOSS.name);
}

#[test]
fn needless_retransmissions_are_not_loss() {
    let reordered = TransportFacts { retransmitted_segments: 40, duplicate_segments: 40, ..busy_flow() };
    assert_eq!(named(reordered, link(0.5), calm()), UNKNOWN.name);
}

#[test]
fn lateness_is_judged_against_the_path() {
    assert_eq!(lateness_allowed_seconds(0.001), 500e-6);
    assert!((lateness_allowed_seconds(0.1) - 0.005).abs() < 1e-12);
}

/// The factor of a busy flow changed by `change`, through a half-full link in a calm lab.
fn with(change: impl Fn(&mut TransportFacts)) -> String {
    let mut transport = busy_flow();
    change(&mut transport);
    named(transport, link(0.5), calm())
}

// Spec: evidence.md#ends-1
#[test]
fn a_reader_that_holds_back_is_named_before_the_window_that_it_closes_and_the_link_that_its_buffer_fills() {
    let slow = |it: &mut TransportFacts| {
        (it.receive_observed_seconds, it.receiver_waiting_seconds) = (10.0, 8.0);
        it.receive_window_limited_seconds = 9.0;
        it.receive_queue_bytes = 1e6;
    };
    assert_eq!(with(slow), RECEIVER_APPLICATION.name);
    let mut transport = busy_flow();
    slow(&mut transport);
    assert_eq!(named(transport, link(0.98), calm()), RECEIVER_APPLICATION.name);
    assert_eq!(with(|it| it.receive_window_limited_seconds = 9.0), RECEIVE_WINDOW.name);
    assert_eq!(
        with(|it| (it.receive_observed_seconds, it.receiver_waiting_seconds) = (10.0, 4.9)),
        UNKNOWN.name
    );
}

// Spec: evidence.md#ends-2
#[test]
fn a_source_that_gives_too_little_is_named_unless_the_link_is_full_all_the_same() {
    let slow = |it: &mut TransportFacts| {
        it.source_waiting_seconds = 7.0;
        it.busy_seconds = 3.0;
        it.retransmitted_segments = 5;
    };
    assert_eq!(with(slow), SOURCE_APPLICATION.name);
    let mut transport = busy_flow();
    slow(&mut transport);
    assert_eq!(named(transport, link(0.99), calm()), LINK_RATE.name);
    assert_eq!(with(|it| it.source_waiting_seconds = 1.0), UNKNOWN.name);
}

// Spec: evidence.md#ends-3
#[test]
fn a_send_buffer_that_is_empty_before_the_acknowledgements_come_is_named() {
    assert_eq!(with(|it| it.send_buffer_limited_seconds = 6.0), SEND_BUFFER.name);
    assert_eq!(with(|it| it.send_buffer_limited_seconds = 4.0), UNKNOWN.name);
    // Losses seen on the way do not hide it.
    let both = |it: &mut TransportFacts| {
        it.send_buffer_limited_seconds = 9.0;
        it.retransmitted_segments = 3;
    };
    assert_eq!(with(both), SEND_BUFFER.name);
}

// Spec: evidence.md#ends-4
// Spec: evidence.md#ends-6
#[test]
fn a_thread_that_never_waits_for_the_network_names_its_end() {
    let sender = |it: &mut TransportFacts| {
        it.sender_thread_busy_ratio = 0.1;
        it.sender_thread_wait_ratio = 0.85;
        it.busy_seconds = 2.0;
    };
    assert_eq!(with(sender), SENDER_CPU.name);
    let receiver = |it: &mut TransportFacts| {
        it.receiver_thread_busy_ratio = 0.95;
        it.receive_window_limited_seconds = 9.0;
    };
    assert_eq!(with(receiver), RECEIVER_CPU.name);
    // Both ends full: the window says which one the other waits for.
    let both = |it: &mut TransportFacts| {
        (it.sender_thread_busy_ratio, it.receiver_thread_busy_ratio) = (0.95, 0.95);
    };
    assert_eq!(with(both), SENDER_CPU.name);
    let both_and_closed = |it: &mut TransportFacts| {
        both(it);
        it.receive_window_limited_seconds = 2.0;
    };
    assert_eq!(with(both_and_closed), RECEIVER_CPU.name);
    assert_eq!(with(|it| it.sender_thread_busy_ratio = 0.8), UNKNOWN.name);
    // Kept waiting for its core most of the time, it is held back by that even if it waits for room in between.
    assert_eq!(with(|it| it.sender_thread_wait_ratio = 0.6), SENDER_CPU.name);
    assert_eq!(with(|it| it.sender_thread_wait_ratio = 0.3), UNKNOWN.name);
}

// Spec: evidence.md#fitness-1
#[test]
fn an_end_without_cpu_on_a_machine_without_cpu_is_the_emulators_fault_and_on_a_real_host_its_own() {
    let starved = TransportFacts { sender_thread_wait_ratio: 0.95, ..busy_flow() };
    let full = EmulatorFacts { machine_idle_ratio: 0.0, ..calm() };
    assert_eq!(named(starved, link(0.5), full), EMULATOR_LIMITED.name);
    let nearly = EmulatorFacts { machine_idle_ratio: 0.15, ..calm() };
    assert_eq!(named(starved, link(0.5), nearly), EMULATOR_LIMITED.name);
    let room_left = EmulatorFacts { machine_idle_ratio: 0.35, ..calm() };
    assert_eq!(named(starved, link(0.5), room_left), SENDER_CPU.name);
    let real = Facts { transport: Some(starved), ..Facts::default() };
    assert_eq!(limiting_factor(&real).name, SENDER_CPU.name);
}

// Spec: evidence.md#path-2
// Spec: evidence.md#path-3
#[test]
fn needless_repairs_of_a_broken_order_are_reordering_and_repairs_of_losses_are_not() {
    let broken = TransportFacts { retransmitted_segments: 400, ..busy_flow() };
    let stack = StackFacts { out_of_order_segments: 900, reordering_count: 3 };
    let factor = |transport, port, emulator: Option<EmulatorFacts>| {
        let ports = if emulator.is_some() { vec![port] } else { Vec::new() };
        limiting_factor(&Facts { transport: Some(transport), ports, emulator, stack, ..Facts::default() })
            .name
    };
    assert_eq!(factor(broken, link(0.5), Some(calm())), REORDERING.name);
    // The same counts where the path dropped as much as was sent again.
    let lossy = PortFacts { dropped_loss: 380, dropped_otherwise_steady: 380, ..link(0.5) };
    assert_eq!(factor(broken, lossy, Some(calm())), LOSS.name);
    // On real hosts only the receivers' own word counts: they had the segments already.
    let real = |duplicate_segments| {
        factor(TransportFacts { duplicate_segments, ..broken }, PortFacts::default(), None)
    };
    assert_eq!([real(300), real(100)], [REORDERING.name, LOSS.name]);
    // Adaptive senders see the same order and send next to nothing again: the link is full.
    assert_eq!(factor(broken, link(0.98), Some(calm())), LINK_RATE.name);
    // A sender that is idle most of the time is not held back by what it repairs.
    let idle = TransportFacts { busy_seconds: 3.0, ..broken };
    assert_eq!(factor(idle, link(0.5), Some(calm())), UNKNOWN.name);
}

// Spec: evidence.md#path-4
// Spec: evidence.md#path-5
#[test]
fn an_overflowing_queue_is_told_from_losses_on_the_wire_by_what_it_dropped_in_the_steady_state() {
    let repairs = TransportFacts { retransmitted_segments: 100, ..busy_flow() };
    let overflow = PortFacts { dropped_queue: 90, dropped_queue_steady: 90, ..link(0.8) };
    assert_eq!(named(repairs, overflow, calm()), QUEUE.name);
    let wire = PortFacts {
        dropped_queue: 900,
        dropped_queue_steady: 10,
        dropped_loss: 90,
        dropped_otherwise_steady: 90,
        ..link(0.8)
    };
    assert_eq!(named(repairs, wire, calm()), LOSS.name);
}

// Spec: evidence.md#path-6
#[test]
fn a_queue_longer_than_the_round_trip_is_what_a_request_waits_for() {
    let waiting = |queue_seconds| {
        let ports = vec![PortFacts { queue_seconds, ..link(1.0) }, link(0.1)];
        limiting_factor(&Facts { ports, emulator: Some(calm()), ..Facts::default() }).name
    };
    assert_eq!([waiting(0.030), waiting(0.001)], [QUEUE.name, UNKNOWN.name]);
}

// Spec: evidence.md#fitness-1
#[test]
fn a_host_that_waits_for_a_core_which_only_the_lab_can_have_is_the_labs_fault() {
    let waits =
        TransportFacts { sender_thread_busy_ratio: 0.3, sender_thread_wait_ratio: 0.7, ..busy_flow() };
    let with = |machine_idle_ratio, foreign_busy_ratio| {
        named(waits, link(0.03), EmulatorFacts { machine_idle_ratio, foreign_busy_ratio, ..calm() })
    };
    assert_eq!(with(0.21, 0.01), EMULATOR_LIMITED.name);
    // A quota leaves the machine idle.
    assert_eq!(with(0.4, 0.01), SENDER_CPU.name);
    // A host that runs all the time wants for more than a core.
    let runs =
        TransportFacts { sender_thread_busy_ratio: 0.99, sender_thread_wait_ratio: 0.0, ..busy_flow() };
    assert_eq!(
        named(runs, link(0.03), EmulatorFacts { machine_idle_ratio: 0.25, ..calm() }),
        SENDER_CPU.name
    );
}

// Spec: evidence.md#fitness-1
#[test]
fn a_buffer_is_not_blamed_for_a_round_trip_that_is_not_the_paths() {
    // A path of 100 us whose packets wait 16 ms for the fabric.
    let short = EmulatorFacts { one_way_seconds: 50e-6, ..calm() };
    let window =
        |rtt_seconds| TransportFacts { receive_window_limited_seconds: 9.0, rtt_seconds, ..busy_flow() };
    assert_eq!(named(window(0.016), link(0.04), short), EMULATOR_LIMITED.name);
    assert_eq!(named(window(0.001), link(0.04), short), RECEIVE_WINDOW.name);
    // A queue that the model has may hold them as long.
    let queued = PortFacts { queue_seconds: 0.015, ..link(0.04) };
    assert_eq!(named(window(0.016), queued, short), RECEIVE_WINDOW.name);
    assert_eq!(named(window(0.016), link(0.04), calm()), RECEIVE_WINDOW.name);
}

// Spec: evidence.md#fitness-3
#[test]
fn stalls_of_113_ms_every_two_and_a_half_seconds_are_the_machines_limit_though_few_packets_are_late() {
    let mut stalls = Behind::default();
    (0..4).for_each(|_| stalls.add(0, 113_000_000, 1));
    // Of a million deliveries that were on time nothing is kept, as of slices that take 23 % of the time.
    stalls.add(0, 30_000, 1_000_000);
    let mut slices = Behind::default();
    slices.add(0, 460_000, 5_000);
    let of = |behind: &Behind| {
        let behind_ratio = behind.beyond_ns(800_000) as f64 / 10e9;
        named(busy_flow(), link(0.9), EmulatorFacts { behind_ratio, ..calm() })
    };
    assert_eq!([of(&stalls), of(&slices)], [EMULATOR_LIMITED.name, UNKNOWN.name]);
}

// Spec: evidence.md#fitness-4
#[test]
fn long_waits_of_an_end_are_the_machines_limit_where_others_had_the_core_and_else_the_labs_own() {
    let with = |end_wait_ratio, foreign_busy_ratio| {
        named(
            busy_flow(),
            link(0.9),
            EmulatorFacts { end_wait_ratio, foreign_busy_ratio, stolen_ratio: 0.0, ..calm() },
        )
    };
    assert_eq!(with(0.04, 0.04), EMULATOR_LIMITED.name);
    assert_eq!(with(0.04, 0.01), UNKNOWN.name, "the lab competes with itself");
    assert_eq!(with(0.005, 0.5), UNKNOWN.name);
    let stolen = EmulatorFacts { end_wait_ratio: 0.04, stolen_ratio: 0.04, ..calm() };
    assert_eq!(named(busy_flow(), link(0.9), stolen), EMULATOR_LIMITED.name);
}

// Spec: evidence.md#fitness-1
#[test]
fn a_receiver_that_waited_for_a_core_most_of_the_time_beside_foreign_work_is_the_machines_limit() {
    let waits = TransportFacts {
        receiver_thread_busy_ratio: 0.2,
        receiver_thread_wait_ratio: 0.73,
        receive_window_limited_seconds: 9.0,
        ..busy_flow()
    };
    let beside = |foreign_busy_ratio, machine_idle_ratio| {
        named(waits, link(0.5), EmulatorFacts { foreign_busy_ratio, machine_idle_ratio, ..calm() })
    };
    assert_eq!(beside(0.4, 0.35), EMULATOR_LIMITED.name);
    assert_eq!(beside(0.01, 0.35), RECEIVER_CPU.name, "a quota");
    let runs = TransportFacts { receiver_thread_busy_ratio: 0.93, receiver_thread_wait_ratio: 0.0, ..waits };
    let emulator = EmulatorFacts { foreign_busy_ratio: 0.4, machine_idle_ratio: 0.25, ..calm() };
    assert_eq!(named(runs, link(0.5), emulator), RECEIVER_CPU.name);
}

// Spec: evidence.md#fitness-2
#[test]
fn a_generator_that_falls_behind_its_clock_judges_nothing() {
    let kept = GeneratorFacts {
        due_count: 10_000,
        lateness_seconds: 80e-6,
        lateness_seconds_max: 0.01,
        period_seconds: 0.001,
        ..GeneratorFacts::default()
    };
    let factor = |generator: GeneratorFacts| {
        let emulator = Some(EmulatorFacts { one_way_seconds: 0.016, ..calm() });
        limiting_factor(&Facts { generator: Some(generator), emulator, ..Facts::default() }).name
    };
    assert_eq!(factor(kept), UNKNOWN.name);
    assert_eq!(factor(GeneratorFacts { missed_count: 200, ..kept }), GENERATOR_LIMITED.name);
    assert_eq!(factor(GeneratorFacts { missed_count: 90, ..kept }), UNKNOWN.name);
    // 5 % of 16 ms is 0.8 ms.
    assert_eq!(factor(GeneratorFacts { lateness_seconds: 0.000_7, ..kept }), UNKNOWN.name);
    let late = GeneratorFacts { lateness_seconds: 0.000_9, ..kept };
    assert_eq!(factor(late), GENERATOR_LIMITED.name);
    assert_eq!(factor(GeneratorFacts { due_count: 100, ..late }), UNKNOWN.name);
    // A stream that came late in blocks and left none out made its load.
    let stream = Facts { transport: Some(busy_flow()), generator: Some(late), ..Facts::default() };
    assert_eq!(limiting_factor(&stream).name, UNKNOWN.name);
}

// Spec: evidence.md#order-2
#[test]
fn every_factor_comes_with_evidence_in_plain_letters_and_a_share_as_confidence() {
    type Change = fn(&mut TransportFacts);
    let changes: [Change; 7] = [
        |it| (it.receive_observed_seconds, it.receiver_waiting_seconds) = (10.0, 9.0),
        |it| it.source_waiting_seconds = 9.0,
        |it| it.send_buffer_limited_seconds = 9.0,
        |it| it.receiver_thread_busy_ratio = 0.99,
        |it| it.sender_thread_busy_ratio = 0.99,
        |it| it.retransmitted_segments = 9,
        |it| (it.retransmitted_segments, it.receive_window_limited_seconds) = (9, 9.0),
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut transport = busy_flow();
        change(&mut transport);
        let facts = Facts {
            transport: Some(transport),
            ports: vec![link(0.5)],
            emulator: Some(calm()),
            ..Facts::default()
        };
        let factor = limiting_factor(&facts);
        assert_ne!(factor.name, UNKNOWN.name, "change {index}");
        assert!((0.5..=1.0).contains(&factor.confidence), "{factor:?}");
        assert!(!factor.evidence.is_empty(), "{factor:?}");
        for line in &factor.evidence {
            assert!(!line.contains("NaN") && !line.contains("inf"), "{line}");
        }
    }
}

// Spec: evidence.md#order-3
#[test]
fn no_resource_is_named_from_times_in_which_nothing_arrived() {
    let waiting: [fn(&mut TransportFacts); 5] = [
        |still| still.send_buffer_limited_seconds = 9.9,
        |still| still.receive_window_limited_seconds = 9.9,
        |still| still.source_waiting_seconds = 9.9,
        |still| still.retransmitted_segments = 80,
        |still| still.sender_thread_busy_ratio = 1.0,
    ];
    for set in waiting {
        let mut moving = busy_flow();
        set(&mut moving);
        assert_ne!(named(moving, link(0.5), calm()), UNKNOWN.name, "{moving:?}");
        let still = TransportFacts { goodput_bits_per_second: 0.0, ..moving };
        let factor = limiting_factor(&Facts { transport: Some(still), ..Facts::default() });
        assert_eq!(factor.name, UNKNOWN.name, "{still:?}");
        assert!(factor.evidence[0].contains("no byte arrived in the steady state"), "{factor:?}");
        assert!(factor.evidence.iter().all(|line| !line.contains("sysctl")), "{factor:?}");
    }
    let late = EmulatorFacts { behind_ratio: 0.2, behind_seconds_max: 0.1, ..calm() };
    let still = TransportFacts { goodput_bits_per_second: 0.0, ..busy_flow() };
    assert_eq!(named(still, link(0.0), late), EMULATOR_LIMITED.name);
}
