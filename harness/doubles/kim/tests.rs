use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::FutureExt as _;
use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::kinds::{Handling, RUNTIMES};
use testkit::apiserver::{ApiServer, Kind};
use testkit::json::{config_map, kubeconfig, pull_secret, trust_bundle};
use testkit::pki::Authority;
use testkit::tls::TlsServer;

use super::*;
use crate::keb::Instance;

static GARDENER_CLUSTERS: Kind = Kind::new(
    "infrastructuremanager.kyma-project.io/v1",
    "gardenerclusters",
    "GardenerCluster",
)
.namespaced()
.with(Handling::Custom);

const KEY: &str = "operator.kyma-project.io/force-patch-reconciliation";
const SUSPEND: &str = "operator.kyma-project.io/suspend-patch-reconciliation";
const BOOTSTRAPPER: &str = "RuntimeBootstrapperReady";
const MANIFESTS: &str = "apiVersion: apps/v1
kind: Deployment
metadata:
  name: rt-bootstrapper-controller-manager
  namespace: kyma-system
  labels: {app.kubernetes.io/version: 1.7.0}
";
/// A ConfigMap, and a document that the public KIM splits in the middle of a value.
const BROKEN: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: first}}
---
{kind: Secret, ca: \"-----BEGIN CERTIFICATE-----\"}
";

/// A control plane with all sources and a Runtime, and a cluster on which the webhook is ready.
struct Env {
    kcp: ApiServer,
    skr: ApiServer,
    kim: Kim,
    _tls: TlsServer,
}

/// A provider of one cluster, whose kubeconfig it contains.
struct OneCluster(String);

impl Provider for OneCluster {
    fn provision<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<String>> {
        std::future::ready(Ok(self.0.clone())).boxed()
    }

    fn deprovision<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<()>> {
        std::future::ready(Ok(())).boxed()
    }
}

async fn serve(server: &ApiServer) -> (TlsServer, String) {
    let authority = Authority::new("kubernetes").unwrap();
    let leaf = authority.leaf("kube-apiserver").unwrap();
    let config = leaf.server_config(&["http/1.1"], None).unwrap();
    let tls = TlsServer::of(config, server.clone()).await.unwrap();
    let cluster = json!({
        "server": format!("https://{}", tls.address()),
        "certificate-authority-data": BASE64.encode(authority.pem()),
    });
    (tls, kubeconfig("skr", &cluster, &json!({})))
}

impl Env {
    async fn new() -> Self {
        let kcp = ApiServer::with_kinds([&RUNTIMES, &GARDENER_CLUSTERS]);
        let put = |name: &str, data: Value| kcp.put(&config_map("kcp-system", name, &data));
        put("rt-bootstrapper-config", json!({ "a": "b" }));
        put("manifests", json!({ "manifests.yaml": MANIFESTS }));
        kcp.put(&pull_secret("kcp-system", "pull", &json!({})));
        let roots = Authority::new("roots").unwrap();
        kcp.put(&trust_bundle("roots", None, roots.pem()));
        kcp.put(&Instance::example().runtime());

        let skr = ApiServer::new();
        let mut deployment: Value = serde_saphyr::from_str(MANIFESTS).unwrap();
        deployment["spec"] = json!({ "replicas": 1 });
        deployment["status"] = json!({
            "readyReplicas": 1, "conditions": [{ "type": "Available", "status": "True" }],
        });
        skr.put(&deployment);
        let (tls, kubeconfig) = serve(&skr).await;
        let kim = Kim {
            kcp: Objects::new(kcp.client()),
            garden: Garden::new(Arc::new(OneCluster(kubeconfig))),
            settings: Settings {
                bootstrapper: Some(Bootstrapper {
                    manifests: "manifests".to_owned(),
                    pull_secret: Some("pull".to_owned()),
                    trust_bundle: Some("roots".to_owned()),
                }),
                ..Settings::default()
            },
        };
        Self {
            kcp,
            skr,
            kim,
            _tls: tls,
        }
    }

    fn runtime(&self) -> Value {
        let name = Instance::example().runtime_id;
        self.kcp.get("runtimes", "kcp-system", &name).unwrap()
    }

    /// Changes the metadata of the Runtime.
    fn edit(&self, change: impl FnOnce(&mut Value)) {
        let name = Instance::example().runtime_id;
        let place = ("kcp-system", &*name);
        self.kcp
            .edit("runtimes", place, |it| change(&mut it["metadata"]));
    }

    /// Runs one reconcile of the Runtime, after it cleared the recorded requests.
    async fn reconcile(&self) -> Action {
        self.kcp.take_requests();
        self.skr.take_requests();
        let runtime = serde_json::from_value(self.runtime()).unwrap();
        self.kim.reconcile(&runtime).await.unwrap()
    }

    /// Returns the state of the Runtime, and status and reason of one of its conditions.
    fn shown(&self, kind: &str) -> String {
        let status = &self.runtime()["status"];
        let conditions = status["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|it| it["type"] == kind).unwrap();
        let all = [&status["state"], &found["status"], &found["reason"]];
        all.map(|it| it.as_str().unwrap()).join(" ")
    }

    /// Reconciles once. The reconcile sends requests to the runtime, and the Runtime is Ready.
    async fn becomes_ready(&self) {
        assert_eq!(self.reconcile().await, Action::await_change());
        assert_ne!(self.skr.requests().len(), 0);
        let shown = self.shown("Configured");
        assert_eq!(shown, "Ready True AdministratorsConfigured");
    }

    /// Reconciles once. The reconcile sends no request.
    async fn stays_quiet(&self) {
        assert_eq!(self.reconcile().await, Action::await_change());
        assert_eq!(self.kcp.requests().len() + self.skr.requests().len(), 0);
    }
}

const NOTHING: [&str; 0] = [];
const RETRY: Duration = Duration::from_secs(30);

#[tokio::test]
async fn sources_are_copied_once() {
    let env = Env::new().await;
    env.becomes_ready().await;
    let copies = [
        "apply configmaps kyma-system/rt-bootstrapper-config",
        "apply secrets kyma-system/registry-credentials",
        "apply clustertrustbundles roots",
    ];
    assert_eq!(env.skr.writes(), copies);

    env.edit(|it| it["annotations"][KEY] = json!("true"));
    env.becomes_ready().await;
    assert_eq!(env.skr.writes(), NOTHING);
}

#[rstest]
#[case::config_map("configmaps", "kcp-system", "rt-bootstrapper-config")]
#[case::pull_secret("secrets", "kcp-system", "pull")]
#[case::trust_bundle("clustertrustbundles", "", "roots")]
#[tokio::test]
async fn absent_source_is_pending_and_nothing_is_written_on_the_runtime(
    #[case] resource: &str,
    #[case] namespace: &str,
    #[case] name: &str,
) {
    let env = Env::new().await;
    env.kcp.remove(resource, namespace, name);
    assert_eq!(env.reconcile().await, Action::requeue(RETRY));
    let expected = "Pending False RuntimeBootstrapperConfigurationFailed";
    assert_eq!(env.shown(BOOTSTRAPPER), expected);
    assert_eq!(env.skr.writes(), NOTHING);
}

#[rstest]
#[case::absent(None, true, "RuntimeBootstrapperStatusUnknown")]
#[case::broken_before_an_upgrade(Some(BROKEN), true, "RuntimeBootstrapperStatusUnknown")]
#[case::broken_before_the_installation(
    Some(BROKEN),
    false,
    "RuntimeBootstrapperInstallationFailed"
)]
#[tokio::test]
async fn unusable_manifests_are_pending_and_documents_before_the_error_are_installed(
    #[case] manifests: Option<&str>,
    #[case] is_installed: bool,
    #[case] reason: &str,
) {
    let env = Env::new().await;
    match manifests {
        Some(text) => env
            .kcp
            .edit("configmaps", ("kcp-system", "manifests"), |it| {
                it["data"]["manifests.yaml"] = json!(text);
            }),
        None => env.kcp.remove("configmaps", "kcp-system", "manifests"),
    }
    if !is_installed {
        let name = "rt-bootstrapper-controller-manager";
        env.skr.remove("deployments", "kyma-system", name);
    }
    assert_eq!(env.reconcile().await, Action::requeue(RETRY));
    assert_eq!(env.shown(BOOTSTRAPPER), format!("Pending False {reason}"));
    let is_first_installed = env.skr.get("configmaps", "default", "first").is_some();
    assert_eq!(is_first_installed, !is_installed);
}

#[tokio::test]
async fn failed_deployment_is_reported_and_not_looked_at_again() {
    let env = Env::new().await;
    let deployment = ("kyma-system", "rt-bootstrapper-controller-manager");
    env.skr.edit("deployments", deployment, |it| {
        it["status"] = json!({ "conditions": [{ "type": "Progressing", "status": "False" }] });
    });
    assert_eq!(env.reconcile().await, Action::await_change());
    let expected = "Failed False RuntimeBootstrapperInstallationFailed";
    assert_eq!(env.shown(BOOTSTRAPPER), expected);
    env.stays_quiet().await;
}

#[rstest]
#[case::annotation("annotations", "annotations", "true", true)]
#[case::label_by_default("annotations", "labels", "true", false)]
#[case::label("labels", "labels", "true", true)]
#[case::annotation_where_labels_count("labels", "annotations", "true", false)]
#[case::other_value("annotations", "annotations", "True", false)]
#[tokio::test]
async fn signal_counts_only_in_the_chosen_part_of_the_metadata_and_is_removed(
    #[case] setting: &'static str,
    #[case] field: &str,
    #[case] value: &str,
    #[case] is_obeyed: bool,
) {
    let mut env = Env::new().await;
    env.kim.settings.signal = setting;
    env.becomes_ready().await;
    env.edit(|it| it[field][KEY] = json!(value));
    if is_obeyed {
        env.becomes_ready().await;
    } else {
        env.stays_quiet().await;
    }
    let is_removed = env.runtime()["metadata"][field][KEY].is_null();
    assert_eq!(is_removed, is_obeyed);
}

#[tokio::test]
async fn suspension_wins_over_the_signal_until_it_ends() {
    let env = Env::new().await;
    env.becomes_ready().await;
    env.edit(|it| it["annotations"] = json!({ (KEY): "true", (SUSPEND): "true" }));
    env.stays_quiet().await;

    env.edit(|it| it["annotations"] = json!({ (KEY): "true" }));
    env.becomes_ready().await;
    assert!(env.runtime()["metadata"]["annotations"][KEY].is_null());
}

#[tokio::test]
async fn suspended_runtime_that_is_not_ready_yet_becomes_ready() {
    let env = Env::new().await;
    env.edit(|it| it["annotations"] = json!({ (SUSPEND): "true" }));
    let source = ("configmaps", "kcp-system", "rt-bootstrapper-config");
    let config_map = env.kcp.get(source.0, source.1, source.2).unwrap();
    env.kcp.remove(source.0, source.1, source.2);
    assert_eq!(env.reconcile().await, Action::requeue(RETRY));

    env.kcp.put(&config_map);
    env.edit(|it| it["annotations"][KEY] = json!("true"));
    env.becomes_ready().await;
    assert_eq!(env.runtime()["metadata"]["annotations"][KEY], "true");
}

#[rstest]
#[case::absent(Value::Null)]
#[case::empty(json!(""))]
#[tokio::test]
async fn runtime_without_a_required_label_fails_until_it_has_the_label(#[case] value: Value) {
    let env = Env::new().await;
    let label = "kyma-project.io/instance-id";
    env.edit(|it| {
        let labels = it["labels"].as_object_mut().unwrap();
        labels.remove(label);
        if !value.is_null() {
            labels.insert(label.to_owned(), value);
        }
    });
    assert_eq!(env.reconcile().await, Action::await_change());
    assert_eq!(env.shown("Provisioned"), "Failed False ConversionErr");
    // The reconcile that the status update of the first reconcile causes.
    env.stays_quiet().await;

    env.edit(|it| it["labels"][label] = json!("id"));
    env.becomes_ready().await;
}
