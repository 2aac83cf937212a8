//! The webhook and its environment: configuration, Namespaces, pull Secret and trust bundle of a landscape, in a separate
//! [`ApiServer`] that records its requests. Metrics and logs are on, all other flags have their defaults, and the webhook is
//! the leader.

use api::names;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clusters::control_plane::Sources;
use serde_json::{Value, json};
use testkit::apiserver::ApiServer;
use testkit::json::kubeconfig;
use testkit::pki::{Authority, rcgen::SanType};
use testkit::tls::TlsServer;

use crate::environment::Bench;
use crate::load::{Server, Target};
use crate::process::Program;

pub(super) struct Landscape<'a> {
    pub(super) program: Program<'a>,
    pub(super) api: ApiServer,
    target: Target,
    _api_server: TlsServer,
}

impl<'a> Landscape<'a> {
    /// Prepares the webhook without starting it; `name` is the name of its logs.
    pub(super) async fn of(
        bench: &'a Bench,
        name: &'static str,
        authority: &Authority,
    ) -> anyhow::Result<Self> {
        // The webhook requires the name of its Service in the certificate.
        let service = format!("{SERVICE}.{}.svc", names::SKR_NAMESPACE).try_into()?;
        let service = Some(SanType::DnsName(service));
        let program = Program::with_certificate(bench, name, authority, service)?;
        let api = ApiServer::new();
        put_objects(&api, authority.pem())?;
        let leaf = authority.leaf("kube-apiserver")?;
        let server = leaf.server_config(&["h2", "http/1.1"], None)?;
        let api_server = TlsServer::of(server, api.clone()).await?;
        let cluster = json!({
            "server": format!("https://{}", api_server.address()),
            "certificate-authority-data": BASE64.encode(authority.pem()),
        });
        let kubeconfig = kubeconfig("bench", &cluster, &json!({"token": "bench"}));
        std::fs::write(program.file("kubeconfig"), kubeconfig)?;
        let target = Target::tls(program.address, authority.roots(), None)?;
        Ok(Self {
            program,
            api,
            target,
            _api_server: api_server,
        })
    }

    /// Starts the webhook, which is not ready yet; `identity` is the holder of its Lease.
    pub(super) fn start(&self, identity: &str) -> anyhow::Result<Server> {
        let program = &self.program;
        let process = program.start(vec![
            "webhook".to_owned(),
            format!("--webhook-bind-address={}", program.address),
            format!("--metrics-bind-address={}", program.metrics),
            format!("--kubeconfig={}", program.file("kubeconfig")),
            format!("--webhook-cert-path={}", program.file("")),
            format!("--namespace={}", names::SKR_NAMESPACE),
            format!("--landscape={LANDSCAPE}"),
            format!("--leader-elect-identity={identity}"),
            "--shutdown-delay-duration=0s".to_owned(),
        ])?;
        let target = self.target.clone();
        Ok(Server { process, target })
    }
}

/// Returns a Namespace that opts in to all features or to none.
pub(super) fn namespace(name: &str, opts_in: bool) -> Value {
    let annotations = if opts_in {
        json!({"rt-cfg.kyma-project.io/all": "true"})
    } else {
        json!({})
    };
    let labels = json!({"kubernetes.io/metadata.name": name});
    let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}

fn put_objects(api: &ApiServer, authority: &str) -> anyhow::Result<()> {
    for object in Sources::of_version(0)?.objects(names::SKR_NAMESPACE) {
        api.put(&object);
    }
    api.put(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": names::WEBHOOK_CONFIGURATION},
        "webhooks": [{
            "name": names::WEBHOOK_ENTRY, "admissionReviewVersions": ["v1"], "sideEffects": "NoneOnDryRun",
            "clientConfig": {"caBundle": BASE64.encode(authority), "service": {
                "name": SERVICE, "namespace": names::SKR_NAMESPACE, "path": names::WEBHOOK_PATH,
            }},
        }],
    }));
    for (name, opts_in) in [(OPTED_IN, true), (PLAIN, false)] {
        api.put(&namespace(name, opts_in));
    }
    Ok(())
}

const SERVICE: &str = "rt-bootstrapper-webhook-service";
/// Name of the Namespace that opts in to all features. The Namespace [`PLAIN`] opts in to none.
pub(super) const OPTED_IN: &str = "orders";
pub(super) const PLAIN: &str = "plain";
pub(super) const LANDSCAPE: &str = "bench";
