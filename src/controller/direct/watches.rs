//! The watches of the controller `direct` on KCP.
//!
//! The watch of kubeconfig Secrets reads only metadata, in pages.

use api::bootstrapper::RuntimeBootstrapper;
use api::kcp::RUNTIME_ID;
use component_base::watch::{WatchChange, changes, watch_with_backoff};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::watcher::Config;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::DirectOptions;
use crate::inventory::PAGE_SIZE;

/// Stream of the changes of the objects of a kind.
pub(super) type Changes<T> = BoxStream<'static, WatchChange<T>>;

/// Watches all `RuntimeBootstrapper`s. A resource that was stored with another version of the
/// CustomResourceDefinition may be invalid; the others are still read.
pub(super) fn resources(options: &DirectOptions) -> Changes<DeserializeGuard<RuntimeBootstrapper>> {
    watch(options, Config::default(), "direct-resources-watch")
}

/// Watches the metadata of the Secrets with kubeconfigs, and of other Secrets with the same label.
pub(super) fn kubeconfigs(options: &DirectOptions) -> Changes<PartialObjectMeta<Secret>> {
    let config = Config::default().labels(RUNTIME_ID);
    watch(options, config, "direct-kubeconfigs-watch")
}

fn watch<K>(options: &DirectOptions, config: Config, condition: &'static str) -> Changes<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + 'static,
{
    let api = Api::namespaced(options.client.clone(), &options.settings.namespace);
    let condition = options.readiness.check(condition);
    changes(watch_with_backoff(
        api,
        config.page_size(PAGE_SIZE),
        condition,
    ))
    .boxed()
}
