//! Kind, namespace and name of an object on a runtime, and its path in the API.
//!
//! The supported kinds are a closed list, so that the path is known without API discovery.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::observed::text;

/// A kind of objects in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Resource {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
}

/// A reference to an object on a runtime.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    resource: Resource,
    version: Cow<'static, str>,
    namespace: Option<String>,
    name: String,
}

/// Reason why an object cannot be referenced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The kind is not supported.
    #[error("kind `{kind}` ({api_version}) is not supported")]
    Kind {
        /// `apiVersion`, empty if there is none.
        api_version: String,
        /// `kind`, empty if there is none.
        kind: String,
    },
    /// The object has no name.
    #[error("{0} has no name")]
    Name(String),
}

impl Target {
    /// Returns the reference to an object. Without a namespace, the namespace of a namespaced object is `default`.
    ///
    /// # Errors
    /// [`TargetError`] if the kind is not supported or there is no name.
    pub fn of(object: &Value) -> Result<Self, TargetError> {
        let api_version = text(object, "/apiVersion").unwrap_or_default();
        let kind = text(object, "/kind").unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = RESOURCES
            .iter()
            .find(|it| it.group == group && it.kind == kind && !version.is_empty())
            .ok_or_else(|| TargetError::Kind {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
            })?;
        let name = text(object, "/metadata/name")
            .filter(|name| !name.is_empty())
            .ok_or_else(|| TargetError::Name(kind.to_owned()))?;
        let namespace = text(object, "/metadata/namespace").filter(|it| !it.is_empty());
        Ok(Self {
            resource: *resource,
            version: Cow::Owned(version.to_owned()),
            namespace: resource
                .namespaced
                .then(|| namespace.unwrap_or("default").to_owned()),
            name: name.to_owned(),
        })
    }

    /// Parses a line of the inventory (`apps/v1 Deployment kyma-system/name`). `None` if [`line`] would not write
    /// this line, or the object is a Namespace, which the controller never owns.
    ///
    /// [`line`]: Self::line
    pub(super) fn of_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (api_version, kind, path) = (words.next()?, words.next()?, words.next()?);
        let (namespace, name) = path.split_once('/').unwrap_or(("", path));
        let target = Self::of(&json!({
            "apiVersion": api_version, "kind": kind, "metadata": { "namespace": namespace, "name": name },
        }));
        let target = target.ok()?;
        let is_safe = is_segment(&target.version) && is_segment(namespace) && is_segment(name);
        (is_safe && kind != "Namespace" && target.line() == line).then_some(target)
    }

    /// Returns the line in the inventory.
    pub(super) fn line(&self) -> String {
        let (version, kind, name) = (self.api_version(), self.kind(), &self.name);
        match &self.namespace {
            Some(namespace) => format!("{version} {kind} {namespace}/{name}"),
            None => format!("{version} {kind} {name}"),
        }
    }

    /// Returns the reference to a Secret.
    #[must_use]
    pub fn secret(namespace: &str, name: &str) -> Self {
        Self::new(SECRET, Some(namespace), name)
    }

    /// Returns the reference to a Lease.
    #[must_use]
    pub fn lease(namespace: &str, name: &str) -> Self {
        Self::new(LEASE, Some(namespace), name)
    }

    /// Returns the reference to a ConfigMap.
    #[must_use]
    pub fn config_map(namespace: &str, name: &str) -> Self {
        Self::new(CONFIG_MAP, Some(namespace), name)
    }

    /// Returns the reference to a ValidatingWebhookConfiguration.
    #[must_use]
    pub fn validating_webhook_configuration(name: &str) -> Self {
        Self::new(VALIDATING_WEBHOOKS, None, name)
    }

    /// Returns the reference to a ClusterTrustBundle in a served version.
    #[must_use]
    pub fn trust_bundle(version: &str, name: &str) -> Self {
        Self {
            version: Cow::Owned(version.to_owned()),
            ..Self::new(TRUST_BUNDLE, None, name)
        }
    }

    /// Returns the reference to an object in version `v1`.
    fn new(resource: Resource, namespace: Option<&str>, name: &str) -> Self {
        Self {
            resource,
            version: Cow::Borrowed("v1"),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    /// Returns the path of the object, which starts with `/api` or `/apis`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    /// Returns the path of the collection: all objects of the kind in the namespace.
    #[must_use]
    pub fn collection(&self) -> String {
        let Resource { group, plural, .. } = self.resource;
        let version = &self.version;
        let root = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        };
        match &self.namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{plural}"),
        }
    }

    /// Returns `apiVersion`.
    #[must_use]
    pub fn api_version(&self) -> String {
        match self.resource.group {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Returns `kind`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.resource.kind
    }

    /// Returns the API group, empty for the core group, and the plural, for access reviews.
    #[must_use]
    pub fn resource(&self) -> (&'static str, &'static str) {
        (self.resource.group, self.resource.plural)
    }

    /// Returns `metadata.name`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns `metadata.namespace`.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

/// Returns whether a text is a valid path segment.
fn is_segment(text: &str) -> bool {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"-._:".contains(&it);
    text.len() <= MAX_NAME && text.bytes().all(is_plain) && !matches!(text, "." | "..")
}

/// Maximum length of a name in the API, in characters.
const MAX_NAME: usize = 253;

/// Returns a kind whose objects are in namespaces.
const fn namespaced(group: &'static str, kind: &'static str, plural: &'static str) -> Resource {
    Resource {
        group,
        kind,
        plural,
        namespaced: true,
    }
}

/// Returns a kind whose objects are not in namespaces.
const fn global(group: &'static str, kind: &'static str, plural: &'static str) -> Resource {
    Resource {
        namespaced: false,
        ..namespaced(group, kind, plural)
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

const SECRET: Resource = namespaced("", "Secret", "secrets");
const CONFIG_MAP: Resource = namespaced("", "ConfigMap", "configmaps");
const LEASE: Resource = namespaced("coordination.k8s.io", "Lease", "leases");
const TRUST_BUNDLE: Resource = global(
    "certificates.k8s.io",
    "ClusterTrustBundle",
    "clustertrustbundles",
);
const VALIDATING_WEBHOOKS: Resource = global(
    ADMISSION,
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);

/// A kind is never removed from the list, since an inventory of an earlier version may contain it.
const RESOURCES: [Resource; 18] = [
    SECRET,
    CONFIG_MAP,
    TRUST_BUNDLE,
    global("", "Namespace", "namespaces"),
    namespaced("", "Service", "services"),
    namespaced("", "ServiceAccount", "serviceaccounts"),
    namespaced("apps", "Deployment", "deployments"),
    global(RBAC, "ClusterRole", "clusterroles"),
    global(RBAC, "ClusterRoleBinding", "clusterrolebindings"),
    namespaced(RBAC, "Role", "roles"),
    namespaced(RBAC, "RoleBinding", "rolebindings"),
    namespaced("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
    namespaced("policy", "PodDisruptionBudget", "poddisruptionbudgets"),
    global("scheduling.k8s.io", "PriorityClass", "priorityclasses"),
    LEASE,
    namespaced(
        "autoscaling",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
    ),
    global(
        ADMISSION,
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
    ),
    VALIDATING_WEBHOOKS,
];
