//! See `baton_fuzz::wal_targets::identity`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_fuzz::wal_targets::identity(bytes));
