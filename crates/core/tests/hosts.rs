//! What `[hosts]` can describe, and that nothing of it can be taken for an option or reach a shell.

mod common;

use common::*;
use weir_core::scenario::RealHost;

const REAL: &str = r#"[scenario]
name = "real"
[hosts]
user = "weir"
data_ports = "5300-5399"
jump = "gate.example.org"
[hosts.dresden-0]
address = "10.1.0.10"
data_interface = "eth1"
[hosts.freiberg-1]
address = "f1.example.org:2222"
[hosts.freiberg-0]
address = "[fd00::1]:2022"
user = "root"
data_ports = "6000"
agent = "/opt/weir/bin/weir"
jump = "me@gate.example.org:2200,inner"
launcher = "local"
[[step]]
name = "x"
workload = "stream"
from = ["dresden-0", "dresden-0"]
to = "freiberg-*"
duration = "2s"
"#;

#[track_caller]
fn refused(text: &str, message: &str, help: &str) {
    let all = problems(text, &[]);
    let good = all.iter().any(|problem| problem.2.contains(message) && problem.3.contains(help));
    assert!(good, "no problem says {message:?} and {help:?}: {all:#?}");
}

fn changed(from: &str, to: &str) -> String {
    assert!(REAL.contains(from), "{from}");
    REAL.replacen(from, to, 1)
}

// Spec: scenario.md#host-1
#[test]
fn hosts_are_site_by_site_and_by_number_and_what_is_said_of_all_holds_for_each() {
    let plan = plan(REAL);
    let configuration = &plan.configurations[0];
    let text = |text: &str| Some(text.to_owned());
    let common = RealHost {
        name: "dresden-0".to_owned(),
        address: "10.1.0.10".to_owned(),
        port: None,
        launcher: "ssh".to_owned(),
        user: text("weir"),
        jump: text("gate.example.org"),
        agent: None,
        data_interface: text("eth1"),
        data_ports: Some([5300, 5399]),
    };
    let own = RealHost {
        name: "freiberg-0".to_owned(),
        address: "fd00::1".to_owned(),
        port: Some(2022),
        launcher: "local".to_owned(),
        user: text("root"),
        jump: text("me@gate.example.org:2200,inner"),
        agent: text("/opt/weir/bin/weir"),
        data_interface: None,
        data_ports: Some([6000, 6000]),
    };
    let far = RealHost {
        name: "freiberg-1".to_owned(),
        address: "f1.example.org".to_owned(),
        port: Some(2222),
        data_interface: None,
        ..common.clone()
    };
    assert_eq!(configuration.hosts, Some(vec![common, own, far]));
    let names: Vec<&str> = configuration.topology.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["dresden-0", "freiberg-0", "freiberg-1"]);
    let sites: Vec<&str> = configuration.topology.sites.iter().map(|site| site.name.as_str()).collect();
    assert_eq!(sites, ["dresden", "freiberg"]);
    assert_eq!(configuration.steps[0].pairs, [(0, 1), (0, 2)], "no link says how, and none is needed");
}

// Spec: scenario.md#host-2
#[test]
fn nothing_of_a_host_can_be_an_option_or_reach_a_shell() {
    for bad in ["-oProxyCommand=x", "a b", "a;b", "$(x)", "`x`", "a'b", "", "a\\nb", "é"] {
        refused(&changed("\"10.1.0.10\"", &format!("{bad:?}")), "`address`", "");
        refused(&changed("\"weir\"", &format!("{bad:?}")), "`user`", "letters, digits");
        refused(&changed("\"gate.example.org\"", &format!("{bad:?}")), "`jump`", "letters, digits");
        refused(&changed("\"eth1\"", &format!("{bad:?}")), "`data_interface`", "letters, digits");
        refused(&changed("\"/opt/weir/bin/weir\"", &format!("{bad:?}")), "`agent`", "letters, digits");
    }
    for bad in ["host:0", "host:99999", "[fd00::1]:x", ":22", "[]:22", "[-x]:22"] {
        refused(&changed("\"10.1.0.10\"", &format!("{bad:?}")), "`address`", "");
    }
    for bad in ["0", "5-4", "1-70000", "x"] {
        refused(&changed("\"5300-5399\"", &format!("{bad:?}")), "is no range of ports", "5300-5399");
    }
}

// Spec: scenario.md#file-5
#[test]
fn a_host_is_named_by_site_and_number_and_has_an_address() {
    refused(&changed("[hosts.dresden-0]", "[hosts.dresden]"), "is not named SITE-NUMBER", "dresden-0");
    refused(&changed("[hosts.dresden-0]", "[hosts.dresden-01]"), "is not named SITE-NUMBER", "");
    refused(&changed("[hosts.dresden-0]", "[hosts.\"Dresden-0\"]"), "is no name", "63 letters");
    refused(&changed("address = \"10.1.0.10\"\n", ""), "[hosts.dresden-0] lacks `address`", "");
    refused(&changed("user = \"weir\"", "usr = \"weir\""), "unknown key `usr` in [hosts]", "`user`");
    refused(&changed("address = \"10.1", "adress = \"10.1"), "unknown key `adress`", "`address`");
    refused("[scenario]\nname = \"x\"\n[hosts]\nuser = \"a\"\n", "[hosts] names no host", "SITE-NUMBER");
    refused(&format!("{REAL}[lab]\n[[lab.site]]\nname = \"a\"\n"), "both [lab] and [hosts]", "one of them");
}

// Spec: scenario.md#path-1
#[test]
fn a_path_reaches_a_real_host() {
    let plan = plan_with(REAL, &["host.freiberg-*.user=me", "host.dresden-0.address=h"], false);
    let hosts = plan.configurations[0].hosts.clone().unwrap();
    assert_eq!((hosts[0].address.as_str(), hosts[1].user.as_deref()), ("h", Some("me")));
    let again = common::plan(&plan.resolved);
    assert_eq!(again.configurations, plan.configurations, "{}", plan.resolved);
}
