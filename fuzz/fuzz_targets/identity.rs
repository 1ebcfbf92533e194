//! See `baton_fuzz::tree_targets::identity`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_fuzz::tree_targets::identity(bytes));
