//! Steps whose workload places roles on hosts instead of pairing them.

mod common;

use weir_core::scenario::{Language, Overrides, Plan, RoleKey, ScenarioErrors, WorkloadSchema, load};
use weir_core::{Kind, Param, Value};

static PARAMS: &[Param] = &[
    Param::new("sources", Kind::Hosts, "Who sends.").required(),
    Param::new("builders", Kind::Hosts, "Who receives.").required(),
    Param::new("scheduler_host", Kind::Hosts, "Who decides.").required(),
    Param::new("control", Kind::Choice(&["data", "auxiliary"]), "Where.")
        .default("data")
        .auxiliary("auxiliary"),
];
static ROLES: &[RoleKey] =
    &[RoleKey::many("sources"), RoleKey::many("builders"), RoleKey::one("scheduler_host")];

const LAB: &str = r#"
[scenario]
name = "roles"
[lab]
[[lab.site]]
name = "pi"
hosts = 8
"#;

fn try_plan(rest: &str) -> Result<Plan, ScenarioErrors> {
    load_of(&format!("{LAB}{rest}"))
}

fn load_of(text: &str) -> Result<Plan, ScenarioErrors> {
    let mut workloads = common::workloads();
    let stream = workloads[1];
    workloads.insert(0, WorkloadSchema { name: "gather", params: PARAMS, roles: ROLES, ..stream });
    load(text, "roles.toml", &Overrides::default(), Language { workloads: &workloads, ..Language::NONE })
}

fn step(keys: &str) -> String {
    format!("[[step]]\nname = \"build\"\nworkload = \"gather\"\nduration = \"5s\"\n{keys}\n")
}

#[track_caller]
fn refused(keys: &str, words: &str) {
    let error = try_plan(&step(keys)).expect_err(keys).to_string();
    assert!(error.contains(words), "{error}");
}

#[test]
fn roles_are_placed_in_order_and_a_host_may_have_several() {
    let keys = r#"sources = ["pi-1", "pi-2"]
builders = ["pi-2", "pi-[4-5]"]
scheduler_host = "pi-1""#;
    let plan = try_plan(&step(keys)).unwrap_or_else(|errors| panic!("{errors}"));
    let step = &plan.configurations[0].steps[0];
    assert_eq!(
        step.roles,
        [("sources", vec![1, 2]), ("builders", vec![2, 4, 5]), ("scheduler_host", vec![1])]
    );
    // What pi-2 sends to itself passes no link.
    assert_eq!(step.pairs, [(1, 2), (1, 4), (1, 5), (2, 4), (2, 5)]);
    assert_eq!(step.parameters["sources"], Value::Count(2));
    assert_eq!(step.parameters["builders"], Value::Count(3));
    assert_eq!(step.parameters["scheduler_host"], Value::Text("pi-1".to_owned()));
    assert_eq!(step.values.get("pairs"), None);
    let mut hosts: Vec<usize> = step.hosts().collect();
    hosts.sort_unstable();
    hosts.dedup();
    assert_eq!(hosts, [1, 2, 4, 5]);
}

// Spec: scenario.md#step-8
#[test]
fn a_workload_of_one_role_pairs_nobody_and_is_a_step_like_any_other() {
    let mut workloads = common::workloads();
    let roles = &ROLES[..1];
    workloads.push(WorkloadSchema { name: "read", params: &PARAMS[..1], roles, ..workloads[1] });
    let text = format!(
        "{LAB}[[step]]\nname = \"read\"\nworkload = \"read\"\nduration = \"5s\"\nsources = \"pi-[2-3]\"\n"
    );
    let plan = load(
        &text,
        "roles.toml",
        &Overrides::default(),
        Language { workloads: &workloads, ..Language::NONE },
    )
    .unwrap_or_else(|errors| panic!("{errors}"));
    let step = &plan.configurations[0].steps[0];
    assert_eq!((step.pairs.as_slice(), step.roles.as_slice()), (&[][..], &[("sources", vec![2, 3])][..]));
    let shape = step.shape(&step.pairs, std::time::Duration::ZERO);
    assert_eq!((shape.hosts.as_slice(), shape.pairs), (&[("sources", 2)][..], 0));
    assert!(!weir_core::model::has_ceiling(&plan.configurations[0], step));
}

// Spec: scenario.md#step-9
#[test]
fn paired_hosts_have_the_roles_from_and_to_and_say_so_of_the_pair_whose_turn_it_is() {
    let keys = "from = \"pi-[0-1]\"\nto = \"pi-[2-3]\"\npairing = \"all\"\nturns = \"disjoint\"";
    let text = step(keys).replace("gather", "stream");
    let plan = try_plan(&text).unwrap_or_else(|errors| panic!("{errors}"));
    let step = &plan.configurations[0].steps[0];
    assert_eq!(step.roles, [("from", vec![0, 1]), ("to", vec![2, 3])]);
    assert_eq!(step.of_pair(1).roles, [("from", vec![step.pairs[1].0]), ("to", vec![step.pairs[1].1])]);
    assert_eq!(step.shape(&step.pairs, std::time::Duration::ZERO).pairs, 4);
}

#[test]
fn a_criterion_and_a_case_select_by_the_number_of_hosts() {
    let text = step("sources = \"pi-1\"\nbuilders = \"pi-[3-7]\"\nscheduler_host = \"pi-0\"")
        + r#"
[[case]]
name = "one"
[[case]]
name = "two"
set = { "step.build.sources" = ["pi-1", "pi-2"] }
[[criterion]]
text = "two sources bring more"
metric = "stream.total_goodput_bits_per_second"
where = { sources = 2 }
at_least = "1Mbit/s"
"#;
    let plan = try_plan(&text).unwrap_or_else(|errors| panic!("{errors}"));
    let sources = |index: usize| plan.configurations[index].steps[0].parameters["sources"].clone();
    assert_eq!((sources(0), sources(1)), (Value::Count(1), Value::Count(2)));
    let nowhere = text.replace("where = { sources = 2 }", "where = { sources = 3 }");
    assert!(try_plan(&nowhere).is_err(), "no point has three sources");
}

#[test]
fn what_does_not_go_with_roles_is_refused() {
    let roles = "sources = \"pi-1\"\nbuilders = \"pi-3\"\nscheduler_host = \"pi-0\"\n";
    refused(&format!("{roles}from = \"pi-1\""), "has `from`, and its workload pairs no hosts");
    refused(&format!("{roles}streams = 3"), "has `streams`, and its workload pairs no hosts");
    refused("sources = \"pi-1\"\nbuilders = \"pi-3\"", "lacks `scheduler_host`");
    refused(&roles.replace("pi-0", "pi-*"), "`scheduler_host` is one host, and this names 8");
    refused(&roles.replace("\"pi-3\"", "[\"pi-3\", \"pi-[3-4]\"]"), "`builders` names pi-3 twice");
    refused(&roles.replace("pi-3", "po-3"), "no host is called \"po-3\"");
}

// Spec: scenario.md#step-7
#[test]
fn who_decides_must_reach_all_others_over_the_network_it_speaks_on() {
    let far = |control: &str, auxiliary: &str| {
        let lab = format!(
            "[scenario]\nname = \"roles\"\n[lab]\nauxiliary = {{ delay = \"{auxiliary}\" }}\n[[lab.site]]\nname = \"pi\"\nhosts = 3\n\
             [[lab.host]]\nname = \"pi-0\"\naccess = {{ delay = \"3s\" }}\n"
        );
        let keys = format!(
            "sources = \"pi-1\"\nbuilders = \"pi-2\"\nscheduler_host = \"pi-0\"\ncontrol = \"{control}\""
        );
        load_of(&format!("{lab}{}", step(&keys)))
    };
    let said = far("data", "0us").unwrap_err().to_string();
    assert!(
        said.contains("6 s round trip from pi-0 to pi-2") && said.contains("host.pi-0.access.delay"),
        "{said}"
    );
    assert!(far("auxiliary", "0us").is_ok());
    let said = far("auxiliary", "1s").unwrap_err().to_string();
    assert!(
        said.contains("4 s round trip from pi-0 to pi-1") && said.contains("lab.auxiliary.delay"),
        "{said}"
    );
}
