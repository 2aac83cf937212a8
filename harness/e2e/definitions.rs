//! Step definitions of all suites. `features/README.md` lists them; the test `vocabulary` compares the two.
//!
//! `Given` is a state, `When` the one event, `Then` what can be seen from outside. `Then` waits where a state takes time;
//! "is not", "does not" and "remains" look at a state for a while.
#![expect(
    clippy::needless_pass_by_value,
    reason = "cucumber hands captures over by value"
)]

#[cfg(feature = "clusters")]
mod component;
mod condition;
mod configuration;
#[cfg(feature = "clusters")]
mod controller;
mod effect;
#[cfg(feature = "clusters")]
mod event;
#[cfg(feature = "clusters")]
mod gateway;
#[cfg(feature = "clusters")]
mod manager;
#[cfg(feature = "clusters")]
mod node;
pub(crate) mod object;
mod observation;
pub(crate) mod pod;
mod request;
#[cfg(feature = "clusters")]
mod running_pod;
#[cfg(feature = "clusters")]
mod runtime;
#[cfg(feature = "clusters")]
mod runtime_cluster;
#[cfg(feature = "clusters")]
pub(crate) mod signal;
#[cfg(feature = "clusters")]
mod source;
#[cfg(feature = "clusters")]
mod tls;
#[cfg(feature = "clusters")]
mod watcher;
#[cfg(feature = "clusters")]
mod workload;

use std::time::Duration;

/// Longest wait for anything that a scenario expects.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// How long "nothing happens" is looked at.
pub(crate) const A_WHILE: Duration = Duration::from_secs(2);
