//! Bytes to the agent: as requests on a connection, and as the body of each request.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    baton_agent::parse_requests(bytes);
    baton_agent::parse_bodies(bytes);
});
