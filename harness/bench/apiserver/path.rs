//! What a request of the Kubernetes API is about, by its path and query.

use axum::http::Uri;
use serde_json::Value;

use super::Key;

/// Objects, or one of them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Target {
    group_version: String,
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// Changes are asked for, not the state.
    pub(super) watch: bool,
    /// The name comes from a field selector.
    pub(super) selected: bool,
}

impl Target {
    /// `None` for a path that names no resource.
    pub(super) fn parse(uri: &Uri) -> Option<Self> {
        let mut segments = uri.path().split('/').skip(1);
        let group_version = match segments.next()? {
            "api" => segments.next()?.to_owned(),
            "apis" => format!("{}/{}", segments.next()?, segments.next()?),
            _ => return None,
        };
        let rest: Vec<&str> = segments.collect();
        let (namespace, rest) = match rest.as_slice() {
            // `namespaces/a` is the object a; anything longer is in it.
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            all => ("", all),
        };
        let (resource, name) = match rest {
            [resource] => (*resource, ""),
            [resource, name, ..] => (*resource, *name),
            [] => return None,
        };
        let mut target = Self {
            group_version,
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Self::default()
        };
        for parameter in uri.query().unwrap_or_default().split('&') {
            target.take(&parameter.replace("%3D", "=").replace("%3A", ":"));
        }
        Some(target)
    }

    fn take(&mut self, parameter: &str) {
        if let Some(name) = parameter.strip_prefix("fieldSelector=metadata.name=") {
            name.clone_into(&mut self.name);
            self.selected = true;
        }
        self.watch |= matches!(parameter, "watch=true" | "watch=1");
    }

    /// Where an object belongs.
    pub(super) fn of_object(object: &Value) -> Self {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
        let kind = text("/kind").unwrap_or_default();
        Self {
            group_version: text("/apiVersion").unwrap_or_default().to_owned(),
            resource: format!("{}s", kind.to_lowercase()),
            namespace: text("/metadata/namespace").unwrap_or_default().to_owned(),
            name: text("/metadata/name").unwrap_or_default().to_owned(),
            ..Self::default()
        }
    }

    pub(super) fn key(&self) -> Key {
        (
            self.resource.clone(),
            self.namespace.clone(),
            self.name.clone(),
        )
    }

    /// Whether an object is among those that are asked for.
    pub(super) fn selects(&self, (resource, namespace, name): &Key) -> bool {
        *resource == self.resource
            && (self.namespace.is_empty() || *namespace == self.namespace)
            && (self.name.is_empty() || *name == self.name)
    }

    /// API version and kind.
    pub(super) fn kind(&self) -> (&str, String) {
        let kind = match self.resource.as_str() {
            "configmaps" => "ConfigMap",
            "namespaces" => "Namespace",
            "secrets" => "Secret",
            "pods" => "Pod",
            "leases" => "Lease",
            "clustertrustbundles" => "ClusterTrustBundle",
            "mutatingwebhookconfigurations" => "MutatingWebhookConfiguration",
            other => other,
        };
        (&self.group_version, kind.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(path: &str) -> Target {
        Target::parse(&path.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_path_names_its_objects() {
        let one = parsed("/api/v1/namespaces/kyma-system/secrets/registry-credentials");
        let key = (
            "secrets".into(),
            "kyma-system".into(),
            "registry-credentials".into(),
        );
        assert_eq!(one.key(), key);
        let selected = parsed(
            "/api/v1/secrets?&fieldSelector=metadata.name%3Dregistry-credentials&watch=true",
        );
        assert!(selected.watch && selected.selected && selected.selects(&key));
        let namespace = parsed("/api/v1/namespaces/kyma-system");
        assert_eq!(
            namespace.key(),
            ("namespaces".into(), String::new(), "kyma-system".into())
        );
        let bundles = parsed(
            "/apis/certificates.k8s.io/v1/clustertrustbundles?fieldSelector=metadata.name%3Da%3Ab",
        );
        assert_eq!(
            (bundles.name.as_str(), bundles.kind().0),
            ("a:b", "certificates.k8s.io/v1")
        );
        assert_eq!(
            Target::parse(&"/apis/certificates.k8s.io/v1".parse().unwrap()),
            None
        );
    }
}
