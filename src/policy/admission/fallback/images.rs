//! Expressions of the policy for images: replacing registries, and adding the pull Secret.

use api::Feature;
use api::config::{Inject, LabelOperator, LabelSelector};

use crate::image::{OFFICIAL, reference_pattern};

use super::super::overrides::SURELY_SHORT;
use super::super::{Configuration, PullSecret};
use super::PolicyTooLarge;
use super::cel::{guarded, joined, list, quote};

/// Maximum size of the regular expression of the registries of a pull Secret, in bytes. The cost of matching an image
/// is proportional to this size.
pub(super) const MAX_REGISTRIES: usize = 2 * 1024;

/// Returns an expression for the valid references of a list of images. Each reference contains the image, the written
/// registry, the normalized registry and path, and the suffix.
pub(super) fn references(images: &str) -> String {
    let pattern = quote(&reference_pattern());
    // The text that the grammar parses as a registry.
    let domain = r#"i.matches("^(localhost|[^/]*[.:A-Z][^/]*)/") ? i.split("/", 2)[0] : """#;
    let official = quote(OFFICIAL);
    let hub = r#"r.domain in ["", "docker.io", "index.docker.io"]"#;
    format!(
        r#"{images}.filter(i, i.matches({pattern}) && !i.matches("^[0-9a-f]{{64}}$"))
.map(i, {{"image": i, "domain": {domain}}})
.map(r, {{"image": r.image, "domain": r.domain, "remote": r.domain == "" ? r.image : r.image.substring(size(r.domain) + 1)}})
.map(r, {{"image": r.image, "domain": r.domain, "remote": r.remote, "path": r.remote.split("@")[0].split(":")[0]}})
.map(r, {{"image": r.image, "domain": r.domain, "registry": {hub} ? "docker.io" : r.domain,
"path": ({hub} && !r.path.contains("/") ? {official} : "") + r.path, "suffix": r.remote.substring(size(r.path))}})"#
    )
}

/// Returns a map from registry to replacement. The replacement is empty if the override cannot be used.
pub(super) fn overrides(configuration: &Configuration) -> String {
    // An override with an empty key has no effect. In the policy the empty key means an image without an override.
    let entries = configuration.overrides.iter();
    let entries = entries.filter(|(host, _)| !host.is_empty());
    let entries = entries.map(|(host, to)| {
        let to = to.map_or("", |it| &it.text);
        format!("{}: {}", quote(host), quote(to))
    });
    // The entry of an empty map determines its type.
    format!("{{{}}}", joined(entries, ", ", r#""": """#))
}

/// Returns an expression for the images to replace, with their new texts.
pub(super) fn rewrites(configuration: &Configuration) -> String {
    let hosts = configuration.overrides.iter();
    let hosts = hosts.filter(|(_, to)| to.is_some_and(|it| it.is_through_hub));
    let hosts: Vec<&str> = hosts.map(|(host, _)| host).collect();
    let path = if hosts.is_empty() {
        "r.path".to_owned()
    } else {
        let (hosts, official) = (list(hosts.into_iter()), quote(OFFICIAL));
        format!(r#"(r.key in {hosts} && !r.path.contains("/") ? {official} : "") + r.path"#)
    };
    format!(
        r#"variables.references
.map(r, {{"image": r.image, "path": r.path + r.suffix,
"key": r.domain in variables.overrides ? r.domain : (r.registry == "docker.io" ? "docker.io" : "")}})
.filter(r, r.key in variables.overrides && variables.overrides[r.key] != "")
.map(r, {{"image": r.image, "prefix": variables.overrides[r.key] + "/", "path": {path}}})
.filter(r, !r.image.startsWith(r.prefix) && size(r.prefix + r.path) <= {SURELY_SHORT})
.map(r, {{"image": r.image, "to": r.prefix + r.path}})"#
    )
}

/// Returns an expression for the images after the rewrite.
pub(super) fn rewritten() -> String {
    let key = quote(Feature::RegistryRewrite.key());
    format!(
        r"!({key} in variables.features) ? variables.images : variables.images.map(i,
variables.rewrites.exists(r, r.image == i) ? variables.rewrites.filter(r, r.image == i)[0].to : i)"
    )
}

pub(super) fn registries(configuration: &Configuration) -> Option<String> {
    configuration
        .overrides
        .iter()
        .find(|(_, to)| to.is_some())?;
    let replace = |list: &str, image: &str, present: &str| {
        let pointer = image.replace('.', "/");
        format!(
            r#"(has(object.spec.{list}) ? object.spec.{list}.transformList(i, e,
{present} && variables.rewrites.exists(r, r.image == e.{image}),
JSONPatch{{op: "replace", path: "/spec/{list}/" + string(i) + "/{pointer}",
value: variables.rewrites.filter(r, r.image == e.{image})[0].to}}) : [])"#
        )
    };
    let operations = [
        replace("initContainers", "image", "has(e.image)"),
        replace("containers", "image", "has(e.image)"),
        replace(
            "volumes",
            "image.reference",
            "has(e.image) && has(e.image.reference)",
        ),
    ];
    guarded(
        configuration,
        Feature::RegistryRewrite,
        &operations.join(" + "),
    )
}

pub(super) fn pull_secrets(
    configuration: &Configuration,
    known: &PullSecret,
    product_namespace: &str,
) -> Result<Option<String>, PolicyTooLarge> {
    let rule = configuration.pull_secret();
    let name = quote(&rule.name);
    let needed = match (known, rule.inject) {
        // Pods of other namespaces use copies, which an invalid Secret does not replace.
        (PullSecret::Invalid, _) => format!("request.namespace != {}", quote(product_namespace)),
        (PullSecret::Unknown, _) | (_, Inject::Always) => "true".to_owned(),
        (PullSecret::Known(keyring), Inject::Needed) => match keyring.pattern() {
            None => return Ok(None),
            Some(pattern) if pattern.len() > MAX_REGISTRIES => {
                return Err(PolicyTooLarge::Registries(pattern.len()));
            }
            Some(pattern) => {
                let image = r#"(r.registry + "/" + r.path)"#;
                format!(
                    "variables.needed.exists(r, {image}.matches({}))",
                    quote(&pattern)
                )
            }
        },
    };
    let selected = rule.namespaces.as_ref().map_or("true".to_owned(), selects);
    let operations = format!(
        r#"has(object.spec.imagePullSecrets) && object.spec.imagePullSecrets.exists(s, has(s.name) && s.name == {name})
|| !({selected}) || !({needed}) ? [] : has(object.spec.imagePullSecrets)
? [JSONPatch{{op: "add", path: "/spec/imagePullSecrets/-", value: {{"name": {name}}}}}]
: [JSONPatch{{op: "add", path: "/spec/imagePullSecrets", value: [{{"name": {name}}}]}}]"#
    );
    Ok(guarded(configuration, Feature::PullSecret, &operations))
}

/// Returns an expression that is true if the selector matches the labels of the Namespace.
fn selects(selector: &LabelSelector) -> String {
    let labels = "variables.namespaceLabels";
    let equal = selector.match_labels.iter().map(|(key, value)| {
        let (key, value) = (quote(key), quote(value));
        format!("{key} in {labels} && {labels}[{key}] == {value}")
    });
    let expressions = selector.match_expressions.iter().map(|it| {
        let key = quote(&it.key);
        let has_value = || {
            let values = list(it.values.iter().map(String::as_str));
            format!("{key} in {labels} && {labels}[{key}] in {values}")
        };
        match it.operator {
            LabelOperator::In => has_value(),
            LabelOperator::NotIn => format!("!({})", has_value()),
            LabelOperator::Exists => format!("{key} in {labels}"),
            LabelOperator::DoesNotExist => format!("!({key} in {labels})"),
        }
    });
    joined(equal.chain(expressions), " && ", "true")
}
