//! The watcher of one runtime: admission review in, event spooled, answer out; delivered to KCP after.
//!
//! ```text
//! API server ──> edge ──> policy::change::decide ──> outbox (memory and spool) ──> answer
//!                                                       └──> delivery ──> KCP        heartbeat ──> KCP
//! ```
//!
//! Invariant: admission never waits for KCP, and an event that was promised in an answer outlives the
//! process; the mode `notify: sync` waits, for compatibility, and then keeps what was not taken. Every proper review is allowed.
//! Deliberately absent: every decision about a change (`policy::change`), the Kubernetes API (the watcher has no rights),
//! and the process around it (`chassis`).

pub mod certificates;
pub mod delivery;
pub mod edge;
pub mod heartbeat;
pub mod metrics;
pub mod outbox;

#[cfg(test)]
mod fixture;
