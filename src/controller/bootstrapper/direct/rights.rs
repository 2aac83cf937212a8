//! Which of the rights that a pass may need a kubeconfig lacks, judged by the runtime's own review of our rules.
//!
//! Deliberately absent: asking. A review that says it is incomplete is given the benefit of the doubt: the write itself
//! tells.

use policy::convergence::target::Target;
use serde::Deserialize;
use serde_json::{Value, json};

/// The path of the review.
pub(super) const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

/// The path of the question about one right.
pub(super) const ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The question about one right in all namespaces, to a kind of the core group.
pub(super) fn may(verb: &str, plural: &str) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": { "verb": verb, "version": "v1", "resource": plural } },
    })
}

/// What a pass does to an object. A server-side apply of a new object wants `create` beside `patch`.
const VERBS: [&str; 4] = ["get", "create", "patch", "delete"];

/// The question for a namespace; the answer holds the rules of the whole cluster as well.
pub(super) fn question(namespace: &str) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": { "namespace": namespace },
    })
}

#[derive(Deserialize)]
struct Review {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    incomplete: bool,
    #[serde(default)]
    resource_rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    api_groups: Vec<String>,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

impl Rule {
    fn allows(&self, verb: &str, target: &Target) -> bool {
        let (group, plural) = target.resource();
        let among = |list: &[String], wanted: &str| list.iter().any(|it| it == "*" || it == wanted);
        // What is created by its path has a name; rules with names hold for it.
        let named = self.resource_names.is_empty()
            || self.resource_names.iter().any(|it| it == target.name());
        among(&self.verbs, verb)
            && among(&self.api_groups, group)
            && among(&self.resources, plural)
            && named
    }
}

/// Each right that is lacking, as `verb plural.group`, once.
pub(super) fn missing<'t>(
    answer: Value,
    targets: impl IntoIterator<Item = &'t Target>,
) -> Vec<String> {
    let Ok(Review { status }) = serde_json::from_value(answer) else {
        return Vec::new();
    };
    if status.incomplete {
        return Vec::new();
    }
    let mut missing = Vec::new();
    for target in targets {
        for verb in VERBS {
            let allowed = status
                .resource_rules
                .iter()
                .any(|rule| rule.allows(verb, target));
            let right = name(verb, target);
            if !allowed && !missing.contains(&right) {
                missing.push(right);
            }
        }
    }
    missing
}

/// A right in words.
pub(super) fn name(verb: &str, target: &Target) -> String {
    match target.resource() {
        ("", plural) => format!("{verb} {plural}"),
        (group, plural) => format!("{verb} {plural}.{group}"),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn lacking(rules: &Value, incomplete: bool) -> Vec<String> {
        let answer = json!({ "status": { "incomplete": incomplete, "resourceRules": rules } });
        let targets = [
            Target::secret("kyma-system", "registry-credentials"),
            Target::trust_bundle("v1beta1", "b"),
        ];
        missing(answer, &targets)
    }

    #[rstest]
    #[case::administrator(json!([{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }]))]
    #[case::exactly_enough(json!([
        { "verbs": ["get", "create", "patch", "delete"], "apiGroups": [""], "resources": ["secrets"],
          "resourceNames": ["registry-credentials"] },
        { "verbs": ["get", "create", "patch", "delete"], "apiGroups": ["certificates.k8s.io"],
          "resources": ["clustertrustbundles"] },
    ]))]
    fn enough(#[case] rules: Value) {
        assert_eq!(lacking(&rules, false), [""; 0]);
    }

    #[test]
    fn what_is_lacking_is_named_once() {
        let rules = json!([
            { "verbs": ["get", "patch"], "apiGroups": [""], "resources": ["secrets"] },
            { "verbs": ["*"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["another"] },
            { "verbs": ["*"], "apiGroups": ["certificates.k8s.io"], "resources": ["clustertrustbundles"] },
        ]);
        assert_eq!(lacking(&rules, false), ["create secrets", "delete secrets"]);
    }

    #[test]
    fn an_incomplete_or_strange_review_speaks_against_nobody() {
        assert_eq!(lacking(&json!([]), true), [""; 0]);
        let targets = [Target::secret("a", "b")];
        assert_eq!(missing(json!("no review"), &targets), [""; 0]);
    }
}
