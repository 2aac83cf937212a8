//! Reads the three sources once.
//!
//! Each source is listed by name, as in the watches, so that the permissions of the controller suffice.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client};
use policy::sync::ObjectNames;
use policy::sync::Salt;
use policy::sync::sources::{SourceError, SourceState, Sources, read_configuration};
use serde::de::DeserializeOwned;

use super::objects::SecretObject;
use super::trust_bundle;

/// Reads the current sources.
///
/// # Errors
/// An object cannot be read. It is unknown whether the object exists.
pub(crate) async fn read(
    client: &Client,
    names: &ObjectNames,
    salt: &Salt,
) -> kube::Result<Sources> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &names.namespace);
    let secrets: Api<SecretObject> = Api::namespaced(client.clone(), &names.namespace);
    let bundles = match names.trust_bundle {
        Some(_) => trust_bundle::api(client).await?,
        None => None,
    };
    let (secret, bundle) = (names.pull_secret.as_deref(), names.trust_bundle.as_deref());
    let (configuration, pull_secret, trust_bundle) = futures::try_join!(
        state(Some(maps), Some(&names.configuration), |it| {
            read_configuration(salt, it.data.as_ref())
        }),
        state(Some(secrets), secret, |it| it.read(salt)),
        state(bundles, bundle, |it| it.spec.read(salt)),
    )?;
    Ok(Sources {
        names: names.clone(),
        pull_secret,
        trust_bundle,
        configuration,
    })
}

/// Returns the state of one source. A source without an API or a name is unmanaged.
async fn state<K, T>(
    api: Option<Api<K>>,
    name: Option<&str>,
    read: impl FnOnce(&K) -> Result<T, SourceError>,
) -> kube::Result<SourceState<Arc<T>>>
where
    K: Clone + DeserializeOwned + Debug,
{
    let (Some(api), Some(name)) = (api, name) else {
        return Ok(SourceState::Unmanaged);
    };
    let parameters = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = api.list(&parameters).await?.items.pop();
    Ok(SourceState::of(found.as_ref().map(read)))
}
