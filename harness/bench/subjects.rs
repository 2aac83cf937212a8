//! The two that are compared, side by side: the no-op, and the product's webhook with a real configuration.
//!
//! Invariant: both show the same certificate on the same core. The webhook's API server is [`FakeApi`], which counts.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use api::names;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};

use super::apiserver::FakeApi;
use super::machine::Cores;
use super::process::Process;
use super::programs::Programs;
use super::reviews::{MIRROR, OPTED_IN, PLAIN, SOURCE};
use testkit::until::{holds, until};

/// The name that an API server asks for.
pub(super) const NAME: &str = "rt-bootstrapper-webhook-service.kyma-system.svc";
/// What `set-landscape` sets.
pub(super) const LANDSCAPE: &str = "bench";
/// Where the trust bundle is mounted.
pub(super) const BUNDLE_PATH: &str = "/etc/ssl/certs";

/// One of the two.
pub(super) struct Subject {
    pub(super) process: Process,
    pub(super) address: SocketAddr,
    /// Resident memory before the first load, in KiB.
    pub(super) idle: u32,
}

/// Both, and what they stand on.
pub(super) struct Subjects {
    pub(super) noop: Subject,
    pub(super) webhook: Subject,
    pub(super) api: FakeApi,
    pub(super) metrics: SocketAddr,
    folder: tempfile::TempDir,
}

impl Subjects {
    /// Starts both and waits until they serve.
    pub(super) async fn start(programs: &Programs, cores: Cores) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let authority = write_certificate(folder.path())?;
        let api = FakeApi::start(objects(&authority)).await?;
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(&kubeconfig, api.kubeconfig())?;

        let noop = start_noop(programs, cores, folder.path())?;
        let [listen, health, metrics] = [free_address()?, free_address()?, free_address()?];
        let flags = [
            "webhook".to_owned(),
            format!("--webhook-bind-address={listen}"),
            format!("--health-probe-bind-address={health}"),
            format!("--metrics-bind-address={metrics}"),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--webhook-cert-path={}", folder.path().display()),
            format!("--namespace={}", names::SKR_NAMESPACE),
            format!("--landscape={LANDSCAPE}"),
            "--leader-elect-identity=bench".to_owned(),
            "--shutdown-delay-duration=0s".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let process = Process::start("webhook", cores.subject, &programs.product, &flags)?;
        let mut subjects = Self {
            noop,
            webhook: Subject {
                process,
                address: listen,
                idle: 0,
            },
            api,
            metrics,
            folder,
        };
        subjects.settle(health).await?;
        Ok(subjects)
    }

    /// The authority that signed the certificate of both.
    pub(super) fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    /// Where files of this bench may be put.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends both.
    pub(super) async fn end(self) -> anyhow::Result<()> {
        self.noop.process.end().await?;
        self.webhook.process.end().await
    }

    async fn settle(&mut self, health: SocketAddr) -> anyhow::Result<()> {
        let noop = self.noop.address;
        until("the no-op listens", PATIENCE, || {
            tokio::net::TcpStream::connect(noop)
        })
        .await?;
        let ready = || is_ready(health);
        let waited = until("the webhook is ready", PATIENCE, ready).await;
        self.webhook.process.is_running()?;
        waited?;
        // What it does at its start (lists, the mirror's first writes) is not idling.
        holds("the webhook stays ready", SETTLING, ready).await?;
        for subject in [&mut self.noop, &mut self.webhook] {
            subject.process.is_running()?;
            subject.idle = subject.process.memory("VmRSS")?;
        }
        Ok(())
    }
}

fn start_noop(programs: &Programs, cores: Cores, folder: &Path) -> anyhow::Result<Subject> {
    let address = free_address()?;
    let arguments = [
        address.to_string(),
        folder.join("tls.crt").display().to_string(),
        folder.join("tls.key").display().to_string(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Ok(Subject {
        process: Process::start("noop", cores.subject, &programs.noop, &arguments)?,
        address,
        idle: 0,
    })
}

async fn is_ready(health: SocketAddr) -> anyhow::Result<()> {
    let answer = reqwest::get(format!("http://{health}/readyz")).await?;
    let status = answer.status();
    ensure!(
        status.is_success(),
        "{status}: {}",
        answer.text().await.unwrap_or_default()
    );
    Ok(())
}

/// One that nobody uses at the moment.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

/// Writes `tls.crt`, `tls.key` and `ca.crt` (ECDSA P-256), and gives the latter.
fn write_certificate(folder: &Path) -> anyhow::Result<String> {
    let mut ca = CertificateParams::new(Vec::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    ca.distinguished_name
        .push(DnType::CommonName, "authority of the bench");
    let ca_key = KeyPair::generate()?;
    let authority = ca.self_signed(&ca_key)?.pem();
    let key = KeyPair::generate()?;
    let leaf =
        CertificateParams::new([NAME.to_owned()])?.signed_by(&key, &Issuer::new(ca, ca_key))?;
    for (file, content) in [
        ("ca.crt", authority.clone()),
        ("tls.crt", leaf.pem()),
        ("tls.key", key.serialize_pem()),
    ] {
        fs::write(folder.join(file), content).context(file)?;
    }
    Ok(authority)
}

/// What a landscape has put into the cluster: everything that the webhook looks at.
fn objects(authority: &str) -> Vec<Value> {
    let mut objects = vec![
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": names::CONFIG_MAP, "namespace": names::SKR_NAMESPACE},
            "data": {(names::CONFIG_KEY): configuration().to_string()},
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": names::PULL_SECRET, "namespace": names::SKR_NAMESPACE},
            "type": names::DOCKER_CONFIG_TYPE,
            "data": {(names::DOCKER_CONFIG_KEY): BASE64.encode(pull_secret().to_string())},
        }),
        json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "ClusterTrustBundle",
            "metadata": {"name": BUNDLE},
            "spec": {"trustBundle": authority},
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": names::WEBHOOK_CONFIGURATION},
            "webhooks": [{
                "name": names::WEBHOOK_ENTRY,
                "admissionReviewVersions": ["v1"],
                "sideEffects": "NoneOnDryRun",
                "clientConfig": {"caBundle": BASE64.encode(authority), "service": {
                    "name": "rt-bootstrapper-webhook-service",
                    "namespace": names::SKR_NAMESPACE,
                    "path": names::WEBHOOK_PATH,
                }},
            }],
        }),
    ];
    for (name, annotations) in [
        (OPTED_IN, json!({"rt-cfg.kyma-project.io/all": "true"})),
        (PLAIN, json!({})),
        (names::SKR_NAMESPACE, json!({})),
        ("kube-system", json!({})),
    ] {
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "annotations": annotations,
                "labels": {"kubernetes.io/metadata.name": name},
            },
        }));
    }
    objects
}

fn configuration() -> Value {
    let features: Vec<&str> = api::Feature::ALL.iter().map(|it| it.key()).collect();
    json!({
        "overrides": {
            (SOURCE): format!("{MIRROR}/kyma"),
            "docker.io": format!("{MIRROR}/hub"),
            "ghcr.io": format!("{MIRROR}/ghcr"),
            "quay.io": format!("{MIRROR}/quay"),
            "registry.k8s.io": format!("{MIRROR}/k8s"),
        },
        "clusterTrustBundle": {
            "name": BUNDLE,
            "certWritePath": "landscape.pem",
            "volumeMountPath": BUNDLE_PATH,
            "volumeName": "rt-bootstrapper-certs",
        },
        "namespaceFeatures": {"kyma-system": features},
        "availableFeatures": features,
    })
}

fn pull_secret() -> Value {
    let entry = |user: &str| json!({"auth": BASE64.encode(format!("{user}:not-a-password"))});
    json!({"auths": {
        (MIRROR): entry("landscape"),
        "other.landscape.example": entry("other"),
    }})
}

const BUNDLE: &str = "landscape.example:trust:1";
const PATIENCE: Duration = Duration::from_secs(30);
const SETTLING: Duration = Duration::from_secs(3);
