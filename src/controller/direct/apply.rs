//! Applies a plan.
//!
//! Invariants: the actions of a step run concurrently, and a step of a lane starts only if all actions of the previous one
//! succeeded. A rejected write in one lane does not stop the other lane, and one in an additional namespace stops only the writes of
//! the same object. A rejected write of the trust bundle stops only what depends on it, and one of the ownership ConfigMap does not
//! stop a configuration that the ConfigMap lists already. After any failure the next reconcile can continue.

use api::kcp::CONTROLLER_FIELD_MANAGER;
use policy::sync::plan::{Action, Plan, Step};
use policy::sync::status::Failure;
use policy::sync::{Lane, Lanes};

use super::metrics::DirectMetrics;
use crate::clients::Remote;
use crate::runtime_objects::{WriteFailure, Writer};

/// The result of applying a plan.
#[derive(Default)]
pub(super) struct Applied {
    /// The actions that succeeded.
    pub(super) done: Vec<Action>,
    /// Whether a write was attempted in each lane. Those in additional namespaces do not count: a customer who rejects or undoes
    /// them would keep the runtime from being complete in the rollout.
    pub(super) tried: Lanes<bool>,
    /// The first failure in each lane.
    pub(super) failures: Lanes<Option<WriteFailure>>,
    /// The first failure of each object in an additional namespace.
    pub(super) not_written: Vec<Failure>,
}

/// Applies the common steps, the revocations, the steps of each permitted lane, those in additional namespaces, and the last
/// actions. Stops after a failure that concerns all requests.
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
    let mut lanes = &Lane::ALL[..];
    if let Err(failure) = writer.apply(&plan.common, &mut applied.done).await {
        let continues = plan.is_owner_recorded && !failure.concerns_all_calls;
        applied.failures = Lanes::both(Some(failure));
        if !continues {
            return applied;
        }
        lanes = &[Lane::Configuration];
    }
    for lane in lanes.iter().copied().filter(|it| is_permitted(*it)) {
        let revokes = lane == Lane::Configuration && !plan.revocations.is_empty();
        *applied.tried.get_mut(lane) = revokes || !plan.lanes.get(lane).steps.is_empty();
        let failures = apply_lane(&writer, plan, lane, &mut applied.done).await;
        let before = applied.failures.get_mut(lane).take();
        let failure = WriteFailure::of(before.into_iter().chain(failures));
        let ends = failure.as_ref().is_some_and(|it| it.concerns_all_calls);
        *applied.failures.get_mut(lane) = failure;
        if ends {
            return applied;
        }
    }
    if is_permitted(Lane::Webhook) && applied.failures.webhook.is_none() {
        apply_additional(&plan.additional, &writer, &mut applied).await;
    }
    if applied.failures.iter().all(Option::is_none) {
        let result = writer.apply_step(&plan.last, &mut applied.done).await;
        applied.failures.webhook = result.err();
    }
    applied
}

/// Applies the actions in additional namespaces. The actions of an object end with its first failure. No failure ends those of
/// others: an admission webhook of a customer may deny with any status, and each object that is not written is reported.
async fn apply_additional<F: Fn(&Action, bool)>(
    steps: &[Step],
    writer: &Writer<'_, F>,
    applied: &mut Applied,
) {
    for step in steps {
        let mut step = step.clone();
        step.retain(|action| {
            let mut failures = applied.not_written.iter();
            failures.all(|it| it.target != *action.target())
        });
        let failures = writer.apply_each(&step, &mut applied.done).await;
        let failures = failures.into_iter().map(|it| it.failure);
        applied.not_written.extend(failures);
    }
}

/// Applies the revocations, the steps of a lane, and its fallback if a write was refused permanently. Returns the failures.
async fn apply_lane<F: Fn(&Action, bool)>(
    writer: &Writer<'_, F>,
    plan: &Plan,
    lane: Lane,
    done: &mut Vec<Action>,
) -> Vec<WriteFailure> {
    let mut failures = Vec::new();
    if lane == Lane::Configuration {
        failures.extend(writer.apply_step(&plan.revocations, done).await.err());
        if failures.iter().any(|it| it.concerns_all_calls) {
            return failures;
        }
    }
    let Err(failure) = writer.apply(&plan.lanes.get(lane).steps, done).await else {
        return failures;
    };
    let is_refused = !failure.is_transient && !failure.concerns_all_calls;
    failures.push(failure);
    if is_refused && lane == Lane::Configuration {
        let fallback = plan.fallback_after(done);
        failures.extend(writer.apply(&fallback, done).await.err());
    }
    failures
}
