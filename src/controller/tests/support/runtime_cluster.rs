//! Test runtime: an API server over TLS.

use std::ops::Deref;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use testkit::apiserver::{ApiServer, FaultHandle, Recorded};
use testkit::pki::Authority;
use testkit::tls::TlsServer;

/// CA of all runtimes.
pub(crate) static PKI: LazyLock<Authority> =
    LazyLock::new(|| Authority::new("kubernetes").unwrap());

/// Returns a kubeconfig of the runtime at this address, with a token.
pub(crate) fn kubeconfig(address: &str, token: &str) -> String {
    let authority = STANDARD.encode(PKI.pem());
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": address, "certificate-authority-data": authority}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    })
    .to_string()
}

/// Value that means a reset of the connection instead of a status code.
pub(crate) const RESET: u16 = 0;

/// All objects of a runtime without an installation.
pub(crate) const BARE: [&str; 3] = [
    "namespaces default",
    "namespaces kube-system",
    "namespaces kyma-system",
];

/// A test runtime; see the module. Object names have the format `secrets kyma-system/a` and `clusterroles a`.
pub(crate) struct RuntimeCluster {
    server: ApiServer,
    tls: TlsServer,
}

impl Deref for RuntimeCluster {
    type Target = ApiServer;

    fn deref(&self) -> &ApiServer {
        &self.server
    }
}

/// Splits an object name into resource, namespace and name.
fn parts(object: &str) -> (&str, &str, &str) {
    let (resource, name) = object.split_once(' ').unwrap();
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    (resource, namespace, name)
}

impl RuntimeCluster {
    /// Starts a runtime whose cluster has this UID, and which accepts the token `first`.
    pub(crate) async fn new(uid: &str) -> Self {
        let server = ApiServer::new();
        server.expect_token("first");
        server.behave(|it| it.ca_bundle = Some("Q0E="));
        server.namespace("kyma-system");
        let leaf = PKI.leaf("kube-apiserver").unwrap();
        let config = leaf.server_config(&["h2", "http/1.1"], None).unwrap();
        let tls = TlsServer::of(config, server.clone()).await.unwrap();
        let cluster = Self { server, tls };
        cluster.set_uid(uid);
        cluster
    }

    pub(crate) fn set_uid(&self, uid: &str) {
        self.change("namespaces kube-system", |it| {
            it["metadata"]["uid"] = json!(uid);
        });
    }

    pub(crate) fn address(&self) -> String {
        format!("https://{}", self.tls.address())
    }

    /// Returns the number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.tls.open()
    }

    /// Returns the writes since the last call. Drops all recorded requests.
    pub(crate) fn take(&self) -> Vec<String> {
        let requests = self.take_requests().into_iter();
        let writes = requests.filter(Recorded::is_write);
        writes.map(|it| it.asked.to_string()).collect()
    }

    /// Returns whether a write that matches the pattern got a response with any status.
    pub(crate) fn answered(&self, write: &str) -> bool {
        self.requests_of(write).iter().any(|it| it.end.is_some())
    }

    /// Returns the tokens of all requests, in order.
    pub(crate) fn tokens(&self) -> Vec<String> {
        self.requests().into_iter().map(|it| it.token).collect()
    }

    pub(crate) fn find(&self, object: &str) -> Option<Value> {
        let (resource, namespace, name) = parts(object);
        self.server.get(resource, namespace, name)
    }

    /// Returns an object of the product's namespace; the format is `secrets/a`.
    pub(crate) fn kyma(&self, object: &str) -> Option<Value> {
        let (resource, name) = object.split_once('/').unwrap();
        self.server.get(resource, "kyma-system", name)
    }

    /// Changes an object, as another client.
    pub(crate) fn change(&self, object: &str, change: impl FnOnce(&mut Value)) {
        let (resource, namespace, name) = parts(object);
        assert!(self.find(object).is_some(), "{object}");
        self.edit(resource, (namespace, name), change);
    }

    /// Deletes an object, as another client.
    pub(crate) fn drop_object(&self, object: &str) {
        let (resource, namespace, name) = parts(object);
        assert!(self.find(object).is_some(), "{object}");
        self.remove(resource, namespace, name);
    }

    /// Returns all objects.
    pub(crate) fn inventory(&self) -> Vec<String> {
        let places = self.store().places().into_iter();
        let text = places.map(|it| match it.namespace.as_str() {
            "" => format!("{} {}", it.resource, it.name),
            namespace => format!("{} {namespace}/{}", it.resource, it.name),
        });
        text.collect()
    }

    /// Keeps Pods of Deployments from becoming ready, starting with the next apply of a Deployment.
    pub(crate) fn stop_rollouts(&self) {
        let write = self.fault("apply deployments").times(1);
        write.before(|server| server.behave(|it| it.stuck = true));
    }

    /// Makes Pods of all Deployments ready, including Deployments that were written before.
    pub(crate) fn roll_out(&self) {
        self.behave(|it| it.stuck = false);
    }

    /// Responds to requests with this status until the handle stops the fault.
    pub(crate) fn outage(&self, status: u16) -> FaultHandle {
        self.fault("*").status(status)
    }

    /// Rejects writes that match a pattern with this status until the handle stops the fault.
    pub(crate) fn refuse(&self, write: &str, status: u16) -> FaultHandle {
        match status {
            RESET => self.fault(write).reset(),
            status => self.fault(write).status(status),
        }
    }

    /// Creates a Secret, as another client.
    pub(crate) fn make_secret(&self, namespace: &str, name: &str, kind: &str, copy: bool) {
        let labels = if copy {
            json!({"rt-bootstrapper.kyma-project.io/pull-secret-copy": "true"})
        } else {
            json!({})
        };
        self.put(&json!({
            "apiVersion": "v1", "kind": "Secret", "type": kind,
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
        }));
    }

    /// Creates the objects of a running webhook: its certificate, its record of revisions, its Lease, and copies in
    /// these namespaces.
    pub(crate) fn webhook_runs(&self, copies: impl Iterator<Item = String>) {
        for namespace in copies {
            let kind = "kubernetes.io/dockerconfigjson";
            self.make_secret(&namespace, "registry-credentials", kind, true);
        }
        let certificate = "rt-bootstrapper-webhook-cert";
        self.make_secret("kyma-system", certificate, "kubernetes.io/tls", false);
        self.make_secret("kyma-system", "rt-bootstrapper-revisions", "Opaque", false);
        self.put(&json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "rt-bootstrapper-webhook", "namespace": "kyma-system"},
        }));
    }
}
