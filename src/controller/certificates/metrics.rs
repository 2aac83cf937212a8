//! Metrics of the certificates of watchers.

use std::collections::BTreeMap;

use component_base::metrics::create_series;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of the certificates of watchers. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct CertificateMetrics {
    certificates: Family<State, Gauge>,
    earliest: Gauge,
    gateway: Gauge,
    writes: Family<Action, Counter>,
    failures: Counter,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Action {
    action: &'static str,
}

impl CertificateMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "runtime_certificates",
            "Number of Kymas by the state of their certificate: Issued, Pending, or the reason for which there is none (0 on replicas that do not lead)",
            metrics.certificates.clone(),
        );
        registry.register(
            "runtime_certificate_earliest_expiration_timestamp_seconds",
            "Time at which the first certificate of a runtime expires, in seconds since the epoch; 0 if there is none",
            metrics.earliest.clone(),
        );
        registry.register(
            "gateway_certificate_expiration_timestamp_seconds",
            "Time at which the certificate of the gateway expires, in seconds since the epoch; 0 if it is not known",
            metrics.gateway.clone(),
        );
        registry.register(
            "certificate_writes",
            "Number of successful writes, by action: Certificates applied, renewed or deleted, Secrets of the gateway",
            metrics.writes.clone(),
        );
        registry.register(
            "gateway_certificate_failures",
            "Number of failed reconciles of the certificate of the gateway; they are retried",
            metrics.failures.clone(),
        );
        metrics
    }

    /// Creates one series in each family, for the generated reference: see [`component_base::metrics::create_series`].
    pub fn create_series(&self) {
        create_series(&self.certificates);
        create_series(&self.writes);
    }

    pub(super) fn show_runtimes(
        &self,
        states: &BTreeMap<&'static str, i64>,
        earliest: Option<i64>,
    ) {
        self.certificates.clear();
        for (state, count) in states {
            self.certificates
                .get_or_create(&State { state })
                .set(*count);
        }
        self.earliest.set(earliest.unwrap_or_default());
    }

    pub(super) fn show_gateway(&self, not_after: i64) {
        self.gateway.set(not_after);
    }

    pub(super) fn wrote(&self, action: &'static str) {
        self.writes.get_or_create(&Action { action }).inc();
    }

    pub(super) fn failed(&self) {
        self.failures.inc();
    }
}
