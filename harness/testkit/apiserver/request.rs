//! Parses the path and the query of a request.
//!
//! The legacy `/watch/` prefix and subresources other than `status` are not served.

use http::Uri;
use percent_encoding::percent_decode_str;
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;

use super::kinds::{Handling, Kind};
use super::object::{Key, State};
use super::status::Refusal;

/// A collection of objects of one kind, or one object.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// Location. The namespace is empty for cluster-scoped kinds and for all namespaces; the name is empty for a collection.
    pub(super) key: Key,
    /// Whether the target is the subresource `status`.
    pub(super) status: bool,
}

impl std::ops::Deref for Target {
    type Target = Key;

    fn deref(&self) -> &Key {
        &self.key
    }
}

impl Target {
    /// Parses a path. Returns `None` if the path does not name a kind that is served.
    pub(super) fn parse(path: &str, kinds: &[&'static Kind]) -> Option<Self> {
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let (api_version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ((*version).to_owned(), rest),
            ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
            _ => return None,
        };
        let (rest, status) = match rest {
            [one @ .., "status"] if one.len() >= 2 && one.len() != 3 => (one, true),
            _ => (rest, false),
        };
        let (namespace, resource, name) = match rest {
            [resource] => ("", *resource, ""),
            // `namespaces/a` is the object `a`; longer paths are objects in it.
            [resource, name] => ("", *resource, *name),
            ["namespaces", namespace, resource] => (*namespace, *resource, ""),
            ["namespaces", namespace, resource, name] => (*namespace, *resource, *name),
            _ => return None,
        };
        let is_meant = |it: &&&Kind| it.api_version == api_version && it.resource == resource;
        let kind = *kinds.iter().find(is_meant)?;
        // A list of a namespaced kind may be for all namespaces.
        let scope = kind.namespaced != namespace.is_empty() || (kind.namespaced && name.is_empty());
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into();
        (scope && (kind.handling >= Handling::Status || !status)).then(|| Self {
            key: Key {
                kind,
                namespace: decoded(namespace),
                name: decoded(name),
            },
            status,
        })
    }

    /// Returns the resource in the format of RBAC: `pods`, `pods/status`.
    pub(super) fn resource(&self) -> String {
        let part = if self.status { "/status" } else { "" };
        format!("{}{part}", self.kind.resource)
    }
}

#[derive(Debug, Default, Clone, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Query {
    pub(super) watch: bool,
    pub(super) force: bool,
    pub(super) field_manager: String,
    pub(super) resource_version: String,
    /// Largest number of objects in a page; 0 for no limit.
    pub(super) limit: usize,
    /// Continue token of the last page.
    pub(super) r#continue: String,
    /// Timeout of a watch in seconds.
    pub(super) timeout_seconds: Option<u64>,
    pub(super) label_selector: Selector,
    pub(super) field_selector: Selector,
    /// If set (only to `All`), nothing is stored.
    pub(super) dry_run: Option<String>,
}

/// A label or field selector, of which all requirements must be met.
#[derive(Debug, Default, Clone)]
pub(super) struct Selector(Vec<Requirement>);

#[derive(Debug, Clone)]
struct Requirement {
    key: String,
    /// Allowed values; `None` allows any value.
    values: Option<Vec<String>>,
    /// Whether the requirement is negated.
    not: bool,
}

impl Selector {
    /// Whether the values meet all requirements.
    fn holds<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|part| {
            let is_one = |it: &str| match &part.values {
                Some(values) => values.iter().any(|value| value == it),
                None => true,
            };
            value(&part.key).is_some_and(is_one) != part.not
        })
    }
}

impl Query {
    pub(super) fn parse(uri: &Uri, kind: &Kind) -> Result<Self, Refusal> {
        let text = uri.query().unwrap_or_default();
        let query: Self = serde_urlencoded::from_str(text)
            .map_err(|error| Refusal::bad_request(error.to_string()))?;
        if query.dry_run.as_ref().is_some_and(|it| it != "All") {
            return Err(Refusal::bad_request("dryRun: only All is simulated"));
        }
        let mut fields = query.field_selector.0.iter();
        match fields.find(|it| !has_field(kind, &it.key)) {
            Some(Requirement { key, .. }) => {
                let message = format!("field label not supported: {key}");
                Err(Refusal::bad_request(message))
            }
            None => Ok(query),
        }
    }

    /// Whether the target and the selectors of a request select an object.
    pub(super) fn selects(&self, target: &Target, key: &Key, state: &State) -> bool {
        let object = &state.object;
        let label = |label: &str| object["metadata"]["labels"][label].as_str();
        let field = |field: &str| match field {
            "metadata.name" => Some(&*key.name),
            "metadata.namespace" => Some(&*key.namespace),
            other => {
                let value = object.pointer(&format!("/{}", other.replace('.', "/")));
                // The API server treats an absent field as an empty one.
                Some(value.and_then(Value::as_str).unwrap_or_default())
            }
        };
        key.kind == target.kind
            && (target.namespace.is_empty() || key.namespace == target.namespace)
            && self.label_selector.holds(label)
            && self.field_selector.holds(field)
    }

    /// Returns the name that the field selector requires.
    pub(super) fn only_name(&self) -> Option<&str> {
        let mut fields = self.field_selector.0.iter();
        let name = fields.find(|it| it.key == "metadata.name" && !it.not)?;
        name.values.as_ref()?.first().map(String::as_str)
    }
}

/// Whether a field selector for objects of this kind supports a field.
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

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        let mut depth = 0;
        let ends_part = |it: char| {
            depth += i32::from(it == '(') - i32::from(it == ')');
            it == ',' && depth == 0
        };
        let text = String::deserialize(text)?;
        let parts = text.split(ends_part).map(str::trim);
        let parts = parts.filter(|it| !it.is_empty()).map(|part| {
            let unreadable = || D::Error::custom(format!("unable to parse requirement: {part:?}"));
            requirement(part).ok_or_else(unreadable)
        });
        parts.collect::<Result<_, _>>().map(Self)
    }
}

fn requirement(part: &str) -> Option<Requirement> {
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
    let texts = |it: &str| {
        let values = it.trim_matches(['(', ')', ' ']).split(',');
        values.map(|it| it.trim().to_owned()).collect()
    };
    (!key.is_empty() && !key.contains([' ', '(', ')'])).then(|| Requirement {
        key: key.to_owned(),
        values: values.map(texts),
        not,
    })
}
