//! Parameters that choose a member of a seam, with the member's own parameters.

mod common;

use weir_core::param::{Member, MemberSchema, Seam};
use weir_core::scenario::{Language, Overrides, Plan, ScenarioErrors, WorkloadSchema, load};
use weir_core::{Kind, Param, Value};

static SEAM: Seam = Seam {
    name: "dealer",
    members: || {
        vec![
            MemberSchema { name: "in-turn", params: &[] },
            MemberSchema { name: "calendar", params: CALENDAR },
        ]
    },
};
static CALENDAR: &[Param] = &[
    Param::new("slots", Kind::Count, "How many.").default("512").range(1.0, 4096.0),
    Param::new("when_full", Kind::Choice(&["hold", "next"]), "And then?").default("hold"),
];
static PARAMS: &[Param] = &[Param::new("dealer", Kind::Member(&SEAM), "Who deals.").default("in-turn")];

fn try_plan(step: &str, rest: &str, sets: &[&str]) -> Result<Plan, ScenarioErrors> {
    let mut workloads = common::workloads();
    let stream = workloads[1];
    workloads.insert(0, WorkloadSchema { name: "deal", params: PARAMS, ..stream });
    let text = format!(
        "[scenario]\nname = \"members\"\n[lab]\n[[lab.site]]\nname = \"pi\"\nhosts = 2\n[[step]]\nname = \"cards\"\n\
         workload = \"deal\"\nfrom = \"pi-0\"\nto = \"pi-1\"\nduration = \"5s\"\n{step}\n{rest}"
    );
    let sets = sets.iter().map(|set| (*set).to_owned()).collect();
    load(
        &text,
        "members.toml",
        &Overrides { sets, ..Overrides::default() },
        Language { workloads: &workloads, ..Language::NONE },
    )
}

#[track_caller]
fn dealers(step: &str, rest: &str, sets: &[&str]) -> Vec<Member> {
    let plan = try_plan(step, rest, sets).unwrap_or_else(|errors| panic!("{errors}"));
    let steps = plan.configurations.iter().flat_map(|configuration| &configuration.steps);
    steps.map(|step| step.values.member("dealer").unwrap()).collect()
}

#[track_caller]
fn refused(step: &str, sets: &[&str], words: &str) {
    let error = try_plan(step, "", sets).expect_err(words).to_string();
    assert!(error.contains(words), "{error}");
}

fn calendar(given: &[(&str, Value)]) -> Member {
    let mut member = Member::named("calendar");
    given.iter().for_each(|(key, value)| member.given.set(key, value.clone()));
    member
}

// Spec: scenario.md#member-1
#[test]
fn a_member_is_a_name_or_a_table_of_it_and_its_parameters() {
    assert_eq!(dealers("", "", &[]), [Member::named("in-turn")]);
    assert_eq!(dealers("dealer = \"calendar\"", "", &[]), [calendar(&[])]);
    let both = "dealer = { name = \"calendar\", slots = 64, when_full = \"next\" }";
    let given = [("slots", Value::Count(64)), ("when_full", Value::Text("next".to_owned()))];
    assert_eq!(dealers(both, "", &[]), [calendar(&given)]);
    assert_eq!(dealers("", "", &["dealer={name=\"calendar\",slots=64}"]), [calendar(&given[..1])]);
}

// Spec: scenario.md#member-1
#[test]
fn what_a_member_does_not_take_is_refused_with_what_it_does() {
    refused("dealer = \"calender\"", &[], "no dealer is called \"calender\"; did you mean \"calendar\"?");
    refused("dealer = \"nobody-at-all\"", &[], "there are in-turn, calendar");
    refused(
        "dealer = { name = \"calendar\", slot = 64 }",
        &[],
        "calendar takes no `slot`; did you mean `slots`?",
    );
    refused("dealer = { name = \"in-turn\", slots = 64 }", &[], "in-turn takes no `slots`; it takes none");
    refused("dealer = { name = \"calendar\", slots = 0 }", &[], "`slots` is out of range");
    refused("dealer = 7", &[], "expected a name, or a table of it and its parameters");
    refused("", &["step.cards.when_full=hold"], "did you mean `step.cards.dealer.when_full`?");
    refused("", &["dealer.slot=64"], "did you mean `step.cards.dealer.slots`?");
}

// Spec: scenario.md#member-2
#[test]
fn a_path_reaches_a_members_parameter_and_a_sweep_names_its_points_by_it() {
    let named = "dealer = \"calendar\"";
    let slots = |count| calendar(&[("slots", Value::Count(count))]);
    assert_eq!(dealers(named, "", &["step.cards.dealer.slots=64"]), [slots(64)]);
    assert_eq!(dealers(named, "", &["dealer.slots=64"]), [slots(64)]);
    refused("", &["dealer.slots=64"], "in-turn takes no `slots`");
    assert_eq!(dealers("", "", &["dealer.name=calendar", "dealer.slots=64"]), [slots(64)]);
    let sweep = "[sweep]\n\"step.cards.dealer.slots\" = [32, 64]\n[[criterion]]\ntext = \"fair\"\n\
                 metric = \"stream.fairness_jain\"\nwhere = { slots = 64, dealer = \"calendar\" }\nat_least = 0.5\n";
    assert_eq!(dealers(named, sweep, &[]), [slots(32), slots(64)]);
    let whole = "[sweep]\n\"step.cards.dealer\" = [\"in-turn\", { name = \"calendar\", slots = 64 }]\n";
    assert_eq!(dealers("", whole, &[]), [Member::named("in-turn"), slots(64)]);
    let plan = try_plan("", whole, &[]).unwrap();
    let points: Vec<&str> =
        plan.configurations.iter().flat_map(|one| &one.steps).map(|step| step.point.as_str()).collect();
    assert_eq!(points, ["cards/dealer=in-turn", "cards/dealer=calendar+slots*64"]);
}

// Spec: scenario.md#member-1
#[test]
fn the_resolved_scenario_says_the_member_as_it_was_chosen() {
    let plan = try_plan("dealer = { name = \"calendar\", slots = 64 }", "", &[]).unwrap();
    assert!(plan.resolved.contains("dealer = { name = \"calendar\", slots = 64 }"), "{}", plan.resolved);
}

// Spec: scenario.md#member-2
#[test]
fn a_text_where_a_table_belongs_is_no_member() {
    let error =
        try_plan("tcp = \"cubic\"", "", &["step.cards.tcp.window=1MB"]).expect_err("no table").to_string();
    assert!(error.contains("`tcp` is no table here"), "{error}");
}
