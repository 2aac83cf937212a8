//! Compares the files in `deploy/monitoring` with the exposed metrics of the components and with the documentation.

use std::collections::BTreeSet;

use rstest::rstest;
use serde_json::Value;

use super::documents::{exposed, page};
use super::promql::{query_faults, read};
use super::queries::names;

const ALERTS: &str = "deploy/monitoring/alerts.yaml";
const DASHBOARD: &str = "deploy/monitoring/dashboard.json";

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

/// Returns the rules of all groups.
fn alerts() -> Vec<Value> {
    let file: Value = serde_saphyr::from_str(&page(ALERTS)).unwrap();
    let mut alerts = Vec::new();
    for group in file["groups"].as_array().unwrap() {
        assert!(!text(group, "/name").is_empty(), "{group}");
        let rules = group["rules"].as_array().unwrap();
        assert!(rules.len() >= 3, "{group}");
        alerts.extend(rules.iter().cloned());
    }
    alerts
}

/// Returns the panels that are not rows.
fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(&page(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    panels.filter(|it| it["type"] != "row").cloned().collect()
}

/// Returns the labels that a text of an alert or a legend inserts.
fn inserted<'t>(text: &'t str, start: &str) -> BTreeSet<&'t str> {
    let ends = |it: char| !it.is_ascii_alphanumeric() && it != '_';
    let parts = text.split(start).skip(1);
    parts.filter_map(|it| it.split(ends).next()).collect()
}

#[test]
fn alerts_are_rules_about_series_that_exist() {
    let exposed = exposed();
    let mut seen = BTreeSet::new();
    for alert in alerts() {
        let name = text(&alert, "/alert");
        assert!(seen.insert(name.to_owned()), "{name} occurs twice");
        let (labels, faults) = read(text(&alert, "/expr"), &exposed);
        assert_eq!(faults, Vec::<String>::new(), "{name}");
        let severity = text(&alert, "/labels/severity");
        assert!(
            matches!(severity, "info" | "warning" | "critical"),
            "{alert}"
        );
        let summary = text(&alert, "/annotations/summary");
        assert!(summary.ends_with('.'), "{alert}");
        for label in inserted(summary, "$labels.") {
            assert!(labels.contains(label), "{name}: {label}");
        }
    }
    assert!(seen.len() > 30, "{seen:?}");
}

/// The section to which an alert refers must describe the alert.
#[test]
fn alerts_have_a_runbook() {
    let anchor = |heading: &str| {
        heading
            .trim_start_matches('#')
            .trim()
            .replace(' ', "-")
            .to_lowercase()
    };
    for alert in alerts() {
        let (file, section) = text(&alert, "/annotations/runbook")
            .split_once('#')
            .unwrap();
        let page = page(file);
        let mut lines = page.lines();
        let found = lines.any(|it| it.starts_with('#') && anchor(it) == section);
        assert!(found, "{alert}");
        let name = format!("`{}`", text(&alert, "/alert"));
        let mut body = lines.take_while(|it| !it.starts_with('#'));
        assert!(body.any(|it| it.contains(&name)), "{section}: {name}");
    }
}

#[test]
fn panels_query_series_that_exist() {
    let exposed = exposed();
    let mut queries = 0;
    for panel in panels() {
        let targets = panel["targets"].as_array().unwrap();
        for target in targets {
            queries += 1;
            let query = text(target, "/expr").replace("$__rate_interval", "5m");
            let (labels, faults) = read(&query, &exposed);
            assert_eq!(faults, Vec::<String>::new(), "{}: {query}", panel["title"]);
            for label in inserted(text(target, "/legendFormat"), "{{") {
                assert!(labels.contains(label), "{}: {label}", panel["title"]);
            }
        }
        let ids: BTreeSet<&str> = targets.iter().map(|it| text(it, "/refId")).collect();
        assert_eq!(ids.len(), targets.len(), "{panel}");
        let place = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{panel}");
    }
    assert!(queries > 60, "{queries}");
}

/// Each metric of the controller must be in a panel or in an alert, so that a new metric is not forgotten.
#[test]
fn metrics_of_the_controller_are_on_the_dashboard() {
    let mut queries: Vec<String> = Vec::new();
    for panel in panels() {
        let targets = panel["targets"].as_array().unwrap();
        queries.extend(targets.iter().map(|it| text(it, "/expr").to_owned()));
    }
    let metrics = exposed();
    let own = metrics
        .iter()
        .filter(|it| it.name.starts_with("rt_bootstrapper_controller_"));
    for metric in own {
        let mut used = queries.iter().flat_map(|it| names(it));
        let is_used = used.any(|(name, _)| metric.has_series(name));
        assert!(is_used, "{} is on no panel", metric.name);
    }
}

/// Each metric that a table recommends for alerts must be in a rule. The table of the webhook contains names without its prefix.
#[rstest]
#[case("docs/controller.md", "")]
#[case("docs/watcher.md", "")]
#[case("docs/webhook.md", "rt_bootstrapper_")]
fn metrics_with_an_alert_in_the_table_have_a_rule(#[case] path: &str, #[case] prefix: &str) {
    let page = page(path);
    let queries: Vec<String> = alerts()
        .iter()
        .map(|it| text(it, "/expr").to_owned())
        .collect();
    let table = page.split("| metric | meaning | alert |").nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|it| it.starts_with('|'));
    let mut checked = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [metrics, _, alert] = cells[..] else {
            assert_eq!(cells.len(), 2, "{row}");
            continue;
        };
        if alert.is_empty() {
            continue;
        }
        checked += 1;
        let is_queried = |name: &str| {
            let full = format!("{prefix}{name}");
            queries
                .iter()
                .any(|it| it.contains(name) || it.contains(&full))
        };
        let mut listed = names(metrics).map(|(name, _)| name);
        assert!(listed.any(is_queried), "no rule for {row}");
    }
    assert!(checked >= 5, "{path}: {checked}");
}

/// A query with an unknown metric is also detected in the complete file.
#[test]
fn a_renamed_metric_is_a_fault() {
    let mut renamed = exposed();
    for metric in &mut renamed {
        metric.name = metric.name.replace("workqueue_depth", "queue_depth");
    }
    let query = alerts()
        .into_iter()
        .find(|it| it["alert"] == "ReconcilesWait")
        .map(|it| text(&it, "/expr").to_owned())
        .unwrap();
    let expected = ["rt_bootstrapper_controller_workqueue_depth is not exposed"];
    assert_eq!(query_faults(&query, &renamed), expected);
}
