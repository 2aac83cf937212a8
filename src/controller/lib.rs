//! The control plane's part: every runtime gets the newest configuration.
//!
//! Watches feed a pure plan (`policy::convergence`), a window of runtimes applies it, and a status says what is there.
//! Deliberately absent: every decision, and anything about Pods.

pub mod bootstrapper;
pub mod runtimes;
