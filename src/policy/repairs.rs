//! Repairs after the fact: which stored Pods lack changes, and which of them is evicted next.
//!
//! [`judge`] compares the decision on a stored Pod with the times of the active revision. [`Evictions`] holds what is
//! known of all covered Pods and chooses one Pod at a time. [`UnstartedPods`] finds those that wait for their trust bundle.
//! Times of objects are those of the API server, which this process never compares with its own clock; only pauses are
//! measured locally.

mod evictions;
mod state;
mod unstarted;

pub use evictions::{EvictionOutcome, EvictionSettings, Evictions, PodKey, TrackedPod};
pub use state::{Deviation, PodState, PodTimes, RevisionTimes, judge};
pub use unstarted::{PodCondition, PodConditions, UnstartedPod, UnstartedPods};

#[cfg(test)]
mod tests;
