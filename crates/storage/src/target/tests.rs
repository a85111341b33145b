use super::TARGETS;
use weir_seams::target::conformance;

// Spec: storage.md#target-1
#[test]
fn files_keep_the_claims_of_the_seam() {
    let folder = tempfile::tempdir().unwrap();
    conformance::check(TARGETS, folder.path().to_str().unwrap());
}

// Spec: storage.md#target-1
#[test]
fn memory_keeps_the_claims_of_the_seam() {
    conformance::check(TARGETS, "mem:conformance/");
}

// Spec: storage.md#target-1
#[test]
fn the_target_that_keeps_nothing_keeps_the_claims_that_are_left() {
    conformance::check(TARGETS, "null:");
}
