//! The replicas of the webhook, each asked by itself: through the API server's proxy, so from any machine.
//!
//! Invariant: a change counts as known when *every* replica acts on it; which one the API server calls is up to chance.

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Method;
use serde_json::{Value, json};

use super::effects::{VOLUME, items};
use super::landscape::{Landscape, PATIENCE, PRODUCT_NAMESPACE};
use super::{Answer, Dialogue, Draft};
use clusters::evidence::Evidence;
use clusters::images::PROBE;
use testkit::until::until;

/// One Pod of the webhook.
#[derive(Clone)]
pub struct Replica {
    /// Its name.
    pub pod: String,
    dialogue: Dialogue,
}

impl Landscape {
    /// The path of the product's Deployment in the API.
    #[must_use]
    pub fn deployment_path() -> String {
        format!("/apis/apps/v1/namespaces/{PRODUCT_NAMESPACE}/deployments/{DEPLOYMENT}")
    }

    /// The webhook's Pods that are not on their way out.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn replicas(&self) -> anyhow::Result<Vec<Replica>> {
        Replica::all(&self.dialogue()).await
    }

    /// How often each replica was started.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn starts(&self) -> anyhow::Result<Value> {
        let pods = self.replica_pods().await?;
        let starts = pods.iter().map(|pod| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let count = &pod["status"]["containerStatuses"][0]["restartCount"];
            (name.to_owned(), count.clone())
        });
        Ok(Value::Object(starts.collect()))
    }

    /// What each replica's node runs: the name and digest that it was pulled by, a digest alone where it was loaded.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn replica_images(&self) -> anyhow::Result<Vec<String>> {
        let pods = self.replica_pods().await?;
        let images = pods.iter().map(|pod| {
            let image = &pod["status"]["containerStatuses"][0]["imageID"];
            image.as_str().unwrap_or_default().to_owned()
        });
        Ok(images.collect())
    }

    /// How many of the webhook's processes there are, those included that drain and still answer.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn processes(&self) -> anyhow::Result<usize> {
        let listed = self.dialogue().get(&pods()).await?;
        Ok(items(listed.at("/items")).count())
    }

    async fn replica_pods(&self) -> anyhow::Result<Vec<Value>> {
        staying(&self.dialogue()).await
    }

    /// Waits until `probe` is true of every replica.
    ///
    /// # Errors
    /// When one of them does not get there in time.
    pub async fn each_replica<F>(
        &self,
        what: &str,
        probe: impl Fn(Replica) -> F,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        let replicas = self.replicas().await?;
        ensure!(!replicas.is_empty(), "the webhook has no replica");
        for replica in replicas {
            let what = format!("{what} on {}", replica.pod);
            until(&what, PATIENCE, || probe(replica.clone())).await?;
        }
        Ok(())
    }

    /// Waits until every replica knows whether a namespace asks for FIPS mode.
    ///
    /// # Errors
    /// When one of them does not get there in time.
    pub async fn namespace_is_known(&self, namespace: &str, asks: bool) -> anyhow::Result<()> {
        self.each_replica("the namespace is known", |replica| async move {
            let response = replica.review(namespace, &Draft::plain("probe")).await?;
            ensure!(
                response["patch"]
                    .to_string()
                    .contains(api::names::FIPS_VARIABLE)
                    == asks,
                "{response}"
            );
            Ok(())
        })
        .await
    }

    /// Keeps what each replica says of itself.
    pub async fn keep_replicas(&self, evidence: &Evidence) {
        for replica in self.replicas().await.unwrap_or_default() {
            let (metrics, ready) = (replica.metrics().await, replica.readiness().await);
            evidence.keep_result(&format!("webhook/{}-metrics.txt", replica.pod), metrics);
            evidence.keep_result(
                &format!("webhook/{}-ready.txt", replica.pod),
                ready.map(|ready| ready.1),
            );
        }
    }
}

impl Replica {
    /// Those of a cluster that are not on their way out.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn all(dialogue: &Dialogue) -> anyhow::Result<Vec<Self>> {
        let pods = staying(dialogue).await?;
        let names = pods
            .iter()
            .filter_map(|pod| pod["metadata"]["name"].as_str());
        Ok(names
            .map(|pod| Self {
                pod: pod.to_owned(),
                dialogue: dialogue.clone(),
            })
            .collect())
    }

    /// Sends a body to the admission endpoint.
    ///
    /// # Errors
    /// When no answer arrives.
    pub async fn post(&self, body: Vec<u8>) -> anyhow::Result<Answer> {
        let path = self.path("https", 9443, api::names::WEBHOOK_PATH);
        self.dialogue
            .send(Method::POST, &path, "application/json", body)
            .await
    }

    /// Has it review a Pod that is created in `namespace`; gives the answer's `response` with the patch decoded.
    ///
    /// # Errors
    /// When it does not answer with a review.
    pub async fn review(&self, namespace: &str, draft: &Draft) -> anyhow::Result<Value> {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "probe", "operation": "CREATE", "namespace": namespace, "dryRun": true,
                "kind": { "group": "", "version": "v1", "kind": "Pod" },
                "resource": { "group": "", "version": "v1", "resource": "pods" },
                "object": draft.0,
            },
        });
        let answer = self.post(review.to_string().into_bytes()).await?.good()?;
        let mut response = answer.at("/response").clone();
        ensure!(response["uid"] == "probe", "no review: {}", answer.object);
        if let Some(patch) = response["patch"].as_str() {
            let bytes = BASE64.decode(patch)?;
            response["patch"] = serde_json::from_slice(&bytes)?;
        }
        Ok(response)
    }

    /// Its metrics.
    ///
    /// # Errors
    /// When it does not answer with 200.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        let answer = self
            .dialogue
            .get(&self.path("http", 8080, "/metrics"))
            .await?;
        answer.object.as_str().map(str::to_owned).context("no text")
    }

    /// The sum of a counter's or gauge's samples whose line contains `filter`.
    ///
    /// # Errors
    /// When it does not answer with 200.
    pub async fn sum(&self, metric: &str, filter: impl Fn(&str) -> bool) -> anyhow::Result<f64> {
        let text = self.metrics().await?;
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let of_metric = samples.filter(|line| {
            line.split(['{', ' '])
                .next()
                .is_some_and(|name| name.ends_with(metric))
        });
        Ok(of_metric
            .filter(|line| filter(line))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum())
    }

    /// Whether it is ready, and what it says about it.
    ///
    /// # Errors
    /// When no answer arrives.
    pub async fn readiness(&self) -> anyhow::Result<(bool, String)> {
        self.health("/readyz").await
    }

    /// What a health endpoint answers.
    ///
    /// # Errors
    /// When no answer arrives.
    pub async fn health(&self, path: &str) -> anyhow::Result<(bool, String)> {
        let answer = self
            .dialogue
            .ask(Method::GET, &self.path("http", 8081, path), None)
            .await?;
        let text = answer
            .object
            .as_str()
            .map_or_else(|| answer.object.to_string(), str::to_owned);
        Ok((answer.status.is_success(), text))
    }

    /// What it answers about a Pod of this image that asks for the registry rewrite.
    ///
    /// # Errors
    /// When the answer does not contain `expected`.
    pub async fn says_of_image(&self, image: &str, expected: &str) -> anyhow::Result<()> {
        let response = self
            .review("default", &asking(api::Feature::RegistryRewrite, image))
            .await?;
        ensure!(response.to_string().contains(expected), "{response}");
        Ok(())
    }

    /// Whether it knows the pull Secret of the product namespace.
    ///
    /// # Errors
    /// When it is the other way round.
    pub async fn pull_secret_is_known(&self, expected: bool) -> anyhow::Result<()> {
        // No registry of this Pod wants credentials, so only a webhook without the Secret would name it.
        let response = self
            .review("default", &asking(api::Feature::PullSecret, PROBE))
            .await?;
        ensure!(response["patch"].is_null() == expected, "{response}");
        Ok(())
    }

    /// Whether it warns that the pull Secret cannot be parsed.
    ///
    /// # Errors
    /// When it does not.
    pub async fn pull_secret_is_invalid(&self) -> anyhow::Result<()> {
        let response = self
            .review("default", &asking(api::Feature::PullSecret, PROBE))
            .await?;
        let warnings = response["warnings"].to_string();
        ensure!(
            warnings.contains("not a valid docker configuration"),
            "{response}"
        );
        Ok(())
    }

    /// Whether it mounts the bundle, or knows that there is none.
    ///
    /// # Errors
    /// When it is the other way round.
    pub async fn mounts_the_bundle(&self, expected: bool) -> anyhow::Result<()> {
        let response = self
            .review("default", &asking(api::Feature::TrustBundle, PROBE))
            .await?;
        ensure!(
            response["patch"].to_string().contains(VOLUME) == expected,
            "{response}"
        );
        Ok(())
    }

    fn path(&self, scheme: &str, port: u16, path: &str) -> String {
        format!(
            "/api/v1/namespaces/{PRODUCT_NAMESPACE}/pods/{scheme}:{}:{port}/proxy{path}",
            self.pod
        )
    }
}

/// A Pod that asks for one feature.
#[must_use]
pub fn asking(feature: api::Feature, image: &str) -> Draft {
    let mut draft = Draft::plain("probe");
    draft.0["metadata"]["annotations"][feature.key()] = json!("true");
    draft.0["spec"]["containers"][0]["image"] = json!(image);
    draft
}

async fn staying(dialogue: &Dialogue) -> anyhow::Result<Vec<Value>> {
    let listed = dialogue.get(&pods()).await?;
    let stays = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
    Ok(items(listed.at("/items")).filter(stays).cloned().collect())
}

fn pods() -> String {
    format!("/api/v1/namespaces/{PRODUCT_NAMESPACE}/pods?labelSelector={SELECTOR}")
}

const DEPLOYMENT: &str = "rt-bootstrapper-controller-manager";
const SELECTOR: &str = "app.kubernetes.io/name=rt-bootstrapper,control-plane=controller-manager";
