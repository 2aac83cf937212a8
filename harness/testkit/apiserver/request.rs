//! What a request is about, by its path and query.
//!
//! The legacy `/watch/` prefix and subresources other than `status` are not served.

use http::Uri;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::kinds::{Kind, Served};
use super::object::{Key, State};
use super::status::Refusal;

/// Objects of one kind, or one of them.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) kind: &'static Kind,
    /// Empty for cluster-scoped kinds, and where all namespaces are meant.
    pub(super) namespace: String,
    /// Empty for a collection.
    pub(super) name: String,
    /// Whether the subresource `status` is meant.
    pub(super) status: bool,
}

impl Target {
    /// `None` for a path that names no kind that is served.
    pub(super) fn parse(path: &str, served: Served<'_>) -> Option<Self> {
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (rest, status) = match rest {
            [one @ .., "status"] if one.len() >= 2 && one.len() != 3 => (one, true),
            _ => (rest, false),
        };
        let (namespace, resource, name) = match rest {
            [resource] => ("", *resource, ""),
            // `namespaces/a` is the object a; anything longer is in it.
            [resource, name] => ("", *resource, *name),
            ["namespaces", namespace, resource] => (*namespace, *resource, ""),
            ["namespaces", namespace, resource, name] => (*namespace, *resource, *name),
            _ => return None,
        };
        let kind = served.find(group, version, resource)?;
        // All objects of a namespaced kind may be listed.
        let scope = kind.namespaced != namespace.is_empty() || (kind.namespaced && name.is_empty());
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        (scope && (kind.status || !status)).then(|| Self {
            kind,
            namespace: decoded(namespace),
            name: decoded(name),
            status,
        })
    }

    /// Where the object is kept.
    pub(super) fn key(&self) -> Key {
        Key {
            kind: self.kind,
            namespace: self.namespace.as_str().into(),
            name: self.name.as_str().into(),
        }
    }
}

/// The parameters of a request.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
pub(super) struct Query {
    pub(super) watch: bool,
    pub(super) force: bool,
    pub(super) field_manager: Option<String>,
    pub(super) resource_version: Option<String>,
    /// The largest number of objects in a page.
    pub(super) limit: Option<usize>,
    /// The token of the last page.
    pub(super) continue_from: Option<String>,
    /// Seconds after which a watch ends.
    pub(super) timeout: Option<u64>,
    pub(super) labels: Vec<Requirement>,
    pub(super) fields: Vec<Requirement>,
}

/// One part of a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requirement {
    key: String,
    /// The values of which there must be one; without them there must be any.
    values: Option<Vec<String>>,
    /// Whether the opposite is required.
    not: bool,
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let is_one = |value: &str| match &self.values {
            Some(values) => values.iter().any(|it| it == value),
            None => true,
        };
        value.is_some_and(is_one) != self.not
    }
}

impl Query {
    pub(super) fn parse(uri: &Uri, kind: &Kind) -> Result<Self, Refusal> {
        let mut query = Self::default();
        let text = uri.query().unwrap_or_default().as_bytes();
        for (key, value) in form_urlencoded::parse(text) {
            query.take(&key, &value, kind)?;
        }
        Ok(query)
    }

    fn take(&mut self, key: &str, value: &str, kind: &Kind) -> Result<(), Refusal> {
        let is_true = matches!(value, "true" | "1");
        let filled = Some(value).filter(|it| !it.is_empty()).map(str::to_owned);
        let number = || {
            let bad = |_| Refusal::bad_request(format!("{key}: {value:?} is not a number"));
            value.parse::<u64>().map_err(bad)
        };
        match key {
            "watch" => self.watch = is_true,
            "force" => self.force = is_true,
            "fieldManager" => self.field_manager = filled,
            "resourceVersion" => self.resource_version = filled,
            "limit" => self.limit = usize::try_from(number()?).ok().filter(|it| *it > 0),
            "continue" => self.continue_from = filled,
            "timeoutSeconds" => self.timeout = Some(number()?),
            "labelSelector" => self.labels = requirements(value)?,
            "fieldSelector" => {
                self.fields = requirements(value)?;
                let unknown = self.fields.iter().find(|it| !has_field(kind, &it.key));
                if let Some(unknown) = unknown {
                    let message = format!("field label not supported: {}", unknown.key);
                    return Err(Refusal::bad_request(message));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether an object is one of those that a request means.
    pub(super) fn selects(&self, target: &Target, key: &Key, state: &State) -> bool {
        let object = &state.object;
        let label = |it: &Requirement| it.holds(object["metadata"]["labels"][&it.key].as_str());
        let field = |it: &Requirement| {
            let value = match it.key.as_str() {
                "metadata.name" => Some(&*key.name),
                "metadata.namespace" => Some(&*key.namespace),
                other => {
                    let pointer = format!("/{}", other.replace('.', "/"));
                    object.pointer(&pointer).and_then(Value::as_str)
                }
            };
            // The API server takes an absent field for an empty one.
            it.holds(Some(value.unwrap_or_default()))
        };
        key.kind == target.kind
            && (target.namespace.is_empty() || *key.namespace == *target.namespace)
            && self.labels.iter().all(label)
            && self.fields.iter().all(field)
    }

    /// The one name that the field selector picks.
    pub(super) fn only_name(&self) -> Option<&str> {
        let mut fields = self.fields.iter();
        let name = fields.find(|it| it.key == "metadata.name" && !it.not)?;
        name.values.as_ref()?.first().map(String::as_str)
    }
}

/// Whether a kind's objects can be selected by a field.
fn has_field(kind: &Kind, field: &str) -> bool {
    match (kind.resource, field) {
        (_, "metadata.name")
        | ("secrets" | "events", "type")
        | ("events", "reason")
        | ("pods", "spec.nodeName")
        | ("pods" | "namespaces", "status.phase") => true,
        (resource, "metadata.namespace") => resource != "namespaces",
        _ => false,
    }
}

fn requirements(selector: &str) -> Result<Vec<Requirement>, Refusal> {
    let mut depth = 0;
    let ends_part = |it: char| {
        depth += i32::from(it == '(') - i32::from(it == ')');
        it == ',' && depth == 0
    };
    let parts = selector.split(ends_part).map(str::trim);
    parts.filter(|it| !it.is_empty()).map(requirement).collect()
}

fn requirement(part: &str) -> Result<Requirement, Refusal> {
    let operators = [
        (" notin ", true),
        (" in ", false),
        ("!=", true),
        ("==", false),
        ("=", false),
    ];
    let mut found = operators
        .into_iter()
        .filter_map(|(operator, not)| Some((part.split_once(operator)?, not)));
    let (key, values, not) = match (found.next(), part.strip_prefix('!')) {
        (Some(((key, values), not)), _) => (key, Some(values), not),
        (None, Some(key)) => (key, None, true),
        (None, None) => (part, None, false),
    };
    let key = key.trim();
    if key.is_empty() || key.contains([' ', '(', ')']) {
        let message = format!("unable to parse requirement: {part:?}");
        return Err(Refusal::bad_request(message));
    }
    let texts = |it: &str| {
        let values = it.trim_matches(['(', ')', ' ']).split(',');
        values.map(|it| it.trim().to_owned()).collect()
    };
    Ok(Requirement {
        key: key.to_owned(),
        values: values.map(texts),
        not,
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::super::kinds::builtin;
    use super::super::merge::Owned;
    use super::*;

    #[rstest]
    #[case("/api/v1/namespaces/a/secrets/b", Some(("secrets", "a", "b", false)))]
    #[case("/api/v1/namespaces/a/secrets", Some(("secrets", "a", "", false)))]
    #[case("/api/v1/secrets", Some(("secrets", "", "", false)))]
    #[case("/api/v1/namespaces/a", Some(("namespaces", "", "a", false)))]
    #[case("/apis/apps/v1/namespaces/a/deployments/b/status", Some(("deployments", "a", "b", true)))]
    #[case("/api/v1/namespaces/a/configmaps/status", Some(("configmaps", "a", "status", false)))]
    #[case(
        "/apis/certificates.k8s.io/v1beta1/clustertrustbundles/a%3Ab",
        Some(("clustertrustbundles", "", "a:b", false))
    )]
    #[case::cluster_scope(
        "/apis/certificates.k8s.io/v1beta1/namespaces/a/clustertrustbundles/b",
        None
    )]
    #[case::without_namespace("/api/v1/secrets/b", None)]
    #[case::no_status("/api/v1/namespaces/a/secrets/b/status", None)]
    #[case("/api/v1", None)]
    #[case("/apis/apps/v2/namespaces/a/deployments/b", None)]
    #[case("/healthz", None)]
    fn path_names_its_objects(
        #[case] path: &str,
        #[case] expected: Option<(&str, &str, &str, bool)>,
    ) {
        let kinds = builtin();
        let target = Target::parse(path, Served(&kinds));
        let found = target.as_ref();
        let found = found.map(|it| (it.kind.resource, &*it.namespace, &*it.name, it.status));
        assert_eq!(found, expected);
    }

    #[rstest]
    #[case("labelSelector=app.kubernetes.io%2Fname%3Dweb%2Ctier", true)]
    #[case("labelSelector=app.kubernetes.io%2Fname%3D%3Dweb", true)]
    #[case("labelSelector=tier%21%3Dfront", true)]
    #[case("labelSelector=tier%21%3Dback", false)]
    #[case("labelSelector=%21tier", false)]
    #[case("labelSelector=%21other%2Ctier", true)]
    #[case("labelSelector=tier+in+%28front%2Cback%29%2C%21other", true)]
    #[case("labelSelector=tier+notin+%28front%2Cback%29", false)]
    #[case("labelSelector=other", false)]
    #[case("fieldSelector=metadata.name%3Da", true)]
    #[case("fieldSelector=metadata.name%21%3Da", false)]
    #[case("fieldSelector=metadata.namespace%3Dn%2Ctype%3DOpaque", true)]
    #[case("fieldSelector=type%3Dother", false)]
    fn selectors_are_those_of_kubernetes(#[case] text: &str, #[case] selected: bool) {
        let kinds = builtin();
        let path = "/api/v1/namespaces/n/secrets/a";
        let target = Target::parse(path, Served(&kinds)).unwrap();
        let query = Query::parse(&format!("/x?{text}").parse().unwrap(), target.kind).unwrap();
        let labels = json!({"app.kubernetes.io/name": "web", "tier": "back"});
        let state = State::new(&Owned {
            content: json!({"metadata": {"labels": labels}, "type": "Opaque"}),
            managers: Vec::new(),
        });
        assert_eq!(query.selects(&target, &target.key(), &state), selected);
    }
}
