//! Reasons for which a review is skipped, so that no event is sent to KCP: message, metric and log are derived from them.

use watcher_types::{Gvk, NamespacedName};

/// Why a review is skipped. The text is the message of the response; the texts of `NoChange` and `InvalidSubresource` are
/// those of the public watcher, to the letter.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr, thiserror::Error)]
pub enum SkipReason {
    /// The compared fields are unchanged.
    #[error("no change detected on watched resource {watched}")]
    NoChange {
        /// The object.
        watched: NamespacedName,
    },
    /// The Watcher names the resource, but not this subresource of it.
    #[error("invalid subresource: watched resource {watched}")]
    InvalidSubresource {
        /// The object.
        watched: NamespacedName,
    },
    /// The Watcher does not name the resource: the rules of the webhook configuration are wider than the Watcher.
    #[error("resource of {watched} is not watched")]
    NotWatched {
        /// The object.
        watched: NamespacedName,
    },
    /// CONNECT changes no object.
    #[error("operation CONNECT not supported for {}/{}, Kind={}", .gvk.group, .gvk.version, .gvk.kind)]
    ConnectNotSupported {
        /// The type that the request names.
        gvk: Gvk,
    },
    /// The request is a dry run.
    #[error("dry run: no event sent")]
    DryRun,
    /// The operation is none of CREATE, UPDATE, DELETE and CONNECT.
    #[error("operation: expected CREATE, UPDATE, DELETE or CONNECT")]
    UnknownOperation,
    /// The object of the operation is absent or null.
    #[error("{side}: missing")]
    ObjectMissing {
        /// The missing object.
        side: Side,
    },
    /// The object is malformed.
    #[error("{side}{part}: malformed")]
    InvalidObject {
        /// The malformed object.
        side: Side,
        /// Path of the malformed field, such as `.metadata.name`; empty for the whole object.
        part: &'static str,
    },
    /// Neither the object nor the request has a name (`generateName` before the name was generated).
    #[error("{side}: name is missing, in the request too")]
    NameMissing {
        /// The object without a name.
        side: Side,
    },
    /// Neither the object nor the request has a usable version and kind.
    #[error("{side}: version and kind are missing, in the request too")]
    KindMissing {
        /// The object without version and kind.
        side: Side,
    },
    /// Name, namespace, group, version and kind are together longer than a listener accepts.
    #[error("name and type of the object are {bytes} bytes long")]
    NameTooLong {
        /// Their total length in bytes.
        bytes: usize,
    },
}

/// One of the two objects of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "camelCase")]
pub enum Side {
    /// The new object.
    Object,
    /// The stored object.
    OldObject,
}

impl SkipReason {
    /// Returns the code in metrics, logs and reports: the name of the variant.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.into()
    }

    /// Returns whether a change may be missed. No API server sends such a review. Objects without a name, such as a
    /// `TokenReview`, are not stored.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        match self {
            Self::UnknownOperation
            | Self::ObjectMissing { .. }
            | Self::InvalidObject { .. }
            | Self::KindMissing { .. }
            | Self::NameTooLong { .. } => true,
            Self::NoChange { .. }
            | Self::NameMissing { .. }
            | Self::InvalidSubresource { .. }
            | Self::NotWatched { .. }
            | Self::ConnectNotSupported { .. }
            | Self::DryRun => false,
        }
    }
}
