//! The fabric process alone, for this crate's tests; `weir fabric-process` is the same.

fn main() {
    std::process::exit(weir_lab::fabric_process::main());
}
