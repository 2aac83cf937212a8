//! Pods that are created continuously on a runtime, and their results.
//!
//! The Pods are stored and deleted again. No node matches their node selector, so their images are not pulled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use api::names::{MARKER, SKR_NAMESPACE};
use http::Method;
use serde_json::{Value, json};
use testkit::json::items;
use tokio::time::{MissedTickBehavior, interval};

use super::source::{FURTHER, LIVE, TRUST_BUNDLE_FILE};
use crate::admission::webhook::{TRUST_BUNDLE, VOLUME};
use crate::definitions::pod::{containers, named, pull_secrets};
use crate::definitions::{Stream, eventually, random};
use testkit::client::{Answer, Client};

/// A task that creates Pods until its end, and at least [`MINIMUM`].
pub(crate) type PodStream = Stream<Tally>;

/// Results of the Pods; each list has one text for each Pod that is not as expected.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) pods: u32,
    /// Pods that were denied or lack the annotation of the webhook.
    pub(crate) not_mutated: Vec<String>,
    /// Pods with an image of a registry without its pull Secret, or the other way round.
    pub(crate) mixed: Vec<String>,
    /// Pods without the ClusterTrustBundle in each container.
    pub(crate) without_bundle: Vec<String>,
    /// Times at which the number of webhook configurations was not one.
    pub(crate) registrations: Vec<String>,
}

impl PodStream {
    /// Starts as soon as the API server sends Pods to the webhook.
    pub(crate) async fn start(api: Client) -> Result<Self> {
        let prefix = format!("stream-{}", random());
        eventually("Pods are sent to the webhook", async || {
            let mut tally = Tally::default();
            tally.add(create(&api, &format!("{prefix}-0")).await);
            ensure!(tally.not_mutated.is_empty(), "{:?}", tally.not_mutated);
            Ok(())
        })
        .await?;
        Ok(Self::spawn(|over| run(api, prefix, over)))
    }
}

async fn run(api: Client, prefix: String, over: Arc<AtomicBool>) -> Tally {
    #[expect(clippy::disallowed_methods, reason = "a fixed rate, not a wait")]
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tally = Tally::default();
    while tally.pods < MINIMUM || !over.load(Ordering::Relaxed) {
        ticks.tick().await;
        tally.pods += 1;
        let created = create(&api, &format!("{prefix}-{}", tally.pods)).await;
        tally.add(created);
        tally.add_registrations(registrations(&api).await);
    }
    tally
}

/// Creates a Pod and deletes it again.
async fn create(api: &Client, name: &str) -> Result<Answer> {
    let mut pod = named(name);
    pod["metadata"]["annotations"][api::ALL_KEY] = json!("true");
    pod["spec"]["containers"][0]["image"] = json!(format!("{LIVE}/x"));
    pod["spec"]["nodeSelector"] = json!({ "example.test/none": "true" });
    let created = api.ask(Method::POST, PODS, Some(&pod)).await?.good()?;
    let path = format!("{PODS}/{name}");
    // A Pod that is left is deleted with its namespace.
    let _ = api.ask(Method::DELETE, &path, None).await;
    Ok(created)
}

/// Returns the names of the webhook configurations that send Pods to the namespace of the product.
async fn registrations(api: &Client) -> Result<Vec<String>> {
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let listed = api.get(path).await?;
    let of_product = items(listed.at("/items")).filter(|it| {
        items(&it["webhooks"])
            .any(|entry| entry["clientConfig"]["service"]["namespace"] == SKR_NAMESPACE)
    });
    Ok(of_product
        .map(|it| it["metadata"]["name"].to_string())
        .collect())
}

impl Tally {
    fn add_registrations(&mut self, registrations: Result<Vec<String>>) {
        match registrations {
            Ok(names) if names.len() == 1 => {}
            Ok(names) => self.registrations.push(format!("{names:?}")),
            Err(error) => self.registrations.push(format!("{error:#}")),
        }
    }

    fn add(&mut self, created: Result<Answer>) {
        let pod = match created {
            Err(error) => return self.not_mutated.push(format!("{error:#}")),
            Ok(answer) => answer.object,
        };
        let name = pod["metadata"]["name"].to_string();
        if pod["metadata"]["annotations"][MARKER] != "true" {
            self.not_mutated.push(name.clone());
        }
        let image = containers(&pod).find_map(|it| it["image"].as_str());
        let is_rewritten = image.is_some_and(|image| image.starts_with(FURTHER));
        let has_secret = pull_secrets(&pod).contains(&api::names::PULL_SECRET);
        if !is_rewritten || !has_secret {
            self.mixed.push(format!(
                "{name}: {image:?}, with a pull Secret: {has_secret}"
            ));
        }
        if !mounts_bundle(&pod) {
            self.without_bundle.push(pod["spec"].to_string());
        }
    }
}

fn mounts_bundle(pod: &Value) -> bool {
    let bundle = json!({ "name": TRUST_BUNDLE, "path": TRUST_BUNDLE_FILE });
    let volume = items(&pod["spec"]["volumes"]).find(|it| it["name"] == VOLUME);
    let is_projected = volume.is_some_and(|volume| {
        items(&volume["projected"]["sources"]).any(|it| it["clusterTrustBundle"] == bundle)
    });
    let is_mounted = |it: &Value| items(&it["volumeMounts"]).any(|it| it["name"] == VOLUME);
    is_projected && containers(pod).all(is_mounted)
}

const PODS: &str = "/api/v1/namespaces/default/pods";
const PERIOD: Duration = Duration::from_millis(50);
/// Smallest number of Pods that proves anything.
const MINIMUM: u32 = 20;
