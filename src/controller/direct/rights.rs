//! Computes the missing permissions of a kubeconfig from a review by the runtime's API server.
//!
//! Not in here: the requests. If a review is incomplete, no permission is reported as missing: the results of the
//! writes show missing permissions.

use k8s_openapi::api::authorization::v1::{
    ResourceRule, SelfSubjectRulesReview, SubjectRulesReviewStatus,
};
use policy::sync::target::Target;
use serde_json::{Value, json};

use crate::runtime_objects::permission;

/// Path of SelfSubjectRulesReviews.
pub(super) const RULES_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

/// Path of SelfSubjectAccessReviews.
pub(super) const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Returns a review of one permission in all namespaces, for a resource of the core group.
pub(super) fn access_review(verb: &str, plural: &str) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": { "verb": verb, "version": "v1", "resource": plural } },
    })
}

/// Verbs that a reconcile may need for an object. A server-side apply that creates an object needs `create` and `patch`.
const VERBS: [&str; 4] = ["get", "create", "patch", "delete"];

/// Returns a review of the rules in a namespace. The response contains the rules of the whole cluster as well.
pub(super) fn rules_review(namespace: &str) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": { "namespace": namespace },
    })
}

/// The permissions of a kubeconfig.
pub(super) struct Rules(SubjectRulesReviewStatus);

impl Rules {
    /// Reads the response to a [`rules_review`]; an invalid response counts as incomplete.
    pub(super) fn read(response: Value) -> Self {
        let review = serde_json::from_value::<SelfSubjectRulesReview>(response);
        let unknown = SubjectRulesReviewStatus {
            incomplete: true,
            ..SubjectRulesReviewStatus::default()
        };
        Self(review.ok().and_then(|it| it.status).unwrap_or(unknown))
    }

    /// Returns the missing permissions for the targets, without duplicates, as `verb plural.group`.
    pub(super) fn missing<'t>(&self, targets: impl IntoIterator<Item = &'t Target>) -> Vec<String> {
        let mut missing = Vec::new();
        if self.0.incomplete {
            return missing;
        }
        for target in targets {
            for verb in VERBS {
                let is_allowed = self
                    .0
                    .resource_rules
                    .iter()
                    .any(|it| allows(it, verb, target));
                let permission = permission(verb, target);
                if !is_allowed && !missing.contains(&permission) {
                    missing.push(permission);
                }
            }
        }
        missing
    }
}

fn allows(rule: &ResourceRule, verb: &str, target: &Target) -> bool {
    let (group, plural) = target.resource();
    let is = |it: &String, wanted: &str| it == "*" || it == wanted;
    // A server-side apply creates an object by its path, so rules with resource names apply.
    let names = rule.resource_names.as_deref().unwrap_or_default();
    rule.verbs.iter().any(|it| is(it, verb))
        && rule.api_groups.iter().flatten().any(|it| is(it, group))
        && rule.resources.iter().flatten().any(|it| is(it, plural))
        && (names.is_empty() || names.iter().any(|it| it == target.name()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn missing(rules: &Value, incomplete: bool) -> Vec<String> {
        let response = json!({ "status": { "incomplete": incomplete, "resourceRules": rules } });
        let targets = [
            Target::secret("kyma-system", "registry-credentials"),
            Target::trust_bundle("v1beta1", "b"),
        ];
        Rules::read(response).missing(&targets)
    }

    #[rstest]
    #[case::administrator(json!([{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }]))]
    #[case::exactly_enough(json!([
        { "verbs": ["get", "create", "patch", "delete"], "apiGroups": [""], "resources": ["secrets"],
          "resourceNames": ["registry-credentials"] },
        { "verbs": ["get", "create", "patch", "delete"], "apiGroups": ["certificates.k8s.io"],
          "resources": ["clustertrustbundles"] },
    ]))]
    fn sufficient_rules_have_no_missing_permissions(#[case] rules: Value) {
        assert_eq!(missing(&rules, false), [""; 0]);
    }

    #[test]
    fn missing_permission_is_listed_once() {
        let rules = json!([
            { "verbs": ["get", "patch"], "apiGroups": [""], "resources": ["secrets"] },
            { "verbs": ["*"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["another"] },
            { "verbs": ["*"], "apiGroups": ["certificates.k8s.io"], "resources": ["clustertrustbundles"] },
        ]);
        assert_eq!(missing(&rules, false), ["create secrets", "delete secrets"]);
    }

    #[test]
    fn incomplete_or_invalid_review_has_no_missing_permissions() {
        assert_eq!(missing(&json!([]), true), [""; 0]);
        let targets = [Target::secret("a", "b")];
        assert_eq!(Rules::read(json!("no review")).missing(&targets), [""; 0]);
    }
}
