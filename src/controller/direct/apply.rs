//! Applies a plan.
//!
//! Invariants: the actions of a step run concurrently, and a step of a lane starts only if all actions of the previous one
//! succeeded. A rejected write in one lane does not stop the other lane. After any failure the next reconcile can continue.

use std::time::Duration;

use api::kcp::CONTROLLER_FIELD_MANAGER;
use futures::future::join_all;
use policy::sync::plan::{Action, Plan, Step};
use policy::sync::status::{Failure, error_chain};
use policy::sync::{Lane, Lanes};
use serde_json::json;

use super::metrics::DirectMetrics;
use crate::clients::Remote;

/// A write that failed.
#[derive(Clone)]
pub(super) struct WriteFailure {
    pub(super) failure: Failure,
    /// Whether the same write may succeed later without any change.
    pub(super) is_transient: bool,
    /// [`crate::clients::CallError::concerns_all_calls`].
    pub(super) concerns_all_calls: bool,
    /// Delay that the API server asks for.
    pub(super) retry_after: Option<Duration>,
}

/// The result of applying a plan.
#[derive(Default)]
pub(super) struct Applied {
    /// The actions that succeeded.
    pub(super) done: Vec<Action>,
    /// The first failure in each lane.
    pub(super) failures: Lanes<Option<WriteFailure>>,
}

/// Applies the common steps, and then those of each permitted lane. Stops after a failure that concerns all requests.
pub(super) async fn apply(
    plan: &Plan,
    is_permitted: impl Fn(Lane) -> bool,
    remote: &Remote,
    metrics: &DirectMetrics,
) -> Applied {
    let mut applied = Applied::default();
    if let Err(failure) = apply_steps(&plan.common, remote, metrics, &mut applied.done).await {
        applied.failures = Lanes::both(Some(failure));
        return applied;
    }
    for lane in Lane::ALL.into_iter().filter(|it| is_permitted(*it)) {
        let steps = &plan.lanes.get(lane).steps;
        if let Err(failure) = apply_steps(steps, remote, metrics, &mut applied.done).await {
            let concerns_all = failure.concerns_all_calls;
            *applied.failures.get_mut(lane) = Some(failure);
            if concerns_all {
                break;
            }
        }
    }
    applied
}

/// Applies steps up to the first one in which an action fails, and returns the first failure of that step.
async fn apply_steps(
    steps: &[Step],
    remote: &Remote,
    metrics: &DirectMetrics,
    done: &mut Vec<Action>,
) -> Result<(), WriteFailure> {
    for step in steps {
        let actions = step.iter().map(|action| write(action, remote, metrics));
        let mut failures = Vec::new();
        for (action, result) in step.iter().zip(join_all(actions).await) {
            match result {
                Ok(()) => done.push(action.clone()),
                Err(failure) => failures.push(failure),
            }
        }
        if let Some(first) = failures.into_iter().next() {
            return Err(first);
        }
    }
    Ok(())
}

async fn write(
    action: &Action,
    remote: &Remote,
    metrics: &DirectMetrics,
) -> Result<(), WriteFailure> {
    let path = action.target().path();
    let result = match action {
        Action::Create { target, object } => {
            let path = target.collection();
            remote.create(&path, object, CONTROLLER_FIELD_MANAGER).await
        }
        Action::Apply { object, .. } => {
            remote
                .apply(&path, object, CONTROLLER_FIELD_MANAGER, true)
                .await
        }
        Action::Delete {
            uid, foreground, ..
        } => {
            let preconditions = uid.as_ref().map(|uid| json!({ "uid": uid }));
            let deleted = remote.delete(&path, preconditions.as_ref(), *foreground);
            deleted.await.map(drop)
        }
        Action::Transfer { patch, .. } | Action::RemoveKeys { patch, .. } => {
            remote.json_patch(&path, patch).await
        }
    };
    metrics.object_written(action, result.is_ok());
    result.map_err(|error| WriteFailure {
        failure: Failure {
            target: action.target().clone(),
            message: error_chain(&error),
        },
        is_transient: error.transient(),
        concerns_all_calls: error.concerns_all_calls(),
        retry_after: error.retry_after(),
    })
}
