//! Fuzz target of the AdmissionReview of the watcher: any bytes.
#![no_main]

#[path = "../properties/change.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::check(data));
