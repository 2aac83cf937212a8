//! The serving certificate and the `caBundle` that goes with it: issued, published, rotated, served.
//!
//! Invariants:
//! - the live `caBundle` trusts a leaf before any replica serves it, and goes on trusting the one before for as
//!   long as that one is valid (with certificate files: for a day);
//! - a replica never gives up a leaf that works for one that does not;
//! - nothing is written when nothing differs, and the webhook configuration and its entry are never created here.
//!
//! ```text
//! Secret (or files) ─┬─ leader: keep_issued ──> Secret, caBundle
//! webhook entry ─────┴─ every replica: serve_from_… ──> TlsHandle      self_probe: asks us as the API server would
//! ```
//!
//! Rights of every replica, all limited by `resourceNames` (the watches select by `metadata.name`, without which an API
//! server refuses such a limited list or watch):
//! - `secrets` named `rt-bootstrapper-webhook-cert` in the product namespace (Role): `get`, `list`, `watch`; not
//!   needed with certificate files;
//! - `mutatingwebhookconfigurations.admissionregistration.k8s.io` named
//!   `rt-bootstrapper-mutating-webhook-configuration` (ClusterRole): `get`, `list`, `watch`.
//!
//! Rights that the leader needs beside these are at [`keep_issued`] and [`publish_authorities`]. All replicas share one
//! ServiceAccount, so grant both.
//!
//! Deliberately absent: leader election (`chassis::lease`), the TLS server (`serve`), and when this process is ready.

use std::time::Duration;

use api::names::{SKR_NAMESPACE, WEBHOOK_CONFIGURATION, WEBHOOK_ENTRY};

pub use self::bundle::Bundle;
pub use self::files::{CertificateFiles, watch_files};
pub use self::issue::{IssueError, Keys, Order, issue};
pub use self::keep::{Keeper, keep_issued, publish_authorities};
pub use self::material::{Material, Pair, PairError, Validity};
pub use self::metrics::CertificateMetrics;
pub use self::observe::{Cell, LiveEntry, Sighting, StoredSecret, watch_entry, watch_secret};
pub use self::plan::{Plan, Reason, plan};
pub use self::present::{Presenter, serve_from_files, serve_from_secret};
pub use self::probe::{ProbeAnswer, ProbeError, Question, callers_trust, self_probe};

mod bundle;
mod files;
mod gate;
mod issue;
mod keep;
mod material;
mod metrics;
mod observe;
mod plan;
mod present;
mod probe;
#[cfg(test)]
mod testing;

/// The Secret with the serving certificate.
pub const CERTIFICATE_SECRET: &str = api::names::WEBHOOK_CERTIFICATE;

/// The Service that the webhook configuration points to.
pub const WEBHOOK_SERVICE: &str = "rt-bootstrapper-webhook-service";

/// The type of the Secret.
pub const TLS_TYPE: &str = "kubernetes.io/tls";

/// How long a leaf and its CA are valid: the public installation's issuers use 90 days as well. At two thirds a new
/// pair is made, so a control plane may be broken for 30 days before anything stops.
pub const LIFETIME: Duration = Duration::from_hours(90 * 24);

/// Clocks may be wrong at any time, and a long wait does not notice that one was set; so look again this often.
const LOOK_AGAIN: Duration = Duration::from_hours(1);

/// Which objects and names this is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSettings {
    /// Where the Secret is.
    pub namespace: String,
    /// What the Secret is called.
    pub secret: String,
    /// The `MutatingWebhookConfiguration`.
    pub configuration: String,
    /// The entry in it whose `caBundle` is ours.
    pub entry: String,
    /// What an API server, and a human in the cluster, may call the Service. The first is what an API server asks for.
    pub dns_names: Vec<String>,
    /// How long a pair is valid from its issue.
    pub lifetime: Duration,
}

impl CertificateSettings {
    /// The product's names, in the namespace that it is installed in.
    #[must_use]
    pub fn in_namespace(namespace: &str) -> Self {
        let service = WEBHOOK_SERVICE;
        Self {
            namespace: namespace.to_owned(),
            secret: CERTIFICATE_SECRET.to_owned(),
            configuration: WEBHOOK_CONFIGURATION.to_owned(),
            entry: WEBHOOK_ENTRY.to_owned(),
            dns_names: vec![
                format!("{service}.{namespace}.svc"),
                format!("{service}.{namespace}.svc.cluster.local"),
                format!("{service}.{namespace}"),
                service.to_owned(),
            ],
            lifetime: LIFETIME,
        }
    }

    /// The name that an API server verifies: `<service>.<namespace>.svc`.
    #[must_use]
    pub fn server_name(&self) -> &str {
        self.dns_names
            .first()
            .map_or(WEBHOOK_SERVICE, String::as_str)
    }
}

impl Default for CertificateSettings {
    fn default() -> Self {
        Self::in_namespace(SKR_NAMESPACE)
    }
}
