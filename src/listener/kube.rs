//! Support for operators that use kube: the CA Secret of watchers and the domains of Kymas, which watches keep up to date.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::sync::{Arc, Mutex, PoisonError};

use ::kube::api::{ApiResource, DynamicObject};
use ::kube::core::{GroupVersionKind, PartialObjectMeta};
use ::kube::runtime::WatchStreamExt as _;
use ::kube::runtime::watcher::{self, Event, watcher};
use ::kube::{Api, Client, ResourceExt as _};
use base64_simd::STANDARD;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, future};

use crate::{RuntimeId, SkrDomainLookup, TrustAnchors, TrustAnchorsError};

/// Label of a Kyma with the ID of its runtime.
const RUNTIME_ID_LABEL: &str = "kyma-project.io/runtime-id";

/// Annotation of a Kyma with the domain of its runtime.
const DOMAIN_ANNOTATION: &str = "skr-domain";

/// Reason why a CA Secret is not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaSecretError {
    /// The Secret does not exist, or cannot be read.
    #[error("failed to read the CA Secret")]
    Read(#[source] kube::Error),
    /// The key is missing, or its value is not base64.
    #[error("CA Secret: key {0:?} is missing or not base64")]
    Key(String),
    /// The value is not a CA bundle.
    #[error(transparent)]
    Bundle(#[from] TrustAnchorsError),
}

impl TrustAnchors {
    /// Reads the CA bundle under `key` of a Secret. The returned future watches the Secret and replaces the anchors. It
    /// must be polled as long as the anchors are used. If a bundle is not usable, this is logged, and the last usable bundle
    /// stays active, also if the Secret is deleted.
    ///
    /// # Errors
    /// The Secret is not usable now.
    pub async fn follow_secret(
        client: Client,
        namespace: &str,
        name: &str,
        key: &str,
    ) -> Result<(Self, BoxFuture<'static, ()>), CaSecretError> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
        let secrets: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
        let secret = secrets.get(name).await.map_err(CaSecretError::Read)?;
        let mut current = bundle(&secret, key)?;
        let anchors = Self::from_pem(&current)?;
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let (followed, key) = (anchors.clone(), key.to_owned());
        let secrets = watcher(secrets, config).default_backoff().applied_objects();
        let following = secrets.for_each(move |secret| {
            let replaced = secret.map_err(Into::into).and_then(|secret| {
                let bundle = bundle(&secret, &key)?;
                // Replacing the anchors clears the cache of verified clients.
                if bundle != current {
                    followed.replace(&bundle)?;
                    current = bundle;
                }
                Ok::<_, Box<dyn StdError + Send + Sync>>(())
            });
            if let Err(error) = replaced {
                tracing::warn!(error, "failed to update the CA bundle of watchers");
            }
            future::ready(())
        });
        Ok((anchors, following.boxed()))
    }
}

fn bundle(secret: &DynamicObject, key: &str) -> Result<Vec<u8>, CaSecretError> {
    let value = secret.data["data"][key].as_str();
    value
        .and_then(|value| STANDARD.decode_to_vec(value).ok())
        .ok_or_else(|| CaSecretError::Key(key.to_owned()))
}

/// The domains of the Kymas in one namespace, for [`SanPinning`](crate::SanPinning). Clones share the domains.
#[derive(Clone, Debug, Default)]
pub struct KymaDomains {
    /// `None` until the Kymas are listed.
    kymas: Arc<Mutex<Option<Kymas>>>,
}

/// The Kymas of each runtime, usually one.
type Kymas = HashMap<RuntimeId, Vec<KymaDomain>>;

/// A Kyma with a runtime ID. If several Kymas have the same runtime ID, the oldest one applies.
#[derive(Debug)]
struct KymaDomain {
    created: Option<String>,
    name: String,
    domain: Option<String>,
}

impl KymaDomains {
    /// Returns the domains, and a future that watches the metadata of Kymas. The domains are only up to date while the
    /// future is polled. Until the Kymas are listed, a lookup fails, and senders are requested to retry.
    #[must_use]
    pub fn follow(client: Client, namespace: &str) -> (Self, BoxFuture<'static, ()>) {
        let kyma = GroupVersionKind::gvk("operator.kyma-project.io", "v1beta2", "Kyma");
        let resource = ApiResource::from_gvk(&kyma);
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::namespaced_with(client, namespace, &resource);
        let domains = Self::default();
        let (followed, mut listed) = (domains.clone(), Kymas::new());
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let following = events.for_each(move |event| {
            match event {
                Ok(event) => followed.apply(event, &mut listed),
                Err(error) => tracing::warn!(%error, "failed to watch Kymas"),
            }
            future::ready(())
        });
        (domains, following.boxed())
    }

    fn apply(&self, event: Event<PartialObjectMeta<DynamicObject>>, listed: &mut Kymas) {
        let mut kymas = self.kymas.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(kyma) => insert(listed, &kyma),
            Event::InitDone => *kymas = Some(std::mem::take(listed)),
            Event::Apply(ref kyma) | Event::Delete(ref kyma) => {
                let kymas = kymas.get_or_insert_default();
                let name = kyma.name_any();
                kymas.retain(|_, them| {
                    them.retain(|it| it.name != name);
                    !them.is_empty()
                });
                if let Event::Apply(_) = event {
                    insert(kymas, kyma);
                }
            }
        }
    }
}

fn insert(kymas: &mut Kymas, kyma: &PartialObjectMeta<DynamicObject>) {
    let runtime_id = kyma.labels().get(RUNTIME_ID_LABEL);
    if let Some(runtime_id) = runtime_id.and_then(|it| RuntimeId::parse(it)) {
        let created = kyma.creation_timestamp();
        kymas.entry(runtime_id).or_default().push(KymaDomain {
            // RFC 3339 in UTC, so that the order of texts is the order of times.
            created: created.map(|it| it.0.to_string()),
            name: kyma.name_any(),
            domain: kyma.annotations().get(DOMAIN_ANNOTATION).cloned(),
        });
    }
}

impl SkrDomainLookup for KymaDomains {
    fn skr_domain<'a>(
        &'a self,
        runtime: &'a RuntimeId,
    ) -> BoxFuture<'a, Result<Option<String>, Box<dyn StdError + Send + Sync>>> {
        let kymas = self.kymas.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match &*kymas {
            Some(kymas) => {
                let them = kymas.get(runtime).into_iter().flatten();
                let oldest = them.min_by_key(|it| (&it.created, &it.name));
                Ok(oldest.and_then(|it| it.domain.clone()))
            }
            None => Err("Kymas are not listed yet".into()),
        };
        future::ready(found).boxed()
    }
}

#[cfg(test)]
mod tests;
