//! Carries a plan out.
//!
//! Invariant: a step begins only if the one before succeeded as a whole; the actions of a step go at once; a plan
//! stopped at any point leaves what the next pass can go on from.

use api::runtimes::CONTROLLER_MANAGER;
use futures::future::join_all;
use policy::convergence::plan::{Action, Plan};
use policy::convergence::status::{Failure, chain};
use serde_json::json;

use super::metrics::DirectMetrics;
use crate::runtimes::{CallError, Remote};

/// The action that failed first, and how.
pub(super) struct Stopped {
    pub(super) failure: Failure,
    /// Whether the same action may succeed later without any change.
    pub(super) is_transient: bool,
    /// What succeeded before it and beside it.
    pub(super) done: Vec<Action>,
    pub(super) error: CallError,
}

/// Does everything, or stops after the step in which something failed.
pub(super) async fn carry_out(
    plan: &Plan,
    remote: &Remote,
    metrics: &DirectMetrics,
) -> Result<(), Stopped> {
    let mut done = Vec::new();
    for step in &plan.steps {
        let actions = step.iter().map(|action| act(action, remote, metrics));
        let mut first = None;
        for (action, result) in step.iter().zip(join_all(actions).await) {
            match result {
                Ok(()) => done.push(action),
                Err(stopped) => first = first.or(Some(stopped)),
            }
        }
        if let Some(mut stopped) = first {
            stopped.done = done.into_iter().cloned().collect();
            return Err(stopped);
        }
    }
    Ok(())
}

async fn act(action: &Action, remote: &Remote, metrics: &DirectMetrics) -> Result<(), Stopped> {
    let path = action.target().path();
    let result = match action {
        Action::Apply { object, .. } => remote.apply(&path, object, CONTROLLER_MANAGER, true).await,
        Action::Delete {
            uid, foreground, ..
        } => {
            let preconditions = uid.as_ref().map(|uid| json!({ "uid": uid }));
            let deleted = remote.delete(&path, preconditions.as_ref(), *foreground);
            deleted.await.map(drop)
        }
        Action::Transfer { patch, .. } => remote.json_patch(&path, patch).await,
    };
    metrics.acted(action, result.is_ok());
    result.map_err(|error| Stopped {
        failure: Failure {
            target: action.target().clone(),
            message: chain(&error),
        },
        is_transient: is_transient(action, &error),
        done: Vec::new(),
        error,
    })
}

/// A transfer tests the resource version, and an API server says of a failed test that the request is invalid: the object
/// changed meanwhile, and the next plan is made from what it is then.
fn is_transient(action: &Action, error: &CallError) -> bool {
    let is_test = matches!(action, Action::Transfer { .. });
    let is_invalid = matches!(
        error,
        CallError::Refused {
            status: UNPROCESSABLE,
            ..
        }
    );
    error.transient() || (is_test && is_invalid)
}

const UNPROCESSABLE: u16 = 422;
