//! No file makes the loader slow: whatever it costs to check is bounded.

mod common;

use common::*;
use std::fmt::Write;

fn first(text: &str) -> String {
    problems(text, &[]).remove(0).2
}

// Spec: scenario.md#file-1
#[test]
fn a_file_over_sixteen_mebibytes_is_refused_unread() {
    assert!(first(&"#".repeat(16 << 20 | 1)).contains("at most 16777216"));
}

#[test]
fn a_hundred_thousand_faults_are_read() {
    let mut text = String::from(QUICKSTART);
    for number in 0..100_000 {
        writeln!(
            text,
            "[[fault]]\nname = \"f{number}\"\nat = \"{number}us\"\non = \"link.wan\"\ndo = {{ outage = {{ for = \"1us\" }} }}"
        )
        .unwrap();
    }
    assert_eq!(plan(&text).configurations[0].faults.len(), 100_001);
}

// Spec: scenario.md#point-5
#[test]
fn more_than_ten_thousand_configurations_are_refused() {
    let values = |count: usize| (1..=count).map(|value| value.to_string()).collect::<Vec<_>>().join(",");
    let swept = |a: usize, b: usize| {
        let sweep = format!(
            "[sweep]\n\"step.idle.count\" = [{}]\n\"step.one.streams\" = [{}]\n",
            values(a),
            values(b)
        );
        format!("{QUICKSTART}\n{sweep}")
    };
    assert!(first(&swept(101, 100)).starts_with("cases and sweep make 10100 configurations"));
    assert!(first(&swept(10_001, 1)).contains("a list of 1 to 10000 values"));
}

#[test]
fn deep_and_wide_files_are_refused_at_once() {
    let deep = format!("a = {}1{}", "[".repeat(60), "]".repeat(60));
    assert!(problems(&deep, &[]).iter().any(|problem| problem.2.contains("deeper than 16 levels")));
    let bomb = format!("a = {}", "[".repeat(200_000));
    assert!(try_load(&bomb, &[], false).is_err());
    let dotted = format!("{}a = 1", "a.".repeat(100_000));
    assert!(try_load(&dotted, &[], false).is_err());
    let mut wide = String::new();
    for number in 0..40_000 {
        writeln!(wide, "k{number} = [1,2,3]").unwrap();
    }
    let errors = try_load(&wide, &[], false).unwrap_err();
    assert!(errors.problems.len() <= 50 && errors.further > 39_000);
    assert!(errors.render(false).len() < 100_000);
}

// Spec: scenario.md#lab-4
#[test]
fn a_lab_has_an_end() {
    let site = |name: &str, hosts: usize| format!("[[lab.site]]\nname = \"{name}\"\nhosts = {hosts}\n");
    assert!(plan(&site("a", 4094)).configurations[0].topology.hosts.len() == 4094);
    assert_eq!(first(&format!("{}{}", site("a", 4094), site("b", 1))), "a lab has at most 4094 hosts");
    let sites: String = (0..1_100).map(|number| site(&format!("s{number}"), 1)).collect();
    assert!(first(&sites).contains("at most 1024 sites"));
    let links = "[[lab.link]]\nbetween = [\"a\", \"b\"]\nname = \"";
    let links: String = (0..2_049).map(|number| format!("{links}l{number}\"\n")).collect();
    assert!(first(&format!("{}{}{links}", site("a", 1), site("b", 1))).contains("at most 2048 links"));
}

#[test]
fn a_long_line_is_shown_only_around_its_error() {
    let text = format!("[scenario]\nname = \"s\" # {}\nnaem = 1", "x".repeat(100_000));
    assert!(try_load(&text, &[], false).unwrap_err().render(false).len() < 2_000);
    let text = format!(
        "[scenario]\nabout = \"{}\"\nname = \"s\"\nfoo = \"{}\"",
        "é".repeat(50_000),
        "ü".repeat(50_000)
    );
    assert!(try_load(&text, &[], false).unwrap_err().render(true).len() < 4_000);
}

// Spec: scenario.md#point-5
#[test]
fn what_would_take_long_to_judge_or_to_route_is_refused() {
    let values: Vec<String> = (1..=100).map(|value| value.to_string()).collect();
    let values = values.join(",");
    let mut text = format!(
        "{QUICKSTART}\n[sweep]\n\"step.idle.count\" = [{values}]\n\"step.one.streams\" = [{values}]\n"
    );
    for number in 0..200 {
        write!(text, "[[criterion]]\ntext = \"t{number}\"\nlimiting_factor = \"loss\"\n").unwrap();
    }
    assert!(first(&text).contains("criteria on 40000 points are more than"));
    let mut chain = String::from("[scenario]\nname = \"s\"\n");
    for number in 0..256 {
        write!(chain, "[[lab.site]]\nname = \"s{number}\"\n").unwrap();
    }
    for number in 0..255 {
        write!(chain, "[[lab.link]]\nbetween = [\"s{number}\", \"s{}\"]\nrtt = \"1ms\"\n", number + 1)
            .unwrap();
    }
    let step = "[[step]]\nname = \"x\"\nworkload = \"stream\"\nduration = \"1s\"\npairing = \"all\"\n";
    let all = |hosts: &str| first(&format!("{chain}{step}from = \"{hosts}\"\nto = \"{hosts}\"\n"));
    assert!(all("s*").contains("has 65536 pairs; at most 16384 fit"));
    let far = format!("{chain}{step}from = \"s[0-99]-0\"\nto = \"s[156-255]-0\"\n");
    assert!(first(&far).contains("links; at most 500000 fit"), "{}", first(&far));
}
