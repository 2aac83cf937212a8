//! Objects of kind `RuntimeBootstrapperRollout`: the settings of operators, and the progress that the controller reports.
//!
//! The controller creates each object and writes its status, at most once a second and only when it differs.
//! Operators own the spec and the annotations. Not in here: the progress of a rollout (`policy::sync::rollout`).

use std::collections::BTreeMap;
use std::time::Duration;

use api::bootstrapper::{Condition, ConditionStatus, GROUP, VERSION};
use api::kcp::CONTROLLER_FIELD_MANAGER;
use api::rollout::{
    COMPLETED, KIND, ROLLBACK_ANNOTATION, RolloutStatus, RuntimeBootstrapperRollout,
    RuntimeBootstrapperRolloutSpec, STOPPED,
};
use component_base::backoff::Backoff;
use component_base::readiness::Readiness;
use component_base::telemetry::error_chain;
use component_base::watch::{WatchChange, changes, watch_with_backoff};
use futures::StreamExt as _;
use futures::future::ready;
use futures::stream::BoxStream;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Config;
use kube::{Api, Client, ResourceExt as _};
use policy::sync::status::truncated;
use serde_json::json;
use tokio::sync::watch::Receiver;
use tokio::time::sleep;

use crate::requests::Answer as _;

/// Pause before a changed status is written, so that a burst of changes is one write.
const INTERVAL: Duration = Duration::from_secs(1);

/// The relevant fields of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Whether an operator paused the rollout.
    pub(crate) paused: bool,
    /// The revision of the rollback annotation.
    pub(crate) rollback: Option<String>,
    /// Generation of the spec.
    pub(crate) generation: Option<i64>,
    /// The status that the last leader wrote.
    pub(crate) status: RolloutStatus,
}

impl Stored {
    /// Returns whether another client deleted the object or wrote its status: the watch shows another status than before, which is
    /// not the reported one. It may also show an earlier status of the controller; a repeated write changes nothing then.
    pub(crate) fn is_overwritten(&self, before: &Self, reported: &RolloutStatus) -> bool {
        self.status != before.status && self.status != *reported
    }
}

impl From<DeserializeGuard<RuntimeBootstrapperRollout>> for Stored {
    /// Converts an object. An object that cannot be deserialized pauses its rollout, because it may have been paused.
    fn from(object: DeserializeGuard<RuntimeBootstrapperRollout>) -> Self {
        let object = match object.0 {
            Ok(object) => object,
            Err(invalid) => {
                let (name, error) = (invalid.metadata.name, invalid.error);
                tracing::error!(
                    name,
                    error,
                    "RuntimeBootstrapperRollout cannot be read, rollout paused"
                );
                return Self {
                    paused: true,
                    ..Self::default()
                };
            }
        };
        Self {
            paused: object.spec.paused,
            rollback: object.annotations().get(ROLLBACK_ANNOTATION).cloned(),
            generation: object.metadata.generation,
            status: object.status.unwrap_or_default(),
        }
    }
}

/// Watches the objects. Returns all objects by name after each change, starting with the first complete list. A
/// deleted object does not pause a rollout.
pub(crate) fn watch(
    client: &Client,
    namespace: &str,
    readiness: &Readiness,
) -> BoxStream<'static, BTreeMap<String, Stored>> {
    let api: Api<DeserializeGuard<RuntimeBootstrapperRollout>> =
        Api::namespaced(client.clone(), namespace);
    let check = readiness.check("rollout-watch");
    let mut stored = BTreeMap::new();
    let mut is_listed = false;
    changes(watch_with_backoff(api, Config::default(), check))
        .filter_map(move |change| {
            match change {
                WatchChange::Put(object) => {
                    stored.insert(object.name_any(), Stored::from(object));
                }
                WatchChange::Removed(name) => drop(stored.remove(&name)),
                WatchChange::Listed => is_listed = true,
            }
            ready(is_listed.then(|| stored.clone()))
        })
        .boxed()
}

/// Creates the object if it does not exist, and writes each status that is sent. Returns when the sender is dropped.
pub(crate) async fn publish(
    client: Client,
    namespace: String,
    name: &'static str,
    mut status: Receiver<Option<RolloutStatus>>,
) {
    let objects: Api<RuntimeBootstrapperRollout> = Api::namespaced(client, &namespace);
    let mut failures = 0;
    while status.changed().await.is_ok() {
        sleep(INTERVAL).await;
        let Some(wanted) = status.borrow_and_update().clone() else {
            continue;
        };
        match write(&objects, name, &wanted).await {
            Ok(()) => failures = 0,
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(name, error, "failed to update rollout status, backing off");
                status.mark_changed();
                sleep(Backoff::WATCH.delay(failures, fastrand::u64(..))).await;
                failures += 1;
            }
        }
    }
}

async fn write(
    objects: &Api<RuntimeBootstrapperRollout>,
    name: &str,
    status: &RolloutStatus,
) -> kube::Result<()> {
    let mut body = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": KIND,
        "metadata": { "name": name },
        "status": status,
    });
    // An apply without an empty list would keep the items of another client.
    body["status"]["failedRuntimes"] = json!(status.failed_runtimes);
    body["status"]["history"] = json!(status.history);
    let parameters = PatchParams::apply(CONTROLLER_FIELD_MANAGER).force();
    let patch = Patch::Apply(&body);
    let patched = objects.patch_status(name, &parameters, &patch).await;
    if patched.unless_gone()?.is_none() {
        let spec = RuntimeBootstrapperRolloutSpec::default();
        let object = RuntimeBootstrapperRollout::new(name, spec);
        let created = objects.create(&PostParams::default(), &object).await;
        created.unless_exists()?;
        objects.patch_status(name, &parameters, &patch).await?;
    }
    Ok(())
}

/// Returns whether a condition is `Completed` with the status True.
pub(crate) fn is_completed(condition: &Condition) -> bool {
    condition.kind == COMPLETED && condition.status == ConditionStatus::True
}

/// Returns the two conditions of a rollout. A condition whose status does not change keeps its transition time. `now`
/// is RFC 3339.
pub(crate) fn conditions(
    previous: &[Condition],
    completed: (bool, &str, String),
    stopped: (bool, &str, String),
    generation: Option<i64>,
    now: &str,
) -> Vec<Condition> {
    let condition = |kind: &str, (status, reason, message): (bool, &str, String)| {
        let condition = Condition {
            kind: kind.to_owned(),
            status: status.into(),
            observed_generation: generation,
            last_transition_time: now.to_owned(),
            reason: reason.to_owned(),
            message: truncated(message),
        };
        condition.after(previous)
    };
    vec![condition(COMPLETED, completed), condition(STOPPED, stopped)]
}
