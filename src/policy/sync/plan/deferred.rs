//! Reasons why an object of the configuration cannot be synchronized.

use jiff::Timestamp;

use super::Blocked;
use crate::sync::compatibility::IncompatibleVersion;
use crate::sync::{Hash, SourceKind};

/// Reason why an object of the configuration cannot be synchronized.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyncDeferred {
    /// The object on the runtime cannot be read or written.
    #[error("{} not synchronized", .kind.object())]
    Inaccessible {
        /// The object.
        kind: SourceKind,
        /// Whether the object was not read, so that its content is unknown.
        is_unread: bool,
        /// The missing permissions or the failed read.
        #[source]
        cause: Blocked,
    },
    /// The source cannot be read or is invalid.
    #[error("invalid source {}: {reason}", .kind.name())]
    InvalidSource {
        /// The source.
        kind: SourceKind,
        /// The cause, without secret content.
        reason: String,
    },
    /// The running webhook does not support a key of the document.
    #[error("configuration document not written")]
    IncompatibleWebhookVersion(#[source] IncompatibleVersion),
    /// The runtime does not serve ClusterTrustBundles.
    #[error("the runtime does not serve the API of ClusterTrustBundles")]
    TrustBundleAPINotServed,
    /// The source is missing; its copy is deleted after the grace period.
    #[error(
        "{object} was deleted on KCP: its copy on the runtime is deleted at {}, unless the source is created again \
before",
        .at.strftime("%FT%TZ")
    )]
    DeletionPending {
        /// The source.
        object: String,
        /// The hash of the synchronized content.
        hash: Hash,
        /// The end of the grace period.
        at: Timestamp,
    },
    /// The source does not exist and was never synchronized.
    #[error("{object} not found on KCP: {}", not_found_consequence(*.kind))]
    SourceNotFound {
        /// The source.
        kind: SourceKind,
        /// The source, for messages.
        object: String,
    },
}

/// Returns the consequence of a source that does not exist.
fn not_found_consequence(kind: SourceKind) -> &'static str {
    match kind {
        SourceKind::PullSecret | SourceKind::TrustBundle => {
            "an existing copy on the runtime is not changed"
        }
        SourceKind::Configuration => {
            "an existing copy on the runtime is not changed, and the webhook does not become ready without one"
        }
    }
}

impl SyncDeferred {
    /// Returns whether the runtime has the desired object despite this cause.
    pub(super) fn is_satisfied(&self) -> bool {
        matches!(
            self,
            Self::DeletionPending { .. } | Self::SourceNotFound { .. }
        )
    }

    /// Returns whether the object on the runtime cannot be read or written.
    #[must_use]
    pub fn is_inaccessible(&self) -> bool {
        matches!(self, Self::Inaccessible { .. })
    }

    /// Returns the order of causes in a condition; the lowest value determines the reason.
    pub(in crate::sync) fn rank(&self) -> u8 {
        match self {
            Self::Inaccessible { .. } => 0,
            Self::DeletionPending { .. } => 1,
            Self::InvalidSource { .. } => 2,
            Self::IncompatibleWebhookVersion(_) => 3,
            Self::TrustBundleAPINotServed => 4,
            Self::SourceNotFound { .. } => 5,
        }
    }
}
