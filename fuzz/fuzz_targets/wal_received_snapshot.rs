//! See `baton_fuzz::wal_targets::received_snapshot`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_fuzz::wal_targets::received_snapshot(bytes));
