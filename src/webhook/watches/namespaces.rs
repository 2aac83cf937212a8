//! Namespaces: metadata only.

use std::collections::HashMap;
use std::sync::Arc;

use chassis::watch::keep_watching;
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Namespace as KubeNamespace;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt as _};
use policy::admission::{Annotations, Namespace};

use super::Watches;
use crate::knowledge::KnownNamespace;

pub(super) async fn watch(watches: &Watches) {
    let api: Api<PartialObjectMeta<KubeNamespace>> = Api::all(watches.client.clone());
    let synced = watches.readiness.condition("namespace-watch");
    let events = keep_watching(api, watcher::Config::default(), synced);
    pin_mut!(events);
    let mut listed = HashMap::new();
    while let Some(event) = events.next().await {
        match event {
            Event::Init => listed = HashMap::new(),
            Event::InitApply(namespace) => {
                listed.insert(namespace.name_any(), Arc::new(known(&namespace)));
            }
            Event::InitDone => watches
                .knowledge
                .set_namespaces(std::mem::take(&mut listed)),
            Event::Apply(namespace) => {
                let known = known(&namespace);
                watches
                    .knowledge
                    .set_namespace(&namespace.name_any(), Some(known));
            }
            Event::Delete(namespace) => {
                watches.knowledge.set_namespace(&namespace.name_any(), None);
            }
        }
    }
}

pub(super) fn known(namespace: &PartialObjectMeta<KubeNamespace>) -> KnownNamespace {
    let annotations = namespace.annotations().iter();
    KnownNamespace {
        view: Namespace {
            annotations: Annotations::collect(annotations.map(|(key, value)| (&**key, &**value))),
            labels: namespace.labels().clone(),
        },
        terminating: namespace.metadata.deletion_timestamp.is_some(),
    }
}
