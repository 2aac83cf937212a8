//! Fixture of all tests of the crate: a control plane with the permissions of the released Roles, and the objects on it.

use std::ops::Deref;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use component_base::client::RequestMetrics;
use component_base::readiness::Readiness;
use kube::Client;
use policy::certificates::{CertificateSettings, KeyAlgorithm};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use testkit::apiserver::{ApiServer, FaultHandle, Kind, Recorded, Rights, kinds};
use testkit::pki::Authority;

use crate::certificates::Settings;
use crate::kyma::{self, KymaOptions, Kymas};

/// The namespace of the controller, unless a test chooses another one.
pub(crate) const NAMESPACE: &str = "kcp-system";

/// The namespace of Certificates and of the gateway's Secret.
pub(crate) const ISTIO_NAMESPACE: &str = "istio-system";

/// The Secret of the CA.
pub(crate) const CA_SECRET: &str = "klm-watcher";

/// The Secret of the gateway.
pub(crate) const GATEWAY_SECRET: &str = "klm-istio-gateway";

/// The Certificate of the gateway.
pub(crate) const GATEWAY_CERTIFICATE: &str = "klm-watcher-gateway";

/// Names of the pull Secret that tests configure.
const PULL_SECRETS: &str = "[pull, pul]";

/// Mode of the controller, which determines the permissions from the released Roles.
#[derive(Clone, Copy)]
pub(crate) enum Mode {
    Signal,
    Direct,
    Watchers,
}

impl Mode {
    fn rights(self, namespace: &str) -> Rights {
        let common = include_str!("../../../../deploy/controller/rbac-common.yaml");
        let direct = include_str!("../../../../deploy/controller/rbac-direct.yaml");
        let watchers = include_str!("../../../../deploy/controller/rbac-watchers.yaml");
        let files = match self {
            Self::Signal => vec![common],
            Self::Watchers => vec![common, watchers],
            Self::Direct => vec![common, direct],
        };
        let roles: Vec<Value> = files
            .iter()
            .flat_map(|text| {
                let text = text.replace(NAMESPACE, namespace);
                let text = text.replace("[registry-credentials]", PULL_SECRETS);
                serde_saphyr::from_multiple::<Value>(&text).unwrap()
            })
            .collect();
        Rights::of_roles(&roles)
    }
}

/// The API server of a control plane. An object without a namespace is created in the namespace of the controller.
#[derive(Clone)]
pub(crate) struct ControlPlane {
    server: ApiServer,
    pub(crate) namespace: &'static str,
}

impl Deref for ControlPlane {
    type Target = ApiServer;

    fn deref(&self) -> &ApiServer {
        &self.server
    }
}

impl ControlPlane {
    pub(crate) fn new(mode: Mode) -> Self {
        Self::in_namespace(mode, NAMESPACE)
    }

    pub(crate) fn in_namespace(mode: Mode, namespace: &'static str) -> Self {
        let server = ApiServer::with_kinds([
            &kinds::RUNTIMES,
            &kinds::BOOTSTRAPPERS,
            &kinds::ROLLOUTS,
            &kinds::WATCHERS,
            &kinds::VIRTUAL_SERVICES,
            &kinds::GATEWAYS,
            &kinds::KYMAS,
            &kinds::CERTIFICATES,
        ]);
        server.behave(|it| it.rights = mode.rights(namespace));
        server.namespace(namespace);
        server.namespace(ISTIO_NAMESPACE);
        Self { server, namespace }
    }

    /// Returns a client as the product creates it.
    pub(crate) fn client(&self) -> Client {
        let requests = RequestMetrics::register(&mut Registry::default());
        let timeout = Duration::from_secs(15);
        component_base::client::with_transport(self.service(), self.namespace, timeout, &requests)
    }

    /// Returns the Kymas for both controllers that reconcile them, and the future of their watch.
    pub(crate) fn kymas(
        &self,
        readiness: &Readiness,
    ) -> (Kymas, Kymas, impl Future<Output = ()> + Send + use<>) {
        kyma::share(&KymaOptions {
            client: self.client(),
            readiness: readiness.clone(),
            namespace: NAMESPACE.to_owned(),
            certificate_namespace: ISTIO_NAMESPACE.to_owned(),
            gateway_certificate: GATEWAY_CERTIFICATE.to_owned(),
        })
    }

    fn home(&self, plural: &str) -> &str {
        match plural {
            "clustertrustbundles" | "namespaces" => "",
            _ => self.namespace,
        }
    }

    /// Creates or replaces an object, as another client.
    pub(crate) fn put(&self, mut object: Value) {
        if object["kind"] != "ClusterTrustBundle" {
            object["metadata"]["namespace"] = json!(self.namespace);
        }
        let stored = self.store().put(&object);
        assert!(stored.is_some(), "not served: {object}");
    }

    pub(crate) fn object(&self, plural: &str, name: &str) -> Option<Value> {
        self.server.get(plural, self.home(plural), name)
    }

    /// Applies a merge patch, as another client.
    pub(crate) fn merge(&self, plural: &str, name: &str, patch: &Value) {
        let place = (self.home(plural), name);
        assert!(self.object(plural, name).is_some(), "{plural} {name}");
        self.edit(plural, place, |object| json_patch::merge(object, patch));
    }

    /// Deletes an object, as another client. An object with finalizers remains.
    pub(crate) fn delete(&self, plural: &str, name: &str) {
        assert!(self.object(plural, name).is_some(), "{plural} {name}");
        self.server.delete(plural, self.home(plural), name);
    }

    /// Sets whether the kind is served.
    pub(crate) fn serve(&self, kind: &'static Kind, served: bool) {
        self.behave(|it| {
            let others = it.kinds.iter().copied().filter(|it| *it != kind);
            it.kinds = others.chain(served.then_some(kind)).collect();
        });
    }

    /// Rejects reads of a kind with 403 until the handle stops the fault.
    pub(crate) fn forbid_reads(&self, plurals: &str) -> FaultHandle {
        let reads = self.fault(&format!("get|list|watch {plurals}"));
        reads.status(403)
    }

    /// Returns the writes of objects of a kind, including writes of the status.
    pub(crate) fn writes_of(&self, plural: &str) -> Vec<Recorded> {
        let mut requests = self.requests_of(&format!("* {plural}|{plural}/status"));
        requests.retain(Recorded::is_write);
        requests
    }

    /// Returns the number of created Events with a reason.
    pub(crate) fn events_of(&self, reason: &str) -> usize {
        self.events().iter().filter(|it| *it == reason).count()
    }

    /// Returns the reasons of the created Events.
    pub(crate) fn events(&self) -> Vec<String> {
        let created = self.requests_of("create events");
        let reason = |it: &Recorded| it.body["reason"].as_str().unwrap().to_owned();
        created.iter().map(reason).collect()
    }
}

/// Returns the settings of the controller of Certificates.
pub(crate) fn certificate_settings() -> Settings {
    Settings {
        kyma_namespace: NAMESPACE.to_owned(),
        gateway_namespace: NAMESPACE.to_owned(),
        ca_secret: CA_SECRET.to_owned(),
        gateway_secret: GATEWAY_SECRET.to_owned(),
        gateway_certificate: GATEWAY_CERTIFICATE.to_owned(),
        gateway_host: None,
        grace_period: Duration::from_hours(96),
        certificates: CertificateSettings {
            namespace: ISTIO_NAMESPACE.to_owned(),
            issuer: "klm-watcher-selfsigned".to_owned(),
            algorithm: KeyAlgorithm::EcdsaP256,
            duration: 5_184_000,
            renew_before: 2_592_000,
            skr_namespace: "kyma-system".to_owned(),
        },
    }
}

/// Returns a configuration ConfigMap that overrides `docker.io` with this registry.
pub(crate) fn config_map(registry: &str) -> Value {
    let document = json!({"overrides": {"docker.io": registry}}).to_string();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rt-bootstrapper-config"},
        "data": {"rt-bootstrapper-config.json": document},
    })
}

/// Returns a pull Secret with this password.
pub(crate) fn pull_secret(password: &str) -> Value {
    let config = json!({"auths": {"registry.example": {"username": "u", "password": password}}});
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull"},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": STANDARD.encode(config.to_string())},
    })
}

/// Returns a new certificate in PEM.
pub(crate) fn roots() -> String {
    Authority::new("root.example").unwrap().pem().to_owned()
}

/// Returns a ClusterTrustBundle with a new certificate.
pub(crate) fn trust_bundle() -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": {"name": "roots"}, "spec": {"trustBundle": roots()},
    })
}

/// Returns a `RuntimeBootstrapper` without settings.
pub(crate) fn bootstrapper(name: &str) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "RuntimeBootstrapper",
        "metadata": {"name": name}, "spec": {},
    })
}
