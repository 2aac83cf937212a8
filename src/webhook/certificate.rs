//! The serving certificate and the `caBundle` that verifies it: issued, published, rotated, served.
//!
//! - The live `caBundle` verifies a certificate before a replica serves it, and continues to verify the previous certificate
//!   as long as that is valid (with certificate files: for a day).
//! - A replica never replaces a working certificate by a certificate that does not work.
//! - Nothing is written if nothing differs, and the webhook configuration and its entry are never created here.
//!
//! ```text
//! Secret (or files) ─┬─ leader: Certificates::reconcile ──> Secret, caBundle
//! webhook entry ─────┴─ every replica: Certificates::run ──> TlsHandle
//! ```
//!
//! Permissions of each replica, limited by `resourceNames` (the watches select by `metadata.name`, because otherwise an API
//! server rejects a list or watch with such a limit):
//! - `secrets` named `rt-bootstrapper-webhook-cert` in the product namespace (Role): `get`, `list`, `watch`; not required with
//!   certificate files;
//! - `mutatingwebhookconfigurations.admissionregistration.k8s.io` named
//!   `rt-bootstrapper-mutating-webhook-configuration` (ClusterRole): `get`, `list`, `watch`.
//!
//! The permissions of the leader are listed at [`Certificates::reconcile`]. All replicas share one ServiceAccount, so it
//! requires both.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::names::{WEBHOOK_CERTIFICATE as SECRET, WEBHOOK_ENTRY as ENTRY};
use component_base::metrics::{family, register};
use component_base::readiness::Readiness;
use kube::Client;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serve::TlsHandle;
use tokio::sync::watch;

pub(crate) use self::bundle::Bundle;
pub(crate) use self::observed::{LiveEntry, Material, Observed, StoredCertificate, callers_trust};
pub(crate) use self::server::CertificateServer;

use self::issue::issue;

mod bundle;
#[cfg(test)]
pub(crate) mod fixtures;
mod issue;
mod observed;
mod plan;
mod reconcile;
mod server;

/// Name of the Service to which the webhook configuration refers.
const SERVICE: &str = "rt-bootstrapper-webhook-service";

/// Type of the Secret.
const TLS_TYPE: &str = "kubernetes.io/tls";

/// Validity of a leaf and its CA. The issuers of the public installation also use 90 days. Certificates are renewed after
/// two thirds of it, so a control plane may be broken for 30 days without consequences.
const LIFETIME: Duration = Duration::from_hours(90 * 24);

/// Maximum wait. A longer wait would not detect a change of the clock.
const LOOK_AGAIN: Duration = Duration::from_hours(1);

/// Names of the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateSettings {
    namespace: String,
    configuration: String,
    dns_names: Vec<String>,
}

impl CertificateSettings {
    /// Creates the settings with this namespace of Secret and Service, and the name of this `MutatingWebhookConfiguration`.
    pub(crate) fn new(namespace: &str, configuration: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            configuration: configuration.to_owned(),
            dns_names: vec![
                format!("{SERVICE}.{namespace}.svc"),
                format!("{SERVICE}.{namespace}.svc.cluster.local"),
                format!("{SERVICE}.{namespace}"),
                SERVICE.to_owned(),
            ],
        }
    }

    /// Returns the name that an API server verifies: `<service>.<namespace>.svc`.
    pub(crate) fn server_name(&self) -> &str {
        self.dns_names.first().map_or(SERVICE, String::as_str)
    }
}

/// The certificate of this process. Clones share the observed state.
#[derive(Clone)]
pub struct Certificates {
    client: Client,
    settings: Arc<CertificateSettings>,
    metrics: CertificateMetrics,
    /// Directory of certificate files; `None` if the Secret is used.
    files: Option<PathBuf>,
    certificate: watch::Sender<Observed<StoredCertificate>>,
    entry: watch::Sender<Observed<LiveEntry>>,
}

impl Certificates {
    /// Creates the state for the certificate in the Secret of the namespace, or in `tls.crt`, `tls.key` and `ca.crt` of the
    /// directory `files`, and for the entry in the `MutatingWebhookConfiguration` of that name.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: &str,
        configuration: &str,
        files: Option<PathBuf>,
        metrics: CertificateMetrics,
    ) -> Self {
        Self {
            client,
            settings: Arc::new(CertificateSettings::new(namespace, configuration)),
            metrics,
            files,
            certificate: watch::Sender::default(),
            entry: watch::Sender::default(),
        }
    }

    /// Returns the name that an API server verifies: `<service>.<namespace>.svc`.
    pub(crate) fn server_name(&self) -> &str {
        self.settings.server_name()
    }

    /// Returns the CAs that API servers trust: the live `caBundle`, or the future `caBundle` while there is no entry.
    pub(crate) fn callers_trust(&self) -> Bundle {
        callers_trust(&self.entry.borrow(), &self.certificate.borrow())
    }

    /// Observes certificate and entry, and serves the certificate. Each replica calls this method. Never ends.
    ///
    /// `tls` is the TLS configuration of the server. The readiness checks of the watches are ready once it is known whether
    /// the objects exist, and the check `certificate` is not ready without a valid certificate.
    pub async fn run(&self, tls: TlsHandle, readiness: &Readiness) {
        let server = CertificateServer {
            tls,
            condition: readiness.check("certificate"),
            metrics: self.metrics.clone(),
            settings: Arc::clone(&self.settings),
            active: None,
            deferred: None,
            next: None,
            valid_from: None,
        };
        let (certificate, entry) = (self.certificate.subscribe(), self.entry.subscribe());
        let observe_certificate = async {
            if let Some(directory) = &self.files {
                self.watch_files(directory).await;
            } else {
                let synced = readiness.check("certificate-watch");
                self.watch_secret(synced).await;
            }
        };
        tokio::join!(
            self.watch_entry(readiness.check("webhook-configuration-watch")),
            observe_certificate,
            server.run(certificate, entry),
        );
    }
}

/// Metrics of the certificate. Clones share the metrics.
#[derive(Clone, Debug, Default)]
pub struct CertificateMetrics {
    expiration: Gauge,
    issued: Family<[(&'static str, &'static str); 1], Counter>,
    ca_bundle_updates: Counter,
    deferrals: Family<[(&'static str, &'static str); 1], Counter>,
}

impl CertificateMetrics {
    /// Registers `certificate_expiration_timestamp_seconds` (0 without a certificate), `certificates_issued_total{reason}`,
    /// `ca_bundle_updates_total` and `certificate_activation_deferrals_total{reason}`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let help = "Expiration time of the active serving certificate, in seconds since the epoch";
        let expiration = register(registry, "certificate_expiration_timestamp_seconds", help);
        let issued = "Number of issued serving certificates, by reason";
        let ca_bundle_updates = "Number of updates of the caBundle";
        let deferrals = "Number of deferred activations of a certificate, by reason";
        Self {
            expiration,
            issued: family(registry, "certificates_issued", issued, ["reason"]),
            ca_bundle_updates: register(registry, "ca_bundle_updates", ca_bundle_updates),
            deferrals: family(
                registry,
                "certificate_activation_deferrals",
                deferrals,
                ["reason"],
            ),
        }
    }
}
