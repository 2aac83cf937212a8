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
    /// after its first event, and a renamed metric or label would be 0 forever. A value of a label need not be known.
    ///
    /// # Errors
    ///
    /// Neither the exposition, nor `docs/reference/metrics.md`, nor the list of metrics of other programs has the metric; no
    /// sample of the metric, or its row in `docs/reference/metrics.md` if there is no sample, has a label of the series.
    pub fn sum_of_known(&self, series: &str) -> Result<f64, UnknownSeries> {
        self.ensure_known(series)?;
        Ok(self.sum(series))
    }

    /// Returns the sum of a series as [`Self::count`] does, for a metric that must be known.
    ///
    /// # Errors
    ///
    /// Those of [`Self::sum_of_known`].
    pub fn count_of_known(&self, series: &str) -> Result<u64, UnknownSeries> {
        self.ensure_known(series)?;
        Ok(self.count(series))
    }

    fn ensure_known(&self, series: &str) -> Result<(), UnknownSeries> {
        let (name, _) = series.split_once('{').unwrap_or((series, ""));
        let samples: Vec<Sample> = self.matching(name).collect();
        let rows: Vec<&str> = rows(name).collect();
        if samples.is_empty() && rows.is_empty() && !OTHERS.contains(&name) {
            return Err(UnknownSeries::Metric(name.to_owned()));
        }
        let is_listed = |label: &str| {
            let is_of_bucket = label == "le" && name.ends_with("_bucket");
            is_of_bucket || rows.iter().any(|it| it.contains(&format!("`{label}`")))
        };
        let has_label = |label: &str| match &*samples {
            [] => rows.is_empty() || is_listed(label),
            samples => samples.iter().any(|it| it.labels.contains_key(label)),
        };
        let wanted = sample(&format!("{series} 0"));
        let wanted = wanted.ok_or_else(|| UnknownSeries::Syntax(series.to_owned()))?;
        let mut labels = wanted.labels.into_keys();
        labels.find(|it| !has_label(it)).map_or(Ok(()), |label| {
            Err(UnknownSeries::Label(name.to_owned(), label))
        })
    }
}

/// Returns the labels of a metric in each of its rows in `docs/reference/metrics.md`.
fn rows(name: &str) -> impl Iterator<Item = &'static str> {
    let of_histogram = ["_bucket", "_sum", "_count"].map(|it| name.strip_suffix(it));
    let of_histogram = of_histogram.into_iter().flatten();
    let starts = of_histogram.map(|it| format!("| `{it}` | histogram |"));
    let starts: Vec<String> = starts.chain([format!("| `{name}` |")]).collect();
    let is_of = move |row: &&str| starts.iter().any(|it| row.starts_with(it));
    let rows = REFERENCE.lines().filter(is_of);
    rows.filter_map(|row| row.split(" | ").nth(2))
}

/// Error of a series that no component has.
#[derive(Debug, thiserror::Error)]
pub enum UnknownSeries {
    /// No component has the metric.
    #[error("no component has metric {0}")]
    Metric(String),
    /// The metric does not have the label.
    #[error("metric {0} has no label {1}")]
    Label(String, String),
    /// The text is not a name with labels in braces.
    #[error("not a series: {0}")]
    Syntax(String),
}

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
    use rstest::rstest;

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

    /// A step with a misspelled label would expect 0 and never fail.
    #[rstest]
    #[case::of_samples("requests_total", "code", "kode")]
    #[case::of_the_second_sample("requests_total", "path", "paths")]
    #[case::of_samples_before_the_reference(
        "watcher_certificate_reloads_total",
        "outcome",
        "result"
    )]
    #[case::of_the_reference("watcher_dropped_events_total", "reason", "cause")]
    #[case::of_a_histogram("watcher_admission_duration_seconds_bucket", "le", "lt")]
    fn known_label_with_an_unknown_value_is_0_and_an_unknown_label_is_an_error(
        #[case] metric: &str,
        #[case] known: &str,
        #[case] unknown: &str,
    ) {
        let samples = Samples::parse(concat!(
            "requests_total{code=\"200\"} 3\n",
            "requests_total{path=\"x\"} 1\n",
            "watcher_certificate_reloads_total{outcome=\"success\"} 3\n",
        ));
        let series = |label| format!("{metric}{{{label}=\"none\"}}");
        assert_eq!(samples.count_of_known(&series(known)).unwrap(), 0);
        let error = samples.sum_of_known(&series(unknown)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("metric {metric} has no label {unknown}")
        );
    }

    #[test]
    fn text_that_is_not_a_series_is_an_error() {
        let samples = Samples::parse("requests_total{code=\"200\"} 3\n");
        let error = samples.sum_of_known("requests_total{code=200}");
        assert_eq!(
            error.unwrap_err().to_string(),
            "not a series: requests_total{code=200}"
        );
    }
}
