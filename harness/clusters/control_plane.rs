//! Fills a control plane with the runtimes of a fleet: a `Runtime` and a kubeconfig Secret each, and their sources.
//!
//! Names, labels and their values are those of the public infrastructure manager; the CRD is a minimal one, whose `status`
//! is a subresource, as there. All is applied server-side, so filling twice is filling once.

use anyhow::{Context as _, ensure};
use api::kcp::{
    KCP_NAMESPACE, KIM_MANAGED_BY, KUBECONFIG_KEY, MANAGED_BY, MODE_DIRECT, MODE_LABEL,
    RUNTIME_GROUP, RUNTIME_ID, RUNTIME_KIND, RUNTIME_VERSION, kubeconfig_secret,
};
use api::names;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use kube::{Client, ResourceExt as _};
use serde_json::{Map, Value, json};
use testkit::Place;
use testkit::apiserver::place;
use testkit::json::{config_map, namespace, pull_secret, trust_bundle};
use testkit::pki::Authority;
use testkit::until::until;

/// The control plane that is to be filled.
#[derive(Clone)]
pub struct ControlPlane {
    client: Client,
    /// Further fields of `spec.shoot` of every Runtime.
    pub shoot: Map<String, Value>,
}

impl ControlPlane {
    /// Makes namespace and CRD ready, unless the cluster has the CRD of a real control plane: it would be overwritten.
    pub async fn prepare(client: Client) -> anyhow::Result<Self> {
        let shoot = Map::new();
        let control_plane = Self { client, shoot };
        let crd = runtime_crd()?;
        let (crds, name) = control_plane.api(&crd)?;
        if let Some(found) = crds.get_opt(&name).await? {
            ensure!(
                found.labels().contains_key(OWN),
                "the cluster is not one of the harness: CustomResourceDefinition {name} has no label {OWN}"
            );
        }
        control_plane.apply(&namespace(KCP_NAMESPACE)).await?;
        control_plane.apply(&crd).await?;
        let (runtimes, _) = control_plane.api(&runtime(0))?;
        let some = ListParams::default().limit(1);
        until("the CRD is served", PATIENCE, || runtimes.list(&some)).await?;
        Ok(control_plane)
    }

    /// Puts runtimes in, with their kubeconfigs; or new kubeconfigs, where they are there.
    pub async fn fill(&self, kubeconfigs: &[String]) -> anyhow::Result<()> {
        let put = stream::iter(kubeconfigs.iter().enumerate()).map(|member| self.put(member));
        put.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Puts new kubeconfigs in; nothing else is touched.
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
        let (api, name) = self.api(&runtime)?;
        api.patch_status(&name, &params(), &Patch::Apply(&runtime))
            .await?;
        self.apply(&kubeconfig(member)).await
    }

    /// Puts the three sources in: a pull Secret, a trust bundle, a configuration.
    pub async fn put_sources(&self, sources: &Sources) -> anyhow::Result<()> {
        for object in sources.objects(KCP_NAMESPACE) {
            self.apply(&object).await?;
        }
        Ok(())
    }

    /// Where an object is written, and its name.
    fn api(&self, object: &Value) -> anyhow::Result<(Api<DynamicObject>, String)> {
        let DynamicObject {
            types, metadata, ..
        } = serde_json::from_value(object.clone())?;
        let kind = GroupVersionKind::try_from(types.context("an object has no kind")?)?;
        let (client, resource) = (self.client.clone(), ApiResource::from_gvk(&kind));
        let api = match metadata.namespace {
            Some(namespace) => Api::namespaced_with(client, &namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        Ok((api, metadata.name.context("an object has no name")?))
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
        let applied = stream::iter(objects).map(async |object| {
            let (api, name) = self.api(&object)?;
            let patch = Patch::Apply(&object);
            api.patch_status(&name, &params(), &patch).await?;
            anyhow::Ok(())
        });
        applied.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// The live object of this kind and name.
    pub async fn get(&self, object: &Value) -> anyhow::Result<Option<Value>> {
        let (api, name) = self.api(object)?;
        Ok(api.get_opt(&name).await?.map(|it| json!(it)))
    }

    /// Applies an object.
    pub async fn apply(&self, object: &Value) -> anyhow::Result<()> {
        let (api, name) = self.api(object)?;
        api.patch(&name, &params(), &Patch::Apply(object)).await?;
        Ok(())
    }
}

fn params() -> PatchParams {
    PatchParams::apply("fleet").force()
}

/// What is rolled out, as far as it differs from run to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// The password in the pull Secret.
    pub password: String,
    /// The trust bundle: one certificate, PEM.
    pub bundle: String,
    /// The registry that images are taken from.
    pub mirror: String,
}

impl Sources {
    /// Some that differ from those of every other version in all three.
    pub fn of_version(version: u32) -> anyhow::Result<Self> {
        Ok(Self {
            password: format!("password-{version}"),
            bundle: Authority::new("landscape")?.pem().to_owned(),
            mirror: format!("r{version}.landscape.example"),
        })
    }

    /// Where runtimes have them: pull Secret, trust bundle, configuration.
    pub fn places() -> [Place; 3] {
        [
            place("secrets", names::SKR_NAMESPACE, names::PULL_SECRET),
            place("clustertrustbundles", "", TRUST_BUNDLE),
            place("configmaps", names::SKR_NAMESPACE, names::CONFIG_MAP),
        ]
    }

    /// The objects in a namespace, of the control plane or of a runtime: pull Secret, trust bundle, configuration.
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

/// Labels that both objects of a runtime carry.
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

/// A Runtime in mode direct.
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

/// The id of a runtime by its number; ids are UUIDs, as those of the broker.
pub fn runtime_id(number: usize) -> String {
    format!("f1ee7000-0000-4000-8000-{number:012x}")
}

/// Label of what the harness created: nothing else is overwritten.
const OWN: &str = "harness.kyma-project.io/created";
/// The trust bundle on KCP and on every runtime.
pub const TRUST_BUNDLE: &str = "landscape-trust";
/// More would only queue in the API server.
const AT_ONCE: usize = 48;
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use testkit::apiserver::{ApiServer, Kind};

    use super::*;

    static CRDS: Kind = Kind::new(
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
    );

    #[tokio::test]
    async fn cluster_with_the_crd_of_a_real_control_plane_is_not_written_to() {
        let server = ApiServer::with_kinds([&CRDS]);
        let mut real = runtime_crd().unwrap();
        real["metadata"]["labels"] = json!({"app": "kim"});
        server.put(&real);
        let prepared = ControlPlane::prepare(server.client()).await;
        let error = prepared.err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains(OWN)));
        assert_eq!(server.requests_of("get").len(), 1);
        assert!(server.writes().is_empty());
    }
}
