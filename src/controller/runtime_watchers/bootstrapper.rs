//! The condition `WatcherInstalled` of the `RuntimeBootstrapper` of a runtime, if one exists.

use api::bootstrapper::{Condition, GROUP, KIND, RuntimeBootstrapper, VERSION, WATCHER_INSTALLED};
use api::kcp::WATCHER_FIELD_MANAGER;
use component_base::telemetry::error_chain;
use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::Context;
use super::report::{INSTALLED, Outcome, Retry};
use crate::clients::RuntimeId;
use crate::requests::Answer as _;

/// Maximum number of concurrent writes of conditions outside of reconciles.
const CONDITION_WRITES: usize = 8;

/// Maximum number of characters of a message, as in the schema.
const MAX_MESSAGE: usize = 2048;

impl Context {
    /// Returns the `RuntimeBootstrapper` of a runtime, if it exists and this version can read it. It has the name of
    /// the Kyma, because KEB names both by the runtime ID.
    ///
    /// # Errors
    /// KCP does not return the `RuntimeBootstrapper`.
    pub(super) async fn bootstrapper(
        &self,
        kyma: &str,
        id: &RuntimeId,
    ) -> kube::Result<Option<Box<RuntimeBootstrapper>>> {
        let found = self.bootstrappers.get_opt(kyma).await?;
        let found = found.and_then(|it| it.0.ok());
        let is_same = |it: &RuntimeBootstrapper| {
            let status = it.status.as_ref();
            status.and_then(|it| it.runtime_id.as_deref()) == Some(id.as_str())
        };
        Ok(found.filter(is_same).map(Box::new))
    }

    /// Writes the missing condition of RuntimeBootstrappers whose runtimes have a watcher: the RuntimeBootstrapper
    /// was created, or its runtime ID was set, after the watcher was installed. For any other reason, or an earlier
    /// goal, a reconcile is due or is repeated soon.
    pub(super) async fn write_conditions(&self, lacking: impl Stream<Item = String>) {
        let writes = lacking.for_each_concurrent(CONDITION_WRITES, |name| async move {
            let state = self.runtimes().states.get(name.as_str()).cloned();
            let goal = self.goal.borrow().0.number;
            let state = state.filter(|it| it.reason == INSTALLED && it.revision == goal);
            if let Some(id) = state.and_then(|it| it.id) {
                self.write_condition_of(&name, &id).await;
            }
        });
        writes.await;
    }

    /// Writes the condition of a runtime on which the watcher is installed.
    pub(super) async fn write_condition_of(&self, kyma: &str, id: &RuntimeId) {
        match self.bootstrapper(kyma, id).await {
            Ok(resource) => {
                let outcome = Outcome::new(INSTALLED, String::new(), Retry::AtResync);
                let outcome = outcome.with_resource(resource);
                self.write_condition(&outcome).await;
            }
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(kyma, error, "failed to read RuntimeBootstrapper");
            }
        }
    }

    /// Writes the condition, if it differs. A failure is logged, and the next reconcile repeats it.
    pub(super) async fn write_condition(&self, outcome: &Outcome) {
        let Some(resource) = outcome.resource.as_deref() else {
            return;
        };
        let conditions = resource.status.iter().flat_map(|it| &it.conditions);
        let before = conditions.clone().find(|it| it.kind == WATCHER_INSTALLED);
        let after = condition(before, outcome, resource);
        if before == after.as_ref() {
            return;
        }
        let name = resource.name_any();
        let conditions: Vec<Condition> = after.into_iter().collect();
        let body = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": KIND,
            "metadata": { "name": name, "uid": resource.metadata.uid },
            "status": { "conditions": conditions },
        });
        let parameters = PatchParams::apply(WATCHER_FIELD_MANAGER).force();
        let body = Patch::Apply(&body);
        let patched = self.bootstrappers.patch_status(&name, &parameters, &body);
        let permit = self.kcp.acquire().await;
        if let Err(error) = self.kcp.run(permit, patched).await.unless_gone() {
            let error = error_chain(&error);
            tracing::warn!(name, error, "failed to write condition {WATCHER_INSTALLED}");
        }
    }
}

/// Returns the condition after a reconcile; `None` if the watcher is removed.
fn condition(
    before: Option<&Condition>,
    outcome: &Outcome,
    resource: &RuntimeBootstrapper,
) -> Option<Condition> {
    if outcome.is_removed() {
        return None;
    }
    let condition = Condition {
        kind: WATCHER_INSTALLED.to_owned(),
        status: outcome.is_installed().into(),
        observed_generation: resource.metadata.generation,
        last_transition_time: Timestamp::now().strftime("%FT%TZ").to_string(),
        reason: outcome.reason.to_owned(),
        message: outcome.message.chars().take(MAX_MESSAGE).collect(),
    };
    Some(condition.after(before))
}
