//! The decisions of this module as a MutatingAdmissionPolicy. The API server evaluates it while no replica of the
//! webhook responds.
//!
//! The policy makes the same changes as the webhook. Changes that CEL cannot express are left to the webhook, never
//! guessed. The policy runs before the webhook, so the webhook does not change a Pod that the policy adapted, and the
//! Pod has no marker.
//!
//! Deliberately absent: UPDATE and ephemeral containers, the marker, mount paths with `.`, `..` or `//`, and images
//! whose new text is so long that only the grammar can determine whether it is valid.

use std::collections::BTreeMap;

use api::names::{
    EXCLUDED_NAMESPACE, MIRROR_POD, OWN_LABEL, POLICY_PROBE_POD, POLICY_REVISION, PROBE_POD,
};
use api::{ALL_KEY, Feature, FeatureSet};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use self::cel::{joined, list, or_empty, quote};
use self::images::MAX_REGISTRIES;
use super::{Configuration, PullSecret, TrustBundlePresence};

mod cel;
mod containers;
mod images;

/// Maximum size of all expressions of the policy, in bytes. The API server bounds the cost of an evaluation, and
/// skips a policy that exceeds the bound for a Pod. Within this limit Pods with a hundred containers are evaluated.
const MAX_EXPRESSIONS: usize = 64 * 1024;

/// Error: the API server could skip the policy because of its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyTooLarge {
    /// The document is too large.
    #[error(
        "the expressions of the policy would have {0} bytes, at most {MAX_EXPRESSIONS} are possible"
    )]
    Expressions(usize),
    /// The pull Secret has too many registries.
    #[error(
        "the registries of the pull Secret would need a pattern of {0} bytes, at most {MAX_REGISTRIES} are possible"
    )]
    Registries(usize),
}

/// A MutatingAdmissionPolicy.
#[derive(Clone, Debug, PartialEq)]
pub struct FallbackSpec {
    /// The `spec` of the policy.
    pub spec: Value,
    /// Value of the annotation [`POLICY_REVISION`] that the policy adds to the Pod [`POLICY_PROBE_POD`], after all
    /// other changes. The value differs between policies that change other Pods differently.
    pub revision: String,
}

/// Returns the policy for a configuration and the known state of its objects. `None` if the policy would change no Pod.
/// The pull Secret is that of the product namespace.
///
/// # Errors
/// [`PolicyTooLarge`] if the API server could skip the policy because of its cost.
pub fn fallback_spec(
    configuration: &Configuration,
    pull_secret: &PullSecret,
    trust_bundle: TrustBundlePresence,
    product_namespace: &str,
) -> Result<Option<FallbackSpec>, PolicyTooLarge> {
    let changes = [
        images::registries(configuration),
        images::pull_secrets(configuration, pull_secret, product_namespace)?,
        containers::mounts(configuration, trust_bundle),
        containers::environment(configuration),
    ];
    let changes: Vec<String> = changes.into_iter().flatten().collect();
    if changes.is_empty() {
        return Ok(None);
    }
    let variables = variables(configuration);
    let expressions = variables.iter().filter_map(|it| it["expression"].as_str());
    let expressions = expressions.chain(changes.iter().map(String::as_str));
    let size = expressions.map(str::len).sum();
    if size > MAX_EXPRESSIONS {
        return Err(PolicyTooLarge::Expressions(size));
    }
    let revision = hex::encode(&Sha256::digest(json!([variables, changes]).to_string())[..8]);
    // One mutation: a Pod gets all changes or, if one of them fails, no change.
    let operations = [changes, vec![evaluated(product_namespace, &revision)]].concat();
    let operations: Vec<String> = operations.iter().map(|it| format!("({it})")).collect();
    let mutation = json!({
        "patchType": "JSONPatch", "jsonPatch": {"expression": operations.join(" + ")},
    });
    let spec = json!({
        // As in the webhook configuration: a Pod that cannot be created is worse than a Pod that is adapted later.
        "failurePolicy": "Ignore",
        // Another policy or webhook may add a container.
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [EXCLUDED_NAMESPACE]},
            ]},
            "objectSelector": {},
            "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
                "scope": "Namespaced",
            }],
        },
        "matchConditions": match_conditions(product_namespace),
        "variables": variables,
        "mutations": [mutation],
    });
    Ok(Some(FallbackSpec { spec, revision }))
}

/// Returns the conditions of the webhook configuration that apply to CREATE.
fn match_conditions(product_namespace: &str) -> Value {
    let (key, value) = (quote(OWN_LABEL.0), quote(OWN_LABEL.1));
    let (product, mirror) = (quote(product_namespace), quote(MIRROR_POD));
    let labels = "object.metadata.labels";
    let probe = is_pod(product_namespace, POLICY_PROBE_POD);
    let webhook_probe = is_pod(product_namespace, PROBE_POD);
    json!([
        {"name": "not-our-own-pod", "expression": format!(
            "{probe} || !(request.namespace == {product} && has({labels}) && {key} in {labels} && {labels}[{key}] == {value})"
        )},
        {"name": "not-a-mirror-pod", "expression": format!(
            "!(has(object.metadata.annotations) && {mirror} in object.metadata.annotations)"
        )},
        // This probe Pod shows whether the API server calls the webhook, so only the webhook may change it.
        {"name": "not-the-probe-of-the-webhook", "expression": format!("!({webhook_probe})")},
    ])
}

fn is_pod(namespace: &str, name: &str) -> String {
    let (namespace, name) = (quote(namespace), quote(name));
    format!(
        "(request.namespace == {namespace} && has(object.metadata.name) && object.metadata.name == {name})"
    )
}

/// Returns the operation that marks the probe Pod. The mark shows the webhook that the API server evaluates the whole policy.
fn evaluated(product_namespace: &str, revision: &str) -> String {
    let probe = is_pod(product_namespace, POLICY_PROBE_POD);
    let path = format!(
        "/metadata/annotations/{}",
        POLICY_REVISION.replace('/', "~1")
    );
    let (path, revision) = (quote(&path), quote(revision));
    let has_annotations = "has(object.metadata.annotations)";
    format!(
        r#"{probe} && {has_annotations} ? [JSONPatch{{op: "add", path: {path}, value: {revision}}}] : []"#
    )
}

/// Returns the variables of the policy. Each variable is evaluated when it is first used.
fn variables(configuration: &Configuration) -> Vec<Value> {
    let (init, main) = ("object.spec.initContainers", "object.spec.containers");
    let containers = format!("({}) + ({})", or_empty(init, "[]"), or_empty(main, "[]"));
    let written = "variables.containers.filter(c, has(c.image)).map(c, string(c.image)) + \
        (has(object.spec.volumes) ? object.spec.volumes.filter(v, has(v.image) && has(v.image.reference))\
        .map(v, string(v.image.reference)) : [])";
    let all = [
        (
            "podAnnotations",
            or_empty("object.metadata.annotations", "{}"),
        ),
        (
            "namespaceAnnotations",
            or_empty("namespaceObject.metadata.annotations", "{}"),
        ),
        (
            "namespaceLabels",
            or_empty("namespaceObject.metadata.labels", "{}"),
        ),
        ("configured", configured(configuration)),
        ("features", features(configuration)),
        ("containers", containers),
        ("images", written.to_owned()),
        ("references", images::references("variables.images")),
        ("overrides", images::overrides(configuration)),
        ("rewrites", images::rewrites(configuration)),
        ("rewritten", images::rewritten()),
        ("needed", images::references("variables.rewritten")),
        (
            "wanted",
            containers::wanted(configuration).unwrap_or_else(|| "[]".to_owned()),
        ),
    ];
    all.into_iter()
        .map(|(name, expression)| json!({"name": name, "expression": expression}))
        .collect()
}

/// Returns an expression for the features of the Pod's Namespace in the document. Each set of keys occurs once.
fn configured(configuration: &Configuration) -> String {
    let mut by_keys: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (namespace, set) in configuration.namespaces() {
        let set = set.intersection(configuration.available());
        if !set.is_empty() {
            let keys = list(set.iter().map(Feature::key));
            by_keys.entry(keys).or_default().push(namespace);
        }
    }
    let sets = by_keys.into_iter().map(|(keys, namespaces)| {
        let namespaces = list(namespaces.into_iter());
        format!("(request.namespace in {namespaces} ? {keys} : [])")
    });
    joined(sets, " + ", "[]")
}

/// Returns an expression for the features that are enabled for the Pod.
fn features(configuration: &Configuration) -> String {
    let keys = |set: FeatureSet| list(set.iter().map(Feature::key));
    let available = configuration.available();
    let all = quote(ALL_KEY);
    let requested_by = |annotations: &str| {
        format!(
            "(f in {annotations} ? {annotations}[f] == \"true\" : {all} in {annotations} && {annotations}[{all}] == \"true\")"
        )
    };
    let refused = keys(configuration.opt_out().intersection(available));
    let (pod, namespace) = ("variables.podAnnotations", "variables.namespaceAnnotations");
    format!(
        "{}.filter(f, (f in variables.configured || {} || {}) && !(f in {refused} && f in {pod} && {pod}[f] == \"false\"))",
        keys(available),
        requested_by(namespace),
        requested_by(pod),
    )
}
