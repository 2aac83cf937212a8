//! The names of the three synchronized objects: on KCP, or on a runtime.

use api::kcp::KCP_NAMESPACE;
use api::names::{CONFIG_MAP, PULL_SECRET, SKR_NAMESPACE};

use super::SourceKind;
use super::target::Target;

/// Names of the three objects. An object without a name is unmanaged: on KCP it is not watched, on runtimes neither
/// read nor written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectNames {
    /// The namespace of the Secret and the ConfigMap; on a runtime the namespace of the webhook.
    pub namespace: String,
    /// The pull Secret.
    pub pull_secret: Option<String>,
    /// The ClusterTrustBundle.
    pub trust_bundle: Option<String>,
    /// The ConfigMap with the configuration document.
    pub configuration: String,
}

impl ObjectNames {
    /// Returns the default names of KIM on KCP: the ConfigMap only.
    #[must_use]
    pub fn on_kcp() -> Self {
        Self {
            namespace: KCP_NAMESPACE.to_owned(),
            pull_secret: None,
            trust_bundle: None,
            configuration: CONFIG_MAP.to_owned(),
        }
    }

    /// Returns the default names of KIM on runtimes; KIM has no default for the ClusterTrustBundle.
    #[must_use]
    pub fn on_runtime() -> Self {
        Self {
            namespace: SKR_NAMESPACE.to_owned(),
            pull_secret: Some(PULL_SECRET.to_owned()),
            ..Self::on_kcp()
        }
    }

    /// Returns the name of an object; `None` if it is unmanaged.
    #[must_use]
    pub fn get(&self, kind: SourceKind) -> Option<&str> {
        match kind {
            SourceKind::PullSecret => self.pull_secret.as_deref(),
            SourceKind::TrustBundle => self.trust_bundle.as_deref(),
            SourceKind::Configuration => Some(&self.configuration),
        }
    }

    /// Returns the object on a runtime that serves ClusterTrustBundles in the version `bundles`, or not at all.
    /// `None` if the object is unmanaged or its API is not served.
    #[must_use]
    pub fn target(&self, kind: SourceKind, bundles: Option<&str>) -> Option<Target> {
        let name = self.get(kind)?;
        Some(match kind {
            SourceKind::PullSecret => Target::secret(&self.namespace, name),
            SourceKind::TrustBundle => Target::trust_bundle(bundles?, name),
            SourceKind::Configuration => Target::config_map(&self.namespace, name),
        })
    }

    /// Returns whether an object on a runtime is in an additional namespace, which is not that of the webhook. Customers own it:
    /// it may be missing or being deleted, and its policies may reject a write.
    #[must_use]
    pub fn is_additional(&self, target: &Target) -> bool {
        target.namespace().is_some_and(|it| it != self.namespace)
    }

    /// Returns kind, namespace and name of an object, for messages.
    #[must_use]
    pub fn reference(&self, kind: SourceKind) -> String {
        let (object, name) = (kind.object(), self.get(kind).unwrap_or_default());
        match kind {
            SourceKind::PullSecret | SourceKind::Configuration => {
                format!("{object} {}/{name}", self.namespace)
            }
            SourceKind::TrustBundle => format!("{object} {name}"),
        }
    }
}
