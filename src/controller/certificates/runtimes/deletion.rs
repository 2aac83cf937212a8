//! Deletion of a Certificate and its Secret, after their Kyma.
//!
//! cert-manager begins no issuance for a Certificate that is being deleted, and writes the Secret of an earlier one at the
//! latest after [`ISSUANCE`]. Until then a finalizer keeps the Certificate, so that the next leader also finds it, and the Secret
//! is deleted again. A second finalizer keeps the Certificate, which names the runtime, until the watcher is removed from there.
//! Both are added for the deletion only, and removed if the Kyma exists again.

use std::time::Duration;

use component_base::telemetry::error_chain;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, Patch};
use policy::certificates::{KYMA_NAMESPACE_ANNOTATION, NAME_SUFFIX};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::Context;
use crate::RECONCILE_BACKOFF;
use crate::kyma::WATCHER_FINALIZER;
use crate::requests::{Answer as _, deleting, patching};
use crate::secret::ZeroizedSecret;

/// Time after which cert-manager has written the Secret of an issuance that began before its Certificate was deleted.
/// It ends an attempt after ten seconds, and its cache may be outdated for some seconds.
pub(in crate::certificates) const ISSUANCE: Duration = Duration::from_secs(30);

/// Finalizer of a Certificate whose Secret is being deleted.
const FINALIZER: &str = "rt-bootstrapper.kyma-project.io/certificate-secret";

/// All finalizers of a Certificate that is being deleted.
pub(super) const FINALIZERS: [&str; 2] = [FINALIZER, WATCHER_FINALIZER];

impl Context {
    /// Deletes the Certificate and the Secret of a Kyma that no longer exists. A Certificate of another control plane
    /// or of another namespace of Kymas stays.
    pub(super) async fn clean_up(&self, kyma: &str) {
        self.states().remove(kyma);
        self.show();
        let mut failures = 0;
        loop {
            let delay = match self.delete_if_gone(kyma).await {
                Ok(None) => return,
                Ok(Some(delay)) => delay,
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(
                        kyma,
                        error,
                        "failed to delete Certificate of deleted Kyma, backing off"
                    );
                    Duration::ZERO
                }
            };
            let backoff = RECONCILE_BACKOFF.delay(failures, fastrand::u64(..));
            sleep(delay.max(backoff)).await;
            failures += 1;
        }
    }

    /// Returns the least time after which to call again; `None` if nothing is left to delete, or the Kyma exists.
    async fn delete_if_gone(&self, kyma: &str) -> kube::Result<Option<Duration>> {
        let _permit = self.deletions.acquire().await;
        if self.kymas.is_gone(kyma).await? {
            return self.delete(&format!("{kyma}{NAME_SUFFIX}")).await;
        }
        // The RuntimeBootstrapper of the runtime may not be in the store yet.
        Ok((!self.kymas.has(kyma)).then_some(Duration::ZERO))
    }

    /// Deletes a Certificate and its Secret. Returns the time after which to call again; `None` if nothing is left to delete.
    pub(super) async fn delete(&self, name: &str) -> kube::Result<Option<Duration>> {
        let Some(live) = self.certificates.get(name).await.unless_gone()? else {
            self.unfinished().remove(name);
            self.delete_left_secret(name).await?;
            return Ok(None);
        };
        self.delete_live(name, &live).await
    }

    /// Continues as [`Self::delete`] a deletion that has begun and waits for the Secret. Another Certificate stays.
    pub(super) async fn continue_deletion(&self, name: &str) -> kube::Result<Option<Duration>> {
        let live = self.certificates.get(name).await.unless_gone()?;
        let is_marked =
            |it: &DynamicObject| it.metadata.deletion_timestamp.is_some() && has(it, FINALIZER);
        match live.filter(is_marked) {
            Some(live) => self.delete_live(name, &live).await,
            None => Ok(None),
        }
    }

    async fn delete_live(
        &self,
        name: &str,
        live: &DynamicObject,
    ) -> kube::Result<Option<Duration>> {
        let namespace = live.annotations().get(KYMA_NAMESPACE_ANNOTATION);
        if namespace != Some(&self.options.settings.kyma_namespace) {
            return Ok(None);
        }
        if live.metadata.deletion_timestamp.is_none() {
            self.begin_deletion(live).await?;
        } else if !has(live, FINALIZER) && has(live, WATCHER_FINALIZER) {
            // No Secret can follow any more; the watcher is still being removed.
            return Ok(None);
        }
        let begun = Instant::now();
        let begun = *self.unfinished().entry(name.to_owned()).or_insert(begun);
        self.delete_secret(name).await?;
        let left = ISSUANCE.saturating_sub(begun.elapsed());
        if !left.is_zero() {
            return Ok(Some(left));
        }
        self.release(live, &[FINALIZER]).await?;
        self.unfinished().remove(name);
        Ok(None)
    }

    async fn begin_deletion(&self, live: &DynamicObject) -> kube::Result<()> {
        let name = live.name_any();
        // An earlier attempt may have failed after this step.
        let missing = FINALIZERS.iter().filter(|it| !has(live, it));
        let missing: Vec<&str> = missing.copied().collect();
        if !missing.is_empty() {
            let finalizers = live.finalizers().iter().map(String::as_str);
            let finalizers: Vec<&str> = finalizers.chain(missing).collect();
            self.set_finalizers(live, &finalizers).await?;
        }
        let deleted = self.certificates.delete(&name, &deleting(live)).await;
        deleted.unless_gone()?;
        self.options.metrics.wrote("delete");
        tracing::info!(certificate = name, "Certificate deleted");
        Ok(())
    }

    /// Removes these finalizers of a Certificate, if it has one of them.
    pub(super) async fn release(&self, live: &DynamicObject, own: &[&str]) -> kube::Result<()> {
        let finalizers = live.finalizers().iter().map(String::as_str);
        let others: Vec<&str> = finalizers.filter(|it| !own.contains(it)).collect();
        if others.len() == live.finalizers().len() {
            return Ok(());
        }
        self.set_finalizers(live, &others).await
    }

    async fn set_finalizers(&self, live: &DynamicObject, finalizers: &[&str]) -> kube::Result<()> {
        let patch = json!({
            "metadata": { "resourceVersion": live.resource_version(), "finalizers": finalizers },
        });
        let (name, patch) = (live.name_any(), Patch::Merge(&patch));
        let patched = self.certificates.patch(&name, &patching(), &patch).await;
        patched.unless_gone().map(drop)
    }

    /// Deletes the Secret of a Certificate that another client has deleted, for example together with its
    /// CustomResourceDefinition.
    async fn delete_left_secret(&self, name: &str) -> kube::Result<()> {
        let secret = self.secrets.get_opt(name).await?.map(ZeroizedSecret);
        let annotations = secret.as_ref().map(|it| it.annotations());
        let namespace = annotations.and_then(|it| it.get(KYMA_NAMESPACE_ANNOTATION));
        if namespace != Some(&self.options.settings.kyma_namespace) {
            return Ok(());
        }
        self.delete_secret(name).await
    }

    async fn delete_secret(&self, name: &str) -> kube::Result<()> {
        let deleted = self.secrets.delete(name, &DeleteParams::default()).await;
        deleted.unless_gone().map(drop)
    }
}

fn has(certificate: &DynamicObject, finalizer: &str) -> bool {
    certificate.finalizers().iter().any(|it| it == finalizer)
}
