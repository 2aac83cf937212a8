//! Work of the leader: it writes the objects, and deletes objects that are not desired.

use std::time::Duration;

use api::names::{FALLBACK_POLICY, FALLBACK_POLICY_MANAGER};
use component_base::telemetry::error_chain;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::FallbackPolicy;
use super::plan::{Desired, GROUP_VERSION, KINDS, OWNER_KIND, Write, object};
use crate::WRITE_BACKOFF;
use crate::certificate::Observed;

/// Time without a write after which the count of successive writes restarts.
const QUIET: Duration = Duration::from_mins(1);

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("webhook configuration, which owns the policy, not read")]
    Owner(#[source] kube::Error),
    #[error("{0} not written")]
    Object(&'static str, #[source] kube::Error),
}

impl FallbackPolicy {
    /// Keeps the objects in the desired state, as the leader (`component_base::lease::run_while_leading`), until `shutdown`.
    pub async fn reconcile(self, shutdown: CancellationToken) {
        let work = async {
            if self.settings.enabled {
                self.write_for_ever().await;
            } else {
                self.remove().await;
            }
        };
        shutdown.run_until_cancelled(work).await;
        shutdown.cancelled().await;
    }

    async fn write_for_ever(&self) {
        let mut changes = self.changes();
        let (mut row, mut last) = (0, Instant::now());
        let mut too_large = None;
        loop {
            let desired = Desired::of(&changes.seen(self), &self.settings.namespace);
            if let Desired::TooLarge(error) = &desired
                && too_large.replace(*error) != Some(*error)
            {
                let error = error_chain(error);
                tracing::error!(error, "no MutatingAdmissionPolicy for this configuration");
            }
            let write = desired.next(&self.observed.borrow());
            let Some(write) = write else {
                changes.next(self).await;
                continue;
            };
            if last.elapsed() >= QUIET {
                row = 0;
            }
            if let Err(error) = self.write(&write, &desired).await {
                let error = error_chain(&error);
                tracing::warn!(error, "MutatingAdmissionPolicy not kept, retrying");
            }
            sleep(WRITE_BACKOFF.delay(row, fastrand::u64(..))).await;
            row = row.saturating_add(1);
            last = Instant::now();
        }
    }

    async fn write(&self, write: &Write, desired: &Desired) -> Result<(), WriteError> {
        let (Write::Create(index) | Write::Replace(index) | Write::Delete(index)) = *write;
        let kind = KINDS[index];
        let stored = if let Desired::Specs(specs, _) = desired {
            let version = match &self.observed.borrow()[index] {
                Observed::Present(object) => object.resource_version(),
                Observed::Absent | Observed::Unknown => None,
            };
            let owner = self.owner().await.map_err(WriteError::Owner)?;
            let object = object(kind, &specs[index], &owner, version.as_deref());
            let stored = self.put(index, object, version.is_some()).await;
            Some(stored.map_err(|error| WriteError::Object(kind, error))?)
        } else {
            let deleted = self.delete(index).await;
            deleted.map_err(|error| WriteError::Object(kind, error))?;
            None
        };
        let action = stored.as_ref().map_or("deleted", |_| "written");
        tracing::info!(kind, name = FALLBACK_POLICY, "{action}");
        self.observe(index, stored);
        Ok(())
    }

    /// Replaces an object, so that additions of another client are removed, or applies a new object.
    async fn put(
        &self,
        index: usize,
        object: Value,
        exists: bool,
    ) -> Result<DynamicObject, kube::Error> {
        let object: DynamicObject =
            serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
        let api = self.api(index);
        if exists {
            let parameters = PostParams {
                field_manager: Some(FALLBACK_POLICY_MANAGER.to_owned()),
                ..PostParams::default()
            };
            api.replace(FALLBACK_POLICY, &parameters, &object).await
        } else {
            let parameters = PatchParams::apply(FALLBACK_POLICY_MANAGER).force();
            api.patch(FALLBACK_POLICY, &parameters, &Patch::Apply(object))
                .await
        }
    }

    /// Returns the webhook configuration as an owner reference. Garbage collection deletes the objects with the webhook
    /// configuration.
    async fn owner(&self) -> Result<Value, kube::Error> {
        let api = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        let name = &self.settings.webhook_configuration;
        let configuration = api.get_metadata(name).await?;
        Ok(json!({
            "apiVersion": GROUP_VERSION, "kind": OWNER_KIND,
            "name": configuration.name_any(), "uid": configuration.metadata.uid,
        }))
    }

    async fn delete(&self, index: usize) -> Result<(), kube::Error> {
        let parameters = DeleteParams::default();
        match self.api(index).delete(FALLBACK_POLICY, &parameters).await {
            // The response is also 404 if the kind is not served.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    /// Deletes both objects, once. If the permission is missing, there was no permission to create a policy either.
    async fn remove(&self) {
        for index in [1, 0] {
            let mut attempt = 0;
            while let Err(error) = self.delete(index).await {
                if matches!(&error, kube::Error::Api(status) if status.code == 403) {
                    break;
                }
                let error = error_chain(&error);
                tracing::warn!(error, kind = KINDS[index], "not deleted, retrying");
                sleep(WRITE_BACKOFF.delay(attempt, fastrand::u64(..))).await;
                attempt = attempt.saturating_add(1);
            }
        }
    }
}
