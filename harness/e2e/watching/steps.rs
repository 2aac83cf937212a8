//! The vocabulary of watching, one file a domain noun.
//!
//! Invariant: it is closed and declarative, as that of admission. A manager "hears of" an object when an event names it,
//! its type and the runtime; "KCP knows" one when the confirming event has come as well, so that what comes next is about
//! what happens next.
#![expect(
    clippy::needless_pass_by_value,
    reason = "cucumber hands captures over by value"
)]

mod client;
mod kcp;
mod manager;
mod object;
mod review;
mod watcher;
