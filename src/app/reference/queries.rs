//! Names of metrics in texts and in queries for Prometheus, compared with what the components expose.

use policy::sync::status::Reason;
use rstest::rstest;

use super::exposition::Metric;

/// Names of the library for KCP, which is no component of this binary.
const LISTENER: &str = "watcher_listener_";

/// Labels that Prometheus adds, and the one of histograms.
const OTHER_LABELS: [&str; 6] = ["cluster", "instance", "job", "le", "namespace", "pod"];

/// What a query consists of beside metrics.
const WORDS: [&str; 14] = [
    "absent",
    "and",
    "avg",
    "by",
    "histogram_quantile",
    "increase",
    "max",
    "min",
    "or",
    "rate",
    "sum",
    "time",
    "unless",
    "vector",
];

/// The names in a text, each with what follows it.
pub(super) fn names(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == ':';
    let mut rest = text;
    std::iter::from_fn(move || {
        let start = rest.find(|it: char| it.is_ascii_alphabetic() || it == '_')?;
        let name = &rest[start..];
        let (name, after) = name.split_at(name.find(|it| !is_part(it)).unwrap_or(name.len()));
        rest = after;
        Some((name, after))
    })
}

/// Labels in braces or parentheses at the start of a text, with the values that they are compared with.
fn labels<'t>(text: &'t str, brackets: [char; 2]) -> Vec<(&'t str, &'t str)> {
    let Some(list) = text.trim_start().strip_prefix(brackets[0]) else {
        return Vec::new();
    };
    let list = list.split(brackets[1]).next().unwrap_or_default();
    let label = |it: &'t str| {
        let end = it.find(['=', '!']).unwrap_or(it.len());
        (
            it[..end].trim(),
            it[end..].trim_matches(['=', '!', '~', '"']),
        )
    };
    list.split(',').map(label).collect()
}

/// What is wrong with the metrics that a text names.
pub(super) fn faults(text: &str, exposed: &[Metric]) -> Vec<String> {
    let prefixes: Vec<&str> = exposed
        .iter()
        .filter_map(|it| it.name.strip_suffix("build_info"))
        .collect();
    assert!(!prefixes.is_empty(), "no component has build_info");
    let is_ours = |name: &str| {
        prefixes
            .iter()
            .any(|prefix| name.starts_with(prefix) && name != *prefix)
            && !name.starts_with(LISTENER)
    };
    let mut faults = Vec::new();
    for (name, after) in names(text).filter(|(name, _)| is_ours(name)) {
        let Some(metric) = exposed
            .iter()
            .find(|it| it.has_series(name) || it.name == name)
        else {
            faults.push(format!("{name} is not exposed"));
            continue;
        };
        for (label, value) in labels(after, ['{', '}']) {
            if !metric.labels.contains(label) && !OTHER_LABELS.contains(&label) {
                faults.push(format!("{name} has no label {label}"));
            }
            let reasons = value
                .split('|')
                .filter(|it| it.starts_with(char::is_uppercase));
            let unknown =
                reasons.filter(|reason| Reason::ALL.iter().all(|it| it.name() != *reason));
            faults.extend(unknown.map(|reason| format!("{reason} is not a reason")));
        }
    }
    faults
}

/// What is wrong with a query: it names series only, and groups by labels that they have.
pub(super) fn query_faults(query: &str, exposed: &[Metric]) -> Vec<String> {
    let mut faults = faults(query, exposed);
    let mut used = Vec::new();
    let mut grouped = Vec::new();
    // Without matchers and durations nothing is left but words, metrics and labels to group by.
    let outside: String = query
        .split('{')
        .map(|it| it.rsplit('}').next().unwrap_or_default())
        .collect();
    let outside: String = outside
        .split('[')
        .map(|it| it.rsplit(']').next().unwrap_or_default())
        .collect();
    for (name, after) in names(&outside) {
        if name == "by" {
            grouped.extend(
                labels(after, ['(', ')'])
                    .into_iter()
                    .map(|(label, _)| label),
            );
        } else if let Some(metric) = exposed.iter().find(|it| it.has_series(name)) {
            used.push(metric);
        } else if !WORDS.contains(&name) && !grouped.contains(&name) {
            faults.push(format!("{name} is neither a series nor a function"));
        }
    }
    for label in grouped.into_iter().filter(|it| !OTHER_LABELS.contains(it)) {
        if !used.iter().any(|it| it.labels.contains(label)) {
            faults.push(format!("no series of the query has the label {label}"));
        }
    }
    if used.is_empty() {
        faults.push("no series in the query".to_owned());
    }
    faults
}

fn example(name: &str, kind: &str, label: Option<&str>) -> Metric {
    Metric {
        name: name.to_owned(),
        kind: kind.to_owned(),
        labels: label.into_iter().map(str::to_owned).collect(),
        help: String::new(),
    }
}

#[rstest]
#[case::unknown("x_no_such_total > 0", "x_no_such_total is not exposed")]
#[case::counter_without_its_ending("increase(x_lost[5m]) > 0", "x_lost is not exposed")]
#[case::prefix("xx_lost_total < 1", "xx_lost_total is neither")]
#[case::label(r#"x_lost_total{raeson="a"} > 0"#, "has no label raeson")]
#[case::group(
    "sum by (kind) (x_lost_total)",
    "no series of the query has the label kind"
)]
#[case::histogram("x_wait_seconds > 1", "x_wait_seconds is neither")]
#[case::reason(r#"x_lost_total{reason=~"Ready|Reddy"}"#, "Reddy is not a reason")]
#[case::constant("1 > 0", "no series in the query")]
fn faults_of_a_query_are_found(#[case] query: &str, #[case] expected: &str) {
    let exposed = [
        example("x_build_info", "info", None),
        example("x_lost_total", "counter", Some("reason")),
        example("x_wait_seconds", "histogram", None),
    ];
    let good = "histogram_quantile(0.9, sum by (le) (rate(x_wait_seconds_bucket[5m]))) > x_lost_total{reason=\"a\"}";
    assert_eq!(query_faults(good, &exposed), Vec::<String>::new());
    let found = query_faults(query, &exposed);
    assert!(found.iter().any(|it| it.contains(expected)), "{found:?}");
}
