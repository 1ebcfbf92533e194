//! See `baton_fuzz::targets::response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_fuzz::targets::response(bytes));
