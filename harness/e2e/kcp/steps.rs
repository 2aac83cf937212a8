//! The vocabulary of synchronization, one file a domain noun.
//!
//! Invariant: it is closed and declarative, as that of admission. "Changes" always means: to a content that was never
//! there before.
#![expect(
    clippy::needless_pass_by_value,
    reason = "cucumber hands captures over by value"
)]

mod bootstrapper;
mod controller;
mod copy;
mod kubeconfig;
mod leadership;
mod manager;
mod migration;
mod rollout;
mod runtime;
mod signal;
mod source;
mod stream;
