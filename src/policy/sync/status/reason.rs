//! The closed list of reasons. Who reads conditions by machine may rely on these words.

use super::{Deferral, Unreached};
use crate::sync::identity::Refusal;
use crate::sync::plan::{Blocked, Held};

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Why a condition is as it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The word that stands in conditions, metrics and logs.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }
    };
}

reasons! {
    /// The API server responds.
    Connected,
    /// [`Unreached::RuntimeNotFound`].
    RuntimeNotFound,
    /// [`Unreached::RuntimeIDMissing`].
    RuntimeIDMissing,
    /// [`Unreached::RuntimeIDConflict`].
    RuntimeIDConflict,
    /// [`Unreached::KubeconfigNotFound`].
    KubeconfigNotFound,
    /// [`Unreached::InvalidKubeconfig`].
    InvalidKubeconfig,
    /// [`Unreached::ConnectionFailed`].
    ConnectionFailed,
    /// [`Unreached::Timeout`].
    Timeout,
    /// [`Unreached::TLSHandshakeFailed`].
    TLSHandshakeFailed,
    /// [`Unreached::Unauthorized`].
    Unauthorized,
    /// [`Unreached::APIServerError`].
    APIServerError,
    /// [`Refusal::Unidentified`].
    ClusterUIDUnknown,
    /// [`Refusal::Claimed`].
    ClusterAlreadyManaged,
    /// [`Refusal::ControlPlane`], [`Refusal::OwnershipConflict`] and [`Refusal::ForeignControlPlane`].
    OwnershipConflict,
    /// [`Refusal::Rebuilt`].
    ClusterUIDChanged,
    /// The cluster is the one of the runtime.
    Verified,
    /// The status is unknown because the runtime is not reachable.
    Unreachable,
    /// [`Blocked::NamespaceNotFound`].
    NamespaceNotFound,
    /// [`Blocked::NamespaceTerminating`].
    NamespaceTerminating,
    /// [`Blocked::Rights`].
    InsufficientPermissions,
    /// The webhook serves.
    Installed,
    /// The webhook is on its way.
    Installing,
    /// The Deployment's progress deadline passed.
    ProgressDeadlineExceeded,
    /// An object would have to be replaced while it serves.
    ImmutableField,
    /// The webhook is being removed.
    Uninstalling,
    /// The runtime is being handed back.
    Orphaning,
    /// A write failed.
    ApplyFailed,
    /// [`Deferral::Paused`].
    Paused,
    /// [`Deferral::Rollout`].
    RolloutPending,
    /// Everything is as on KCP.
    Synchronized,
    /// [`Held::Source`].
    InvalidSource,
    /// [`Held::TooOld`].
    IncompatibleWebhookVersion,
    /// [`Held::NotServed`].
    TrustBundleAPINotServed,
    /// [`Held::DeletionPending`].
    DeletionPending,
    /// [`Held::NotFound`].
    SourceNotFound,
    /// All other conditions hold.
    Ready,
    /// The pass did not look at it, and none did before.
    Pending,
}

impl From<&Unreached> for Reason {
    fn from(unreached: &Unreached) -> Self {
        match unreached {
            Unreached::RuntimeNotFound(_) => Self::RuntimeNotFound,
            Unreached::RuntimeIDMissing => Self::RuntimeIDMissing,
            Unreached::RuntimeIDConflict(_) => Self::RuntimeIDConflict,
            Unreached::KubeconfigNotFound(_) => Self::KubeconfigNotFound,
            Unreached::InvalidKubeconfig(_) => Self::InvalidKubeconfig,
            Unreached::ConnectionFailed(_) => Self::ConnectionFailed,
            Unreached::Timeout(_) => Self::Timeout,
            Unreached::TLSHandshakeFailed(_) => Self::TLSHandshakeFailed,
            Unreached::Unauthorized => Self::Unauthorized,
            Unreached::APIServerError(_) => Self::APIServerError,
        }
    }
}

impl From<&Refusal> for Reason {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Unidentified => Self::ClusterUIDUnknown,
            Refusal::Claimed { .. } => Self::ClusterAlreadyManaged,
            Refusal::ControlPlane
            | Refusal::OwnershipConflict { .. }
            | Refusal::ForeignControlPlane { .. } => Self::OwnershipConflict,
            Refusal::Rebuilt { .. } => Self::ClusterUIDChanged,
        }
    }
}

impl From<&Blocked> for Reason {
    fn from(blocked: &Blocked) -> Self {
        match blocked {
            Blocked::Identity(refusal) => refusal.into(),
            Blocked::NamespaceNotFound(_) => Self::NamespaceNotFound,
            Blocked::NamespaceTerminating(_) => Self::NamespaceTerminating,
            Blocked::Rights(_) => Self::InsufficientPermissions,
        }
    }
}

impl From<&Held> for Reason {
    fn from(held: &Held) -> Self {
        match held {
            Held::Source { .. } => Self::InvalidSource,
            Held::TooOld(_) => Self::IncompatibleWebhookVersion,
            Held::NotServed => Self::TrustBundleAPINotServed,
            Held::DeletionPending { .. } => Self::DeletionPending,
            Held::NotFound { .. } => Self::SourceNotFound,
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
