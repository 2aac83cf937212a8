//! The kinds that the API server serves, and the discovery documents that say so.
//!
//! A path is served exactly when discovery lists it. Aggregated discovery and OpenAPI are not served, as by an older API
//! server.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// One resource of the API.
#[derive(Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a table of independent properties"
)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version, such as `v1`.
    pub version: &'static str,
    /// The plural, as in paths.
    pub resource: &'static str,
    /// As `kind` has it.
    pub name: &'static str,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Whether `metadata.generation` counts changes of what is neither metadata nor status.
    pub generation: bool,
    /// Whether `status` is a subresource: writes of the object leave it alone.
    pub status: bool,
    /// Whether a CustomResourceDefinition defines it.
    pub custom: bool,
    /// Whether it can only be asked: the two reviews.
    pub review: bool,
}

impl Kind {
    /// A cluster-scoped kind of version `v1`.
    pub const fn new(group: &'static str, resource: &'static str, name: &'static str) -> Self {
        Self {
            group,
            version: "v1",
            resource,
            name,
            namespaced: false,
            generation: false,
            status: false,
            custom: false,
            review: false,
        }
    }

    /// A namespaced kind of a CustomResourceDefinition, with a generation and a status subresource.
    pub const fn custom(
        group: &'static str,
        version: &'static str,
        resource: &'static str,
        name: &'static str,
    ) -> Self {
        Self {
            version,
            custom: true,
            ..Self::new(group, resource, name).with_status()
        }
    }

    /// Its objects are in namespaces.
    pub const fn namespaced(mut self) -> Self {
        self.namespaced = true;
        self
    }

    /// Another version.
    pub const fn version(mut self, version: &'static str) -> Self {
        self.version = version;
        self
    }

    /// Its objects are in namespaces and have a generation and a status.
    const fn with_status(mut self) -> Self {
        self.status = true;
        self.with_generation().namespaced()
    }

    const fn with_generation(mut self) -> Self {
        self.generation = true;
        self
    }

    const fn review(mut self) -> Self {
        self.review = true;
        self
    }

    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `secrets`, `deployments.apps`: how messages name it.
    pub(super) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }
}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kind {
    /// Versions of a resource are kinds of their own.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |it: &Self| (it.group, it.resource, it.version);
        key(self).cmp(&key(other))
    }
}

/// The kinds that are served; those of a group stand together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Served<'a>(pub(super) &'a [&'static Kind]);

impl Served<'_> {
    fn kinds(self) -> impl Iterator<Item = &'static Kind> + Clone {
        self.0.iter().copied()
    }

    /// The kind that a path means.
    pub(super) fn find(self, group: &str, version: &str, resource: &str) -> Option<&'static Kind> {
        let wanted = (group, version, resource);
        let mut kinds = self.kinds();
        kinds.find(|it| (it.group, it.version, it.resource) == wanted)
    }

    /// The document behind a path such as `/apis` or `/api/v1`; `None` if nothing is there.
    pub(super) fn document(self, path: &str) -> Option<Value> {
        match path.trim_matches('/').split('/').collect::<Vec<_>>()[..] {
            ["version"] => Some(json!({
                "major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "linux/amd64",
            })),
            ["api"] => Some(json!({
                "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [],
            })),
            ["apis"] => {
                let groups: Vec<Value> = self.groups().map(|group| self.group(group)).collect();
                Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
            }
            ["apis", group] => self.groups().find(|it| *it == group).map(|group| {
                let mut document = self.group(group);
                document["kind"] = json!("APIGroup");
                document["apiVersion"] = json!("v1");
                document
            }),
            ["api", version] => self.resources("", version),
            ["apis", group, version] => self.resources(group, version),
            _ => None,
        }
    }

    /// Whether a path leads into a group that is served.
    pub(super) fn has_group(self, path: &str) -> bool {
        let mut segments = path.trim_matches('/').split('/');
        match (segments.next(), segments.next()) {
            (Some("apis"), Some(group)) => self.groups().any(|it| it == group),
            (root, _) => root == Some("api"),
        }
    }

    fn groups(self) -> impl Iterator<Item = &'static str> + use<> {
        let groups: BTreeSet<&str> = self.kinds().map(|kind| kind.group).collect();
        groups.into_iter().filter(|group| !group.is_empty())
    }

    fn group(self, group: &str) -> Value {
        let kinds = self.kinds().filter(|kind| kind.group == group);
        let versions: BTreeSet<&str> = kinds.map(|kind| kind.version).collect();
        let entry = |version: &&str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
        let entries: Vec<Value> = versions.iter().map(entry).collect();
        json!({"name": group, "preferredVersion": entries.first(), "versions": entries})
    }

    fn resources(self, group: &str, version: &str) -> Option<Value> {
        let kinds = self
            .kinds()
            .filter(|it| it.group == group && it.version == version);
        let group_version = kinds.clone().next()?.api_version();
        let resources: Vec<Value> = kinds.map(resource).collect();
        let mut list = json!({
            "kind": "APIResourceList", "groupVersion": group_version, "resources": resources,
        });
        // The core group's is older than the convention.
        if !group.is_empty() {
            list["apiVersion"] = json!("v1");
        }
        Some(list)
    }
}

fn resource(kind: &Kind) -> Value {
    let all = "create delete get list patch update watch";
    let verbs = if kind.review { "create" } else { all };
    let verbs: Vec<&str> = verbs.split(' ').collect();
    json!({
        "name": kind.resource, "singularName": kind.name.to_lowercase(), "kind": kind.name,
        "namespaced": kind.namespaced, "verbs": verbs,
    })
}

/// `Runtime` of the infrastructure manager.
pub static RUNTIMES: Kind = Kind::custom(
    "infrastructuremanager.kyma-project.io",
    "v1",
    "runtimes",
    "Runtime",
);
/// `RuntimeBootstrapper` of the product.
pub static BOOTSTRAPPERS: Kind = Kind::custom(
    "operator.kyma-project.io",
    "v1alpha1",
    "runtimebootstrappers",
    "RuntimeBootstrapper",
);
/// The resource of ClusterTrustBundles.
pub const TRUST_BUNDLES: &str = "clustertrustbundles";
const ADMISSION: &str = "admissionregistration.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The kinds that every server serves unless told otherwise.
pub(super) fn builtin() -> Vec<&'static Kind> {
    KINDS.iter().collect()
}

#[rustfmt::skip]
static KINDS: [Kind; 23] = [
    Kind::new("", "configmaps", "ConfigMap").namespaced(),
    Kind::new("", "events", "Event").namespaced(),
    Kind::new("", "namespaces", "Namespace"),
    Kind::new("", "pods", "Pod").with_status(),
    Kind::new("", "secrets", "Secret").namespaced(),
    Kind::new("", "serviceaccounts", "ServiceAccount").namespaced(),
    Kind::new("", "services", "Service").namespaced(),
    Kind::new(ADMISSION, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration").with_generation(),
    Kind::new(ADMISSION, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration").with_generation(),
    Kind::new("apps", "deployments", "Deployment").with_status(),
    Kind::new(AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview").review(),
    Kind::new(AUTHORIZATION, "selfsubjectrulesreviews", "SelfSubjectRulesReview").review(),
    Kind::new("certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest"),
    Kind::new("certificates.k8s.io", TRUST_BUNDLES, "ClusterTrustBundle").version("v1beta1"),
    Kind::new("coordination.k8s.io", "leases", "Lease").namespaced(),
    Kind::new("events.k8s.io", "events", "Event").namespaced(),
    Kind::new("networking.k8s.io", "networkpolicies", "NetworkPolicy").namespaced().with_generation(),
    Kind::new("policy", "poddisruptionbudgets", "PodDisruptionBudget").with_status(),
    Kind::new(RBAC, "clusterrolebindings", "ClusterRoleBinding"),
    Kind::new(RBAC, "clusterroles", "ClusterRole"),
    Kind::new(RBAC, "rolebindings", "RoleBinding").namespaced(),
    Kind::new(RBAC, "roles", "Role").namespaced(),
    Kind::new("scheduling.k8s.io", "priorityclasses", "PriorityClass").with_generation(),
];
