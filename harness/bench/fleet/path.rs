//! What a request is about, by its path and query.
//!
//! Invariant: a path that [`Target::parse`] understands names a kind of the table. Deliberately absent: the legacy
//! `/watch/` prefix, subresources other than none (a path with one is not served).

use http::Uri;

use super::kinds::{Kind, Served};
use super::object::Key;

/// Objects of one kind, or one of them.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) kind: &'static Kind,
    /// Empty for cluster-scoped kinds, and where all namespaces are meant.
    pub(super) namespace: String,
    /// Empty for a collection.
    pub(super) name: String,
}

impl Target {
    /// `None` for a path that names no kind.
    pub(super) fn parse(path: &str, served: Served) -> Option<Self> {
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
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
        let scoped_right = kind.namespaced != namespace.is_empty()
            // All of a namespaced kind may be listed.
            || (kind.namespaced && name.is_empty());
        scoped_right.then(|| Self {
            kind,
            namespace: decoded(namespace),
            name: decoded(name),
        })
    }

    /// Where the object is kept.
    pub(super) fn key(&self) -> Key {
        Key {
            kind: self.kind.number(),
            namespace: self.namespace.as_str().into(),
            name: self.name.as_str().into(),
        }
    }
}

/// What the query says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) watch: bool,
    pub(super) force: bool,
    pub(super) field_manager: Option<String>,
    pub(super) resource_version: Option<String>,
    /// The object that a field selector picks.
    pub(super) only: Option<String>,
    pub(super) labels: Vec<Requirement>,
}

/// One part of a label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requirement {
    pub(super) key: String,
    /// `None`: the key alone counts.
    pub(super) value: Option<String>,
}

impl Query {
    pub(super) fn parse(uri: &Uri) -> Self {
        let mut query = Self::default();
        for parameter in uri.query().unwrap_or_default().split('&') {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            query.take(key, decoded(&value.replace('+', " ")));
        }
        query
    }

    fn take(&mut self, key: &str, value: String) {
        let is_true = matches!(value.as_str(), "true" | "1");
        match key {
            "watch" => self.watch = is_true,
            "force" => self.force = is_true,
            "fieldManager" => self.field_manager = Some(value).filter(|it| !it.is_empty()),
            "resourceVersion" => self.resource_version = Some(value).filter(|it| !it.is_empty()),
            "fieldSelector" => self.only = value.strip_prefix("metadata.name=").map(str::to_owned),
            "labelSelector" => self.labels = requirements(&value),
            _ => {}
        }
    }
}

fn requirements(selector: &str) -> Vec<Requirement> {
    let parts = selector.split(',').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (key, value) = part.split_once('=').unzip();
            Requirement {
                key: key.unwrap_or(part).to_owned(),
                value: value.map(|value| value.trim_start_matches('=').to_owned()),
            }
        })
        .collect()
}

/// Percent-decoded; what is no text becomes replacement characters and is then found nowhere.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = (*first == b'%').then(|| after.get(..2)).flatten();
        let byte = hex
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ALL: Served = Served {
        trust_bundles: true,
    };

    #[rstest]
    #[case("/api/v1/namespaces/a/secrets/b", Some(("secrets", "a", "b")))]
    #[case("/api/v1/namespaces/a/secrets", Some(("secrets", "a", "")))]
    #[case("/api/v1/secrets", Some(("secrets", "", "")))]
    #[case("/api/v1/namespaces/a", Some(("namespaces", "", "a")))]
    #[case("/apis/apps/v1/namespaces/a/deployments/b", Some(("deployments", "a", "b")))]
    #[case(
        "/apis/certificates.k8s.io/v1beta1/clustertrustbundles/a%3Ab",
        Some(("clustertrustbundles", "", "a:b"))
    )]
    #[case::cluster_scope_has_no_namespace(
        "/apis/certificates.k8s.io/v1beta1/namespaces/a/clustertrustbundles/b",
        None
    )]
    #[case::namespaced_has_one("/api/v1/secrets/b", None)]
    #[case("/api/v1", None)]
    #[case("/apis/apps/v2/namespaces/a/deployments/b", None)]
    #[case("/healthz", None)]
    fn a_path_names_its_objects(#[case] path: &str, #[case] expected: Option<(&str, &str, &str)>) {
        let target = Target::parse(path, ALL);
        let found = target
            .as_ref()
            .map(|it| (it.kind.resource, it.namespace.as_str(), it.name.as_str()));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_query_is_decoded() {
        let uri = "/x?labelSelector=app.kubernetes.io%2Fname%3Dweb%2Ctier&fieldSelector=metadata.name%3Da&force=true&fieldManager=me";
        let query = Query::parse(&uri.parse().unwrap());
        let requirement = |key: &str, value: Option<&str>| Requirement {
            key: key.to_owned(),
            value: value.map(str::to_owned),
        };
        let expected = Query {
            force: true,
            field_manager: Some("me".to_owned()),
            only: Some("a".to_owned()),
            labels: vec![
                requirement("app.kubernetes.io/name", Some("web")),
                requirement("tier", None),
            ],
            ..Query::default()
        };
        assert_eq!(query, expected);
    }
}
