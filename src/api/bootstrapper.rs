//! The custom resource `RuntimeBootstrapper`: one on KCP for each runtime whose webhook the controller looks after.
//!
//! Creating one installs the webhook on the runtime, its status says what is there, deleting it uninstalls.
//! The types of the status need no Kubernetes library; the resource itself and its definition come with the feature
//! `crds`.

#[cfg(feature = "crds")]
mod definition;
mod status;
#[cfg(feature = "crds")]
mod webhook;

#[cfg(feature = "crds")]
pub use definition::{DeletionPolicy, RuntimeBootstrapper, RuntimeBootstrapperSpec, crd};
pub use status::{
    Condition, ConditionStatus, RuntimeBootstrapperStatus, SynchronizedContent, WebhookStatus,
};

#[cfg(feature = "crds")]
pub use webhook::{ResourceAmounts, WebhookResources, WebhookSettings};

/// API group of `RuntimeBootstrapper`.
pub const GROUP: &str = "operator.kyma-project.io";

/// Version of `RuntimeBootstrapper`.
pub const VERSION: &str = "v1alpha1";

/// Kind.
pub const KIND: &str = "RuntimeBootstrapper";

/// Plural.
pub const PLURAL: &str = "runtimebootstrappers";

/// Finalizer that is held until the runtime is as the deletion policy wants it.
pub const FINALIZER: &str = "operator.kyma-project.io/runtime-bootstrapper";

/// Condition: the runtime's API server answers, and is the one that it should be.
pub const REACHABLE: &str = "Reachable";

/// Condition: the webhook of the wanted version is there, available, and is sent Pods.
pub const INSTALLED: &str = "Installed";

/// Condition: pull Secret, trust bundle and document on the runtime say what those on KCP say.
pub const CONFIGURATION_SYNCHRONIZED: &str = "ConfigurationSynchronized";

/// Condition: all of the others.
pub const READY: &str = "Ready";
