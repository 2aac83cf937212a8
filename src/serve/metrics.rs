//! The counters of one server, and the one set of metrics that every component with a server exposes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a server counts since it was bound. [`Open`](Self::Open) and [`BodyBytes`](Self::BodyBytes) are gauges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Counter {
    /// Connections open now, handshakes included.
    Open,
    /// Bytes of request bodies held now, of those that arrive and of those that are handled, in blocks of 16 KiB.
    BodyBytes,
    /// TCP connections taken from the listener, rejected ones included.
    Accepted,
    /// Connections closed while no request of theirs was handled, to make room for newer ones.
    Evicted,
    /// Connections closed at once because the requests of all others were being handled.
    Rejected,
    /// Connections ended at the end of the shutdown timeout.
    Aborted,
    /// Errors of accepting: out of file descriptors, or a peer that left the backlog.
    AcceptErrors,
    /// Connections closed at once because there was no certificate yet.
    WithoutCertificate,
    /// Peers that closed before they sent a byte, as TCP probes do.
    ClosedBeforeHandshake,
    /// Peers that spoke HTTP without TLS.
    PlainHttp,
    /// TLS handshakes that failed.
    HandshakeFailures,
    /// TLS handshakes not finished in time.
    HandshakeTimeouts,
    /// Requests whose header was read.
    Requests,
    /// Requests answered 400 or 431 because their header is not valid HTTP/1, or is ambiguous.
    BadRequests,
    /// Connections closed because a header was not complete in time.
    HeaderTimeouts,
    /// Requests answered 408.
    BodyTimeouts,
    /// Requests answered 413.
    BodyTooLarge,
    /// Requests answered 503 because the memory for all request bodies was used up.
    BodyOverBudget,
    /// Panics of handlers, answered 500 where an answer was still possible.
    Panics,
}

/// [`Counter::Panics`] is the last one.
const COUNTERS: usize = Counter::Panics as usize + 1;

/// A handle on the counters of one server, cheap to write and to read. Clones share the counters.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    counters: Arc<[AtomicU64; COUNTERS]>,
}

impl Statistics {
    /// The value at this moment. Values read one after the other are not of one moment.
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
pub use self::collector::register;

#[cfg(feature = "metrics")]
mod collector {
    use std::fmt;

    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
    use prometheus_client::metrics::counter::ConstCounter;
    use prometheus_client::metrics::gauge::ConstGauge;
    use prometheus_client::registry::Registry;

    use super::Counter::{
        Aborted, AcceptErrors, Accepted, BadRequests, BodyBytes, BodyOverBudget, BodyTimeouts,
        BodyTooLarge, Evicted, HandshakeFailures, HandshakeTimeouts, HeaderTimeouts, Open, Panics,
        PlainHttp, Rejected, WithoutCertificate,
    };
    use super::{Counter, Statistics};

    // Name, help text, and what is shown.
    pub(super) const GAUGES: [(&str, &str, Counter); 2] = [
        (
            "server_connections_open",
            "Number of open connections",
            Open,
        ),
        (
            "server_request_body_bytes",
            "Memory of request bodies in flight, in blocks of 16 KiB",
            BodyBytes,
        ),
    ];

    pub(super) const COUNTERS: [(&str, &str, Counter); 6] = [
        (
            "server_connections_accepted",
            "Number of accepted connections",
            Accepted,
        ),
        (
            "server_connections_evicted",
            "Number of connections without a complete request that were closed at a limit of connections or of header bytes",
            Evicted,
        ),
        (
            "server_connections_rejected",
            "Number of connections that were closed at the limit because all others handled a request",
            Rejected,
        ),
        (
            "server_connections_aborted",
            "Number of connections that were closed at the end of the shutdown timeout",
            Aborted,
        ),
        (
            "server_accept_errors",
            "Number of connections that could not be accepted",
            AcceptErrors,
        ),
        (
            "server_handler_panics",
            "Number of requests whose handler panicked",
            Panics,
        ),
    ];

    /// Values of the label `reason`.
    type Reasons = &'static [(&'static str, Counter)];

    /// Counters with the label `reason`.
    pub(super) const BY_REASON: [(&str, &str, Reasons); 3] = [
        (
            "server_tls_handshake_errors",
            "Number of TLS handshakes that failed, by reason",
            &[
                ("protocol", HandshakeFailures),
                ("timeout", HandshakeTimeouts),
                ("plain_http", PlainHttp),
                ("no_certificate", WithoutCertificate),
            ],
        ),
        (
            "server_request_header_errors",
            "Number of requests without a valid header: rejected with 400 or 431 (invalid), or incomplete at the time limit",
            &[("invalid", BadRequests), ("timeout", HeaderTimeouts)],
        ),
        (
            "server_request_body_errors",
            "Number of requests whose body was rejected: with 413 (too_large), 408 (timeout) or 503 (over_budget)",
            &[
                ("too_large", BodyTooLarge),
                ("timeout", BodyTimeouts),
                ("over_budget", BodyOverBudget),
            ],
        ),
    ];

    /// Registers the counters of a server as `server_…`, below the prefix of the registry. They are read at each scrape.
    pub fn register(registry: &mut Registry, statistics: Statistics) {
        registry.register_collector(Box::new(ServerCollector(statistics)));
    }

    #[derive(Debug)]
    struct ServerCollector(Statistics);

    impl Collector for ServerCollector {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            for (name, help, counter) in GAUGES {
                let gauge = ConstGauge::new(self.0.get(counter));
                gauge.encode(encoder.encode_descriptor(
                    name,
                    help,
                    None,
                    gauge.metric_type(),
                )?)?;
            }
            for (name, help, counter) in COUNTERS {
                let value = ConstCounter::new(self.0.get(counter));
                value.encode(encoder.encode_descriptor(
                    name,
                    help,
                    None,
                    value.metric_type(),
                )?)?;
            }
            for (name, help, reasons) in BY_REASON {
                let kind = ConstCounter::new(0_u64).metric_type();
                let mut family = encoder.encode_descriptor(name, help, None, kind)?;
                for (reason, counter) in reasons {
                    let value = ConstCounter::new(self.0.get(*counter));
                    value.encode(family.encode_family(&[("reason", *reason)])?)?;
                }
            }
            Ok(())
        }
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use prometheus_client::registry::Registry;
    use testkit::metrics::Samples;

    use super::*;

    /// Each counter but two is a metric: requests have metrics of each component, and probes of the port are no errors.
    #[test]
    fn every_counter_of_the_server_is_exposed() {
        let statistics = Statistics::default();
        for (value, counter) in statistics.counters.iter().enumerate() {
            counter.store(value as u64 + 1, Ordering::Relaxed);
        }
        let mut registry = Registry::with_prefix("rt");
        register(&mut registry, statistics.clone());
        let samples = Samples::of(&registry);
        let (gauges, counters) = (collector::GAUGES.iter(), collector::COUNTERS.iter());
        let gauges = gauges.map(|(name, _, counter)| (format!("rt_{name}"), *counter));
        let counters = counters.map(|(name, _, counter)| (format!("rt_{name}_total"), *counter));
        let by_reason = collector::BY_REASON.iter().flat_map(|(name, _, reasons)| {
            reasons.iter().map(move |(reason, counter)| {
                (format!("rt_{name}_total{{reason=\"{reason}\"}}"), *counter)
            })
        });
        let exposed: Vec<_> = gauges.chain(counters).chain(by_reason).collect();
        for (series, counter) in &exposed {
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let expected = statistics.get(*counter) as f64;
            assert_eq!(samples.exact(series), Some(expected), "{series}");
        }
        assert_eq!(exposed.len(), COUNTERS - 2);
    }
}
