//! Fuzz target of requests to a listener: any bytes.
#![no_main]

#[path = "../properties/watch_event.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::check(data));
