//! Reads the three sources once.
//!
//! Each is listed by name, as by the watches, so that the permissions of the controller suffice.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client};
use policy::sync::Salt;
use policy::sync::sources::Sources;
use serde::de::DeserializeOwned;

use super::objects::{BundleObject, SecretObject};
use super::publish::{SourceUpdate, sources};
use super::{SourceNames, trust_bundle};

/// Reads the current sources.
///
/// # Errors
/// An object cannot be read. It may exist or not.
pub(crate) async fn read(
    client: &Client,
    names: &SourceNames,
    salt: &Salt,
) -> kube::Result<Sources> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &names.namespace);
    let secrets: Api<SecretObject> = Api::namespaced(client.clone(), &names.namespace);
    let (configuration, pull_secret, bundle) = futures::try_join!(
        find(&maps, Some(&names.config_map)),
        find(&secrets, names.pull_secret.as_deref()),
        bundle(client, names.trust_bundle.as_deref()),
    )?;
    let configuration = match configuration {
        SourceUpdate::Unmanaged => SourceUpdate::Unmanaged,
        SourceUpdate::Absent => SourceUpdate::Absent,
        SourceUpdate::Present(map) => SourceUpdate::Present(map.data),
    };
    Ok(sources(
        &pull_secret,
        &bundle,
        &configuration,
        (salt, names),
    ))
}

async fn bundle(client: &Client, name: Option<&str>) -> kube::Result<SourceUpdate<BundleObject>> {
    if name.is_none() {
        return Ok(SourceUpdate::Unmanaged);
    }
    match trust_bundle::api(client).await? {
        Some(api) => find(&api, name).await,
        None => Ok(SourceUpdate::Unmanaged),
    }
}

async fn find<K>(api: &Api<K>, name: Option<&str>) -> kube::Result<SourceUpdate<K>>
where
    K: Clone + DeserializeOwned + Debug,
{
    let Some(name) = name else {
        return Ok(SourceUpdate::Unmanaged);
    };
    let parameters = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = api.list(&parameters).await?.items.pop();
    Ok(SourceUpdate::of(found))
}
