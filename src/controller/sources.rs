//! The three sources on KCP, watched by name and published together.
//!
//! Invariants:
//! - nothing is published before all three were observed: a source that is not known yet would count as deleted;
//! - a source that cannot be read keeps its last content. A source without a configured name, or whose API is not
//!   served, is unmanaged. Neither counts as deleted;
//! - the same content is published once, also if the metadata changes.
//!
//! Permissions: `deploy/controller/rbac-common.yaml`.
//!
//! Not in here: the validation of the content (`policy::sync::sources`), and the decisions that follow from it.

use std::sync::Arc;

use component_base::readiness::Readiness;
use component_base::watch::watch_object;
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use policy::sync::ObjectNames;
use policy::sync::Salt;
use policy::sync::sources::{SourceState, Sources, read_configuration};

use self::objects::SecretObject;
use self::publish::Publisher;

mod control_plane;
mod objects;
mod publish;
mod read;
pub(super) mod served;
mod trust_bundle;

#[cfg(test)]
mod tests;

pub(crate) use control_plane::read_salt;
pub use control_plane::salt;
pub use publish::SourceMetrics;
pub(crate) use read::read;

/// Arguments of [`watch`].
#[derive(Clone)]
pub struct SourceOptions {
    /// Client of KCP.
    pub client: Client,
    /// Names of the three objects.
    pub names: ObjectNames,
    /// Salt of all hashes, see [`salt`].
    pub salt: Salt,
    /// Readiness checks of the process: one for each watch, and `sources` for the contents.
    pub readiness: Readiness,
    /// Metrics of the sources.
    pub metrics: SourceMetrics,
}

/// The current sources; `None` until all three were observed.
pub type Published = tokio::sync::watch::Receiver<Option<Arc<Sources>>>;

/// Returns the sources, and the future that watches them and never completes. No request is sent before the future is polled.
pub fn watch(options: SourceOptions) -> (Published, impl Future<Output = ()> + Send) {
    let SourceOptions {
        client,
        names,
        salt,
        readiness,
        metrics,
    } = options;
    let condition = readiness.check("sources");
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
    names: &ObjectNames,
    readiness: &Readiness,
    publisher: &Publisher,
) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &names.namespace);
    let condition = readiness.check("source-configuration-watch");
    let objects = watch_object(api, &names.configuration, condition);
    pin_mut!(objects);
    while let Some(object) = objects.next().await {
        publisher.update(|seen, salt| {
            let object = object.map(|it| read_configuration(salt, it.data.as_ref()));
            seen.configuration = Some(SourceState::of(object));
        });
    }
}

async fn pull_secret(
    client: &Client,
    names: &ObjectNames,
    readiness: &Readiness,
    publisher: &Publisher,
) {
    let Some(name) = &names.pull_secret else {
        return publisher.update(|seen, _| seen.pull_secret = Some(SourceState::Unmanaged));
    };
    let api: Api<SecretObject> = Api::namespaced(client.clone(), &names.namespace);
    let condition = readiness.check("source-pull-secret-watch");
    let objects = watch_object(api, name, condition);
    pin_mut!(objects);
    while let Some(object) = objects.next().await {
        publisher.update(|seen, salt| {
            seen.pull_secret = Some(SourceState::of(object.map(|it| it.read(salt))));
        });
    }
}

async fn bundle(
    client: &Client,
    names: &ObjectNames,
    readiness: &Readiness,
    publisher: &Publisher,
) {
    let Some(name) = &names.trust_bundle else {
        return publisher.update(|seen, _| seen.trust_bundle = Some(SourceState::Unmanaged));
    };
    let condition = readiness.check("source-trust-bundle-watch");
    condition.not_ready("first list not complete yet");
    trust_bundle::watch(client, name, &condition, publisher).await;
}
