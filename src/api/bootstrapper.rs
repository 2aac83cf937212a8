//! The custom resource `RuntimeBootstrapper`: one object on KCP for each runtime in mode `direct`.
//!
//! Creating an object installs the webhook on the runtime, its status describes the objects on the runtime, and deleting it
//! deletes the webhook. The types of the status need no Kubernetes library; the resource and its definition need the
//! feature `crds`.

#[cfg(feature = "crds")]
mod definition;
mod status;
#[cfg(feature = "crds")]
mod webhook;

#[cfg(feature = "crds")]
pub use definition::{DeletionPolicy, RuntimeBootstrapper, RuntimeBootstrapperSpec, crd};
pub use status::{
    Condition, ConditionStatus, ConfigurationStatus, RuntimeBootstrapperStatus, WebhookStatus,
};

#[cfg(feature = "crds")]
pub use webhook::{ResourceAmounts, RestartCause, WebhookResources, WebhookSettings};

/// API group of `RuntimeBootstrapper`.
pub const GROUP: &str = "operator.kyma-project.io";

/// Version of `RuntimeBootstrapper`.
pub const VERSION: &str = "v1alpha1";

/// Kind of the custom resource.
pub const KIND: &str = "RuntimeBootstrapper";

/// Plural of the custom resource.
pub const PLURAL: &str = "runtimebootstrappers";

/// Finalizer that remains until the deletion policy was carried out on the runtime.
pub const FINALIZER: &str = "rt-bootstrapper.kyma-project.io/finalizer";

/// Condition: kubeconfig, network, TLS and authentication work, and the API server responds.
pub const REACHABLE: &str = "Reachable";

/// Condition: the cluster of the kubeconfig is the cluster of the runtime, and has no other owner.
pub const IDENTITY_VERIFIED: &str = "IdentityVerified";

/// Condition: the webhook of the desired version is installed and available, and the API server sends Pods to it.
pub const INSTALLED: &str = "Installed";

/// Condition: ConfigMap, pull Secret and ClusterTrustBundle on the runtime have the same content as on KCP.
pub const CONFIGURATION_SYNCHRONIZED: &str = "ConfigurationSynchronized";

/// Condition: the watcher is installed on the runtime, with the webhooks of all Watchers. Absent while there is no Watcher.
pub const WATCHER_INSTALLED: &str = "WatcherInstalled";

/// Condition: `Reachable`, `IdentityVerified`, `Installed` and `ConfigurationSynchronized` are true. Independent of
/// `WatcherInstalled`.
pub const READY: &str = "Ready";
