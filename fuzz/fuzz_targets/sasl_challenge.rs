//! See `baton_fuzz::sasl_targets::challenge`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_fuzz::sasl_targets::challenge(bytes));
