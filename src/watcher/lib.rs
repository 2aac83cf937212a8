//! Watcher of one runtime: it receives an admission review, spools an event, responds, and then delivers the event to KCP.
//!
//! ```text
//! API server ──> admission ──> policy::change::decide ──> outbox (memory and spool) ──> answer
//!                                                            └──> delivery ──> KCP        heartbeat ──> KCP
//! ```
//!
//! Admission never waits for KCP. An event whose response states that it is queued survives the end of the process. The
//! delivery mode `sync` waits for KCP, for compatibility, and stores events that were not accepted. Each valid review is
//! allowed.

pub mod admission;
pub mod certificates;
pub mod delivery;
pub mod heartbeat;
pub mod metrics;
pub mod outbox;

#[cfg(test)]
mod fixture;
