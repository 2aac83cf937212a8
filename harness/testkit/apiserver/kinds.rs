//! The kinds that the API server serves, and the discovery documents with them.
//!
//! A path is served exactly if discovery lists it. Like an older API server, it does not serve aggregated discovery and
//! OpenAPI.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// One resource of the API.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Group and version: `v1`, `apps/v1`.
    pub api_version: &'static str,
    /// Plural name of the resource, as in paths.
    pub resource: &'static str,
    /// Name of the kind, as in the field `kind`.
    pub name: &'static str,
    /// Whether objects of the kind are in namespaces.
    pub namespaced: bool,
    /// How the server handles objects of the kind.
    pub handling: Handling,
}

/// How the server handles objects of a kind. Each value includes the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Handling {
    /// The server responds to the two reviews and does not store them.
    Review,
    /// The server stores objects.
    Storage,
    /// The server counts changes outside of metadata and status in `metadata.generation`.
    Generation,
    /// The kind has the subresource `status`: writes of the object do not change the status.
    Status,
    /// The kind is defined by a CustomResourceDefinition.
    Custom,
}

impl Kind {
    /// Returns a cluster-scoped kind whose objects are stored.
    pub const fn new(
        api_version: &'static str,
        resource: &'static str,
        name: &'static str,
    ) -> Self {
        Self {
            api_version,
            resource,
            name,
            namespaced: false,
            handling: Handling::Storage,
        }
    }

    /// Makes the kind namespaced.
    pub const fn namespaced(mut self) -> Self {
        self.namespaced = true;
        self
    }

    /// Sets how the server handles objects of the kind.
    pub const fn with(mut self, handling: Handling) -> Self {
        self.handling = handling;
        self
    }

    /// Returns the API group; empty for the core group.
    pub(super) fn group(&self) -> &'static str {
        self.api_version.split_once('/').map_or("", |it| it.0)
    }
}

/// Returns the discovery document for a path such as `/apis` or `/api/v1`; `None` if the path does not exist.
pub(super) fn document(kinds: &[&Kind], path: &str) -> Option<Value> {
    match path.trim_matches('/').split('/').collect::<Vec<_>>()[..] {
        ["version"] => Some(json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "linux/amd64",
        })),
        ["api"] => Some(json!({
            "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [],
        })),
        ["apis"] => {
            let groups: BTreeSet<&str> = kinds.iter().map(|kind| kind.group()).collect();
            let groups = groups.into_iter().filter(|group| !group.is_empty());
            let groups: Vec<Value> = groups.filter_map(|it| group_document(kinds, it)).collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", group] => group_document(kinds, group).map(|mut document| {
            document["kind"] = json!("APIGroup");
            document["apiVersion"] = json!("v1");
            document
        }),
        ["api", version] => resources(kinds, version),
        ["apis", group, version] => resources(kinds, &format!("{group}/{version}")),
        _ => None,
    }
}

/// Whether a path belongs to a group that is served.
pub(super) fn has_group(kinds: &[&Kind], path: &str) -> bool {
    let mut segments = path.trim_matches('/').split('/');
    match (segments.next(), segments.next()) {
        (Some("apis"), Some(group)) => kinds.iter().any(|kind| kind.group() == group),
        (root, _) => root == Some("api"),
    }
}

fn group_document(kinds: &[&Kind], group: &str) -> Option<Value> {
    let kinds = kinds.iter().filter(|kind| kind.group() == group);
    let versions: BTreeSet<&str> = kinds.map(|kind| kind.api_version).collect();
    let entries = versions.iter().map(|api_version| {
        let version = api_version.rsplit('/').next();
        json!({"groupVersion": api_version, "version": version})
    });
    let entries: Vec<Value> = entries.collect();
    let preferred = entries.first()?;
    Some(json!({"name": group, "preferredVersion": preferred, "versions": entries}))
}

fn resources(kinds: &[&Kind], api_version: &str) -> Option<Value> {
    let kinds = kinds.iter().filter(|it| it.api_version == api_version);
    let resources = kinds.map(|kind| {
        let all = "create delete get list patch update watch";
        let is_review = kind.handling == Handling::Review;
        let verbs = if is_review { "create" } else { all };
        json!({
            "name": kind.resource, "singularName": kind.name.to_lowercase(), "kind": kind.name,
            "namespaced": kind.namespaced, "verbs": verbs.split(' ').collect::<Vec<_>>(),
        })
    });
    let resources: Vec<Value> = resources.collect();
    let mut list = json!({
        "kind": "APIResourceList", "groupVersion": api_version, "resources": resources,
    });
    // The list of the core group has no `apiVersion`, because it is older than this convention.
    if api_version.contains('/') {
        list["apiVersion"] = json!("v1");
    }
    (!resources.is_empty()).then_some(list)
}

/// `Runtime` of KIM.
pub static RUNTIMES: Kind = custom(
    "infrastructuremanager.kyma-project.io/v1",
    "runtimes",
    "Runtime",
);
/// `RuntimeBootstrapper` of the product.
pub static BOOTSTRAPPERS: Kind = custom(
    "operator.kyma-project.io/v1alpha1",
    "runtimebootstrappers",
    "RuntimeBootstrapper",
);

/// `RuntimeBootstrapperRollout` of the controller.
pub static ROLLOUTS: Kind = custom(
    "operator.kyma-project.io/v1alpha1",
    "runtimebootstrapperrollouts",
    "RuntimeBootstrapperRollout",
);

/// `Kyma` of lifecycle-manager.
pub static KYMAS: Kind = custom("operator.kyma-project.io/v1beta2", "kymas", "Kyma");

/// `Watcher` of lifecycle-manager.
pub static WATCHERS: Kind = custom("operator.kyma-project.io/v1beta2", "watchers", "Watcher");

/// `Certificate` of cert-manager.
pub static CERTIFICATES: Kind = custom("cert-manager.io/v1", "certificates", "Certificate");

/// `VirtualService` of Istio.
pub static VIRTUAL_SERVICES: Kind = custom(
    "networking.istio.io/v1beta1",
    "virtualservices",
    "VirtualService",
);

/// `Gateway` of Istio.
pub static GATEWAYS: Kind = custom("networking.istio.io/v1beta1", "gateways", "Gateway");

const fn custom(api_version: &'static str, resource: &'static str, name: &'static str) -> Kind {
    let kind = Kind::new(api_version, resource, name);
    kind.namespaced().with(Handling::Custom)
}

/// Name of the resource of ClusterTrustBundles.
pub const TRUST_BUNDLES: &str = "clustertrustbundles";
const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const AUTHORIZATION: &str = "authorization.k8s.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The kinds that every server serves by default.
#[rustfmt::skip]
pub(super) static BUILTIN: [&Kind; 26] = [
    &Kind::new("v1", "configmaps", "ConfigMap").namespaced(),
    &Kind::new("apps/v1", "controllerrevisions", "ControllerRevision").namespaced(),
    &Kind::new("v1", "events", "Event").namespaced(),
    &Kind::new("v1", "namespaces", "Namespace"),
    &Kind::new("v1", "pods", "Pod").namespaced().with(Handling::Status),
    &Kind::new("v1", "secrets", "Secret").namespaced(),
    &Kind::new("v1", "serviceaccounts", "ServiceAccount").namespaced(),
    &Kind::new("v1", "services", "Service").namespaced(),
    &Kind::new(ADMISSION, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration").with(Handling::Generation),
    &Kind::new(ADMISSION, "mutatingadmissionpolicies", "MutatingAdmissionPolicy").with(Handling::Generation),
    &Kind::new(ADMISSION, "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding").with(Handling::Generation),
    &Kind::new(ADMISSION, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration").with(Handling::Generation),
    &Kind::new("apps/v1", "deployments", "Deployment").namespaced().with(Handling::Status),
    &Kind::new(AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview").with(Handling::Review),
    &Kind::new(AUTHORIZATION, "selfsubjectrulesreviews", "SelfSubjectRulesReview").with(Handling::Review),
    &Kind::new("certificates.k8s.io/v1", "certificatesigningrequests", "CertificateSigningRequest"),
    &Kind::new("certificates.k8s.io/v1beta1", TRUST_BUNDLES, "ClusterTrustBundle"),
    &Kind::new("coordination.k8s.io/v1", "leases", "Lease").namespaced(),
    &Kind::new("events.k8s.io/v1", "events", "Event").namespaced(),
    &Kind::new("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy").namespaced().with(Handling::Generation),
    &Kind::new("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget").namespaced().with(Handling::Status),
    &Kind::new(RBAC, "clusterrolebindings", "ClusterRoleBinding"),
    &Kind::new(RBAC, "clusterroles", "ClusterRole"),
    &Kind::new(RBAC, "rolebindings", "RoleBinding").namespaced(),
    &Kind::new(RBAC, "roles", "Role").namespaced(),
    &Kind::new("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass").with(Handling::Generation),
];
