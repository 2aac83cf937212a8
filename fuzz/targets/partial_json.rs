//! Fuzz target of a document with additional fields: any bytes.
#![no_main]

#[path = "../properties/review.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::check(data));
