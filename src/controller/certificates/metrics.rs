//! Metrics of the certificates of watchers.

use std::collections::BTreeMap;

use component_base::metrics::{Labels, family, register};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

const EARLIEST_EXPIRATION: &str = "runtime_certificate_earliest_expiration_timestamp_seconds";
const GATEWAY_EXPIRATION: &str = "gateway_certificate_expiration_timestamp_seconds";

/// Metrics of the certificates of watchers. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct CertificateMetrics {
    certificates: Family<Labels<1>, Gauge>,
    earliest: Gauge,
    gateway: Gauge,
    writes: Family<Labels<1>, Counter>,
    failures: Counter,
}

impl CertificateMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let certificates = "Number of Kymas by the state of their certificate: Issued, Pending, RenewalOverdue (issued by an earlier CA, and not renewed within the grace period of the newest), or the reason for which there is none (0 on replicas that do not lead)";
        let earliest = "Time at which the first certificate of a runtime expires, in seconds since the epoch; 0 if there is none";
        let gateway = "Time at which the certificate of the gateway or its CA expires, in seconds since the epoch; 0 if it is not known";
        let writes = "Number of successful writes, by action: Certificates applied, renewed or deleted, Secrets of the gateway";
        let failures =
            "Number of failed reconciles of the certificate of the gateway; they are retried";
        Self {
            certificates: family(registry, "runtime_certificates", certificates, ["state"]),
            earliest: register(registry, EARLIEST_EXPIRATION, earliest),
            gateway: register(registry, GATEWAY_EXPIRATION, gateway),
            writes: family(registry, "certificate_writes", writes, ["action"]),
            failures: register(registry, "gateway_certificate_failures", failures),
        }
    }

    pub(super) fn show_runtimes(
        &self,
        states: &BTreeMap<&'static str, i64>,
        earliest: Option<i64>,
    ) {
        self.certificates.clear();
        for (state, count) in states {
            let gauge = self.certificates.get_or_create(&[("state", state)]);
            gauge.set(*count);
        }
        self.earliest.set(earliest.unwrap_or_default());
    }

    pub(super) fn show_gateway(&self, not_after: i64) {
        self.gateway.set(not_after);
    }

    pub(super) fn wrote(&self, action: &'static str) {
        self.writes.get_or_create(&[("action", action)]).inc();
    }

    pub(super) fn failed(&self) {
        self.failures.inc();
    }
}
