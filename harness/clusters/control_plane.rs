//! Fills a control plane with the runtimes of a fleet, a `Runtime` and a kubeconfig Secret each, and with their sources.
//!
//! Names, labels and their values are those of the public KIM. The CRD is a minimal one; as in the public one, `status` is a
//! subresource. All writes are server-side applies and therefore idempotent.

use api::kcp::{
    KCP_NAMESPACE, KIM_MANAGED_BY, KUBECONFIG_KEY, MANAGED_BY, MODE_DIRECT, MODE_LABEL,
    RUNTIME_GROUP, RUNTIME_ID, RUNTIME_KIND, RUNTIME_VERSION, kubeconfig_secret,
};
use api::names;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Map, Value, json};
use testkit::Place;
use testkit::apiserver::place;
use testkit::client::Client;
use testkit::json::{config_map, namespace, pull_secret, trust_bundle};
use testkit::pki::Authority;
use testkit::until::until;

/// The control plane that the harness fills.
#[derive(Clone)]
pub struct ControlPlane {
    client: Client,
    /// Further fields of `spec.shoot` of every Runtime.
    pub shoot: Map<String, Value>,
}

impl ControlPlane {
    /// Creates the namespace and the CRD.
    pub async fn prepare(client: kube::Client) -> anyhow::Result<Self> {
        let (client, shoot) = (Client::new(client), Map::new());
        let control_plane = Self { client, shoot };
        let crd = runtime_crd()?;
        control_plane.apply(&namespace(KCP_NAMESPACE)).await?;
        control_plane.apply(&crd).await?;
        let served = async || control_plane.get(&runtime(0)).await;
        until("the CRD is served", PATIENCE, served).await?;
        Ok(control_plane)
    }

    /// Creates runtimes with their kubeconfigs. For existing runtimes it replaces the kubeconfigs.
    pub async fn fill(&self, kubeconfigs: &[String]) -> anyhow::Result<()> {
        let put = stream::iter(kubeconfigs.iter().enumerate()).map(|member| self.put(member));
        put.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Replaces the kubeconfigs and changes no other objects.
    pub async fn renew(&self, kubeconfigs: &[String]) -> anyhow::Result<()> {
        let put = stream::iter(kubeconfigs.iter().enumerate());
        let put = put.map(async |member| self.apply(&kubeconfig(member)).await);
        put.buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn put(&self, member: (usize, &String)) -> anyhow::Result<()> {
        let mut runtime = runtime(member.0);
        if let Some(shoot) = runtime["spec"]["shoot"].as_object_mut() {
            shoot.extend(self.shoot.clone());
        }
        self.apply(&runtime).await?;
        runtime["status"] = json!({"state": "Ready", "provisioningCompleted": true});
        self.apply_status(&runtime).await?;
        self.apply(&kubeconfig(member)).await
    }

    /// Applies the three sources: pull Secret, trust bundle and configuration.
    pub async fn put_sources(&self, sources: &Sources) -> anyhow::Result<()> {
        for object in sources.objects(KCP_NAMESPACE) {
            self.apply(&object).await?;
        }
        Ok(())
    }

    /// Applies many objects.
    pub async fn apply_all(&self, objects: impl IntoIterator<Item = Value>) -> anyhow::Result<()> {
        let applied = stream::iter(objects).map(async |object| self.apply(&object).await);
        applied.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Applies the status of many objects.
    pub async fn apply_statuses(
        &self,
        objects: impl IntoIterator<Item = Value>,
    ) -> anyhow::Result<()> {
        let applied = stream::iter(objects).map(async |object| self.apply_status(&object).await);
        applied.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Returns the live object with the kind and name of `object`; null if it does not exist.
    pub async fn get(&self, object: &Value) -> anyhow::Result<Value> {
        self.client.find(&self.client.path(object).await?).await
    }

    /// Applies an object.
    pub async fn apply(&self, object: &Value) -> anyhow::Result<()> {
        self.client.apply(MANAGER, object).await.map(drop)
    }

    async fn apply_status(&self, object: &Value) -> anyhow::Result<()> {
        let path = format!("{}/status", self.client.path(object).await?);
        let applied = self.client.apply_at(MANAGER, &path, object);
        applied.await.map(drop)
    }
}

/// Field manager of the objects of a fleet.
const MANAGER: &str = "fleet";

/// Values of the sources that differ from version to version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// Password in the pull Secret.
    pub password: String,
    /// Trust bundle: one certificate in PEM.
    pub bundle: String,
    /// Registry from which nodes pull the images.
    pub mirror: String,
}

impl Sources {
    /// Returns sources in which all three values are different from those of every other version.
    pub fn of_version(version: u32) -> anyhow::Result<Self> {
        Ok(Self {
            password: format!("password-{version}"),
            bundle: Authority::new("landscape")?.pem().to_owned(),
            mirror: format!("r{version}.landscape.example"),
        })
    }

    /// Returns the locations of the three objects on runtimes: pull Secret, trust bundle, configuration.
    pub fn places() -> [Place; 3] {
        [
            place("secrets", names::SKR_NAMESPACE, names::PULL_SECRET),
            place("clustertrustbundles", "", TRUST_BUNDLE),
            place("configmaps", names::SKR_NAMESPACE, names::CONFIG_MAP),
        ]
    }

    /// Returns the three objects in a namespace of the control plane or of a runtime: pull Secret, trust bundle, configuration.
    pub fn objects(&self, namespace: &str) -> [Value; 3] {
        let mirror = &self.mirror;
        let auth = BASE64.encode(format!("landscape:{}", self.password));
        let docker_config = json!({"auths": {mirror: {"auth": auth}}});
        let features: Vec<&str> = api::Feature::ALL.iter().map(|it| it.key()).collect();
        let configuration = json!({
            "overrides": {"docker.io": format!("{mirror}/hub"), "ghcr.io": format!("{mirror}/ghcr")},
            "clusterTrustBundle": {
                "name": TRUST_BUNDLE,
                "certWritePath": "landscape.pem",
                "volumeMountPath": "/etc/ssl/certs",
                "volumeName": "rt-bootstrapper-certs",
            },
            "namespaceFeatures": {(names::SKR_NAMESPACE): features},
            "availableFeatures": features,
        });
        let data = json!({(names::CONFIG_KEY): configuration.to_string()});
        [
            pull_secret(namespace, names::PULL_SECRET, &docker_config),
            trust_bundle(TRUST_BUNDLE, None, &self.bundle),
            config_map(namespace, names::CONFIG_MAP, &data),
        ]
    }
}

/// Returns the labels of the Runtime and the kubeconfig Secret of a runtime.
fn labels(number: usize) -> Value {
    let id = runtime_id(number);
    json!({
        (RUNTIME_ID): id,
        "kyma-project.io/instance-id": format!("1{}", &id[1..]),
        "kyma-project.io/broker-plan-id": "7d55d31d-35ae-4438-bf13-6ffdfa107d9f",
        "kyma-project.io/broker-plan-name": "aws",
        "kyma-project.io/global-account-id": format!("2{}", &id[1..]),
        "kyma-project.io/subaccount-id": format!("3{}", &id[1..]),
        "kyma-project.io/region": "eu-central-1",
        "kyma-project.io/shoot-name": format!("c-{number:07x}"),
        "operator.kyma-project.io/kyma-name": id,
    })
}

/// Returns a Runtime in mode direct.
fn runtime(number: usize) -> Value {
    let mut labels = labels(number);
    labels["kyma-project.io/provider"] = json!("AWS");
    labels[MODE_LABEL] = json!(MODE_DIRECT);
    json!({
        "apiVersion": format!("{RUNTIME_GROUP}/{RUNTIME_VERSION}"),
        "kind": RUNTIME_KIND,
        "metadata": {"name": runtime_id(number), "namespace": KCP_NAMESPACE, "labels": labels},
        "spec": {"shoot": {
            "name": format!("c-{number:07x}"),
            "platformRegion": "cf-eu10",
            "region": "eu-central-1",
            "secretBindingName": "aws",
        }},
    })
}

fn kubeconfig((number, kubeconfig): (usize, &String)) -> Value {
    let mut labels = labels(number);
    labels[MANAGED_BY] = json!(KIM_MANAGED_BY);
    labels["operator.kyma-project.io/internal"] = json!("true");
    labels["operator.kyma-project.io/cluster-name"] = json!(runtime_id(number));
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": kubeconfig_secret(&runtime_id(number)),
            "namespace": KCP_NAMESPACE,
            "labels": labels,
            "annotations": {
                "operator.kyma-project.io/last-sync": jiff::Timestamp::now().strftime("%FT%TZ").to_string(),
            },
        },
        "data": {(KUBECONFIG_KEY): BASE64.encode(kubeconfig)},
    })
}

fn runtime_crd() -> anyhow::Result<Value> {
    Ok(serde_saphyr::from_str(include_str!("runtime.yaml"))?)
}

/// Returns the ID of a runtime by its number. IDs are UUIDs, as those of the broker.
pub fn runtime_id(number: usize) -> String {
    format!("f1ee7000-0000-4000-8000-{number:012x}")
}

/// Name of the trust bundle on KCP and on every runtime.
pub const TRUST_BUNDLE: &str = "landscape-trust";
/// Largest number of concurrent requests. More would only wait in the API server.
const AT_ONCE: usize = 48;
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
