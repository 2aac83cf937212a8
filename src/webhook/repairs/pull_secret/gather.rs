//! The mirror's two watches, each event trimmed at once to what is kept of it.
//!
//! Streams rather than tasks: they end with the future that polls them, and a slow reader slows them down.
//! Invariant: only Secrets of one name are watched, and of Pods only the metadata.

use chassis::readiness::Readiness;
use chassis::watch::keep_watching;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client};

use super::found::{Found, SecretView};
use super::pods::PodSight;

/// Events without end.
pub(super) type Events<T> = BoxStream<'static, Event<T>>;

/// The Secrets of that name, with their namespaces. None are asked for before there is a name.
pub(super) fn secrets(client: &Client, name: Option<&str>) -> Events<(String, Found)> {
    let Some(name) = name else {
        return stream::pending().boxed();
    };
    let api: Api<SecretView> = Api::all(client.clone());
    let config = Config::default()
        .fields(&format!("metadata.name={name}"))
        .page_size(PAGE);
    keep_watching(api, config, condition("pull Secret copies"))
        .map(|event| trimmed(event, Found::read))
        .boxed()
}

/// All Pods.
pub(super) fn pods(client: &Client) -> Events<PodSight> {
    let api: Api<PartialObjectMeta<Pod>> = Api::all(client.clone());
    let config = Config::default().page_size(PAGE);
    keep_watching(api, config, condition("pull Secret Pods"))
        .map(|event| trimmed(event, |pod| PodSight::read(pod.metadata)))
        .boxed()
}

/// A condition that nobody asks: a repair that cannot work is no reason to send reviews elsewhere. The watch still
/// logs each change for the better or the worse.
fn condition(name: &'static str) -> chassis::readiness::Condition {
    Readiness::default().condition(name)
}

fn trimmed<K, T>(event: Event<K>, trim: impl FnOnce(K) -> T) -> Event<T> {
    match event {
        Event::Apply(object) => Event::Apply(trim(object)),
        Event::Delete(object) => Event::Delete(trim(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(trim(object)),
        Event::InitDone => Event::InitDone,
    }
}

const PAGE: u32 = 500;
