//! The three sources on the control plane, watched by name and published together.
//!
//! Invariants:
//! - nothing is published before all three are known: half a picture would pass the other half for deleted;
//! - a source that cannot be read keeps its last reading; one that no name is set for, or whose API is not served, is not
//!   managed: none of them is ever taken for deleted;
//! - the same content is published once, whatever happens to the metadata.
//!
//! # Rights
//! ```yaml
//! # Role in kcp-system, each by resourceNames (list and watch pass because of the field selector metadata.name)
//! - apiGroups: [""]
//!   resources: [configmaps]
//!   verbs: [list, watch]
//! - apiGroups: [""]
//!   resources: [secrets]
//!   verbs: [list, watch]
//! # ClusterRole
//! - apiGroups: [certificates.k8s.io]
//!   resources: [clustertrustbundles]
//!   verbs: [list, watch]
//! - apiGroups: [""]
//!   resources: [namespaces]
//!   resourceNames: [kube-system]
//!   verbs: [get]
//! ```
//! Deliberately absent: what a content has to look like (`policy::sync::sources`) and what follows from it.

use std::sync::Arc;

use component_base::readiness::Readiness;
use component_base::watch::watch_object;
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use policy::sync::Salt;
use policy::sync::sources::Sources;

use self::objects::SecretObject;
use self::publish::{Publisher, Told};

mod control_plane;
mod objects;
mod publish;
mod read;
pub(super) mod served;
mod trust_bundle;

#[cfg(test)]
mod tests;

pub(crate) use control_plane::ask_salt;
pub use control_plane::salt;
pub use policy::sync::sources::SourceNames;
pub use publish::SourceMetrics;
pub(crate) use read::read;

/// What the watches of the sources need.
#[derive(Clone)]
pub struct SourceOptions {
    /// The control plane.
    pub client: Client,
    /// What to look for.
    pub names: SourceNames,
    /// See [`salt`].
    pub salt: Salt,
    /// Where health is reported: one condition for each watch, and `sources` for the contents.
    pub readiness: Readiness,
    /// What is counted.
    pub metrics: SourceMetrics,
}

/// The sources as they are now; `None` until all three are known.
pub type Published = tokio::sync::watch::Receiver<Option<Arc<Sources>>>;

/// The sources, and the future that watches them for ever. Nothing is asked before it is polled.
pub fn watch(options: SourceOptions) -> (Published, impl Future<Output = ()> + Send) {
    let SourceOptions {
        client,
        names,
        salt,
        readiness,
        metrics,
    } = options;
    let condition = readiness.condition("sources");
    let (publisher, receiver) = Publisher::new(salt, names.clone(), condition, metrics);
    let running = async move {
        tokio::join!(
            configuration(&client, &names, &readiness, &publisher),
            pull_secret(&client, &names, &readiness, &publisher),
            bundle(&client, &names, &readiness, &publisher),
        );
    };
    (receiver, running)
}

async fn configuration(
    client: &Client,
    names: &SourceNames,
    readiness: &Readiness,
    publisher: &Publisher,
) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &names.namespace);
    let condition = readiness.condition("source-configuration-watch");
    let objects = watch_object(api, &names.config_map, condition);
    pin_mut!(objects);
    while let Some(object) = objects.next().await {
        publisher.take(|seen| seen.configuration = Some(Told::of(object.map(|it| it.data))));
    }
}

async fn pull_secret(
    client: &Client,
    names: &SourceNames,
    readiness: &Readiness,
    publisher: &Publisher,
) {
    let Some(name) = &names.pull_secret else {
        return publisher.take(|seen| seen.pull_secret = Some(Told::Unmanaged));
    };
    let api: Api<SecretObject> = Api::namespaced(client.clone(), &names.namespace);
    let condition = readiness.condition("source-pull-secret-watch");
    let objects = watch_object(api, name, condition);
    pin_mut!(objects);
    while let Some(object) = objects.next().await {
        publisher.take(|seen| seen.pull_secret = Some(Told::of(object)));
    }
}

async fn bundle(
    client: &Client,
    names: &SourceNames,
    readiness: &Readiness,
    publisher: &Publisher,
) {
    let Some(name) = &names.trust_bundle else {
        return publisher.take(|seen| seen.trust_bundle = Some(Told::Unmanaged));
    };
    let condition = readiness.condition("source-trust-bundle-watch");
    condition.not_ready("first list not complete yet");
    let tell = |told| publisher.take(|seen| seen.trust_bundle = Some(told));
    trust_bundle::watch(client, name, &condition, tell).await;
}
