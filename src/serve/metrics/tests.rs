use prometheus_client::registry::Registry;
use testkit::metrics::Samples;

use super::*;

/// All counters except three are metrics: components have separate metrics of requests, probes of the port are not errors,
/// and rejected certificates are included in failed handshakes.
const EXPOSED: [(&str, Counter); COUNTERS - 3] = [
    ("connections_open", Counter::Open),
    ("request_body_bytes", Counter::BodyBytes),
    ("connections_accepted_total", Counter::Accepted),
    ("connections_evicted_total", Counter::Evicted),
    ("connections_rejected_total", Counter::Rejected),
    ("connections_aborted_total", Counter::Aborted),
    ("accept_errors_total", Counter::AcceptErrors),
    ("handler_panics_total", Counter::Panics),
    (
        "tls_handshake_errors_total{reason=\"protocol\"}",
        Counter::HandshakeFailures,
    ),
    (
        "tls_handshake_errors_total{reason=\"timeout\"}",
        Counter::HandshakeTimeouts,
    ),
    (
        "tls_handshake_errors_total{reason=\"plain_http\"}",
        Counter::PlainHttp,
    ),
    (
        "tls_handshake_errors_total{reason=\"no_certificate\"}",
        Counter::WithoutCertificate,
    ),
    (
        "request_header_errors_total{reason=\"invalid\"}",
        Counter::BadRequests,
    ),
    (
        "request_header_errors_total{reason=\"timeout\"}",
        Counter::HeaderTimeouts,
    ),
    (
        "request_body_errors_total{reason=\"too_large\"}",
        Counter::BodyTooLarge,
    ),
    (
        "request_body_errors_total{reason=\"timeout\"}",
        Counter::BodyTimeouts,
    ),
    (
        "request_body_errors_total{reason=\"over_budget\"}",
        Counter::BodyOverBudget,
    ),
];

#[test]
fn every_counter_of_the_server_is_exposed() {
    let statistics = Statistics::default();
    for (value, counter) in statistics.counters.iter().enumerate() {
        counter.store(value as u64 + 1, Ordering::Relaxed);
    }
    let mut registry = Registry::with_prefix("rt");
    register(&mut registry, statistics.clone());
    let samples = Samples::of(&registry);
    for (series, counter) in EXPOSED {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let expected = statistics.get(counter) as f64;
        let series = format!("rt_server_{series}");
        assert_eq!(samples.exact(&series), Some(expected), "{series}");
    }
}

#[test]
fn servers_of_a_process_have_their_name_as_label() {
    let servers = ["webhook", "health"].map(|name| (name, Statistics::default()));
    servers[1].1.add(Counter::Evicted, 7);
    servers[1].1.add(Counter::BadRequests, 3);
    let mut registry = Registry::with_prefix("rt");
    register_servers(&mut registry, servers);
    let samples = Samples::of(&registry);
    let of = |series: &str| samples.exact(series);
    let evicted = ["webhook", "health"].map(|name| {
        of(&format!(
            "rt_server_connections_evicted_total{{server={name:?}}}"
        ))
    });
    assert_eq!(evicted, [Some(0.0), Some(7.0)]);
    let invalid = r#"rt_server_request_header_errors_total{server="health",reason="invalid"}"#;
    assert_eq!(of(invalid), Some(3.0));
    // A scraper rejects an exposition in which a metric occurs twice.
    let help = "# HELP rt_server_connections_evicted ";
    assert_eq!(samples.text().matches(help).count(), 1);
}
