//! See `baton_fuzz::tls_targets::subject`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_fuzz::tls_targets::subject(bytes));
