//! The leader's writes.
//!
//! Invariant: one [`Action`], at most one effect that others see; what was written comes back. Deliberately absent:
//! retries, for the next attempt is decided anew from what is then known.

use api::names::CA_BUNDLE_MANAGER;
use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;

use super::Keeper;
use super::decide::Action;
use crate::certificate::{
    Bundle, CertificateSettings, IssueError, Keys, LiveEntry, Material, Order, StoredSecret,
    TLS_TYPE, issue,
};

/// A write failed. Every one of them is tried again, from what is then known.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeepError {
    #[error("failed to issue a certificate")]
    Issue(#[source] IssueError),
    #[error("failed to delete the invalid Secret")]
    Delete(#[source] kube::Error),
    #[error("failed to write the Secret")]
    Store(#[source] kube::Error),
    #[error("failed to write the caBundle")]
    Publish(#[source] kube::Error),
}

impl KeepError {
    /// Whether somebody else was faster, which is nothing to worry about.
    pub(super) fn is_conflict(&self) -> bool {
        match self {
            Self::Issue(_) => false,
            Self::Delete(error) | Self::Store(error) => is(error, 409),
            Self::Publish(error) => is(error, 409) || is_failed_test(error),
        }
    }
}

/// The state after a write.
pub(super) enum Written {
    Secret(StoredSecret),
    Entry(Option<LiveEntry>),
}

impl Keeper {
    pub(super) async fn apply(&self, action: Action, now: Timestamp) -> Result<Written, KeepError> {
        match action {
            Action::Issue {
                reason,
                based_on,
                carried,
            } => {
                let (secret, namespace) = (&self.settings.secret, &self.settings.namespace);
                let reason = reason.as_str();
                let stored = self.reissue(based_on.as_deref(), carried, now).await?;
                self.metrics.reissued(reason);
                tracing::info!(%namespace, %secret, reason, "serving certificate issued");
                Ok(Written::Secret(stored))
            }
            Action::Publish { bundle, entry } => {
                let live = self.publish(bundle, &entry).await?;
                self.metrics.bundle_written();
                let configuration = &self.settings.configuration;
                tracing::info!(%configuration, entry = %self.settings.entry, "caBundle written");
                Ok(Written::Entry(live))
            }
        }
    }

    async fn reissue(
        &self,
        based_on: Option<&StoredSecret>,
        carried: Bundle,
        now: Timestamp,
    ) -> Result<StoredSecret, KeepError> {
        let CertificateSettings {
            dns_names,
            lifetime,
            ..
        } = &*self.settings;
        let order = Order {
            dns_names,
            now,
            lifetime: *lifetime,
            carried,
        };
        let material = Keys::generate()
            .and_then(|keys| issue(&order, keys))
            .map_err(KeepError::Issue)?;
        let version = match based_on {
            Some(secret) if secret.immutable || secret.kind.as_deref() != Some(TLS_TYPE) => {
                self.delete(secret).await?;
                None
            }
            Some(secret) => secret.resource_version.as_deref(),
            None => None,
        };
        self.store(material, version).await
    }

    async fn delete(&self, secret: &StoredSecret) -> Result<(), KeepError> {
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: secret.uid.clone(),
            resource_version: secret.resource_version.clone(),
        });
        match self.secrets().delete(&self.settings.secret, &params).await {
            Ok(_) => Ok(()),
            Err(error) if is(&error, 404) => Ok(()),
            Err(error) => Err(KeepError::Delete(error)),
        }
    }

    async fn store(
        &self,
        material: Material,
        version: Option<&str>,
    ) -> Result<StoredSecret, KeepError> {
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata(&self.settings.secret, version),
            "type": TLS_TYPE,
            "data": {
                "tls.crt": ByteString(material.chain),
                "tls.key": ByteString(material.key),
                "ca.crt": ByteString(material.authorities),
            },
        });
        let stored = self
            .secrets()
            .patch(&self.settings.secret, &ours(), &Patch::Apply(secret))
            .await
            .map_err(KeepError::Store)?;
        Ok(StoredSecret::read(&stored))
    }

    /// A JSON Patch of one field. It tests version and name of the entry, so an entry that was moved, replaced or deleted
    /// meanwhile is never written to, and nothing is created. Fields that others own, under whatever field manager,
    /// have no part in it.
    async fn publish(
        &self,
        bundle: String,
        seen: &LiveEntry,
    ) -> Result<Option<LiveEntry>, KeepError> {
        let CertificateSettings {
            configuration,
            entry,
            ..
        } = &*self.settings;
        let index = seen.index.to_string();
        let version = seen.resource_version.as_deref();
        let version = version.map(|version| test(&["metadata", "resourceVersion"], version));
        let name = test(&["webhooks", &index, "name"], entry);
        let add = PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["webhooks", &index, "clientConfig", "caBundle"]),
            value: json!(ByteString(bundle.into_bytes())),
        });
        let operations = version.into_iter().chain([name, add]).collect();
        let patch = Patch::Json::<()>(json_patch::Patch(operations));
        let parameters = PatchParams {
            field_manager: Some(CA_BUNDLE_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let api = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        let written = api.patch(configuration, &parameters, &patch).await;
        let written = written.map_err(KeepError::Publish)?;
        Ok(LiveEntry::read(&written, entry))
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }
}

fn metadata(name: &str, version: Option<&str>) -> serde_json::Value {
    match version {
        Some(version) => json!({ "name": name, "resourceVersion": version }),
        None => json!({ "name": name }),
    }
}

/// Forced: whoever else wrote one of the fields that we name wrote something that does not work.
fn ours() -> PatchParams {
    PatchParams::apply(CA_BUNDLE_MANAGER).force()
}

fn test(path: &[&str], value: &str) -> PatchOperation {
    PatchOperation::Test(TestOperation {
        path: PointerBuf::from_tokens(path.iter().copied()),
        value: json!(value),
    })
}

/// Whether a JSON Patch did not fit the object. An object that the patch makes invalid is refused with the same code,
/// and with the invalid fields as causes.
fn is_failed_test(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let causes = status.details.as_ref().map(|details| &details.causes);
    status.code == 422 && causes.is_none_or(Vec::is_empty)
}

fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
