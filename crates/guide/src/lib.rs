//! The workload of `docs/guide/adding.md`, as the page has it.

include!(concat!(env!("OUT_DIR"), "/adding.rs"));

#[cfg(test)]
mod tests {
    use super::WORKLOADS;

    #[test]
    fn it_keeps_what_every_workload_must_keep() {
        weir_seams::entry::conformance::check_all(WORKLOADS);
        weir_seams::workload::conformance::check(WORKLOADS);
    }
}
