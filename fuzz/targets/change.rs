//! The watcher's AdmissionReview: any bytes.
#![no_main]

#[path = "../properties/change.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::check(data));
