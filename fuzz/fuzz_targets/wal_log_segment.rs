//! See `baton_fuzz::wal_targets::log_segment`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_fuzz::wal_targets::log_segment(bytes));
