//! Judges criteria against records.
