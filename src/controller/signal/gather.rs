//! The two watches of the signal, each event trimmed at once to what is kept of it.
//!
//! Invariant: of Runtimes, managed fields and specification are never parsed into memory; of `RuntimeBootstrapper`s, the
//! metadata alone is asked for. No Secret is ever asked for.

use std::time::Duration;

use api::bootstrapper::FINALIZER;
use component_base::readiness::Readiness;
use component_base::telemetry::error_chain;
use component_base::watch::keep_watching;
use futures::StreamExt as _;
use futures::future::ready;
use futures::stream::{self, BoxStream};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta, Selector};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, ResourceExt as _};
use tokio::time::sleep;

use super::runtime::{RuntimeView, Sight};
use crate::sources::served::served;

/// Events without end.
pub(super) type Events<T> = BoxStream<'static, Event<T>>;

/// All Runtimes. The selector is applied here and not by the API server: a Runtime that matches no more would look
/// deleted, and what it still carries of us would be forgotten.
pub(super) fn runtimes(
    client: &Client,
    namespace: &str,
    selector: Selector,
    readiness: &Readiness,
) -> Events<(String, Sight)> {
    let api: Api<RuntimeView> = Api::namespaced(client.clone(), namespace);
    let condition = readiness.condition("signal-runtimes-watch");
    keep_watching(api, Config::default().page_size(PAGE), condition)
        .map(move |event| trimmed(event, |view| Sight::read(&view, &selector)))
        .boxed()
}

/// The names of all `RuntimeBootstrapper`s but those that direct mode has let go, whoever else may hold them still. Where
/// the control plane does not know the kind, there are none.
pub(super) fn bootstrappers(
    client: &Client,
    namespace: &str,
    readiness: &Readiness,
) -> Events<String> {
    let condition = readiness.condition("signal-bootstrappers-watch");
    condition.not_ready("first list not complete yet");
    let asked = (client.clone(), condition, false);
    let until_served = stream::unfold(asked, async |(client, condition, told)| {
        loop {
            match served(&client, GROUP, &[VERSION], PLURAL).await {
                Ok(Some(_)) => return None,
                Ok(None) if !told => {
                    condition.ready();
                    let none = stream::iter([Event::Init, Event::InitDone]);
                    return Some((none, (client, condition, true)));
                }
                Ok(None) => sleep(ASK_AGAIN).await,
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(error, "failed to discover APIs of KCP");
                    sleep(ASK_AGAIN / 12).await;
                }
            }
        }
    });
    let watched = watched_bootstrappers(client, namespace, readiness);
    until_served.flatten().chain(watched).boxed()
}

fn watched_bootstrappers(
    client: &Client,
    namespace: &str,
    readiness: &Readiness,
) -> Events<String> {
    let kind = ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "RuntimeBootstrapper".to_owned(),
        plural: PLURAL.to_owned(),
    };
    let api: Api<Named> = Api::namespaced_with(client.clone(), namespace, &kind);
    let condition = readiness.condition("signal-bootstrappers-watch");
    keep_watching(api, Config::default().page_size(PAGE), condition)
        .filter_map(|event| ready(kept(event)))
        .map(|event| trimmed(event, |it| it.metadata.name.unwrap_or_default()))
        .boxed()
}

fn kept(event: Event<Named>) -> Option<Event<Named>> {
    match event {
        Event::Apply(object) if is_let_go(&object) => Some(Event::Delete(object)),
        Event::InitApply(object) if is_let_go(&object) => None,
        event => Some(event),
    }
}

fn is_let_go(object: &Named) -> bool {
    let held = object.finalizers().iter().any(|it| it == FINALIZER);
    object.metadata.deletion_timestamp.is_some() && !held
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

type Named = PartialObjectMeta<DynamicObject>;

const GROUP: &str = "operator.kyma-project.io";
const VERSION: &str = "v1alpha1";
const PLURAL: &str = "runtimebootstrappers";

/// How often a control plane that does not know `RuntimeBootstrapper`s is asked again.
const ASK_AGAIN: Duration = Duration::from_mins(1);

const PAGE: u32 = 500;
