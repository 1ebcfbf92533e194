//! See `baton_fuzz::peers_targets::stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_fuzz::peers_targets::stream(bytes));
