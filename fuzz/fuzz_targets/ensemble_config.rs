//! See `baton_fuzz::targets::ensemble_config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_fuzz::targets::ensemble_config(bytes));
