//! Which of the rights that a pass may need a kubeconfig lacks, judged by the runtime's own review of our rules.
//!
//! Deliberately absent: asking. A review that says it is incomplete is given the benefit of the doubt: the write itself
//! tells.

use policy::sync::target::Target;
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
    status: Rules,
}

/// What a kubeconfig may do, as its API server says.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rules {
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

impl Rules {
    /// Reads the answer to a [`question`]; one that is no review is taken for an incomplete one.
    pub(super) fn read(answer: Value) -> Self {
        let review = serde_json::from_value(answer);
        review.map_or_else(
            |_| Self {
                incomplete: true,
                resource_rules: Vec::new(),
            },
            |Review { status }| status,
        )
    }

    /// Each right to the targets that is missing, as `verb plural.group`, once.
    pub(super) fn missing<'t>(&self, targets: impl IntoIterator<Item = &'t Target>) -> Vec<String> {
        let mut missing = Vec::new();
        if self.incomplete {
            return missing;
        }
        for target in targets {
            for verb in VERBS {
                let is_allowed = self.resource_rules.iter().any(|it| it.allows(verb, target));
                let right = name(verb, target);
                if !is_allowed && !missing.contains(&right) {
                    missing.push(right);
                }
            }
        }
        missing
    }
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
        Rules::read(answer).missing(&targets)
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
        assert_eq!(Rules::read(json!("no review")).missing(&targets), [""; 0]);
    }
}
