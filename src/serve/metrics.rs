//! Counters of one server, and the set of metrics that each component with a server exposes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter of a server. [`Open`](Self::Open) and [`BodyBytes`](Self::BodyBytes) are gauges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Counter {
    /// Number of open connections, including handshakes.
    Open,
    /// Bytes of request bodies in memory, both incomplete and being handled, in blocks of 16 KiB.
    BodyBytes,
    /// TCP connections that were accepted from the listener, including rejected connections.
    Accepted,
    /// Connections that were closed for newer connections, while none of their requests was being handled.
    Evicted,
    /// Connections that were closed at once because the requests of all other connections were being handled.
    Rejected,
    /// Connections that were aborted at the end of the shutdown timeout.
    Aborted,
    /// Errors of accepting: no file descriptors, or a client that left the backlog.
    AcceptErrors,
    /// Connections that were closed at once because there was no certificate yet.
    WithoutCertificate,
    /// Clients that closed the connection before they sent a byte, as TCP probes do.
    ClosedBeforeHandshake,
    /// Clients that sent HTTP without TLS.
    PlainHttp,
    /// TLS handshakes that failed, including those in [`CertificateRejections`](Self::CertificateRejections).
    HandshakeFailures,
    /// TLS handshakes that the client ended with an alert about the certificate of this server, as clients do that do not
    /// trust it. Other failures, such as those of port scanners, give no information about the certificate.
    CertificateRejections,
    /// TLS handshakes that were not completed in time.
    HandshakeTimeouts,
    /// Requests whose header was read.
    Requests,
    /// Requests with the response 400 or 431, because their header is not valid HTTP/1, or is ambiguous.
    BadRequests,
    /// Connections that were closed because a header was not complete in time.
    HeaderTimeouts,
    /// Requests with the response 408.
    BodyTimeouts,
    /// Requests with the response 413.
    BodyTooLarge,
    /// Requests with the response 503, because the memory for all request bodies was exhausted.
    BodyOverBudget,
    /// Panics of handlers, with the response 500 if a response was still possible.
    Panics,
}

/// Number of counters. [`Counter::Panics`] is the last one.
const COUNTERS: usize = Counter::Panics as usize + 1;

/// Handle of the counters of one server, with cheap reads and writes. Clones share the counters.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    counters: Arc<[AtomicU64; COUNTERS]>,
}

impl Statistics {
    /// Returns the current value. Values of several calls may be from different moments.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.of(counter).load(Ordering::Relaxed)
    }

    pub(crate) fn add_one(&self, counter: Counter) {
        self.add(counter, 1);
    }

    pub(crate) fn add(&self, counter: Counter, number: u64) {
        self.of(counter).fetch_add(number, Ordering::Relaxed);
    }

    pub(crate) fn subtract_one(&self, counter: Counter) {
        self.of(counter).fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, counter: Counter, value: usize) {
        let value = value.try_into().unwrap_or(u64::MAX);
        self.of(counter).store(value, Ordering::Relaxed);
    }

    fn of(&self, counter: Counter) -> &AtomicU64 {
        &self.counters[counter as usize]
    }
}

#[cfg(feature = "metrics")]
pub use self::collector::{register, register_servers};

#[cfg(feature = "metrics")]
mod collector {
    use std::fmt;

    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
    use prometheus_client::metrics::counter::ConstCounter;
    use prometheus_client::metrics::gauge::ConstGauge;
    use prometheus_client::registry::Registry;

    use super::{Counter, Statistics};

    /// Registers the counters of a server as `server_…`, below the prefix of the registry. They are read at each scrape.
    pub fn register(registry: &mut Registry, statistics: Statistics) {
        let server = (Vec::new(), statistics);
        registry.register_collector(Box::new(ServerCollector(vec![server])));
    }

    /// Registers the counters of all servers of a process as [`register`] does, with the name of each server as the label `server`.
    pub fn register_servers(
        registry: &mut Registry,
        servers: impl IntoIterator<Item = (&'static str, Statistics)>,
    ) {
        let servers = servers.into_iter();
        let servers = servers.map(|(name, statistics)| (vec![("server", name)], statistics));
        registry.register_collector(Box::new(ServerCollector(servers.collect())));
    }

    /// The counters of each server, and its labels.
    #[derive(Debug)]
    struct ServerCollector(Vec<(Vec<(&'static str, &'static str)>, Statistics)>);

    impl Collector for ServerCollector {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            let mut gauge = |name, help, counter| {
                let kind = ConstGauge::new(0_u64).metric_type();
                let mut family = encoder.encode_descriptor(name, help, None, kind)?;
                self.0.iter().try_for_each(|(labels, statistics)| {
                    let value = ConstGauge::new(statistics.get(counter));
                    value.encode(family.encode_family(labels)?)
                })
            };
            let help = "Number of open connections";
            gauge("server_connections_open", help, Counter::Open)?;
            let help = "Memory of request bodies in flight, in blocks of 16 KiB";
            gauge("server_request_body_bytes", help, Counter::BodyBytes)?;

            let mut by_reason = |name, help, reasons: &[(Option<&str>, Counter)]| {
                let kind = ConstCounter::new(0_u64).metric_type();
                let mut family = encoder.encode_descriptor(name, help, None, kind)?;
                for (labels, statistics) in &self.0 {
                    for (reason, counter) in reasons {
                        let reason = reason.map(|it| ("reason", it));
                        let labels: Vec<_> = labels.iter().copied().chain(reason).collect();
                        let value = ConstCounter::new(statistics.get(*counter));
                        value.encode(family.encode_family(&labels)?)?;
                    }
                }
                Ok(())
            };
            let mut counter = |name, help, counter| by_reason(name, help, &[(None, counter)]);
            let help = "Number of accepted connections";
            counter("server_connections_accepted", help, Counter::Accepted)?;
            let help = "Number of connections without a complete request that were closed at a limit of connections, or of bytes of headers or of answers that are not taken";
            counter("server_connections_evicted", help, Counter::Evicted)?;
            let help = "Number of connections that were closed at the limit because all others handled a request";
            counter("server_connections_rejected", help, Counter::Rejected)?;
            let help = "Number of connections that were closed at the end of the shutdown timeout";
            counter("server_connections_aborted", help, Counter::Aborted)?;
            let help = "Number of connections that could not be accepted";
            counter("server_accept_errors", help, Counter::AcceptErrors)?;
            let help = "Number of requests whose handler panicked";
            counter("server_handler_panics", help, Counter::Panics)?;

            let help = "Number of TLS handshakes that failed, by reason";
            let reasons = [
                (Some("protocol"), Counter::HandshakeFailures),
                (Some("timeout"), Counter::HandshakeTimeouts),
                (Some("plain_http"), Counter::PlainHttp),
                (Some("no_certificate"), Counter::WithoutCertificate),
            ];
            by_reason("server_tls_handshake_errors", help, &reasons)?;
            let help = "Number of requests without a valid header: rejected with 400 or 431 (invalid), or incomplete at the time limit";
            let reasons = [
                (Some("invalid"), Counter::BadRequests),
                (Some("timeout"), Counter::HeaderTimeouts),
            ];
            by_reason("server_request_header_errors", help, &reasons)?;
            let help = "Number of requests whose body was rejected: with 413 (too_large), 408 (timeout) or 503 (over_budget)";
            let reasons = [
                (Some("too_large"), Counter::BodyTooLarge),
                (Some("timeout"), Counter::BodyTimeouts),
                (Some("over_budget"), Counter::BodyOverBudget),
            ];
            by_reason("server_request_body_errors", help, &reasons)
        }
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests;
