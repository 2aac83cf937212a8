//! Page `metrics`: the metrics of each component on /metrics, from the registry that the component serves.
//!
//! A family without a series is not exposed: its labels are those with which it is registered. Metrics that depend on data
//! get data.

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
            about: "In the registry of the operator that embeds the library. The metrics with the label `runtime_id` are off by default \
                    (`runtime_metrics`).",
            metrics: listener(),
        },
    ]
}

fn webhook() -> Metrics {
    compose::webhook::meters::Meters::new(servers(["webhook", "health", "metrics"])).1
}

fn controller() -> Metrics {
    compose::controller::meters::Meters::new(servers(["health", "metrics"])).1
}

fn servers<const N: usize>(names: [&'static str; N]) -> [(&'static str, Statistics); N] {
    names.map(|name| (name, Statistics::default()))
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
    };
    let servers = servers(["webhook", "health", "metrics"]);
    compose::watcher::meters::register(state, servers).1
}

fn listener() -> Vec<Metric> {
    let authority = Authority::new("kyma").unwrap();
    let anchors = TrustAnchors::from_pem(authority.pem().as_bytes()).unwrap();
    let check = CertificateCheck::new(anchors, RuntimeIdFromCommonName);
    let address = ([127, 0, 0, 1], 0).into();
    let (listener, _notifications) = Listener::builder(address, "manager")
        .authentication(check)
        .options(|it| it.runtime_metrics = true)
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

/// Returns the metrics of an exposition, and the families without a series, by name. The debug text of the registry
/// contains all of them.
fn listed(exposition: &str, debug: &str) -> Vec<Metric> {
    let mut found = exposition::metrics(exposition);
    let registered = exposition::registered(debug);
    assert!(
        registered.len() > 5,
        "the registry's debug text has another form: {debug}"
    );
    for metric in registered {
        let endings = ["", "_total", "_info", "_seconds", "_bytes"];
        let series = endings.map(|ending| format!("{}{ending}", metric.name));
        if found.iter().any(|it| series.contains(&it.name)) {
            continue;
        }
        assert!(
            !metric.kind.is_empty(),
            "{} is registered and not listed: it is a family without a series, and not registered with its labels",
            metric.name
        );
        found.push(metric);
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}
