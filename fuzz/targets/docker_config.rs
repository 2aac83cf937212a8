//! Fuzz target of the value of a pull Secret: any bytes.
#![no_main]

#[path = "../properties/docker_config.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::check(data));
