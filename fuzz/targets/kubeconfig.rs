//! Fuzz target of the kubeconfig of a runtime: any bytes.
#![no_main]

#[path = "../properties/kubeconfig.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::check(data));
