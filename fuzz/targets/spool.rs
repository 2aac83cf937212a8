//! A file of the watcher's spool: any bytes, and records with anything between them. The watcher publishes no reader, so
//! its files are compiled here by themselves, under the names that they have there.
#![no_main]
#![expect(dead_code, reason = "the watcher uses more of these files")]

#[path = "../spool.rs"]
mod outbox;

libfuzzer_sys::fuzz_target!(|data: &[u8]| outbox::check(data));
