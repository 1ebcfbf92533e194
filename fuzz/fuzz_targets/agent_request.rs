//! The body of a request to the agent, as that of each request.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| baton_agent::parse_bodies(bytes));
