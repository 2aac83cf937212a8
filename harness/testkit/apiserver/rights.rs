//! Authorization by RBAC rules.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::object::Key;
use super::request::{Query, Target};

/// Permissions of a client; the default is everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights(Vec<Rule>);

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    /// Namespace of a Role; `None` for a ClusterRole.
    #[serde(skip)]
    namespace: Option<String>,
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource_names: Vec<String>,
}

impl Default for Rights {
    fn default() -> Self {
        Self::with_verbs(&["*"])
    }
}

impl Rights {
    /// Returns permissions for these verbs on all resources.
    pub fn with_verbs(verbs: &[&str]) -> Self {
        let any = || vec!["*".to_owned()];
        Self(vec![Rule {
            verbs: verbs.iter().map(|it| (*it).to_owned()).collect(),
            api_groups: any(),
            resources: any(),
            ..Rule::default()
        }])
    }

    /// Returns the permissions of Roles and ClusterRoles; ignores other objects.
    pub fn of_roles<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Self {
        let rules = objects.into_iter().flat_map(|role| {
            let namespace = match role["kind"].as_str() {
                Some("Role") => role["metadata"]["namespace"].as_str().map(str::to_owned),
                Some("ClusterRole") => None,
                _ => return Vec::new(),
            };
            let mut rules = Vec::<Rule>::deserialize(&role["rules"]).unwrap_or_default();
            for rule in &mut rules {
                rule.namespace.clone_from(&namespace);
            }
            rules
        });
        Self(rules.collect())
    }

    /// Whether a request is allowed. A list or watch with a field selector for one name is authorized as a request for that
    /// name.
    pub(super) fn allow(&self, verb: &str, target: &Target, query: &Query) -> bool {
        let name = match &*target.name {
            "" => query.only_name().unwrap_or_default(),
            name => name,
        };
        let resource = (target.kind.group(), target.resource());
        self.permits(verb, (resource.0, &resource.1), (&target.namespace, name))
    }

    /// Whether an apply may create the object. Unlike a POST, the path of an apply contains the object's name.
    pub(super) fn allow_creation(&self, key: &Key) -> bool {
        let resource = (key.kind.group(), key.kind.resource);
        self.permits("create", resource, (&key.namespace, &key.name))
    }

    fn permits(
        &self,
        verb: &str,
        (group, resource): (&str, &str),
        (namespace, name): (&str, &str),
    ) -> bool {
        let any = |of: &[String], it: &str| of.iter().any(|one| one == "*" || one == it);
        self.0.iter().any(|rule| {
            rule.namespace.as_deref().is_none_or(|it| it == namespace)
                && any(&rule.verbs, verb)
                && any(&rule.api_groups, group)
                && any(&rule.resources, resource)
                && (rule.resource_names.is_empty()
                    || rule.resource_names.iter().any(|it| it == name))
        })
    }

    /// Returns the response to a `SelfSubjectAccessReview` or a `SelfSubjectRulesReview`.
    pub(super) fn review(&self, resource: &str, mut review: Value) -> Value {
        review["metadata"] = json!({});
        if resource == "selfsubjectrulesreviews" {
            let namespace = review["spec"]["namespace"].take();
            let is_of = |rule: &&Rule| rule.namespace.as_ref().is_none_or(|it| namespace == **it);
            let rules: Vec<&Rule> = self.0.iter().filter(is_of).collect();
            review["spec"] = json!({});
            review["status"] = json!({
                "resourceRules": rules, "nonResourceRules": [], "incomplete": false,
            });
            return review;
        }
        let asked = &review["spec"]["resourceAttributes"];
        let text = |field: &str| asked[field].as_str().unwrap_or_default();
        let allowed = self.permits(
            text("verb"),
            (text("group"), text("resource")),
            (text("namespace"), text("name")),
        );
        review["status"] = json!({ "allowed": allowed });
        review
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_evaluated_as_an_authorizer_does() {
        let roles = [
            json!({"kind": "ClusterRole", "rules": [
                {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"], "verbs": ["get", "list", "create"]},
                {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"]},
            ]}),
            json!({"kind": "Role", "metadata": {"namespace": "n"}, "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
            ]}),
            json!({"kind": "ServiceAccount", "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
        ];
        let rights = Rights::of_roles(&roles);
        let cases = [
            ("get", ("", "secrets"), ("n", "a"), true),
            ("get", ("", "secrets"), ("n", "b"), false),
            ("list", ("", "secrets"), ("", ""), false),
            ("create", ("", "secrets"), ("n", "a"), true),
            ("create", ("", "secrets"), ("n", ""), false),
            ("delete", ("apps", "deployments"), ("n", "x"), true),
            ("get", ("", "pods"), ("n", "x"), true),
            ("get", ("", "pods"), ("m", "x"), false),
            ("get", ("", "pods/status"), ("n", "x"), false),
        ];
        for (verb, resource, object, allowed) in cases {
            assert_eq!(
                rights.permits(verb, resource, object),
                allowed,
                "{verb} {resource:?} {object:?}"
            );
        }
    }
}
