//! What is counted of the certificate.
//!
//! Invariant: each number is written in one place. Deliberately absent: the registry's prefix, which the process gives.

use chassis::metrics::create_series;
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// - `certificate_expiration_timestamp_seconds`: when the leaf in use expires, seconds since 1970; 0 while there is none;
/// - `certificates_issued_total{reason}`: Secrets written, with [`super::Reason`];
/// - `ca_bundle_updates_total`: `caBundle`s written;
/// - `certificate_activation_deferrals_total{reason}`: how often a replica began to hold a certificate back.
///
/// Clones share the numbers.
#[derive(Clone, Debug, Default)]
pub struct CertificateMetrics {
    expiry: Gauge,
    reissues: Family<Labels, Counter>,
    bundle_writes: Counter,
    holds: Family<Labels, Counter>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    reason: &'static str,
}

impl CertificateMetrics {
    /// Metrics that the registry shows.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "certificate_expiration_timestamp_seconds",
            "Expiration time of the active serving certificate, in seconds since the epoch",
            metrics.expiry.clone(),
        );
        registry.register(
            "certificates_issued",
            "Number of issued serving certificates, by reason",
            metrics.reissues.clone(),
        );
        registry.register(
            "ca_bundle_updates",
            "Number of updates of the caBundle",
            metrics.bundle_writes.clone(),
        );
        registry.register(
            "certificate_activation_deferrals",
            "Number of deferred activations of a certificate, by reason",
            metrics.holds.clone(),
        );
        metrics
    }

    /// Creates one series in each family, for the generated reference: see [`chassis::metrics::create_series`].
    pub fn create_series(&self) {
        create_series(&self.reissues);
        create_series(&self.holds);
    }

    pub(super) fn serving_until(&self, expiry: Timestamp) {
        self.expiry.set(expiry.as_second());
    }

    pub(super) fn reissued(&self, reason: &'static str) {
        self.reissues.get_or_create(&Labels { reason }).inc();
    }

    pub(super) fn bundle_written(&self) {
        self.bundle_writes.inc();
    }

    pub(super) fn held(&self, reason: &'static str) {
        self.holds.get_or_create(&Labels { reason }).inc();
    }
}
