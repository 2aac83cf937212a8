//! Settings of the webhook on a runtime, which may differ between installations.
//!
//! They are only defined here. The custom resource contains them as `spec.webhook`, and the flags of the controller set
//! defaults for all runtimes. The arguments of the Deployment and the names in Roles are generated from them.

#![expect(
    unreachable_pub,
    reason = "the schema's derive copies our public structs into functions of its own"
)]

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the webhook; an absent one has the value of the controller's flag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, KubeSchema, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct WebhookSettings {
    /// Image of the webhook on this runtime; overrides the controller's `--webhook-image`. Must have a tag or digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9][a-zA-Z0-9._:/@-]*$')")
        .message("must consist of letters, digits and . _ : / @ -"))]
    #[x_kube(validation = Rule::new("self.contains('@') || self.matches(':[^/:]+$')")
        .message("must have a tag or a digest"))]
    pub image: Option<String>,
    /// Name of the Secret in the webhook's namespace with which the webhook's image is pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
        .message("not a valid object name (RFC 1123 subdomain)"))]
    pub image_pull_secret: Option<String>,
    /// Landscape that the feature `set-landscape` writes to Pods; without it the feature is skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')")
        .message("must have the syntax of a label value"))]
    pub landscape: Option<String>,
    /// Name of the ConfigMap with the configuration document, which the controller writes and the webhook reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
        .message("not a valid object name (RFC 1123 subdomain)"))]
    pub config_map_name: Option<String>,
    /// Name of the pull Secret that the controller writes and the webhook copies to namespaces, unless the configuration document
    /// contains another name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
        .message("not a valid object name (RFC 1123 subdomain)"))]
    pub pull_secret_name: Option<String>,
    /// Number of replicas, at least 2, so that one serves while another is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 10))]
    pub replicas: Option<i32>,
    /// Requests and limits of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<WebhookResources>,
    /// Log filter, as in `info,kube=warn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9_:=,]+$')")
        .message("must be a level and levels of modules, as in info,kube=warn"))]
    pub log_filter: Option<String>,
    /// Whether Pods are evicted that were created after the configuration that covers them and lack its changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evict_missed_pods: Option<bool>,
    /// The changes after which Pods from before the change are evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 3))]
    pub restart_pods_on_change: Option<Vec<RestartCause>>,
    /// Additional Namespaces in which the webhook may evict Pods, where they exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 64),
        inner(
            length(min = 1, max = 63),
            regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
        )
    )]
    pub pod_restart_namespaces: Option<Vec<String>>,
    /// Whether the webhook keeps a MutatingAdmissionPolicy that adapts Pods while no replica of it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutating_admission_policy: Option<bool>,
}

/// A change that reaches a running Pod only if it is created again.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize,
)]
pub enum RestartCause {
    /// The ClusterTrustBundle: its content, or that it did not exist before.
    TrustBundle,
    /// The content of the pull Secret.
    PullSecret,
    /// The configuration document, as far as it changes the Pod.
    Configuration,
}

impl RestartCause {
    /// All causes.
    pub const ALL: [Self; 3] = [Self::TrustBundle, Self::PullSecret, Self::Configuration];

    /// Returns the name of the cause in flags.
    #[must_use]
    pub fn flag(self) -> &'static str {
        match self {
            Self::TrustBundle => "trust-bundle",
            Self::PullSecret => "pull-secret",
            Self::Configuration => "configuration",
        }
    }
}

/// Resource requests and limits of the webhook's container; an absent amount has the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, KubeSchema, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct WebhookResources {
    /// Amounts that the scheduler reserves.
    #[serde(default, skip_serializing_if = "ResourceAmounts::is_empty")]
    pub requests: ResourceAmounts,
    /// Amounts that the container may use.
    #[serde(default, skip_serializing_if = "ResourceAmounts::is_empty")]
    pub limits: ResourceAmounts,
}

/// Amounts of CPU and memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, KubeSchema, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct ResourceAmounts {
    /// Cores, such as `1`, or thousandths of a core, such as `50m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]*m?$')")
        .message("must be a number of cores or thousandths, such as 1 or 50m"))]
    pub cpu: Option<String>,
    /// Bytes with a binary suffix, such as `128Mi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]*(Ki|Mi|Gi)$')")
        .message("must have a binary suffix, such as 128Mi"))]
    pub memory: Option<String>,
}

impl WebhookSettings {
    /// Returns these settings, with missing settings taken from `others`.
    #[must_use]
    pub fn or(self, others: &Self) -> Self {
        let others = others.clone();
        Self {
            image: self.image.or(others.image),
            image_pull_secret: self.image_pull_secret.or(others.image_pull_secret),
            landscape: self.landscape.or(others.landscape),
            config_map_name: self.config_map_name.or(others.config_map_name),
            pull_secret_name: self.pull_secret_name.or(others.pull_secret_name),
            replicas: self.replicas.or(others.replicas),
            resources: match (self.resources, others.resources) {
                (Some(own), Some(others)) => Some(own.or(others)),
                (own, others) => own.or(others),
            },
            log_filter: self.log_filter.or(others.log_filter),
            evict_missed_pods: self.evict_missed_pods.or(others.evict_missed_pods),
            restart_pods_on_change: self
                .restart_pods_on_change
                .or(others.restart_pods_on_change),
            pod_restart_namespaces: self
                .pod_restart_namespaces
                .or(others.pod_restart_namespaces),
            mutating_admission_policy: self
                .mutating_admission_policy
                .or(others.mutating_admission_policy),
        }
    }
}

impl WebhookResources {
    /// Returns these amounts, with missing amounts taken from `others`.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            requests: self.requests.or(others.requests),
            limits: self.limits.or(others.limits),
        }
    }
}

impl ResourceAmounts {
    /// Returns whether no amount is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn or(self, others: Self) -> Self {
        Self {
            cpu: self.cpu.or(others.cpu),
            memory: self.memory.or(others.memory),
        }
    }
}
