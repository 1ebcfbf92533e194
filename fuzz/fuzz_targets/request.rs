//! See `baton_fuzz::targets::request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_fuzz::targets::request(bytes));
