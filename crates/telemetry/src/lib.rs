//! See docs/specs.
