//! The common base of all components: admin endpoints, telemetry, shutdown, leader election and the Kubernetes client.
//!
//! Invariant: independent of the purpose of the process (no Pods, no configuration document, no admission); names of
//! metrics, Leases and readiness checks are arguments. Not in here: environment variables and flags, which package
//! `app` reads, and global state other than the log subscriber.

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
