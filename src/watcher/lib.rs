//! The watcher of one runtime: admission review in, event spooled, answer out; delivered to KCP after.
//!
//! ```text
//! API server ──> admission ──> policy::change::decide ──> outbox (memory and spool) ──> answer
//!                                                            └──> delivery ──> KCP        heartbeat ──> KCP
//! ```
//!
//! Admission never waits for KCP, and an event whose answer says that it is queued outlives the process. The delivery mode
//! `sync` waits, for compatibility, and then keeps what was not taken. Every valid review is allowed.

pub mod admission;
pub mod certificates;
pub mod delivery;
pub mod heartbeat;
pub mod metrics;
pub mod outbox;

#[cfg(test)]
mod fixture;
