//! Names by which the control plane's systems know runtimes, and by which we mark what we wrote there.
//!
//! They are those of <https://github.com/kyma-project/infrastructure-manager>; keys below
//! `rt-bootstrapper.kyma-project.io/` are ours.

/// Namespace of everything on KCP.
pub const KCP_NAMESPACE: &str = "kcp-system";

/// API group of `Runtime`.
pub const RUNTIME_GROUP: &str = "infrastructuremanager.kyma-project.io";

/// Version of `Runtime`.
pub const RUNTIME_VERSION: &str = "v1";

/// Kind of `Runtime`.
pub const RUNTIME_KIND: &str = "Runtime";

/// Plural of `Runtime`.
pub const RUNTIME_PLURAL: &str = "runtimes";

/// `status.state` of a Runtime that is being taken down; it is not contacted any more.
pub const STATE_TERMINATING: &str = "Terminating";

/// `status.state` of a Runtime that KIM has reconciled.
pub const STATE_READY: &str = "Ready";

/// Label that carries the runtime id, on Runtimes and on their kubeconfig Secrets.
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

/// Label on kubeconfig Secrets that names their manager.
pub const MANAGED_BY: &str = "operator.kyma-project.io/managed-by";

/// Value of [`MANAGED_BY`] on kubeconfig Secrets.
pub const KIM_MANAGED_BY: &str = "infrastructure-manager";

/// Key of the signal, as label and as annotation of a Runtime; its value is `"true"`.
pub const FORCE_RECONCILE_KEY: &str = "operator.kyma-project.io/force-patch-reconciliation";

/// Annotation with which an operator suspends KIM for one Runtime; its value is `"true"`, and it wins over the signal.
pub const SUSPEND_RECONCILIATION: &str = "operator.kyma-project.io/suspend-patch-reconciliation";

/// Annotation on a Runtime: the revision of the sources with which the controller signaled it last.
pub const SIGNALED_REVISION_ANNOTATION: &str = "rt-bootstrapper.kyma-project.io/signaled-revision";

/// Key of the kubeconfig in its Secret.
pub const KUBECONFIG_KEY: &str = "config";

/// Label on a Runtime that selects the controller that synchronizes it: [`MODE_SIGNAL`] or [`MODE_DIRECT`].
pub const MODE_LABEL: &str = "rt-bootstrapper.kyma-project.io/mode";

/// Value of [`MODE_LABEL`]: KIM is signalled (what also holds without the label).
pub const MODE_SIGNAL: &str = "signal";

/// Value of [`MODE_LABEL`]: the controller writes to the runtime itself.
pub const MODE_DIRECT: &str = "direct";

/// Label on a Runtime that orders waves: a decimal number, smaller first; absent or unreadable comes last.
pub const WAVE_LABEL: &str = "rt-bootstrapper.kyma-project.io/wave";

/// Annotation on each object that the controller synchronised: the hash of its content.
pub const CONTENT_HASH: &str = "rt-bootstrapper.kyma-project.io/content-hash";

/// Annotation on the synchronised ConfigMap: the hash that the pull Secret must carry for this version, or `"none"`.
pub const REQUIRES_PULL_SECRET: &str = "rt-bootstrapper.kyma-project.io/requires-pull-secret";

/// Annotation on the synchronised ConfigMap: the hash that the trust bundle must carry for this version, or `"none"`.
pub const REQUIRES_TRUST_BUNDLE: &str = "rt-bootstrapper.kyma-project.io/requires-trust-bundle";

/// Value of the two annotations above when the version is without that part.
pub const REQUIRES_NONE: &str = "none";

/// Annotation on every installed manifest: the hash of what was applied.
pub const MANIFEST_HASH: &str = "rt-bootstrapper.kyma-project.io/manifest-hash";

/// ConfigMap in the product namespace of a runtime that says who manages it.
pub const OWNER_CONFIG_MAP: &str = "rt-bootstrapper-owner";

/// Key of [`OWNER_CONFIG_MAP`]: the runtime id.
pub const OWNER_RUNTIME_ID: &str = "runtimeID";

/// Key of [`OWNER_CONFIG_MAP`]: the control plane, as a hash of its `kube-system` UID.
pub const OWNER_CONTROL_PLANE: &str = "controlPlaneID";

/// Key of [`OWNER_CONFIG_MAP`]: the inventory, one line per object that the controller has applied, before it applies it.
pub const OWNER_INVENTORY: &str = "inventory";

/// Key of [`OWNER_CONFIG_MAP`]: the inventory of the watcher.
pub const OWNER_WATCHER_INVENTORY: &str = "watcherInventory";

/// Key of [`OWNER_CONFIG_MAP`]: one line per manager, its name and a hash that changes whenever its entries of the webhook
/// configuration are written other than by a new CA. The watcher has it as a file.
pub const OWNER_WATCHER_ENTRIES: &str = "watcherEntries";

/// Annotation on a `RuntimeBootstrapper` that accepts a rebuilt cluster: the UID of the new `kube-system`.
pub const ACCEPT_CLUSTER_UID_ANNOTATION: &str =
    "rt-bootstrapper.kyma-project.io/accept-cluster-uid";

/// Field manager of everything that the controller writes, on KCP and on runtimes.
pub const CONTROLLER_FIELD_MANAGER: &str = "rt-bootstrapper-controller";

/// Field manager of the watcher's objects on runtimes. It is another one because the watcher and the webhook share
/// [`OWNER_CONFIG_MAP`], where each writes its own keys.
pub const WATCHER_FIELD_MANAGER: &str = "rt-bootstrapper-controller-watchers";

/// Field managers of KIM, whose fields the controller takes over.
pub const KIM_FIELD_MANAGER: &str = "kim-bootstrapper";

/// Field manager of the lifecycle-manager for the objects of the public watcher on runtimes, whose fields the controller takes over.
pub const LIFECYCLE_MANAGER_FIELD_MANAGER: &str = "lifecycle-manager";

/// Label that carries a Deployment's version; KIM compares it.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";

/// Deployment of the webhook on a runtime; KIM observes it.
pub const WEBHOOK_DEPLOYMENT: &str = "rt-bootstrapper-controller-manager";

/// What precedes the runtime ID in the name of a Secret with a kubeconfig.
pub const KUBECONFIG_PREFIX: &str = "kubeconfig-";

/// The Secret on KCP that holds a runtime's kubeconfig.
#[must_use]
pub fn kubeconfig_secret(runtime_id: &str) -> String {
    format!("{KUBECONFIG_PREFIX}{runtime_id}")
}
