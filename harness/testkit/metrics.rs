//! Parser of the text formats of Prometheus and OpenMetrics.

use std::collections::BTreeMap;

use prometheus_client::registry::Registry;

/// The samples of one exposition. Lines are parsed on demand, because the metrics of an API server have several megabytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples(String);

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Name of the metric, including suffixes such as `_total`.
    pub name: String,
    /// Labels of the sample.
    pub labels: BTreeMap<String, String>,
    /// Value of the sample.
    pub value: f64,
}

impl std::fmt::Display for Sample {
    /// Writes the labels, sorted by name, and the value: `{code="200"} 3`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let labels = self.labels.iter();
        let labels: Vec<String> = labels
            .map(|(key, value)| format!("{key}={value:?}"))
            .collect();
        write!(f, "{{{}}} {}", labels.join(","), self.value)
    }
}

impl Samples {
    /// Returns the current metrics of a registry.
    pub fn of(registry: &Registry) -> Self {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, registry);
        Self(text)
    }

    /// Parses a text; ignores lines that are not samples.
    pub fn parse(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns all samples in their order.
    pub fn iter(&self) -> impl Iterator<Item = Sample> {
        self.named(String::new())
    }

    /// Returns the samples of metrics with this prefix of the name.
    fn named(&self, prefix: String) -> impl Iterator<Item = Sample> {
        let lines = self.0.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter(move |line| line.starts_with(&prefix))
            .filter_map(sample)
    }

    /// Returns the samples of a series: a name and, in braces, labels that each sample has among others, such as
    /// `x_total{code="200"}`.
    pub fn matching(&self, series: &str) -> impl Iterator<Item = Sample> {
        let wanted = sample(&format!("{series} 0")).into_iter();
        wanted.flat_map(|wanted| {
            let samples = self.named(wanted.name.clone());
            samples.filter(move |it| {
                let mut labels = wanted.labels.iter();
                it.name == wanted.name
                    && labels.all(|(key, value)| it.labels.get(key) == Some(value))
            })
        })
    }

    /// Returns the value of the only sample of a series; `None` if there is none or more than one.
    pub fn value(&self, series: &str) -> Option<f64> {
        one(self.matching(series))
    }

    /// Returns the value of the sample that has exactly these labels: `x_total{code="200"}`.
    pub fn exact(&self, series: &str) -> Option<f64> {
        let wanted = sample(&format!("{series} 0"))?;
        one(self
            .matching(series)
            .filter(|it| it.labels == wanted.labels))
    }

    /// Returns the sum of a series; 0 without samples.
    pub fn sum(&self, series: &str) -> f64 {
        // The sum of an empty iterator of floats would be a negative zero.
        self.matching(series).fold(0.0, |sum, it| sum + it.value)
    }

    /// Returns the sum of a series as a whole number, for counters.
    pub fn count(&self, series: &str) -> u64 {
        // The text of a negative or fractional number cannot be parsed as a `u64`.
        self.sum(series).to_string().parse().unwrap_or(u64::MAX)
    }

    /// Returns the sum of a series as [`Self::sum`] does, for a metric that must be known: a metric with labels is exposed only
    /// after its first event, and a renamed metric would be 0 forever.
    ///
    /// # Errors
    ///
    /// Neither the exposition, nor `docs/reference/metrics.md`, nor the list of metrics of other programs has the metric.
    pub fn sum_of_known(&self, series: &str) -> Result<f64, UnknownMetric> {
        self.ensure_known(series)?;
        Ok(self.sum(series))
    }

    /// Returns the sum of a series as [`Self::count`] does, for a metric that must be known.
    ///
    /// # Errors
    ///
    /// Those of [`Self::sum_of_known`].
    pub fn count_of_known(&self, series: &str) -> Result<u64, UnknownMetric> {
        self.ensure_known(series)?;
        Ok(self.count(series))
    }

    fn ensure_known(&self, series: &str) -> Result<(), UnknownMetric> {
        let (name, _) = series.split_once('{').unwrap_or((series, ""));
        let of_histogram = ["_bucket", "_sum", "_count"].map(|it| name.strip_suffix(it));
        let mut of_histogram = of_histogram.into_iter().flatten();
        let is_listed = |line: String| REFERENCE.contains(&line);
        let is_known = is_listed(format!("\n| `{name}` |"))
            || of_histogram.any(|it| is_listed(format!("\n| `{it}` | histogram |")))
            || OTHERS.contains(&name)
            || self.matching(name).next().is_some();
        is_known
            .then_some(())
            .ok_or_else(|| UnknownMetric(name.to_owned()))
    }
}

/// Error of a metric that no component has.
#[derive(Debug, thiserror::Error)]
#[error("no component has metric {0}")]
pub struct UnknownMetric(String);

/// The metrics of the product's components.
const REFERENCE: &str = include_str!("../../docs/reference/metrics.md");
/// Metrics with labels of other programs: the API server, and the double of the lifecycle-manager.
const OTHERS: [&str; 5] = [
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_webhook_request_total",
    "klm_event_total",
    "klm_other_notification_total",
    "klm_reconcile_total",
];

fn one(mut samples: impl Iterator<Item = Sample>) -> Option<f64> {
    let first = samples.next()?;
    samples.next().is_none().then_some(first.value)
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    let value = rest.split_whitespace().next()?;
    Some(Sample {
        name: name.to_owned(),
        labels,
        value: value.parse().ok()?,
    })
}

/// Returns the labels up to the closing brace, and the rest of the text.
fn labels(mut text: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (key, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = rest.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => match characters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        labels.insert(key.to_owned(), value);
        text = &rest[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_by_name_and_labels() {
        let text = concat!(
            "# HELP requests_total Requests.\n# TYPE requests_total counter\n",
            "requests_total{code=\"200\",path=\"a \\\"b\\\", c}\"} 3\n",
            "requests_total{code=\"404\",path=\"x\"} 1.5 1700000000\n",
            "up 1\n# EOF\n",
        );
        let samples = Samples::parse(text);
        let quoted = r#"requests_total{path="a \"b\", c}"}"#;
        let (some, all) = (
            r#"requests_total{path="x"}"#,
            r#"requests_total{path="x",code="404"}"#,
        );
        let values = [
            "up",
            r#"requests_total{code="200"}"#,
            quoted,
            "requests_total",
            r#"requests_total{code="500"}"#,
        ];
        let values = values.map(|series| samples.value(series));
        assert_eq!(values, [Some(1.0), Some(3.0), Some(3.0), None, None]);
        assert_eq!((samples.exact(some), samples.exact(all)), (None, Some(1.5)));
        let first = samples.iter().next().map(|it| it.name);
        assert_eq!(first.as_deref(), Some("requests_total"));
        assert!((samples.sum("requests_total") - 4.5).abs() < 1e-9);
        let counts =
            ["500", "200"].map(|it| samples.count(&format!("requests_total{{code=\"{it}\"}}")));
        assert_eq!(counts, [0, 3]);
        assert!(samples.sum("requests").abs() < 1e-9, "another metric");
    }

    #[test]
    fn known_metric_without_samples_is_0_and_an_unknown_one_is_an_error() {
        let samples = Samples::parse("requests_total{code=\"200\"} 3\n");
        let known = [
            ("requests_total{code=\"200\"}", 3),
            ("requests_total{code=\"404\"}", 0),
            ("watcher_dropped_events_total", 0),
            ("watcher_admission_duration_seconds_count", 0),
            ("klm_event_total{object=\"a/b\"}", 0),
        ];
        for (series, expected) in known {
            let count = samples.count_of_known(series).unwrap();
            assert_eq!(count, expected, "{series}");
        }
        for name in [
            "requests",
            "watcher_dropped_event",
            "watcher_dropped_events_total_count",
        ] {
            let error = samples.sum_of_known(name).unwrap_err().to_string();
            assert_eq!(error, format!("no component has metric {name}"));
        }
    }
}
