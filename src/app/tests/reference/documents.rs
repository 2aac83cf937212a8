//! Compares metrics in the documentation with the exposed metrics of the components.

use std::fs;
use std::path::Path;

use super::exposition::Metric;
use super::metrics::components;
use super::queries::{faults, names};
use super::root;

pub(super) fn exposed() -> Vec<Metric> {
    components().into_iter().flat_map(|it| it.metrics).collect()
}

pub(super) fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
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

/// The table of the webhook contains names without the prefix of the component.
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

/// A link to a generated page must refer to one of its sections.
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
        for link in links.filter(|it| it.contains("reference/") && !it.starts_with("https:")) {
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
