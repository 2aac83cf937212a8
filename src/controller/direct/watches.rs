//! The watches of the controller `direct` on KCP.
//!
//! Invariant: an object that is missing in a complete list counts as deleted, also if a deletion event was missed. Of kubeconfig
//! Secrets only the metadata are read, in pages.

use std::collections::HashSet;

use api::bootstrapper::RuntimeBootstrapper;
use api::kcp::RUNTIME_ID;
use component_base::watch::watch_with_backoff;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::DirectOptions;
use crate::inventory::PAGE_SIZE;

/// The events of the objects of a kind.
pub(super) type Events<T> = BoxStream<'static, Event<T>>;

/// All `RuntimeBootstrapper`s. One that another version of the definition stored may be invalid; the others are still read.
pub(super) fn resources(options: &DirectOptions) -> Events<DeserializeGuard<RuntimeBootstrapper>> {
    watch(options, Config::default(), "direct-resources-watch")
}

/// The metadata of the Secrets with kubeconfigs, and of others with the same label.
pub(super) fn kubeconfigs(options: &DirectOptions) -> Events<PartialObjectMeta<Secret>> {
    let config = Config::default().labels(RUNTIME_ID);
    watch(options, config, "direct-kubeconfigs-watch")
}

fn watch<K>(options: &DirectOptions, config: Config, condition: &'static str) -> Events<K>
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
    watch_with_backoff(api, config.page_size(PAGE_SIZE), condition).boxed()
}

/// A list that is being read: known objects that are not in it were deleted.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) seen: HashSet<String>,
    /// Whether a list was read completely.
    pub(super) complete: bool,
}

impl Listing {
    /// Starts a new list.
    pub(super) fn begin(&mut self) {
        self.seen.clear();
    }

    /// Ends the list. Returns the known objects that are not in it.
    pub(super) fn end(&mut self, known: Vec<String>) -> Vec<String> {
        self.complete = true;
        let seen = std::mem::take(&mut self.seen);
        known.into_iter().filter(|it| !seen.contains(it)).collect()
    }
}
