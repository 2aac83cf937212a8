//! Repairs of stored Pods: which Pods lack changes, and which of them is evicted next.
//!
//! [`judge`] compares the decision on a stored Pod with the times of the active revision. [`Evictions`] stores the
//! state of all covered Pods and selects one Pod at a time. [`UnstartedPods`] finds Pods that wait for their trust
//! bundle. Times of objects are times of the API server, which are never compared with the clock of this process.
//! Only pauses are measured locally.

mod evictions;
mod state;
mod unstarted;

pub use evictions::{EvictionOutcome, EvictionSettings, Evictions, PodKey, TrackedPod};
pub use state::{Deviation, PodState, PodTimes, RevisionTimes, judge};
pub use unstarted::{PodCondition, PodConditions, UnstartedPod, UnstartedPods};

#[cfg(test)]
mod tests;
