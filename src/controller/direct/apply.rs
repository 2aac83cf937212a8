//! Applies a plan.
//!
//! Invariants: the actions of a step run concurrently, and a step of a lane starts only if all actions of the previous one
//! succeeded. A rejected write in one lane does not stop the other lane. After any failure the next reconcile can continue.

use api::kcp::CONTROLLER_FIELD_MANAGER;
use policy::sync::plan::{Action, Plan};
use policy::sync::{Lane, Lanes};

use super::metrics::DirectMetrics;
use crate::clients::Remote;
use crate::runtime_objects::{WriteFailure, Writer};

/// The result of applying a plan.
#[derive(Default)]
pub(super) struct Applied {
    /// The actions that succeeded.
    pub(super) done: Vec<Action>,
    /// Whether a write was attempted in each lane.
    pub(super) tried: Lanes<bool>,
    /// The first failure in each lane.
    pub(super) failures: Lanes<Option<WriteFailure>>,
}

/// Applies the common steps, and then the steps of each permitted lane. Stops after a failure that concerns all requests.
pub(super) async fn apply(
    plan: &Plan,
    is_permitted: impl Fn(Lane) -> bool,
    remote: &Remote,
    metrics: &DirectMetrics,
) -> Applied {
    let mut applied = Applied::default();
    let writer = Writer {
        remote,
        manager: CONTROLLER_FIELD_MANAGER,
        count: |action: &Action, is_ok| metrics.object_written(action, is_ok),
    };
    if let Err(failure) = writer.apply(&plan.common, &mut applied.done).await {
        applied.failures = Lanes::both(Some(failure));
        return applied;
    }
    for lane in Lane::ALL.into_iter().filter(|it| is_permitted(*it)) {
        let steps = &plan.lanes.get(lane).steps;
        *applied.tried.get_mut(lane) = !steps.is_empty();
        if let Err(failure) = writer.apply(steps, &mut applied.done).await {
            let concerns_all = failure.concerns_all_calls;
            *applied.failures.get_mut(lane) = Some(failure);
            if concerns_all {
                break;
            }
        }
    }
    applied
}
