//! Metrics and alerts in the documentation, compared with what the components expose.

use std::fs;
use std::path::Path;

use rstest::rstest;
use serde_json::Value;

use super::exposition::Metric;
use super::metrics::components;
use super::queries::{faults, names, query_faults};
use super::root;

fn exposed() -> Vec<Metric> {
    components().into_iter().flat_map(|it| it.metrics).collect()
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// The alerts of a page.
fn alerts(page: &str) -> Vec<Value> {
    let blocks = page
        .split("```yaml\n")
        .skip(1)
        .filter_map(|it| it.split("```").next());
    let mut alerts = Vec::new();
    for block in blocks.filter(|it| it.contains("- alert:")) {
        let rules: Value = serde_saphyr::from_str(block).unwrap();
        for group in rules["groups"].as_array().unwrap() {
            assert!(group["name"].is_string(), "{group}");
            alerts.extend(group["rules"].as_array().unwrap().iter().cloned());
        }
    }
    alerts
}

#[test]
fn metrics_that_the_documentation_names_are_exposed() {
    let exposed = exposed();
    let mut pages: Vec<String> = fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|it| it.unwrap().path())
        .filter(|it| it.extension() == Some("md".as_ref()))
        .filter_map(|it| Some(format!("docs/{}", it.file_name()?.to_str()?)))
        .collect();
    pages.push("README.md".to_owned());
    assert!(pages.len() > 5, "{pages:?}");
    for name in pages {
        assert_eq!(
            faults(&page(&name), &exposed),
            Vec::<String>::new(),
            "{name}"
        );
    }
}

#[rstest]
#[case("docs/controller.md")]
#[case("docs/watcher.md")]
fn alerts_of_the_documentation_are_rules_about_series_that_exist(#[case] path: &str) {
    let exposed = exposed();
    let alerts = alerts(&page(path));
    assert!(alerts.len() >= 5, "{path}: {}", alerts.len());
    for alert in alerts {
        let text = |pointer: &str| {
            alert
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let query = text("/expr");
        assert_eq!(
            query_faults(query, &exposed),
            Vec::<String>::new(),
            "{path}: {query}"
        );
        assert!(
            matches!(text("/labels/severity"), "warning" | "critical"),
            "{alert}"
        );
        assert!(text("/annotations/summary").ends_with('.'), "{alert}");
        for label in text("/annotations/summary").split("$labels.").skip(1) {
            let label = label
                .split(|it: char| !it.is_alphanumeric())
                .next()
                .unwrap_or_default();
            assert!(query.contains(&format!("by ({label})")), "{alert}: {label}");
        }
    }
}

/// Every metric that a table tells to alert on is in a rule.
#[rstest]
#[case("docs/controller.md")]
#[case("docs/watcher.md")]
fn metrics_with_an_alert_in_the_table_have_a_rule(#[case] path: &str) {
    let page = page(path);
    let queries: Vec<String> = alerts(&page)
        .iter()
        .map(|it| it["expr"].as_str().unwrap().to_owned())
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
        let mut listed = names(metrics).map(|(name, _)| name);
        assert!(
            listed.any(|name| queries.iter().any(|it| it.contains(name))),
            "no rule for {row}"
        );
    }
    assert!(checked >= 5, "{path}: {checked}");
}

/// The table of the webhook has names without the prefix of the component.
#[test]
fn metrics_in_the_table_of_the_webhook_are_exposed() {
    let [webhook, ..] = components();
    let mut names_of = webhook.metrics.iter().map(|it| it.name.as_str());
    let prefix = names_of
        .find_map(|it| it.strip_suffix("build_info"))
        .unwrap();
    let page = page("docs/webhook.md");
    let table = page.split("| metric | meaning | alert |").nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|it| it.starts_with('|'));
    let cells = rows.filter_map(|it| it.trim_start_matches('|').split('|').next());
    let listed: Vec<String> = cells
        .flat_map(|cell| names(cell).map(|(name, _)| name.to_owned()))
        .collect();
    assert!(listed.len() > 10, "{listed:?}");
    for name in listed {
        let exposed = |it: &Metric| it.name == name || it.name == format!("{prefix}{name}");
        assert!(webhook.metrics.iter().any(exposed), "{name}");
    }
}

/// A link to a generated page leads to one of its sections.
#[test]
fn links_to_the_reference_lead_to_a_section() {
    for file in [
        "README.md",
        "docs/webhook.md",
        "docs/controller.md",
        "docs/watcher.md",
    ] {
        let text = page(file);
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|it| it.split(')').next());
        for link in links.filter(|it| it.contains("reference/")) {
            let (target, section) = link.split_once('#').unwrap_or((link, ""));
            let path = Path::new(file).parent().unwrap().join(target);
            let text = page(path.to_str().unwrap());
            assert!(
                section.is_empty() || text.contains(&format!("\n## {section}\n")),
                "{file}: {link}"
            );
        }
    }
}
