//! Names with which systems on the control plane identify runtimes, and names with which this project marks the objects
//! that it writes.
//!
//! The names are those of <https://github.com/kyma-project/infrastructure-manager>. Keys with the prefix
//! `rt-bootstrapper.kyma-project.io/` are those of this project.

/// Namespace of all objects on KCP.
pub const KCP_NAMESPACE: &str = "kcp-system";

/// API group of `Runtime`.
pub const RUNTIME_GROUP: &str = "infrastructuremanager.kyma-project.io";

/// Version of `Runtime`.
pub const RUNTIME_VERSION: &str = "v1";

/// Kind of `Runtime`.
pub const RUNTIME_KIND: &str = "Runtime";

/// Plural of `Runtime`.
pub const RUNTIME_PLURAL: &str = "runtimes";

/// `status.state` of a Runtime that is being deleted, which is not contacted anymore.
pub const STATE_TERMINATING: &str = "Terminating";

/// `status.state` of a Runtime that KIM has reconciled.
pub const STATE_READY: &str = "Ready";

/// Label with the runtime ID, on Runtimes and on their kubeconfig Secrets.
pub const RUNTIME_ID: &str = "kyma-project.io/runtime-id";

/// Annotation of a Kyma or a `RuntimeBootstrapper` with the domain of the runtime.
pub const SKR_DOMAIN: &str = "skr-domain";

/// API version of `Kyma`.
pub const KYMA_VERSION: &str = "v1beta2";

/// Kind of `Kyma`.
pub const KYMA_KIND: &str = "Kyma";

/// Plural of `Kyma`.
pub const KYMA_PLURAL: &str = "kymas";

/// Label of a Runtime with the name of its shoot.
pub const SHOOT_NAME: &str = "kyma-project.io/shoot-name";

/// Label on kubeconfig Secrets with the name of the system that manages them.
pub const MANAGED_BY: &str = "operator.kyma-project.io/managed-by";

/// Value of [`MANAGED_BY`] on kubeconfig Secrets.
pub const KIM_MANAGED_BY: &str = "infrastructure-manager";

/// Key of the signal, as label and as annotation of a Runtime; its value is `"true"`.
pub const FORCE_RECONCILE_KEY: &str = "operator.kyma-project.io/force-patch-reconciliation";

/// Annotation with which an operator suspends KIM for one Runtime; its value is `"true"`, and it wins over the signal.
pub const SUSPEND_RECONCILIATION: &str = "operator.kyma-project.io/suspend-patch-reconciliation";

/// Annotation on a Runtime: the revision of the sources at the last signal of the controller.
pub const SIGNALED_REVISION_ANNOTATION: &str = "rt-bootstrapper.kyma-project.io/signaled-revision";

/// Key of the kubeconfig in its Secret.
pub const KUBECONFIG_KEY: &str = "config";

/// Label on a Runtime that selects the controller that synchronizes it: [`MODE_SIGNAL`] or [`MODE_DIRECT`].
pub const MODE_LABEL: &str = "rt-bootstrapper.kyma-project.io/mode";

/// Value of [`MODE_LABEL`]: the controller signals KIM. This is the default without the label.
pub const MODE_SIGNAL: &str = "signal";

/// Value of [`MODE_LABEL`]: the controller writes to the runtime.
pub const MODE_DIRECT: &str = "direct";

/// Label on a Runtime with its wave: a decimal number, smaller numbers first. Runtimes with an absent or invalid value are last.
pub const WAVE_LABEL: &str = "rt-bootstrapper.kyma-project.io/wave";

/// Annotation on each object that the controller synchronized: the hash of its content.
pub const CONTENT_HASH: &str = "rt-bootstrapper.kyma-project.io/content-hash";

/// Annotation on the synchronized ConfigMap: the required hash of the pull Secret for this version, or `"none"`.
pub const REQUIRES_PULL_SECRET: &str = "rt-bootstrapper.kyma-project.io/requires-pull-secret";

/// Annotation on the synchronized ConfigMap: the required hash of the trust bundle for this version, or `"none"`.
pub const REQUIRES_TRUST_BUNDLE: &str = "rt-bootstrapper.kyma-project.io/requires-trust-bundle";

/// Value of [`REQUIRES_PULL_SECRET`] and [`REQUIRES_TRUST_BUNDLE`] if the version has no such object.
pub const REQUIRES_NONE: &str = "none";

/// Annotation on each installed manifest: the hash of the applied manifest.
pub const MANIFEST_HASH: &str = "rt-bootstrapper.kyma-project.io/manifest-hash";

/// ConfigMap in the product namespace of a runtime that identifies its owner.
pub const OWNER_CONFIG_MAP: &str = "rt-bootstrapper-owner";

/// Key of [`OWNER_CONFIG_MAP`]: the runtime ID.
pub const OWNER_RUNTIME_ID: &str = "runtimeID";

/// Key of [`OWNER_CONFIG_MAP`]: the control plane, as a hash of its `kube-system` UID.
pub const OWNER_CONTROL_PLANE: &str = "controlPlaneID";

/// Key of [`OWNER_CONFIG_MAP`]: the inventory, one line per object. The controller adds a line before it applies the object.
pub const OWNER_INVENTORY: &str = "inventory";

/// Key of [`OWNER_CONFIG_MAP`]: the inventory of the watcher.
pub const OWNER_WATCHER_INVENTORY: &str = "watcherInventory";

/// Key of [`OWNER_CONFIG_MAP`]: one line per manager, its name and a hash that changes whenever its entries of the webhook
/// configuration are written other than by a new CA. The watcher has it as a file.
pub const OWNER_WATCHER_ENTRIES: &str = "watcherEntries";

/// Key of [`OWNER_CONFIG_MAP`]: since when no AdmissionReview reaches the watcher; empty after that.
pub const OWNER_WATCHER_REVIEWS_MISSING: &str = "watcherReviewsMissing";

/// Annotation on a `RuntimeBootstrapper` that accepts a rebuilt cluster: the UID of the new `kube-system`.
pub const ACCEPT_CLUSTER_UID_ANNOTATION: &str =
    "rt-bootstrapper.kyma-project.io/accept-cluster-uid";

/// Field manager of all objects that the controller writes, on KCP and on runtimes.
pub const CONTROLLER_FIELD_MANAGER: &str = "rt-bootstrapper-controller";

/// Field manager of the objects of the watcher on runtimes. It differs because the watcher and the webhook share
/// [`OWNER_CONFIG_MAP`], in which each has separate keys.
pub const WATCHER_FIELD_MANAGER: &str = "rt-bootstrapper-controller-watchers";

/// Field manager of KIM, whose fields the controller takes over.
pub const KIM_FIELD_MANAGER: &str = "kim-bootstrapper";

/// Field manager of the lifecycle-manager for the objects of the public watcher on runtimes. The controller takes over its
/// fields.
pub const LIFECYCLE_MANAGER_FIELD_MANAGER: &str = "lifecycle-manager";

/// Label with the version of a Deployment; KIM compares it.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";

/// Deployment of the webhook on a runtime; KIM observes it.
pub const WEBHOOK_DEPLOYMENT: &str = "rt-bootstrapper-controller-manager";

/// Prefix of the name of a Secret with a kubeconfig. The runtime ID follows.
pub const KUBECONFIG_PREFIX: &str = "kubeconfig-";

/// Returns the name of the Secret on KCP with the kubeconfig of a runtime.
#[must_use]
pub fn kubeconfig_secret(runtime_id: &str) -> String {
    format!("{KUBECONFIG_PREFIX}{runtime_id}")
}
