//! Work of the leader: it issues and renews the certificate in the Secret, and publishes the `caBundle`.
//!
//! A rotation first writes the Secret, with the earlier CAs in its `ca.crt`, and then the `caBundle`. Replicas serve the
//! new certificate only after they have observed the second write.
//!
//! Each write contains the `resourceVersion` on which it is based, if the object exists. Therefore a leader that was paused
//! and replaced overwrites nothing (an API server also rejects an old version in a forced server-side apply). The webhook
//! configuration and its entry are never created. A written object counts as observed. Otherwise the Secret would seem to
//! be missing until the watch gets its event, and would be issued again.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use api::names::CA_BUNDLE_MANAGER;
use component_base::telemetry::error_chain;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams};
use kube::core::Status;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroize as _;

use super::plan::{FilesPlanner, Plan, SecretPlanner, Write};
use super::{
    Bundle, Certificates, ENTRY, LOOK_AGAIN, LiveEntry, SECRET, StoredCertificate, TLS_TYPE, issue,
};
use crate::WRITE_BACKOFF;

/// Maximum number of successive writes without a pause: a Secret and a `caBundle`, twice. More writes mean that another
/// client overwrites them.
const BURST: u32 = 4;

/// Time without a write after which the count of successive writes restarts.
const QUIET: Duration = Duration::from_mins(1);

/// Reason why a write failed. It is planned again from the state that is observed then.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("failed to issue a certificate")]
    Issue(#[from] rcgen::Error),
    #[error("failed to write the Secret")]
    Secret(#[source] kube::Error),
    #[error("failed to write the caBundle")]
    CaBundle(#[source] kube::Error),
}

impl WriteError {
    /// Returns whether another client wrote the object in between.
    fn is_conflict(&self) -> bool {
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
    /// Keeps Secret and `caBundle` in the desired state, as the leader (`component_base::lease::run_while_leading`), until
    /// `shutdown`. With certificate files no Secret is written, and `ca.crt` is published if it verifies the certificate.
    ///
    /// Permissions in addition to those of the watches:
    /// - `secrets` named `rt-bootstrapper-webhook-cert` in the product namespace, not required with files: `create` (by
    ///   server-side apply, so that `resourceNames` limits it), `patch`, `delete` (a Secret of another type, or an immutable
    ///   Secret, cannot be changed);
    /// - `mutatingwebhookconfigurations` named `rt-bootstrapper-mutating-webhook-configuration`: `patch`, and
    ///   deliberately not `create`.
    pub async fn reconcile(self, shutdown: CancellationToken) {
        let (mut certificates, mut entries) =
            (self.certificate.subscribe(), self.entry.subscribe());
        let mut files = FilesPlanner::default();
        let mut secret = SecretPlanner::default();
        let mut retry = RetryPolicy::default();
        let work = async {
            loop {
                let stored = certificates.borrow_and_update().clone();
                let live = entries.borrow_and_update().clone();
                let now = SystemTime::now();
                let Plan { write, again } = if self.files.is_some() {
                    files.plan(&stored, &live, &self.settings, now)
                } else {
                    secret.plan(&stored, &live, &self.settings, now)
                };
                if let Some(write) = write {
                    let result = self.write(write, now).await;
                    sleep(retry.delay_after(&result, Instant::now())).await;
                    continue;
                }
                let wait = again.map(|again| again.duration_since(now).unwrap_or_default());
                tokio::select! {
                    _ = certificates.changed() => {}
                    _ = entries.changed() => {}
                    () = sleep(wait.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN)) => {}
                }
            }
        };
        shutdown.run_until_cancelled(work).await;
    }

    async fn write(&self, write: Write, now: SystemTime) -> Result<(), WriteError> {
        let settings = &self.settings;
        match write {
            Write::Issue {
                reason,
                replaces,
                carried,
            } => {
                let stored = self.issue(replaces.as_deref(), &carried, now).await?;
                let issued = &self.metrics.issued;
                issued.get_or_create(&[("reason", reason)]).inc();
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

    /// Issues a certificate and writes the Secret. Forced, because another writer of these fields wrote an unusable value.
    async fn issue(
        &self,
        replaces: Option<&StoredCertificate>,
        carried: &Bundle,
        now: SystemTime,
    ) -> Result<StoredCertificate, WriteError> {
        let mut material = issue(&self.settings.dns_names, now, carried)?;
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.settings.namespace);
        let resource_version = match replaces {
            Some(old) if old.immutable || old.type_.as_deref() != Some(TLS_TYPE) => {
                let parameters = DeleteParams::default().preconditions(old.identity.clone());
                match secrets.delete(SECRET, &parameters).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    deleted => drop(deleted.map_err(WriteError::Secret)?),
                }
                None
            }
            old => old.and_then(|it| it.identity.resource_version.clone()),
        };
        let data = [
            ("tls.crt", material.chain),
            ("tls.key", std::mem::take(&mut *material.key)),
            ("ca.crt", material.authorities),
        ];
        let data = data.map(|(key, value)| (key.to_owned(), ByteString(value)));
        let mut secret = Secret {
            metadata: ObjectMeta {
                name: Some(SECRET.to_owned()),
                resource_version,
                ..ObjectMeta::default()
            },
            type_: Some(TLS_TYPE.to_owned()),
            data: Some(data.into()),
            ..Secret::default()
        };
        let parameters = PatchParams::apply(CA_BUNDLE_MANAGER).force();
        let patch = Patch::Apply(&secret);
        let written = secrets.patch(SECRET, &parameters, &patch).await;
        let values = secret.data.iter_mut().flat_map(BTreeMap::values_mut);
        values.for_each(|it| it.0.zeroize());
        let written = written.map_err(WriteError::Secret)?;
        Ok(StoredCertificate::read(written))
    }

    /// Writes the `caBundle` with a JSON Patch of one field. The patch tests the version and the name of the entry. If the
    /// entry was moved or deleted, the test fails (422); if the object was deleted, the response is 404. Fields of other
    /// writers are not changed.
    async fn publish(
        &self,
        bundle: String,
        seen: &LiveEntry,
    ) -> Result<Option<LiveEntry>, WriteError> {
        let index = seen.index.to_string();
        let operations = vec![
            test(["metadata", "resourceVersion"], &seen.resource_version),
            test(["webhooks", &index, "name"], ENTRY),
            PatchOperation::Add(AddOperation {
                path: PointerBuf::from_tokens(["webhooks", &index, "clientConfig", "caBundle"]),
                value: json!(ByteString(bundle.into_bytes())),
            }),
        ];
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
}

fn test<const N: usize>(path: [&str; N], value: &str) -> PatchOperation {
    PatchOperation::Test(TestOperation {
        path: PointerBuf::from_tokens(path),
        value: json!(value),
    })
}

/// Returns whether the test of a JSON Patch failed. If the patch makes an object invalid, the status has the same code, and
/// the invalid fields as causes.
fn is_failed_test(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|details| &details.causes);
    status.code == 422 && causes.is_none_or(Vec::is_empty)
}

/// Pauses after writes: none after the first writes, and an increasing pause after failures and while another client
/// overwrites each write.
#[derive(Default)]
struct RetryPolicy {
    failures: u32,
    recent: u32,
    last: Option<Instant>,
}

impl RetryPolicy {
    fn delay_after(&mut self, result: &Result<(), WriteError>, now: Instant) -> Duration {
        let Err(error) = result else {
            self.failures = 0;
            return self.after_success(now, fastrand::u64(..));
        };
        let delay = WRITE_BACKOFF.delay(self.failures, fastrand::u64(..));
        self.failures = self.failures.saturating_add(1);
        if error.is_conflict() {
            tracing::info!(?delay, "conflict, retrying");
        } else {
            tracing::warn!(error = error_chain(error), ?delay, "write failed, retrying");
        }
        delay
    }

    fn after_success(&mut self, now: Instant, random: u64) -> Duration {
        let last = self.last.replace(now);
        if last.is_none_or(|last| now - last >= QUIET) {
            self.recent = 0;
        }
        self.recent = self.recent.saturating_add(1);
        let Some(excess) = self.recent.checked_sub(BURST) else {
            return Duration::ZERO;
        };
        let (writes, delay) = (self.recent, WRITE_BACKOFF.delay(excess, random));
        tracing::warn!(
            writes,
            ?delay,
            "certificate or caBundle changed by another writer again and again, next write delayed"
        );
        delay
    }
}

#[cfg(test)]
mod retry_tests;
#[cfg(test)]
mod tests;
