//! Compares tables of permissions in the documentation with the manifests.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::root;

/// Returns the objects in the manifests of a directory below `deploy`, with the names of their files.
fn objects(folder: &str) -> Vec<(String, Value)> {
    let mut objects = Vec::new();
    for file in fs::read_dir(root().join("deploy").join(folder)).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let found: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        objects.extend(
            found
                .into_iter()
                .filter(Value::is_object)
                .map(|it| (name.clone(), it)),
        );
    }
    assert!(!objects.is_empty(), "{folder}");
    objects
}

fn list(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn group(name: &str) -> &str {
    if name.is_empty() { "core" } else { name }
}

/// Returns the rules in the format of the table: mode, scope, group, resource, names, verbs.
fn rules(objects: &[(String, Value)]) -> BTreeSet<String> {
    let mut rows = BTreeSet::new();
    for (file, object) in objects {
        let scope = match object["kind"].as_str() {
            Some("ClusterRole") => "cluster",
            Some("Role") => "namespace",
            _ => continue,
        };
        let modes = ["direct", "watchers"];
        let mode = modes.into_iter().find(|mode| file.contains(mode));
        let mode = mode.unwrap_or("all");
        for rule in object["rules"].as_array().unwrap() {
            let names = match &list(&rule["resourceNames"])[..] {
                [] => "any".to_owned(),
                names => names.join(", "),
            };
            let mut verbs = list(&rule["verbs"]);
            verbs.sort_unstable();
            for api in list(&rule["apiGroups"]) {
                for resource in list(&rule["resources"]) {
                    let cells = [mode, scope, group(api), resource, &names, &verbs.join(", ")];
                    rows.insert(cells.join(" | "));
                }
            }
        }
    }
    rows
}

/// Returns the rows of the table with this header, without the last column, which must contain a reason.
fn table(page: &str, header: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let (_, table) = text
        .split_once(header)
        .unwrap_or_else(|| panic!("{page} has no table {header}"));
    let mut rows = BTreeSet::new();
    for line in table.lines().skip(2).take_while(|it| it.starts_with('|')) {
        let (row, why) = line.trim_matches('|').rsplit_once(" | ").unwrap();
        assert!(!why.trim().is_empty(), "{line}");
        assert!(rows.insert(row.trim().to_owned()), "{line} is there twice");
    }
    rows
}

#[test]
fn permissions_of_the_controller_are_those_of_its_roles() {
    let documented = table(
        "docs/controller.md",
        "| mode | scope | API group | resource | names | verbs | why |",
    );
    let given = rules(&objects("controller"));
    assert!(given.len() > 5, "{given:?}");
    let missing: Vec<_> = given.difference(&documented).collect();
    let obsolete: Vec<_> = documented.difference(&given).collect();
    assert!(
        missing.is_empty() && obsolete.is_empty(),
        "docs/controller.md lacks {missing:#?} and has {obsolete:#?} in excess"
    );
}

/// The controller applies the manifests of the webhook and the three sources on a runtime.
#[test]
fn permissions_on_a_runtime_are_for_all_objects_that_are_applied() {
    let documented = table(
        "docs/controller.md",
        "| API group | resource | verbs | why |",
    );
    let applied = documented.iter().filter_map(|row| {
        let (resource, verbs) = row.rsplit_once(" | ")?;
        let verbs: Vec<&str> = verbs.split(", ").collect();
        let is_applied = ["get", "create", "patch", "delete"]
            .iter()
            .all(|verb| verbs.contains(verb));
        is_applied.then(|| resource.to_owned())
    });
    let sources = [
        "core | configmaps",
        "core | secrets",
        "certificates.k8s.io | clustertrustbundles",
    ];
    let manifests = objects("webhook").into_iter().map(|(_, object)| {
        let (api, _) = object["apiVersion"]
            .as_str()
            .unwrap()
            .split_once('/')
            .unwrap_or_default();
        format!(
            "{} | {}",
            group(api),
            plural(object["kind"].as_str().unwrap())
        )
    });
    let expected: BTreeSet<String> = manifests.chain(sources.map(str::to_owned)).collect();
    assert_eq!(applied.collect::<BTreeSet<_>>(), expected);
}

fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    }
}

#[test]
fn the_watcher_has_no_permissions_and_the_documentation_says_so() {
    let objects = objects("watcher");
    let has_rules = objects
        .iter()
        .any(|(_, it)| it["kind"].as_str().unwrap().contains("Role"));
    let tokens: Vec<&Value> = objects
        .iter()
        .flat_map(|(_, it)| {
            [
                it.get("automountServiceAccountToken"),
                it.pointer("/spec/template/spec/automountServiceAccountToken"),
            ]
        })
        .flatten()
        .collect();
    assert_eq!(tokens, [&Value::Bool(false); 2]);
    let page = fs::read_to_string(root().join("docs/watcher.md")).unwrap();
    assert_eq!(page.contains("\n## Permissions: none\n"), !has_rules);
}
