//! The closed list of reasons. Who reads conditions by machine may rely on these words.

use super::{Unreached, Withheld};
use crate::convergence::identity::Refusal;
use crate::convergence::plan::{Blocked, Held};

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
    /// [`Unreached::RuntimeMissing`].
    RuntimeMissing,
    /// [`Unreached::RuntimeIDMissing`].
    RuntimeIDMissing,
    /// [`Unreached::RuntimeIDConflict`].
    RuntimeIDConflict,
    /// [`Unreached::KubeconfigMissing`].
    KubeconfigMissing,
    /// [`Unreached::KubeconfigInvalid`].
    KubeconfigInvalid,
    /// [`Unreached::ConnectionFailed`].
    ConnectionFailed,
    /// [`Unreached::TimedOut`].
    TimedOut,
    /// [`Unreached::TlsFailed`].
    TlsFailed,
    /// [`Unreached::Unauthorized`].
    Unauthorized,
    /// [`Unreached::ServerFailed`].
    ServerFailed,
    /// [`Refusal::Unidentified`].
    ClusterUnidentified,
    /// [`Refusal::Claimed`].
    ClusterClaimed,
    /// [`Refusal::ForeignMarker`] and [`Refusal::ForeignControlPlane`].
    ForeignMarker,
    /// [`Refusal::Rebuilt`].
    ClusterRebuilt,
    /// The cluster is the one of the runtime.
    Verified,
    /// The status is unknown because the runtime is not reachable.
    Unreachable,
    /// [`Blocked::NamespaceMissing`].
    NamespaceMissing,
    /// [`Blocked::NamespaceTerminating`].
    NamespaceTerminating,
    /// [`Blocked::Rights`].
    RightsMissing,
    /// The webhook serves.
    Installed,
    /// The webhook is on its way.
    Installing,
    /// The Deployment's progress deadline passed.
    RolloutFailed,
    /// An object would have to be replaced while it serves.
    NotReplaceable,
    /// The webhook is being removed.
    Uninstalling,
    /// The runtime is being handed back.
    HandingBack,
    /// A write failed.
    WriteFailed,
    /// [`Withheld::Paused`].
    Paused,
    /// [`Withheld::Wave`].
    WaitingForWave,
    /// Everything is as on KCP.
    Synchronized,
    /// [`Held::Source`].
    SourceInvalid,
    /// [`Held::TooOld`].
    WebhookTooOld,
    /// [`Held::NotServed`].
    TrustBundleNotServed,
    /// [`Held::DeletionPending`].
    DeletionPending,
    /// [`Held::NotFound`].
    SourceNotFound,
    /// All other conditions hold.
    Ready,
    /// The pass did not look at it, and none did before.
    NotExamined,
}

impl From<&Unreached> for Reason {
    fn from(unreached: &Unreached) -> Self {
        match unreached {
            Unreached::RuntimeMissing(_) => Self::RuntimeMissing,
            Unreached::RuntimeIDMissing => Self::RuntimeIDMissing,
            Unreached::RuntimeIDConflict(_) => Self::RuntimeIDConflict,
            Unreached::KubeconfigMissing(_) => Self::KubeconfigMissing,
            Unreached::KubeconfigInvalid(_) => Self::KubeconfigInvalid,
            Unreached::ConnectionFailed(_) => Self::ConnectionFailed,
            Unreached::TimedOut(_) => Self::TimedOut,
            Unreached::TlsFailed(_) => Self::TlsFailed,
            Unreached::Unauthorized => Self::Unauthorized,
            Unreached::ServerFailed(_) => Self::ServerFailed,
        }
    }
}

impl From<&Refusal> for Reason {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Unidentified => Self::ClusterUnidentified,
            Refusal::Claimed { .. } => Self::ClusterClaimed,
            Refusal::ForeignMarker { .. } | Refusal::ForeignControlPlane { .. } => {
                Self::ForeignMarker
            }
            Refusal::Rebuilt { .. } => Self::ClusterRebuilt,
        }
    }
}

impl From<&Blocked> for Reason {
    fn from(blocked: &Blocked) -> Self {
        match blocked {
            Blocked::Identity(refusal) => refusal.into(),
            Blocked::NamespaceMissing(_) => Self::NamespaceMissing,
            Blocked::NamespaceTerminating(_) => Self::NamespaceTerminating,
            Blocked::Rights(_) => Self::RightsMissing,
        }
    }
}

impl From<&Held> for Reason {
    fn from(held: &Held) -> Self {
        match held {
            Held::Source { .. } => Self::SourceInvalid,
            Held::TooOld(_) => Self::WebhookTooOld,
            Held::NotServed => Self::TrustBundleNotServed,
            Held::DeletionPending { .. } => Self::DeletionPending,
            Held::NotFound { .. } => Self::SourceNotFound,
        }
    }
}

impl From<Withheld> for Reason {
    fn from(withheld: Withheld) -> Self {
        match withheld {
            Withheld::Paused => Self::Paused,
            Withheld::Wave => Self::WaitingForWave,
        }
    }
}
