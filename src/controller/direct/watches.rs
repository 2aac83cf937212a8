//! The watches of direct mode on the control plane.
//!
//! Invariant: whoever is not in a complete list is gone, whatever was missed; of kubeconfigs only metadata come this way, and never all of a kind at once.

use std::collections::HashSet;

use api::bootstrapper::RuntimeBootstrapper;
use api::kcp::RUNTIME_ID;
use component_base::watch::keep_watching;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::DirectOptions;
use crate::signal::runtime::RuntimeView;

/// Objects in one page of a list: their memory at once.
const PAGE: u32 = 200;

/// What happens to the objects of a kind.
pub(super) type Events<T> = BoxStream<'static, Event<T>>;

/// All `RuntimeBootstrapper`s. One that another version of the definition stored may be unreadable; the others are not.
pub(super) fn resources(options: &DirectOptions) -> Events<DeserializeGuard<RuntimeBootstrapper>> {
    watch(options, Config::default(), "direct-resources-watch")
}

/// All Runtimes.
pub(super) fn runtimes(options: &DirectOptions) -> Events<RuntimeView> {
    watch(options, Config::default(), "direct-runtimes-watch")
}

/// The Secrets with kubeconfigs, and others that carry their label.
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
    let condition = options.readiness.condition(condition);
    keep_watching(api, config.page_size(PAGE), condition).boxed()
}

/// A list that is being read anew: whoever is not in it is gone.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) seen: HashSet<String>,
    /// Whether one was read to its end.
    pub(super) complete: bool,
}

impl Listing {
    /// A new list begins.
    pub(super) fn begin(&mut self) {
        self.seen.clear();
    }

    /// Those that are not there any more.
    pub(super) fn end(&mut self, known: Vec<String>) -> Vec<String> {
        self.complete = true;
        let seen = std::mem::take(&mut self.seen);
        known.into_iter().filter(|it| !seen.contains(it)).collect()
    }
}
