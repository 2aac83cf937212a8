//! Metrics of the certificate.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of the certificate. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct CertificateMetrics {
    pub(super) expiration: Gauge,
    pub(super) issued: Family<[(&'static str, &'static str); 1], Counter>,
    pub(super) ca_bundle_updates: Counter,
    pub(super) deferrals: Family<[(&'static str, &'static str); 1], Counter>,
}

impl CertificateMetrics {
    /// Registers `certificate_expiration_timestamp_seconds` (0 without a certificate), `certificates_issued_total{reason}`,
    /// `ca_bundle_updates_total` and `certificate_activation_deferrals_total{reason}`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "certificate_expiration_timestamp_seconds",
            "Expiration time of the active serving certificate, in seconds since the epoch",
            metrics.expiration.clone(),
        );
        registry.register(
            "certificates_issued",
            "Number of issued serving certificates, by reason",
            metrics.issued.clone(),
        );
        registry.register(
            "ca_bundle_updates",
            "Number of updates of the caBundle",
            metrics.ca_bundle_updates.clone(),
        );
        registry.register(
            "certificate_activation_deferrals",
            "Number of deferred activations of a certificate, by reason",
            metrics.deferrals.clone(),
        );
        metrics
    }

    /// Creates one series in each family, for the generated reference.
    pub fn create_series(&self) {
        drop(self.issued.get_or_create(&[("reason", "")]));
        drop(self.deferrals.get_or_create(&[("reason", "")]));
    }
}
