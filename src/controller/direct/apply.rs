//! Applies a plan.
//!
//! Invariants: within a lane a step begins only if the one before succeeded as a whole, and the actions of a step go at
//! once; a lane whose write is refused does not stop the other lane. After any failure the next reconcile can go on from
//! what there is.

use std::time::Duration;

use api::kcp::CONTROLLER_FIELD_MANAGER;
use futures::future::join_all;
use policy::sync::plan::{Action, Plan, Step};
use policy::sync::status::{Failure, chain};
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
    /// How long the API server asks to be left alone.
    pub(super) retry_after: Option<Duration>,
}

/// What came of a plan.
#[derive(Default)]
pub(super) struct Applied {
    /// The actions that succeeded.
    pub(super) done: Vec<Action>,
    /// The first failure in each lane.
    pub(super) failures: Lanes<Option<WriteFailure>>,
}

/// Applies the common steps, and then those of each permitted lane. A lane is not begun once every call would fail.
pub(super) async fn apply(
    plan: &Plan,
    is_permitted: impl Fn(Lane) -> bool,
    remote: &Remote,
    metrics: &DirectMetrics,
) -> Applied {
    let mut applied = Applied::default();
    if let Err(failure) = carry_out(&plan.common, remote, metrics, &mut applied.done).await {
        applied.failures = Lanes::both(Some(failure));
        return applied;
    }
    for lane in Lane::ALL.into_iter().filter(|it| is_permitted(*it)) {
        let steps = &plan.lanes.get(lane).steps;
        if let Err(failure) = carry_out(steps, remote, metrics, &mut applied.done).await {
            let concerns_all = failure.concerns_all_calls;
            *applied.failures.get_mut(lane) = Some(failure);
            if concerns_all {
                break;
            }
        }
    }
    applied
}

/// Applies steps up to the first one in which an action fails, and returns the first failure of it.
async fn carry_out(
    steps: &[Step],
    remote: &Remote,
    metrics: &DirectMetrics,
    done: &mut Vec<Action>,
) -> Result<(), WriteFailure> {
    for step in steps {
        let actions = step.iter().map(|action| act(action, remote, metrics));
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

async fn act(
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
    metrics.acted(action, result.is_ok());
    result.map_err(|error| WriteFailure {
        failure: Failure {
            target: action.target().clone(),
            message: chain(&error),
        },
        is_transient: error.transient(),
        concerns_all_calls: error.concerns_all_calls(),
        retry_after: error.retry_after(),
    })
}
