//! Fuzz target of the configuration document of the webhook: any bytes.
#![no_main]

#[path = "../properties/configuration.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::check(data));
