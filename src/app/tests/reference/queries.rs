//! Compares names of metrics in texts with the exposed metrics of the components.

use super::exposition::Metric;
use super::promql::{TARGET_LABELS, unknown_reasons};

/// Returns the names in a text, each with the text after it.
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

/// Returns the labels in braces or parentheses at the start of a text, with the values with which they are compared.
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

/// Returns the errors of the metrics in a text.
pub(super) fn faults(text: &str, exposed: &[Metric]) -> Vec<String> {
    let prefixes: Vec<&str> = exposed
        .iter()
        .filter_map(|it| it.name.strip_suffix("build_info"))
        .collect();
    assert!(!prefixes.is_empty(), "no component has build_info");
    let is_ours = |name: &str| {
        prefixes
            .iter()
            .any(|prefix| name.starts_with(prefix) && !name.ends_with('_'))
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
            if !metric.labels.contains(label) && label != "le" && !TARGET_LABELS.contains(&label) {
                faults.push(format!("{name} has no label {label}"));
            }
            faults.extend(unknown_reasons(label, value));
        }
    }
    faults
}
