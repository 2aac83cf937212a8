//! The ConfigMap in which the rollout's progress stands, and by whose annotation it is paused.
//!
//! Invariant: only the data are ours; whoever pauses owns the annotation. Written at most once a second, only when
//! something changed.

use std::collections::BTreeMap;
use std::time::Duration;

use api::kcp::{CONTROLLER_FIELD_MANAGER, ROLLOUT, ROLLOUT_PAUSED};
use component_base::backoff::Backoff;
use component_base::readiness::Readiness;
use component_base::telemetry::error_chain;
use component_base::watch::keep_watching;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch::Receiver;
use tokio::time::sleep;

/// The key of the progress.
const KEY: &str = "progress";

const PACE: Duration = Duration::from_secs(1);

/// What stands in it.
#[derive(Default)]
pub(super) struct Stored {
    /// Whether an operator paused the rollouts.
    pub(super) paused: bool,
    /// What a leader wrote.
    pub(super) progress: Option<String>,
}

impl From<ConfigMap> for Stored {
    fn from(map: ConfigMap) -> Self {
        Self {
            paused: is_paused(map.metadata.annotations.as_ref()),
            progress: map.data.and_then(|mut data| data.remove(KEY)),
        }
    }
}

/// What stands in it, again and again; nothing before the API server said so.
pub(super) fn watch(
    client: &Client,
    namespace: &str,
    readiness: &Readiness,
) -> BoxStream<'static, Stored> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let config = Config::default().fields(&format!("metadata.name={ROLLOUT}"));
    let condition = readiness.condition("rollout-watch");
    // A deleted one pauses nobody; a list that is being read says nothing yet.
    let mut listed = Stored::default();
    keep_watching(api, config, condition)
        .filter_map(move |event| {
            let said = match event {
                Event::Init => {
                    listed = Stored::default();
                    None
                }
                Event::InitApply(map) => {
                    listed = map.into();
                    None
                }
                Event::InitDone => Some(std::mem::take(&mut listed)),
                Event::Apply(map) => Some(map.into()),
                Event::Delete(_) => Some(Stored::default()),
            };
            async move { said }
        })
        .boxed()
}

fn is_paused(annotations: Option<&BTreeMap<String, String>>) -> bool {
    annotations
        .and_then(|it| it.get(ROLLOUT_PAUSED))
        .is_some_and(|it| it == "true")
}

/// Writes the progress whenever it changed, and at the start only if it is not there already. Never ends by itself.
pub(super) async fn publish(client: Client, namespace: String, mut progress: Receiver<String>) {
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let parameters = PatchParams::apply(CONTROLLER_FIELD_MANAGER).force();
    let mut failures = 0;
    let mut written = None;
    while progress.changed().await.is_ok() {
        // What comes in a burst is written once.
        sleep(PACE).await;
        let text = progress.borrow_and_update().clone();
        if written.is_none() {
            written = stored(&maps).await;
        }
        if written.as_ref() == Some(&text) {
            continue;
        }
        let map = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": ROLLOUT },
            "data": { KEY: text },
        });
        match maps.patch(ROLLOUT, &parameters, &Patch::Apply(&map)).await {
            Ok(_) => {
                failures = 0;
                written = Some(text);
            }
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(error, "failed to update rollout progress, backing off");
                progress.mark_changed();
                sleep(Backoff::WATCH.delay(failures, fastrand::u64(..))).await;
                failures += 1;
            }
        }
    }
}

/// What an earlier leader wrote. Whoever cannot read it writes.
async fn stored(maps: &Api<ConfigMap>) -> Option<String> {
    let map = maps.get_opt(ROLLOUT).await.ok().flatten()?;
    map.data?.remove(KEY)
}
