//! Fuzz target of the Watchers on KCP: any bytes.
#![no_main]

#[path = "../properties/watchers.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::check(data));
