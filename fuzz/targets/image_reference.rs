//! Fuzz target of an image field: any bytes.
#![no_main]

#[path = "../properties/image_reference.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::check(data));
