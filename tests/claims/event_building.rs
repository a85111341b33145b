//! `weir event`: roles as daemons, started in any order, killed, stopped and started again; the ledger is closed after it all.

use crate::support::event_run::{Run, in_time, of, pause};
use crate::support::{beside, finish_within, ran, start, weir};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::{Duration, Instant};

// Spec: event-building.md#connections-3
#[test]
fn roles_find_each_other_in_whatever_order_they_are_started() {
    let _turn = beside();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let summary = in_time(|| {
            let mut run = Run::new(&["--rate", "200Hz", "--events", "50", "--sources", "2"]);
            for role in order {
                match role {
                    0 => run.scheduler(),
                    1 => {
                        run.source("s0");
                        run.source("s1");
                    }
                    _ => run.builder("b0"),
                }
                pause(100);
            }
            run.finish()
        });
        assert_eq!((of(&summary, "generated"), of(&summary, "complete")), (50, 50), "{order:?}");
    }
}

// Spec: event-building.md#connections-3
#[test]
fn a_role_says_once_why_it_does_not_reach_the_scheduler_and_goes_on_until_it_does() {
    let _turn = beside();
    let summary = in_time(|| {
        let mut run = Run::new(&["--rate", "200Hz", "--events", "20", "--sources", "1"]);
        let at = run.at.clone();
        let roles = ["source", "builder"]
            .map(|role| start(weir().args(["event", role, "--scheduler", &at, "--name", role])));
        pause(1000);
        run.scheduler();
        let summary = run.finish();
        for role in roles {
            let said = ran(finish_within(role, Duration::from_secs(10))).stderr;
            assert_eq!(said.matches(&format!("{at} is not reached (")).count(), 1, "{said}");
        }
        summary
    });
    assert_eq!(of(&summary, "complete"), 20);
}

// Spec: event-building.md#failure-3
#[test]
fn a_builder_that_is_killed_or_hung_costs_no_event() {
    let _turn = beside();
    let summary = in_time(|| {
        let mut run = Run::new(&["--rate", "200Hz", "--events", "1000", "--sources", "2", "--builders", "3"]);
        run.scheduler();
        for name in ["s0", "s1"] {
            run.source(name);
        }
        for name in ["b0", "b1", "b2"] {
            run.builder(name);
        }
        pause(1500);
        run.kill("b0");
        pause(1000);
        run.signal("b1", "-STOP");
        pause(1500);
        run.signal("b1", "-CONT");
        run.builder("b0");
        run.finish()
    });
    assert_eq!((of(&summary, "generated"), of(&summary, "complete")), (1000, 1000), "{summary:#}");
    let failures = summary["failures"].as_array().unwrap();
    let gone =
        |name: &str| failures.iter().any(|failure| failure["name"] == name && failure["is_builder"] == true);
    assert!(gone("b0") && gone("b1"), "{failures:#?}");
}

/// Payloads above 32 KiB take another way out of a source than smaller ones, and one of them may pass the end of its block.
#[test]
fn large_and_small_fragments_of_one_source_arrive_whole_and_in_their_order() {
    let _turn = beside();
    let summary = in_time(|| {
        let mut run = Run::new(&["--rate", "400Hz", "--events", "800", "--sources", "2", "--builders", "2"]);
        run.scheduler();
        for name in ["s0", "s1"] {
            run.source_of(name, &["--fragment-sizes", "exponential:60kB"]);
        }
        run.builder("b0");
        run.builder("b1");
        run.finish()
    });
    assert_eq!((of(&summary, "generated"), of(&summary, "complete")), (800, 800), "{summary:#}");
    assert_eq!(of(&summary, "corrupt"), 0, "{summary:#}");
}

// Spec: event-building.md#delivery-1
#[test]
fn a_source_that_is_killed_and_started_again_makes_its_fragments_anew() {
    let _turn = beside();
    let summary = in_time(|| {
        let mut run = Run::new(&["--rate", "100Hz", "--events", "400", "--sources", "2"]);
        run.scheduler();
        run.source("s0");
        run.source("s1");
        run.builder("b0");
        pause(1000);
        run.kill("s1");
        pause(500);
        run.source("s1");
        run.finish()
    });
    assert_eq!((of(&summary, "generated"), of(&summary, "complete")), (400, 400), "{summary:#}");
}

// Spec: event-building.md#failure-5
#[test]
fn a_scheduler_that_is_killed_and_started_again_goes_on_and_names_what_it_missed() {
    let _turn = beside();
    let mut run = Run::new(&["--rate", "100Hz", "--events", "500", "--sources", "2"]);
    run.scheduler();
    run.source("s0");
    run.source("s1");
    run.builder("b0");
    pause(1500);
    let mut first = run.scheduler.take().unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    pause(300);
    run.scheduler();
    let summary = run.finish();
    assert_eq!(of(&summary, "generated"), 500, "{summary:#}");
    let missed = summary["ledger"]["dropped"]["no-scheduler"].as_u64().unwrap();
    assert!(missed > 0, "{summary:#}");
    assert_eq!(of(&summary, "complete") + missed, 500, "{summary:#}");
}

/// A builder that dies between two writes must not take its sources with it.
#[test]
fn no_role_ends_by_a_signal_where_a_connection_is_closed_at_the_other_end() {
    let _turn = beside();
    let summary = in_time(|| {
        let mut run = Run::new(&["--rate", "100Hz", "--events", "300", "--sources", "1"]);
        run.scheduler();
        run.source("s0");
        run.builder("b0");
        pause(1000);
        let ignored = run.signals_ignored();
        assert_eq!(ignored.len(), 3, "{ignored:?}");
        // SIGPIPE is the 13th.
        assert!(ignored.iter().all(|(_, mask)| mask & (1 << 12) != 0), "{ignored:?}");
        run.finish()
    });
    assert_eq!(of(&summary, "complete"), 300);
}

// Spec: event-building.md#names-1
#[test]
fn of_two_with_one_name_the_later_stays_and_the_other_is_told() {
    let _turn = beside();
    let summary = in_time(|| {
        let mut run = Run::new(&["--rate", "100Hz", "--events", "200", "--sources", "1"]);
        run.scheduler();
        run.source("s0");
        let at = run.at.clone();
        let old = start(weir().args(["event", "builder", "--scheduler", &at, "--name", "b0"]));
        pause(600);
        run.builder("b0");
        let old = ran(finish_within(old, Duration::from_secs(10)));
        assert!(old.stderr.contains("b0"), "{}", old.stderr);
        run.finish()
    });
    assert_eq!(of(&summary, "complete"), 200, "{summary:#}");
}

/// Builders are killed, stopped, continued and started again at random, sources killed and started again; every event is complete.
#[test]
fn random_failures_of_builders_and_sources_cost_no_event() {
    let _turn = beside();
    let seed = std::env::var("WEIR_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut draw = |below: u64| random.next_u64() % below;
    let summary = in_time(|| {
        let mut run = Run::new(&[
            "--rate",
            "200Hz",
            "--events",
            "1600",
            "--sources",
            "2",
            "--builders",
            "3",
            "--drain",
            "30s",
        ]);
        run.scheduler();
        let builders = ["b0", "b1", "b2"];
        for name in ["s0", "s1"] {
            run.source(name);
        }
        for name in builders {
            run.builder(name);
        }
        pause(500);
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(6) {
            let name = builders[draw(3) as usize];
            match draw(5) {
                0 | 1 => {
                    run.kill(name);
                    pause(draw(400));
                    run.builder(name);
                }
                2 | 3 => {
                    run.signal(name, "-STOP");
                    pause(draw(900));
                    run.signal(name, "-CONT");
                }
                _ => {
                    let source = ["s0", "s1"][draw(2) as usize];
                    run.kill(source);
                    pause(draw(200));
                    run.source(source);
                }
            }
            pause(draw(300));
        }
        run.finish()
    });
    assert_eq!(
        (of(&summary, "generated"), of(&summary, "complete")),
        (1600, 1600),
        "seed {seed}: {summary:#}"
    );
}
