//! Fuzz target of a file of the spool: any bytes, and records with any bytes between them. The watcher publishes no reader,
//! so its files are compiled here as separate modules, with the same names.
#![no_main]
#![expect(dead_code, reason = "the watcher uses more of these files")]

#[path = "../spool.rs"]
mod outbox;

libfuzzer_sys::fuzz_target!(|data: &[u8]| outbox::check(data));
