//! Certificates of watchers on KCP: one for the runtime of each Kyma, one for the gateway, and the bundle of CAs.
//!
//! cert-manager issues the certificates that `policy::certificates` defines. [`runtimes`](self) keeps a Certificate
//! for each Kyma, [`gateway`](self) the Certificate and the Secret of the gateway. Runs on the leader only, in the
//! controller `watchers`.
//!
//! Invariants: an object that does not differ is not written; private keys are neither logged nor kept; a Kyma
//! without a domain, or a missing API of cert-manager, does not delay other Kymas.
//!
//! Permissions: `deploy/controller/rbac-common.yaml` and `rbac-watchers.yaml`.

use std::sync::Arc;
use std::time::Duration;

use component_base::backoff::Backoff;
use component_base::readiness::Readiness;
use jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::runtime::events::Reporter;
use kube::{Api, Client, ResourceExt as _};
use policy::certificates::{
    CERT_MANAGER_API_VERSION, CertificateInfo, CertificateSettings, renewal,
};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::dynamic::objects;
use crate::kyma::Kymas;

mod gateway;
mod istio;
mod metrics;
mod runtimes;

#[cfg(test)]
mod tests;

pub use metrics::CertificateMetrics;

/// Interval after which all certificates are reconciled without a change.
const RESYNC: Duration = Duration::from_mins(10);

/// Delay after which a request to a missing API, or without permission, is repeated.
const RETRY: Backoff = Backoff {
    base: Duration::from_secs(30),
    cap: RESYNC,
};

/// Settings of the certificates.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of Kymas.
    pub kyma_namespace: String,
    /// Namespace of the Istio Gateways.
    pub gateway_namespace: String,
    /// Secret of the CA. cert-manager creates it.
    pub ca_secret: String,
    /// Secret of the gateway: the `credentialName` of the Istio Gateways.
    pub gateway_secret: String,
    /// Certificate of the gateway, and its Secret.
    pub gateway_certificate: String,
    /// Host of the gateway for watchers, in addition to the hosts of the Istio Gateways.
    pub gateway_host: Option<String>,
    /// Time after which runtimes count as trusting a new CA.
    pub grace_period: Duration,
    /// Settings that all certificates have in common.
    pub certificates: CertificateSettings,
}

/// Arguments of [`run`].
#[derive(Clone)]
pub struct CertificateOptions {
    /// Client of KCP.
    pub client: Client,
    /// Settings.
    pub settings: Settings,
    /// Readiness checks of the process.
    pub readiness: Readiness,
    /// Reporter of Kubernetes Events.
    pub reporter: Reporter,
    /// Metrics.
    pub metrics: CertificateMetrics,
}

/// The gateway, once its certificate is issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedGateway {
    /// The CA that issues certificates.
    ca: CertificateInfo,
    /// Time at which the CA was added to the bundle, in Unix seconds.
    ca_added: i64,
    /// All CAs that runtimes trust, in PEM.
    pub(crate) bundle: Arc<str>,
    /// Address at which watchers reach the gateway. `None` if no Istio Gateway with the Secret has an address.
    pub(crate) address: Option<Arc<str>>,
    /// SHA-256 of the bundle in hexadecimal digits, if the gateway waits until all runtimes trust it.
    pub(crate) waits_for: Option<String>,
}

#[cfg(test)]
impl IssuedGateway {
    /// Returns a gateway that trusts the CAs of a bundle. The first CA of the bundle is the newest.
    pub(crate) fn of(bundle: &str, address: Option<&str>) -> Self {
        Self {
            ca: CertificateInfo::first(bundle.as_bytes()).unwrap(),
            ca_added: 0,
            bundle: bundle.into(),
            address: address.map(Into::into),
            waits_for: None,
        }
    }
}

/// Reason: cert-manager has not issued the CA or the certificate of the gateway yet.
pub(crate) const GATEWAY_CERTIFICATE_PENDING: &str = "GatewayCertificatePending";

/// Reason: KCP does not serve the kinds of cert-manager.
pub(crate) const CERT_MANAGER_API_NOT_SERVED: &str = "CertManagerAPINotServed";

/// The gateway, or the reason why no certificate was issued for it.
pub type GatewayStatus = Result<IssuedGateway, &'static str>;

/// Receiver of the state of the gateway.
pub type GatewayReceiver = watch::Receiver<GatewayStatus>;

/// Creates the channel for the state of the gateway: a sender for [`run`], and a receiver for controllers that depend
/// on the gateway.
#[must_use]
pub fn gateway_channel() -> (watch::Sender<GatewayStatus>, GatewayReceiver) {
    watch::channel(Err(GATEWAY_CERTIFICATE_PENDING))
}

impl CertificateOptions {
    fn certificates(&self) -> Api<DynamicObject> {
        let namespace = &self.settings.certificates.namespace;
        objects(
            &self.client,
            namespace,
            (CERT_MANAGER_API_VERSION, "Certificate"),
        )
    }

    /// Requests that cert-manager renews a Certificate, unless a renewal is already in progress.
    async fn renew(&self, live: &DynamicObject) -> kube::Result<()> {
        let Some(conditions) = renewal(&json!(live), Timestamp::now()) else {
            return Ok(());
        };
        let patch = json!({
            "metadata": { "resourceVersion": live.resource_version() },
            "status": { "conditions": conditions },
        });
        let (name, patch) = (live.name_any(), Patch::Merge(&patch));
        let parameters = PatchParams::default();
        self.certificates()
            .patch_status(&name, &parameters, &patch)
            .await?;
        self.metrics.wrote("renew");
        tracing::info!(certificate = name, "renewal of Certificate requested");
        Ok(())
    }
}

/// Reconciles all certificates until the token is canceled. Failures are retried, counted and logged.
pub async fn run(
    options: CertificateOptions,
    kymas: Kymas,
    issued: watch::Sender<GatewayStatus>,
    acknowledged: watch::Receiver<Option<String>>,
    token: CancellationToken,
) {
    let current = issued.subscribe();
    tokio::join!(
        Box::pin(runtimes::run(
            options.clone(),
            kymas,
            current,
            token.clone()
        )),
        token.run_until_cancelled(gateway::run(options, issued, acknowledged)),
    );
}
