//! Authorization by roles: what the rules of RBAC allow.

use serde_json::{Value, json};

use super::request::{Query, Target};

/// What a client may do; by default everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights(Vec<Rule>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    /// The namespace of a Role; a ClusterRole has none.
    namespace: Option<String>,
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
}

impl Default for Rights {
    fn default() -> Self {
        Self::with_verbs(&["*"])
    }
}

impl Rights {
    /// These verbs, on everything.
    pub fn with_verbs(verbs: &[&str]) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect();
        Self(vec![Rule {
            namespace: None,
            verbs: owned(verbs),
            groups: owned(&["*"]),
            resources: owned(&["*"]),
            names: Vec::new(),
        }])
    }

    /// Those of Roles and ClusterRoles; other objects are passed over.
    pub fn of_roles<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut rules = Vec::new();
        for role in objects {
            let namespace = match role["kind"].as_str() {
                Some("Role") => role["metadata"]["namespace"].as_str().map(str::to_owned),
                Some("ClusterRole") => None,
                _ => continue,
            };
            for rule in role["rules"].as_array().into_iter().flatten() {
                rules.push(Rule {
                    namespace: namespace.clone(),
                    ..read(rule)
                });
            }
        }
        Self(rules)
    }

    /// Whether a request is allowed. A list or watch of one name is a request for that name.
    pub(super) fn allow(&self, verb: &str, target: &Target, query: &Query) -> bool {
        let name = if target.name.is_empty() {
            query.only_name().unwrap_or_default()
        } else {
            &target.name
        };
        let mut resource = target.kind.resource.to_owned();
        if target.status {
            resource.push_str("/status");
        }
        let verb = if verb == "apply" { "patch" } else { verb };
        self.permits(
            verb,
            (target.kind.group, &resource),
            (&target.namespace, name),
        )
    }

    /// Whether an apply may create the object: its path names it, where a POST of it does not.
    pub(super) fn allow_creation(&self, target: &Target) -> bool {
        let resource = (target.kind.group, target.kind.resource);
        self.permits("create", resource, (&target.namespace, &target.name))
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
                && any(&rule.groups, group)
                && any(&rule.resources, resource)
                && (rule.names.is_empty() || rule.names.iter().any(|it| it == name))
        })
    }

    /// The answer to a `SelfSubjectAccessReview` or a `SelfSubjectRulesReview`.
    pub(super) fn review(&self, resource: &str, mut review: Value) -> Value {
        review["metadata"] = json!({});
        if resource == "selfsubjectrulesreviews" {
            let namespace = review["spec"]["namespace"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let rules = self
                .0
                .iter()
                .filter(|it| it.namespace.as_ref().is_none_or(|it| *it == namespace));
            let rules: Vec<Value> = rules.map(Rule::to_json).collect();
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

impl Rule {
    fn to_json(&self) -> Value {
        let mut rule = json!({
            "verbs": self.verbs, "apiGroups": self.groups, "resources": self.resources,
        });
        if !self.names.is_empty() {
            rule["resourceNames"] = json!(self.names);
        }
        rule
    }
}

fn read(rule: &Value) -> Rule {
    let texts = |field: &str| {
        let texts = rule[field].as_array().into_iter().flatten();
        texts
            .filter_map(|it| it.as_str().map(str::to_owned))
            .collect()
    };
    Rule {
        namespace: None,
        verbs: texts("verbs"),
        groups: texts("apiGroups"),
        resources: texts("resources"),
        names: texts("resourceNames"),
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
