//! See `baton_fuzz::sasl_targets::response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_fuzz::sasl_targets::response(bytes));
