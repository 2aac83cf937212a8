//! The modules of the `outbox` of the watcher that read a file of the spool.

#[path = "../src/watcher/outbox/key.rs"]
mod key;
#[path = "properties/spool.rs"]
mod property;
#[path = "../src/watcher/outbox/record.rs"]
mod record;
#[path = "../src/watcher/outbox/segment.rs"]
mod segment;

pub(crate) use property::check;
