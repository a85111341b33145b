use super::*;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use weir_core::Values;
use weir_seams::membership::conformance::{Trial, check, check_entries};
use weir_seams::membership::{Change, Group, MEMBERS_MAX, Member, Membership};
use weir_sys::poll::{Interest, wait};

fn group() -> Group {
    Group { run: "r1".to_owned(), role: "builders".to_owned() }
}

fn readable(descriptor: BorrowedFd<'_>, limit: Duration) -> bool {
    wait(descriptor, Interest::Readable, limit).unwrap()
}

// Spec: membership.md#membership-2, membership.md#membership-3, membership.md#membership-4, membership.md#membership-5, membership.md#built-in-1
#[test]
fn both_keep_the_claims_of_the_seam() {
    check_entries(MEMBERSHIPS);
    let limit = Duration::from_secs(60);
    let names = ["b-0", "b-1"];
    // A group for each claim: what was fenced stays so.
    let built_in = BuiltIn::new(&group()).unwrap();
    let open = || Box::new(built_in.clone()) as Box<dyn Membership>;
    check(&Trial { name: "built-in", open: &open, names, readable: &readable, limit });
    let fixed = Fixed::new(&group(), "b-0=192.0.2.1:4000, b-1=192.0.2.2:4000").unwrap();
    let open = || Box::new(fixed.clone()) as Box<dyn Membership>;
    check(&Trial { name: "static", open: &open, names, readable: &readable, limit });
}

// Spec: membership.md#static-1
#[test]
fn a_list_that_means_nothing_is_refused_in_words() {
    for (list, words) in [
        ("", "has 0 entries"),
        ("b-0", "\"b-0\" on the list of members has no address"),
        ("b-0=", "\"b-0\" on the list of members has no address"),
        ("b-0=a:1,b-0=b:1", "\"b-0\" on the list of members stands there twice"),
        ("B0=a:1", "member \"B0\" is no name"),
    ] {
        let refused = Fixed::new(&group(), list).unwrap_err();
        assert!(refused.text.contains(words), "{list:?}: {refused}");
    }
    let mut values = Values::default();
    values.set("members", weir_core::Value::Text("b-0=a:1".to_owned()));
    let service = (MEMBERSHIPS[1].build)(&values, &group()).unwrap();
    let other = Member {
        name: "b-1".to_owned(),
        incarnation: 1,
        address: String::new(),
        details: Default::default(),
    };
    let refused = service.join(&other).err().unwrap();
    assert_eq!(
        refused.text,
        "\"b-1\" is not on the list of members (b-0): add it there, or use another name"
    );
}

// Spec: membership.md#static-1
#[test]
fn everyone_on_a_list_counts_at_once_and_for_ever() {
    let service = Fixed::new(&group(), "b-1=a:1,b-0=a:2").unwrap();
    let mut watch = service.watch().unwrap();
    let mut told = || std::iter::from_fn(|| watch.next()).collect::<Vec<Change>>();
    let listed = |name: &str, address: &str| {
        let (name, address) = (name.to_owned(), address.to_owned());
        Change::Joined(Member { name, incarnation: 0, address, details: serde_json::Value::Null })
    };
    assert_eq!(told(), [listed("b-0", "a:2"), listed("b-1", "a:1"), Change::Current]);
    service.fence("b-0", 5).unwrap();
    assert_eq!(told(), []);
}

#[test]
fn names_without_end_are_refused_and_those_in_use_go_on() {
    let service = BuiltIn::new(&group()).unwrap();
    let member = |number: usize| Member {
        name: format!("b-{number}"),
        incarnation: 1,
        address: String::new(),
        details: serde_json::Value::Null,
    };
    let first = (0..).find_map(|number| service.join(&member(number)).err().map(|refused| (number, refused)));
    let (count, _) = first.unwrap();
    assert_eq!(count, 16 * MEMBERS_MAX);
    drop(service.join(&member(0)).unwrap());
    assert!(service.fence("another", 1).is_err());
}
