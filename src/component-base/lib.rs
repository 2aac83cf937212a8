//! Process parts that every role of the binary is assembled from.
//!
//! Invariant: nothing in here knows what the process is *for*. No Pods, no config document, no
//! admission; the names of metrics, leases and conditions come from the caller. Deliberately
//! absent: reading the environment or flags (the composition root does that) and any global
//! other than the log subscriber.

pub mod admin;
pub mod backoff;
pub mod client;
pub mod files;
pub mod lease;
pub mod listen;
pub mod metrics;
pub mod readiness;
pub mod retry_after;
pub mod shutdown;
pub mod telemetry;
pub mod watch;
