//! Fuzz target of the AdmissionReview of the webhook: any bytes.
#![no_main]

#[path = "../properties/review.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::check(data));
