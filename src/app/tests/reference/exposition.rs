//! Metrics of an exposition in OpenMetrics text.

use std::collections::BTreeSet;

use testkit::metrics::Samples;

/// One exposed metric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Metric {
    /// Name of its series; for a histogram, without `_bucket`, `_sum` and `_count`.
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) labels: BTreeSet<String>,
    pub(super) help: String,
}

impl Metric {
    /// Returns whether a name in a query is one of its series.
    pub(super) fn has_series(&self, name: &str) -> bool {
        if self.kind != "histogram" {
            return self.name == name;
        }
        let suffix = name.strip_prefix(&self.name);
        suffix.is_some_and(|it| matches!(it, "_bucket" | "_sum" | "_count"))
    }
}

/// Parses the metrics, in order.
pub(super) fn metrics(exposition: &str) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for line in exposition.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            metrics.push(Metric {
                name: name.to_owned(),
                help: help.to_owned(),
                ..Metric::default()
            });
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            let metric = metrics.last_mut().unwrap();
            assert_eq!(metric.name, name);
            kind.clone_into(&mut metric.kind);
        } else if !line.starts_with('#') {
            sample(line, metrics.last_mut().unwrap());
        }
    }
    metrics
}

/// Returns the metrics in the debug text of a registry. Only a family that is registered with its labels has a kind.
pub(super) fn registered(debug: &str) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for registry in debug.split("Registry { prefix: ").skip(1) {
        let prefix = registry.strip_prefix("Some(Prefix(\"");
        let prefix = prefix.and_then(|it| it.split('"').next());
        let prefix = prefix.map(|it| format!("{it}_")).unwrap_or_default();
        for metric in registry.split("Descriptor { name: \"").skip(1) {
            let (name, rest) = metric.split_once("\", help: \"").unwrap();
            let (help, rest) = rest.split_once("\", unit: ").unwrap();
            let labeled = rest.split_once("Labeled(").map(|it| it.1);
            let labeled = labeled.and_then(|it| it.split_once(')')?.0.split_once(": "));
            let (kind, labels) = labeled.unwrap_or_default();
            let ending = if kind == "counter" { "_total" } else { "" };
            metrics.push(Metric {
                name: format!("{prefix}{name}{ending}"),
                kind: kind.to_owned(),
                labels: labels.split(',').map(str::to_owned).collect(),
                help: help.to_owned(),
            });
        }
    }
    metrics
}

/// Adds name and labels of a sample to a metric.
fn sample(line: &str, metric: &mut Metric) {
    let samples = Samples::parse(line);
    let sample = samples.iter().next().unwrap();
    assert!(
        sample.name.starts_with(&metric.name),
        "{line} is not a sample of {}",
        metric.name
    );
    if metric.kind != "histogram" {
        sample.name.clone_into(&mut metric.name);
    }
    let labels = sample.labels.keys().filter(|it| *it != "le");
    metric.labels.extend(labels.cloned());
}

#[test]
fn names_are_those_of_the_series() {
    let text = "# HELP a_calls Calls.\n# TYPE a_calls counter\na_calls_total{verb=\"get\",code=\"200\"} 1\n\
        # HELP a_wait_seconds Wait.\n# TYPE a_wait_seconds histogram\n# UNIT a_wait_seconds seconds\n\
        a_wait_seconds_sum 0.0\na_wait_seconds_bucket{le=\"1.0\"} 0\n# EOF\n";
    let found = metrics(text);
    assert_eq!(found[0].name, "a_calls_total");
    assert_eq!(found[0].labels, ["code", "verb"].map(str::to_owned).into());
    assert!(found[0].has_series("a_calls_total") && !found[0].has_series("a_calls"));
    assert_eq!(
        (found[1].name.as_str(), found[1].labels.len()),
        ("a_wait_seconds", 0)
    );
    assert!(found[1].has_series("a_wait_seconds_bucket") && !found[1].has_series("a_wait_seconds"));
}
