//! The replicas of the webhook, each of which receives requests through the proxy of the API server, and the configuration of
//! all replicas.
//!
//! The API server may call any replica, so the harness treats a change as active only when every replica uses it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Method;
use serde_json::{Value, json};
use testkit::json::{config_map, pull_secret, trust_bundle};
use testkit::metrics::Samples;

use crate::definitions::object::file_of_project;
use crate::definitions::pod::{named, plain};
use crate::definitions::{check, eventually, random};
use testkit::client::{Answer, Client, Write};

/// The webhook of one cluster.
#[derive(Clone)]
pub(crate) struct Webhook {
    pub(crate) client: Client,
}

/// One Pod of the webhook.
pub(crate) struct Replica {
    pub(crate) pod: String,
    client: Client,
}

impl Webhook {
    /// Returns the Pods of the webhook, including those that are being deleted.
    pub(crate) async fn pods(&self) -> Result<Vec<Value>> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={SELECTOR}");
        self.client.items(&path).await
    }

    /// Returns the Pods of the webhook that are not being deleted.
    pub(crate) async fn live_pods(&self) -> Result<Vec<Value>> {
        let mut pods = self.pods().await?;
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        Ok(pods)
    }

    /// Returns the replicas that are not being deleted.
    pub(crate) async fn replicas(&self) -> Result<Vec<Replica>> {
        let pods = self.live_pods().await?;
        let names = pods.iter().map(|pod| pod["metadata"]["name"].as_str());
        Ok(names.flatten().map(|pod| self.replica(pod)).collect())
    }

    pub(crate) fn replica(&self, pod: &str) -> Replica {
        Replica {
            pod: pod.to_owned(),
            client: self.client.clone(),
        }
    }

    /// Waits until `probe` succeeds for every replica, of which there must be at least one.
    pub(crate) async fn each(
        &self,
        what: &str,
        probe: impl AsyncFn(&Replica) -> Result<()>,
    ) -> Result<()> {
        let replicas = self.replicas().await?;
        ensure!(!replicas.is_empty(), "the webhook has no replica");
        for replica in replicas {
            let what = format!("{what} (replica {})", replica.pod);
            eventually(&what, async || probe(&replica).await).await?;
        }
        Ok(())
    }

    /// Returns the value of a series in each replica, of which there must be at least one.
    pub(crate) async fn values(&self, series: &str) -> Result<BTreeMap<String, f64>> {
        let values = self.all_values(series).await?;
        ensure!(!values.is_empty(), "the webhook has no replica");
        Ok(values)
    }

    /// Returns the sum of a series over all replicas, 0 without a replica.
    pub(crate) async fn sum(&self, series: &str) -> Result<f64> {
        Ok(self.all_values(series).await?.values().sum())
    }

    async fn all_values(&self, series: &str) -> Result<BTreeMap<String, f64>> {
        let mut values = BTreeMap::new();
        for replica in self.replicas().await? {
            let value = replica.metrics().await?.sum_of_known(series)?;
            values.insert(replica.pod, value);
        }
        Ok(values)
    }

    /// Returns how often the API server admitted an object because the webhook did not respond.
    pub(crate) async fn failed_open(&self) -> Result<u64> {
        let metrics = self.client.metrics().await?;
        let entry = api::names::WEBHOOK_ENTRY;
        let series = format!("apiserver_admission_webhook_fail_open_count{{name=\"{entry}\"}}");
        Ok(metrics.count_of_known(&series)?)
    }

    /// Waits until the API server reaches a replica. The node's proxy receives the endpoint some time after the replica is
    /// ready.
    pub(crate) async fn is_reached(&self) -> Result<()> {
        let mut pod = named(&format!("probe-{}", random()));
        pod["metadata"]["namespace"] = json!("default");
        eventually("the API server reaches the webhook", async || {
            let before = self.failed_open().await?;
            self.client.write(Write::DryRun, &pod).await?.good()?;
            let failed = self.failed_open().await? - before;
            check(failed == 0, format!("{failed} requests failed open"))
        })
        .await
    }

    pub(crate) async fn configuration(&self) -> Result<Value> {
        let name = api::names::CONFIG_MAP;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{name}");
        let stored = self.client.get(&path).await?;
        let text = stored.at("/data")[api::names::CONFIG_KEY].as_str();
        Ok(serde_json::from_str(text.context("no document")?)?)
    }

    /// Writes a configuration document and waits until every replica uses it. A unique override identifies the active document.
    pub(crate) async fn configure(&self, mut document: Value) -> Result<()> {
        let image = format!("host-{}.test/x", random());
        let replacement = format!("replacement-{}.test", random());
        document["overrides"][image.trim_end_matches("/x")] = json!(replacement);
        self.write_configuration(&document.to_string()).await?;
        let rewrite = api::Feature::RegistryRewrite;
        let features = document["availableFeatures"].as_array();
        let expected = match features {
            Some(available) if available.contains(&json!(rewrite.key())) => &replacement,
            _ => "not in availableFeatures",
        };
        self.each("the configuration is active", async |replica| {
            let pod = opted_in(rewrite, &image);
            let response = replica.review("default", &pod).await?.to_string();
            check(response.contains(expected), response)
        })
        .await
    }

    /// Returns the document that the leader has stored.
    pub(crate) async fn stored_configuration(&self) -> Result<Value> {
        Ok(serde_json::from_slice(
            &self.stored("last-valid-document").await?,
        )?)
    }

    /// Returns the SHA-256 digest of the trust bundle that the leader has stored, in base64.
    pub(crate) async fn stored_trust_bundle(&self) -> Result<String> {
        let stored = String::from_utf8(self.stored("trust-bundle").await?)?;
        let (digest, _) = stored.split_once(' ').context("no digest")?;
        Ok(digest.to_owned())
    }

    /// Returns what the leader has stored about the active revision under a key.
    async fn stored(&self, key: &str) -> Result<Vec<u8>> {
        let name = api::names::REPAIR_RECORD;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}");
        let secret = self.client.get(&path).await?;
        let text = secret.at("/data")[key].as_str();
        let text = text.with_context(|| format!("Secret {name} has no {key}"))?;
        Ok(BASE64.decode(text)?)
    }

    pub(crate) async fn write_configuration(&self, document: &str) -> Result<Answer> {
        let object = configuration(NAMESPACE, document);
        self.client.write(Write::Apply, &object).await?.good()
    }

    /// Waits until every replica uses the current pull Secret; null if it is absent. If the Pod's image has no credentials, a
    /// replica adds the pull Secret only if it does not know the Secret's content. In the Secret's own Namespace it also says whether
    /// the Secret is invalid.
    pub(crate) async fn knows_pull_secret(&self, secret: &Value) -> Result<()> {
        let is_valid = has_credentials(secret);
        let pod = opted_in(api::Feature::PullSecret, "no-credentials.test/x");
        self.each("the pull Secret is known", async |replica| {
            let response = replica.review(NAMESPACE, &pod).await?;
            let warnings = response["warnings"].to_string();
            let is_invalid = warnings.contains("not a valid docker configuration");
            let is_absent = !response["patch"].is_null();
            let seen = (is_absent, !is_absent && is_invalid);
            let expected = (secret.is_null(), !secret.is_null() && !is_valid);
            check(seen == expected, response)
        })
        .await
    }

    /// Waits until every replica mounts the trust bundle, or does not mount it if it is absent.
    pub(crate) async fn knows_trust_bundle(&self, present: bool) -> Result<()> {
        let pod = opted_in(api::Feature::TrustBundle, "any.test/x");
        self.patches("default", &pod, (VOLUME, present)).await
    }

    /// Waits until every replica's patch of a Pod in a Namespace contains a text, or does not contain it.
    pub(crate) async fn patches(
        &self,
        namespace: &str,
        pod: &Value,
        (text, expected): (&str, bool),
    ) -> Result<()> {
        let what = format!("patches with {text}: {expected}");
        self.each(&what, async |replica| {
            let response = replica.review(namespace, pod).await?;
            let found = response["patch"].to_string().contains(text);
            check(found == expected, response)
        })
        .await
    }
}

impl Replica {
    pub(crate) async fn post(&self, path: &str, body: Vec<u8>) -> Result<Answer> {
        let path = self.path("https", 9443, path);
        let (client, json) = (&self.client, "application/json");
        client.send(Method::POST, &path, json, body).await
    }

    /// Sends a review of a Pod creation in `namespace`, and returns `response` with the decoded patch.
    pub(crate) async fn review(&self, namespace: &str, pod: &Value) -> Result<Value> {
        let review = review("probe", namespace, pod);
        let body = review.to_string().into_bytes();
        let answer = self.post(api::names::WEBHOOK_PATH, body).await?.good()?;
        let response = response(&answer)?;
        ensure!(response["uid"] == "probe", "{}", answer.object);
        Ok(response)
    }

    pub(crate) async fn metrics(&self) -> Result<Samples> {
        Ok(Samples::parse(&self.metrics_page().await?))
    }

    pub(crate) async fn metrics_page(&self) -> Result<String> {
        self.client.text(&self.path("http", 8080, "/metrics")).await
    }

    /// Returns whether a health endpoint responds with success, and the text.
    pub(crate) async fn health(&self, path: &str) -> Result<(bool, String)> {
        let path = self.path("http", 8081, path);
        let answer = self.client.ask(Method::GET, &path, None).await?;
        let text = answer.object.as_str().map(str::to_owned);
        let text = text.unwrap_or_else(|| answer.object.to_string());
        Ok((answer.status.is_success(), text))
    }

    fn path(&self, scheme: &str, port: u16, path: &str) -> String {
        let pod = &self.pod;
        format!("/api/v1/namespaces/{NAMESPACE}/pods/{scheme}:{pod}:{port}/proxy{path}")
    }
}

/// Whether a pull Secret contains a docker configuration.
fn has_credentials(secret: &Value) -> bool {
    let data = secret["data"][api::names::DOCKER_CONFIG_KEY].as_str();
    let bytes = BASE64.decode(data.unwrap_or_default()).unwrap_or_default();
    let config: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    config["auths"].is_object()
}

/// Returns `response` of an AdmissionReview with the decoded patch.
pub(crate) fn response(answer: &Answer) -> Result<Value> {
    let mut response = answer.at("/response").clone();
    if let Some(patch) = response["patch"].as_str() {
        response["patch"] = serde_json::from_slice(&BASE64.decode(patch)?)?;
    }
    Ok(response)
}

/// Returns an AdmissionReview of a Pod creation.
pub fn review(uid: &str, namespace: &str, pod: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": uid, "operation": "CREATE", "namespace": namespace,
            "resource": { "group": "", "version": "v1", "resource": "pods" },
            "object": pod,
        },
    })
}

/// Returns a Pod with one image that opts in to one feature.
pub(crate) fn opted_in(feature: api::Feature, image: &str) -> Value {
    let mut pod = plain();
    pod["metadata"]["annotations"][feature.key()] = json!("true");
    pod["spec"]["containers"][0]["image"] = json!(image);
    pod
}

/// Returns the configuration at the start of scenarios.
pub(crate) fn usual_configuration() -> Result<Value> {
    let text = file_of_project("scenarios/fixtures/admission/configuration.json")?;
    Ok(serde_json::from_str(&text)?)
}

/// Returns the ConfigMap with a document, on a runtime or on KCP.
pub(crate) fn configuration(namespace: &str, document: &str) -> Value {
    let data = json!({ (api::names::CONFIG_KEY): document });
    config_map(namespace, api::names::CONFIG_MAP, &data)
}

/// Returns the objects that KIM writes on a runtime: the usual configuration, the trust bundle, and the pull Secret. The pull
/// Secret has these credentials, and those of two hosts from which no test pulls.
pub fn sources(mut docker_config: Value, authority_pem: &str) -> Result<[Value; 3]> {
    for host in ["ghcr.io", "private.me"] {
        docker_config["auths"][host] =
            json!({ "username": "user", "password": "canary-of-another-host" });
    }
    Ok([
        configuration(NAMESPACE, &usual_configuration()?.to_string()),
        pull_secret(NAMESPACE, api::names::PULL_SECRET, &docker_config),
        trust_bundle(TRUST_BUNDLE, SIGNER, authority_pem),
    ])
}

/// Name of the landscape in which the webhook runs.
pub const LANDSCAPE: &str = "test-landscape";
/// Name of the trust bundle in the usual configuration.
pub const TRUST_BUNDLE: &str = "rt-bootstrapper-k3d.test:ctb:1";
pub(crate) const SIGNER: Option<&str> = Some("rt-bootstrapper-k3d.test/ctb");
/// Volume of the trust bundle in the usual configuration.
pub(crate) const VOLUME: &str = "rt-bootstrapper-certs";
/// Counter of the reviews of Pods.
pub(crate) const REVIEWS: &str = "rt_bootstrapper_admission_reviews_total";
/// Namespace of the webhook.
pub const NAMESPACE: &str = api::names::SKR_NAMESPACE;
/// Name of the webhook's Deployment.
pub(crate) const DEPLOYMENT: &str = "rt-bootstrapper-controller-manager";
const SELECTOR: &str = "app.kubernetes.io/name=rt-bootstrapper,control-plane=controller-manager";
