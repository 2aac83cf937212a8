//! The leader's writes.
//!
//! Each names the `resourceVersion` that it is based on, where the object exists, so a leader that was paused and
//! replaced overwrites nothing (an API server refuses an old version of a forced server-side apply too). The webhook
//! configuration and its entry are never created. What was written is taken as observed: without that the Secret would
//! seem missing until the watch has its event, and be issued a second time.

use std::time::SystemTime;

use api::names::CA_BUNDLE_MANAGER;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::Status;
use serde_json::json;

use super::plan::Write;
use super::{Bundle, Certificates, ENTRY, LiveEntry, SECRET, StoredCertificate, TLS_TYPE, issue};

/// A write failed. It is planned again from what is then observed.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("failed to issue a certificate")]
    Issue(#[from] rcgen::Error),
    #[error("failed to write the Secret")]
    Secret(#[source] kube::Error),
    #[error("failed to write the caBundle")]
    CaBundle(#[source] kube::Error),
}

impl WriteError {
    /// Whether another client wrote the object in between.
    pub(super) fn is_conflict(&self) -> bool {
        match self {
            Self::Secret(kube::Error::Api(status)) => status.code == 409,
            Self::CaBundle(kube::Error::Api(status)) => {
                status.code == 409 || is_failed_test(status)
            }
            _ => false,
        }
    }
}

impl Certificates {
    pub(super) async fn write(&self, write: Write, now: SystemTime) -> Result<(), WriteError> {
        let settings = &self.settings;
        match write {
            Write::Issue {
                reason,
                replaces,
                carried,
            } => {
                let stored = self.issue(replaces.as_deref(), &carried, now).await?;
                self.metrics
                    .issued
                    .get_or_create(&[("reason", reason)])
                    .inc();
                let (namespace, secret) = (&settings.namespace, SECRET);
                tracing::info!(%namespace, %secret, reason, "serving certificate issued");
                self.certificate.send_replace(Some(stored).into());
            }
            Write::Publish { bundle, entry } => {
                let live = self.publish(bundle, &entry).await?;
                self.metrics.ca_bundle_updates.inc();
                let (configuration, entry) = (&settings.configuration, ENTRY);
                tracing::info!(%configuration, %entry, "caBundle written");
                self.entry.send_replace(live.into());
            }
        }
        Ok(())
    }

    /// Forced: another writer of these fields wrote something that does not work.
    async fn issue(
        &self,
        replaces: Option<&StoredCertificate>,
        carried: &Bundle,
        now: SystemTime,
    ) -> Result<StoredCertificate, WriteError> {
        let material = issue(&self.settings.dns_names, now, carried)?;
        let mut metadata = json!({ "name": SECRET });
        match replaces {
            Some(old) if old.immutable || old.type_.as_deref() != Some(TLS_TYPE) => {
                self.delete(old).await?;
            }
            Some(StoredCertificate {
                resource_version: Some(version),
                ..
            }) => metadata["resourceVersion"] = json!(version),
            _ => {}
        }
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": TLS_TYPE,
            "data": {
                "tls.crt": ByteString(material.chain),
                "tls.key": ByteString(material.key),
                "ca.crt": ByteString(material.authorities),
            },
        });
        let parameters = PatchParams::apply(CA_BUNDLE_MANAGER).force();
        let written = self
            .secrets()
            .patch(SECRET, &parameters, &Patch::Apply(secret))
            .await;
        written
            .map(StoredCertificate::read)
            .map_err(WriteError::Secret)
    }

    async fn delete(&self, secret: &StoredCertificate) -> Result<(), WriteError> {
        let parameters = DeleteParams::default().preconditions(Preconditions {
            uid: secret.uid.clone(),
            resource_version: secret.resource_version.clone(),
        });
        match self.secrets().delete(SECRET, &parameters).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => deleted.map(drop).map_err(WriteError::Secret),
        }
    }

    /// A JSON Patch of one field. It tests version and name of the entry: an entry that was moved or deleted fails the
    /// test (422), a deleted object is not found (404), and fields of other writers are not touched.
    async fn publish(
        &self,
        bundle: String,
        seen: &LiveEntry,
    ) -> Result<Option<LiveEntry>, WriteError> {
        let index = seen.index.to_string();
        let version = seen.resource_version.as_deref();
        let version = version.map(|version| test(&["metadata", "resourceVersion"], version));
        let name = test(&["webhooks", &index, "name"], ENTRY);
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
        let written = api.patch(&self.settings.configuration, &parameters, &patch);
        let written = written.await.map_err(WriteError::CaBundle)?;
        Ok(LiveEntry::read(written, ENTRY))
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }
}

fn test(path: &[&str], value: &str) -> PatchOperation {
    PatchOperation::Test(TestOperation {
        path: PointerBuf::from_tokens(path.iter().copied()),
        value: json!(value),
    })
}

/// Whether a JSON Patch did not fit the object. An object that the patch makes invalid is refused with the same code,
/// and with the invalid fields as causes.
fn is_failed_test(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|details| &details.causes);
    status.code == 422 && causes.is_none_or(Vec::is_empty)
}
