//! See `baton_fuzz::zkdata_targets::log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_fuzz::zkdata_targets::log(bytes));
