//! The custom resource `RuntimeBootstrapper`: one object on KCP for each runtime in mode `direct`.
//!
//! Creating one installs the webhook on the runtime; its status describes what is on the runtime; deleting it deletes the
//! webhook. The types of the status need no Kubernetes library; the resource and its definition need the feature `crds`.

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

/// Kind.
pub const KIND: &str = "RuntimeBootstrapper";

/// Plural.
pub const PLURAL: &str = "runtimebootstrappers";

/// Finalizer that remains until the deletion policy was carried out on the runtime.
pub const FINALIZER: &str = "rt-bootstrapper.kyma-project.io/finalizer";

/// Condition: kubeconfig, network, TLS and authentication lead to an API server that responds.
pub const REACHABLE: &str = "Reachable";

/// Condition: the cluster behind the kubeconfig is the one of the runtime, and no other owner claims it.
pub const IDENTITY_VERIFIED: &str = "IdentityVerified";

/// Condition: the webhook of the desired version is installed and available, and Pods are sent to it.
pub const INSTALLED: &str = "Installed";

/// Condition: ConfigMap, pull Secret and ClusterTrustBundle on the runtime have the content of those on KCP.
pub const CONFIGURATION_SYNCHRONIZED: &str = "ConfigurationSynchronized";

/// Condition: the watcher is installed on the runtime, with the webhooks of all Watchers. Absent while there is no Watcher.
pub const WATCHER_INSTALLED: &str = "WatcherInstalled";

/// Condition: `Reachable`, `IdentityVerified`, `Installed` and `ConfigurationSynchronized` are true. `WatcherInstalled` is not part of it.
pub const READY: &str = "Ready";
