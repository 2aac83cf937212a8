//! The closed list of reasons of conditions, which are part of the API.

use strum::{EnumString, IntoStaticStr, VariantArray};

use super::{ConnectionError, Deferral};
use crate::sync::identity::IdentityError;
use crate::sync::plan::{Blocked, SyncDeferred};

/// The reason of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray)]
pub enum Reason {
    /// The API server responds.
    Connected,
    /// [`ConnectionError::RuntimeNotFound`].
    RuntimeNotFound,
    /// [`ConnectionError::RuntimeIDMissing`].
    RuntimeIDMissing,
    /// [`ConnectionError::RuntimeIDConflict`].
    RuntimeIDConflict,
    /// [`ConnectionError::KubeconfigNotFound`].
    KubeconfigNotFound,
    /// [`ConnectionError::InvalidKubeconfig`].
    InvalidKubeconfig,
    /// [`ConnectionError::ConnectionFailed`].
    ConnectionFailed,
    /// [`ConnectionError::Timeout`].
    Timeout,
    /// [`ConnectionError::TLSHandshakeFailed`].
    TLSHandshakeFailed,
    /// [`ConnectionError::Unauthorized`].
    Unauthorized,
    /// [`ConnectionError::APIServerError`] and [`Blocked::FailedReads`].
    APIServerError,
    /// [`IdentityError::ClusterUIDUnknown`].
    ClusterUIDUnknown,
    /// [`IdentityError::ClusterAlreadyManaged`].
    ClusterAlreadyManaged,
    /// [`IdentityError::ClusterIsKCP`], [`IdentityError::OwnershipConflict`] and [`IdentityError::OtherKCP`].
    OwnershipConflict,
    /// [`IdentityError::ClusterUIDChanged`].
    ClusterUIDChanged,
    /// The cluster is verified.
    Verified,
    /// The status is unknown because the runtime is not reachable.
    Unreachable,
    /// [`Blocked::NamespaceNotFound`].
    NamespaceNotFound,
    /// [`Blocked::NamespaceTerminating`].
    NamespaceTerminating,
    /// [`Blocked::MissingPermissions`].
    InsufficientPermissions,
    /// The webhook is installed and available.
    Installed,
    /// The webhook is being installed.
    Installing,
    /// The progress deadline of the Deployment is exceeded.
    ProgressDeadlineExceeded,
    /// An immutable field of an object in use differs, so that the object would have to be recreated.
    ImmutableField,
    /// The webhook is being deleted.
    Uninstalling,
    /// The objects on the runtime are being orphaned for KIM.
    Orphaning,
    /// A write failed.
    ApplyFailed,
    /// [`Deferral::Paused`].
    Paused,
    /// [`Deferral::Rollout`].
    RolloutPending,
    /// The configuration on the runtime equals the configuration on KCP.
    Synchronized,
    /// [`SyncDeferred::InvalidSource`].
    InvalidSource,
    /// [`SyncDeferred::IncompatibleWebhookVersion`].
    IncompatibleWebhookVersion,
    /// [`SyncDeferred::TrustBundleAPINotServed`].
    TrustBundleAPINotServed,
    /// [`SyncDeferred::DeletionPending`].
    DeletionPending,
    /// [`SyncDeferred::SourceNotFound`].
    SourceNotFound,
    /// The conditions of which `Ready` consists are true.
    Ready,
    /// No reconcile has determined the condition yet.
    Pending,
}

impl Reason {
    /// Returns the name in conditions, metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl From<&ConnectionError> for Reason {
    fn from(connection_error: &ConnectionError) -> Self {
        match connection_error {
            ConnectionError::RuntimeNotFound(_) => Self::RuntimeNotFound,
            ConnectionError::RuntimeIDMissing => Self::RuntimeIDMissing,
            ConnectionError::RuntimeIDConflict(_) => Self::RuntimeIDConflict,
            ConnectionError::KubeconfigNotFound(_) => Self::KubeconfigNotFound,
            ConnectionError::InvalidKubeconfig(_) => Self::InvalidKubeconfig,
            ConnectionError::ConnectionFailed(_) => Self::ConnectionFailed,
            ConnectionError::Timeout(_) => Self::Timeout,
            ConnectionError::TLSHandshakeFailed(_) => Self::TLSHandshakeFailed,
            ConnectionError::Unauthorized => Self::Unauthorized,
            ConnectionError::APIServerError(_) => Self::APIServerError,
        }
    }
}

impl From<&IdentityError> for Reason {
    fn from(error: &IdentityError) -> Self {
        match error {
            IdentityError::ClusterUIDUnknown => Self::ClusterUIDUnknown,
            IdentityError::ClusterAlreadyManaged { .. } => Self::ClusterAlreadyManaged,
            IdentityError::ClusterIsKCP
            | IdentityError::OwnershipConflict { .. }
            | IdentityError::OtherKCP { .. } => Self::OwnershipConflict,
            IdentityError::ClusterUIDChanged { .. } => Self::ClusterUIDChanged,
        }
    }
}

impl From<&Blocked> for Reason {
    fn from(blocked: &Blocked) -> Self {
        match blocked {
            Blocked::Identity(error) => error.into(),
            Blocked::NamespaceNotFound(_) => Self::NamespaceNotFound,
            Blocked::NamespaceTerminating(_) => Self::NamespaceTerminating,
            Blocked::MissingPermissions(_) => Self::InsufficientPermissions,
            Blocked::FailedReads(_) => Self::APIServerError,
        }
    }
}

impl From<&SyncDeferred> for Reason {
    fn from(deferred: &SyncDeferred) -> Self {
        match deferred {
            SyncDeferred::Inaccessible { cause, .. } => cause.into(),
            SyncDeferred::InvalidSource { .. } => Self::InvalidSource,
            SyncDeferred::IncompatibleWebhookVersion(_) => Self::IncompatibleWebhookVersion,
            SyncDeferred::TrustBundleAPINotServed => Self::TrustBundleAPINotServed,
            SyncDeferred::DeletionPending { .. } => Self::DeletionPending,
            SyncDeferred::SourceNotFound { .. } => Self::SourceNotFound,
        }
    }
}

impl From<Deferral> for Reason {
    fn from(deferral: Deferral) -> Self {
        match deferral {
            Deferral::Paused => Self::Paused,
            Deferral::Rollout => Self::RolloutPending,
        }
    }
}
