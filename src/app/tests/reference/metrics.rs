//! Page `metrics`: the metrics of each component on /metrics, from the registry that the component serves.
//!
//! Each family has one series with empty label values, because only a series contains the labels. Metrics that depend on
//! data get data.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use component_base::metrics::Metrics;
use listener::{CertificateCheck, Listener, RuntimeIdFromCommonName, TrustAnchors};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serve::Statistics;
use testkit::pki::Authority;
use watcher::certificates::{CertificateOptions, Certificates};
use watcher::metrics::State;
use watcher::outbox::{Options, Outbox};
use watcher_types::{PathSegment, WatchEvent};

use super::exposition::{self, Metric};
use super::{code, heading, table};
use crate::compose;

/// One component and its exposed metrics.
pub(super) struct Component {
    pub(super) name: &'static str,
    about: &'static str,
    pub(super) metrics: Vec<Metric>,
}

/// Returns the page.
pub(super) fn page() -> String {
    let mut text = heading(
        "Metrics",
        "Metrics of each component by the names of their series. A histogram has the series `_bucket`, `_sum` and `_count`. A \
         metric with labels is exposed after its first event. Metrics `process_*` are those of the process itself.",
    );
    for component in components() {
        text.extend([format!("\n## {}\n\n{}\n", component.name, component.about)]);
        let rows: Vec<Vec<String>> = component.metrics.iter().map(row).collect();
        text.push_str(&table(&["metric", "type", "labels", "meaning"], &rows));
    }
    text
}

fn row(metric: &Metric) -> Vec<String> {
    let labels: Vec<String> = metric.labels.iter().map(|it| code(it)).collect();
    let labels = if labels.is_empty() {
        code("")
    } else {
        labels.join(", ")
    };
    vec![
        code(&metric.name),
        metric.kind.clone(),
        labels,
        metric.help.trim_end_matches('.').to_owned(),
    ]
}

/// Returns all components, and the library for operators on KCP.
pub(super) fn components() -> [Component; 4] {
    [
        Component {
            name: "webhook",
            about: "On port 8080 (`--metrics-bind-address`).",
            metrics: exposed(&webhook()),
        },
        Component {
            name: "controller",
            about: "On port 8080 (`--metrics-bind-address`).",
            metrics: exposed(&controller()),
        },
        Component {
            name: "watcher",
            about: "On port 2112 (`--metrics-port`).",
            metrics: exposed(&watcher()),
        },
        Component {
            name: "listener",
            about: "In the registry of the operator that embeds the library. The metrics of single runtimes (`runtime_metrics`) are not \
                    listed.",
            metrics: listener(),
        },
    ]
}

fn webhook() -> Metrics {
    let (meters, metrics) = compose::webhook::meters::Meters::with_server(Statistics::default());
    meters.create_series();
    metrics
}

fn controller() -> Metrics {
    let (meters, metrics) = compose::controller::meters::Meters::new();
    meters.create_series();
    metrics
}

/// Returns the metrics of a watcher with a certificate and a waiting event.
fn watcher() -> Metrics {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::load(certificates(folder.path()));
    let options = Options {
        write_deadline: Duration::from_secs(30),
        ..Options::new(folder.path().to_owned())
    };
    let (outbox, _) = Outbox::open(options, Instant::now());
    let manager = PathSegment::parse("manager").unwrap();
    let stored = outbox.put(&manager, &WatchEvent::default(), Instant::now());
    assert_eq!(stored.name(), "spooled");
    let state = State {
        outbox,
        certificates,
        connections: Statistics::default(),
    };
    let (counters, metrics) = compose::watcher::meters::register(state);
    counters.create_series();
    metrics
}

fn listener() -> Vec<Metric> {
    let authority = Authority::new("kyma").unwrap();
    let anchors = TrustAnchors::from_pem(authority.pem().as_bytes()).unwrap();
    let check = CertificateCheck::new(anchors, RuntimeIdFromCommonName);
    let address = ([127, 0, 0, 1], 0).into();
    let (listener, _notifications) = Listener::builder(address, "manager")
        .authentication(check)
        .build()
        .unwrap();
    let mut registry = Registry::default();
    listener.register_metrics(&mut registry);
    listener.create_metric_series();
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    listed(&text, &format!("{registry:?}"))
}

/// Creates the files of a certificate.
fn certificates(folder: &Path) -> CertificateOptions {
    let authority = Authority::new("kyma").unwrap();
    let leaf = authority.leaf("watcher").unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    CertificateOptions {
        authorities: file("ca.crt", authority.pem()),
        certificate: file("tls.crt", &leaf.pem),
        key: file("tls.key", &leaf.key_pem()),
    }
}

/// Returns the exposed metrics of a component.
fn exposed(metrics: &Metrics) -> Vec<Metric> {
    listed(&metrics.encode().unwrap(), &format!("{metrics:?}"))
}

/// Returns the metrics of an exposition, compared with the debug text of the registry. A metric that is registered and not
/// exposed is a family without a series.
fn listed(exposition: &str, debug: &str) -> Vec<Metric> {
    let found = exposition::metrics(exposition);
    let registered = debug.split("Descriptor { name: \"").skip(1);
    let registered: Vec<&str> = registered.filter_map(|it| it.split('"').next()).collect();
    assert!(
        registered.len() > 5,
        "the registry's debug text has another form: {debug}"
    );
    for name in registered {
        let endings = ["", "_total", "_info", "_seconds", "_bytes"];
        let is_exposed = |it: &Metric| {
            endings.iter().any(|ending| {
                let series = format!("{name}{ending}");
                it.name == series || it.name.ends_with(&format!("_{series}"))
            })
        };
        assert!(
            found.iter().any(is_exposed),
            "{name} is registered and not listed: its `create_series` does not create a series of it"
        );
    }
    found
}
