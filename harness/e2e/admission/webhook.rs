//! The replicas of the webhook, each asked by itself through the proxy of the API server, and the configuration that all
//! of them have to know.
//!
//! Which replica the API server calls is up to chance, so a change counts as known when every replica uses it.

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Client, Write};
use crate::definitions::PATIENCE;
use crate::definitions::pod::plain;
use crate::runner::root;
use testkit::until::until;

/// The webhook of one cluster.
#[derive(Clone)]
pub struct Webhook {
    client: Client,
}

/// One Pod of the webhook.
#[derive(Clone)]
pub struct Replica {
    /// Name of the Pod.
    pub pod: String,
    client: Client,
}

/// Counters that show whether the API server asked the webhook.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counts {
    /// Reviews with an unchanged Pod as result, of all replicas.
    pub unchanged: f64,
    /// Requests that the API server admitted because the webhook did not answer.
    pub failed_open: f64,
}

/// State of the pull Secret in the namespace of the webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullSecretState {
    /// It does not exist.
    Absent,
    /// Its content is not a docker configuration.
    Invalid,
    /// It has credentials.
    Valid,
}

impl Webhook {
    /// The webhook of a client's cluster.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Client of its cluster.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Its Pods.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn pods(&self) -> anyhow::Result<Vec<Value>> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={SELECTOR}");
        let listed = self.client.get(&path).await?;
        Ok(listed.at("/items").as_array().cloned().unwrap_or_default())
    }

    /// Its Pods that are not being deleted.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn replicas(&self) -> anyhow::Result<Vec<Replica>> {
        let mut pods = self.pods().await?;
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let names = pods
            .iter()
            .filter_map(|pod| pod["metadata"]["name"].as_str());
        Ok(names
            .map(|pod| Replica {
                pod: pod.to_owned(),
                client: self.client.clone(),
            })
            .collect())
    }

    /// Waits until `probe` succeeds for every replica.
    ///
    /// # Errors
    /// When there is no replica, or one of them does not get there in time.
    pub async fn each<F>(&self, what: &str, probe: impl Fn(Replica) -> F) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        let replicas = self.replicas().await?;
        ensure!(!replicas.is_empty(), "the webhook has no replica");
        for replica in replicas {
            let what = format!("{what} (replica {})", replica.pod);
            until(&what, PATIENCE, || probe(replica.clone())).await?;
        }
        Ok(())
    }

    /// The counters now.
    ///
    /// # Errors
    /// When a metrics endpoint does not answer.
    pub async fn counts(&self) -> anyhow::Result<Counts> {
        let mut unchanged = 0.0;
        for replica in self.replicas().await? {
            let is = |line: &str| line.contains("result=\"unchanged\"");
            unchanged += replica.sum("admission_reviews_total", is).await?;
        }
        Ok(Counts {
            unchanged,
            failed_open: self.failed_open().await?,
        })
    }

    /// How often the API server admitted an object because the webhook did not answer.
    ///
    /// # Errors
    /// When the metrics endpoint of the API server does not answer.
    pub async fn failed_open(&self) -> anyhow::Result<f64> {
        let metrics = self.client.get("/metrics").await?.object;
        let text = metrics.as_str().context("metrics are not text")?;
        let entry = format!("name=\"{}\"", api::names::WEBHOOK_ENTRY);
        Ok(sum(
            text,
            "apiserver_admission_webhook_fail_open_count",
            |line| line.contains(&entry),
        ))
    }

    /// The configuration document that is stored.
    ///
    /// # Errors
    /// When there is none.
    pub async fn configuration(&self) -> anyhow::Result<Value> {
        let path = format!(
            "/api/v1/namespaces/{NAMESPACE}/configmaps/{}",
            api::names::CONFIG_MAP
        );
        let stored = self.client.get(&path).await?;
        let text = stored.at("/data")[api::names::CONFIG_KEY].as_str();
        Ok(serde_json::from_str(text.context("no document")?)?)
    }

    /// Writes a configuration document and waits until every replica uses it: an override that no other document has
    /// shows which one is active.
    ///
    /// # Errors
    /// When a replica does not get there in time.
    pub async fn configure(&self, mut document: Value) -> anyhow::Result<()> {
        let host = format!("host-{:016x}.test", fastrand::u64(..));
        let replacement = format!("replacement-{:016x}.test", fastrand::u64(..));
        document["overrides"][&host] = json!(replacement);
        self.write_configuration(&document.to_string()).await?;
        let features = document["availableFeatures"].as_array();
        let rewrites =
            features.is_some_and(|it| it.contains(&json!(api::Feature::RegistryRewrite.key())));
        let expected = if rewrites {
            replacement
        } else {
            "not in availableFeatures".to_owned()
        };
        self.each("the configuration is active", |replica| {
            let (image, expected) = (format!("{host}/x"), expected.clone());
            async move {
                let pod = opted_in(api::Feature::RegistryRewrite, &image);
                let response = replica.review("default", &pod).await?.to_string();
                ensure!(response.contains(&expected), "{response}");
                Ok(())
            }
        })
        .await
    }

    /// Writes a text as the configuration document.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn write_configuration(&self, document: &str) -> anyhow::Result<Answer> {
        let object = json!({
            "kind": "ConfigMap",
            "metadata": { "name": api::names::CONFIG_MAP, "namespace": NAMESPACE },
            "data": { (api::names::CONFIG_KEY): document },
        });
        self.client
            .write(Write::Apply, Some(NAMESPACE), &object)
            .await?
            .good()
    }

    /// Waits until every replica uses this state of the pull Secret.
    ///
    /// # Errors
    /// When a replica does not get there in time.
    pub async fn knows_pull_secret(&self, state: PullSecretState) -> anyhow::Result<()> {
        self.each("the pull Secret is known", |replica| async move {
            // Without credentials for the image, only an unknown Secret is named, just in case.
            let pod = opted_in(api::Feature::PullSecret, "no-credentials.test/x");
            let response = replica.review("default", &pod).await?;
            let warnings = response["warnings"].to_string();
            let seen = if !response["patch"].is_null() {
                PullSecretState::Absent
            } else if warnings.contains("not a valid docker configuration") {
                PullSecretState::Invalid
            } else {
                PullSecretState::Valid
            };
            ensure!(seen == state, "{response}");
            Ok(())
        })
        .await
    }

    /// Waits until every replica mounts the trust bundle, or does not because it is absent.
    ///
    /// # Errors
    /// When a replica does not get there in time.
    pub async fn knows_trust_bundle(&self, present: bool) -> anyhow::Result<()> {
        self.each("the trust bundle is known", |replica| async move {
            let pod = opted_in(api::Feature::TrustBundle, "any.test/x");
            let response = replica.review("default", &pod).await?;
            let mounts = response["patch"].to_string().contains(VOLUME);
            ensure!(mounts == present, "{response}");
            Ok(())
        })
        .await
    }

    /// Waits until every replica knows whether a Namespace opts in to FIPS mode.
    ///
    /// # Errors
    /// When a replica does not get there in time.
    pub async fn knows_namespace(&self, name: &str, fips: bool) -> anyhow::Result<()> {
        self.each("the Namespace is known", |replica| async move {
            let response = replica.review(name, &plain()).await?;
            let variable = response["patch"]
                .to_string()
                .contains(api::names::FIPS_VARIABLE);
            ensure!(variable == fips, "{response}");
            Ok(())
        })
        .await
    }
}

impl Replica {
    /// Posts a body to a path of the admission port.
    ///
    /// # Errors
    /// When no answer arrives.
    pub async fn post(&self, path: &str, body: Vec<u8>) -> anyhow::Result<Answer> {
        let path = self.path("https", 9443, path);
        self.client
            .send(Method::POST, &path, "application/json", body)
            .await
    }

    /// Reviews the creation of a Pod in `namespace`; gives `response` with the patch decoded.
    ///
    /// # Errors
    /// When the answer is not an AdmissionReview.
    pub async fn review(&self, namespace: &str, pod: &Value) -> anyhow::Result<Value> {
        let review = review("probe", namespace, pod);
        let body = review.to_string().into_bytes();
        let answer = self.post(api::names::WEBHOOK_PATH, body).await?.good()?;
        let response = response(&answer)?;
        ensure!(response["uid"] == "probe", "{}", answer.object);
        Ok(response)
    }

    /// Its metrics.
    ///
    /// # Errors
    /// When it does not answer with 200.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        let answer = self
            .client
            .get(&self.path("http", 8080, "/metrics"))
            .await?;
        let text = answer.object.as_str().map(str::to_owned);
        text.context("metrics are not text")
    }

    /// Sum of the samples of a metric whose lines `filter` accepts; the metric is named without its prefix.
    ///
    /// # Errors
    /// When it does not answer with 200.
    pub async fn sum(&self, metric: &str, filter: impl Fn(&str) -> bool) -> anyhow::Result<f64> {
        Ok(sum(&self.metrics().await?, metric, filter))
    }

    /// Whether a health endpoint answers with success, and its text.
    ///
    /// # Errors
    /// When no answer arrives.
    pub async fn health(&self, path: &str) -> anyhow::Result<(bool, String)> {
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

/// `response` of an AdmissionReview, with the patch decoded.
///
/// # Errors
/// When the patch is not base64 of JSON.
pub fn response(answer: &Answer) -> anyhow::Result<Value> {
    let mut response = answer.at("/response").clone();
    if let Some(patch) = response["patch"].as_str() {
        response["patch"] = serde_json::from_slice(&BASE64.decode(patch)?)?;
    }
    Ok(response)
}

/// An AdmissionReview of a Pod that is created.
#[must_use]
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

/// A Pod with one image that opts in to one feature.
#[must_use]
pub fn opted_in(feature: api::Feature, image: &str) -> Value {
    let mut pod = plain();
    pod["metadata"]["annotations"][feature.key()] = json!("true");
    pod["spec"]["containers"][0]["image"] = json!(image);
    pod
}

fn sum(text: &str, metric: &str, filter: impl Fn(&str) -> bool) -> f64 {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let of_metric = samples.filter(|line| {
        let name = line.split(['{', ' ']).next();
        name.is_some_and(|name| name.ends_with(metric))
    });
    of_metric
        .filter(|line| filter(line))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// The configuration that scenarios start with.
///
/// # Errors
/// When the fixture cannot be read.
pub fn usual_configuration() -> anyhow::Result<Value> {
    let path = root().join("scenarios/fixtures/admission/configuration.json");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// Name of the landscape that the webhook runs in.
pub const LANDSCAPE: &str = "test-landscape";
/// Volume of the trust bundle in the usual configuration.
pub const VOLUME: &str = "rt-bootstrapper-certs";
/// Namespace of the webhook.
pub const NAMESPACE: &str = api::names::SKR_NAMESPACE;
/// Its Deployment.
pub const DEPLOYMENT: &str = "rt-bootstrapper-controller-manager";
const SELECTOR: &str = "app.kubernetes.io/name=rt-bootstrapper,control-plane=controller-manager";
