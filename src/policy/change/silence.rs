//! Why KCP is not told of a review: a typed value that message, metric, log and report all read from.

use std::fmt;

use api::event::{Gvk, NamespacedName};

/// Every reason for silence there is. Its text is the message of the answer; those that the public watcher has, too, are
/// its own, to the letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Silence {
    /// What is looked at is as it was.
    NoChange {
        /// The object.
        watched: NamespacedName,
    },
    /// The Watcher names the resource, but not this subresource of it.
    InvalidSubresource {
        /// The object.
        watched: NamespacedName,
    },
    /// The Watcher does not name the resource: somebody's rules are wider than it.
    NotWatched {
        /// The object.
        watched: NamespacedName,
    },
    /// CONNECT changes nothing.
    Connect {
        /// The type that the request names.
        gvk: Gvk,
    },
    /// The request is a dry run: nothing but the answer may come of it.
    DryRun,
    /// An operation that admission does not have.
    UnknownOperation,
    /// The object that the operation is about is absent or null.
    Missing {
        /// Which one.
        side: Side,
    },
    /// The object does not look like one.
    Unreadable {
        /// Which one.
        side: Side,
        /// What of it is of another type, such as `.metadata.name`; empty: all of it.
        part: &'static str,
    },
    /// Neither the object nor the request has a name (`generateName` before the name was made).
    NoName {
        /// Which object.
        side: Side,
    },
    /// Neither the object nor the request has a usable version and kind.
    NoKind {
        /// Which object.
        side: Side,
    },
    /// Name, namespace, group, version and kind are longer than a listener takes.
    TooLong {
        /// How long they are together.
        bytes: usize,
    },
}

/// One of a request's two objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The object as it would be stored.
    Object,
    /// The object as it is stored.
    OldObject,
}

impl Silence {
    /// The code in metrics, logs and reports: the variant's name.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoChange { .. } => "NoChange",
            Self::InvalidSubresource { .. } => "InvalidSubresource",
            Self::NotWatched { .. } => "NotWatched",
            Self::Connect { .. } => "Connect",
            Self::DryRun => "DryRun",
            Self::UnknownOperation => "UnknownOperation",
            Self::Missing { .. } => "Missing",
            Self::Unreadable { .. } => "Unreadable",
            Self::NoName { .. } => "NoName",
            Self::NoKind { .. } => "NoKind",
            Self::TooLong { .. } => "TooLong",
        }
    }

    /// Whether a change may have gone unseen: the review is one that no API server should send, so somebody should know.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        match self {
            Self::UnknownOperation
            | Self::Missing { .. }
            | Self::Unreadable { .. }
            | Self::NoName { .. }
            | Self::NoKind { .. }
            | Self::TooLong { .. } => true,
            Self::NoChange { .. }
            | Self::InvalidSubresource { .. }
            | Self::NotWatched { .. }
            | Self::Connect { .. }
            | Self::DryRun => false,
        }
    }
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoChange { watched } => {
                write!(f, "no change detected on watched resource {watched}")
            }
            Self::InvalidSubresource { watched } => {
                write!(f, "invalid subresource: watched resource {watched}")
            }
            Self::NotWatched { watched } => write!(f, "no Watcher names the resource of {watched}"),
            Self::Connect { gvk } => write!(
                f,
                "operation CONNECT not supported for {}/{}, Kind={}",
                gvk.group, gvk.version, gvk.kind
            ),
            Self::DryRun => f.write_str("a dry run sends nothing"),
            Self::UnknownOperation => {
                f.write_str("the operation is not CREATE, UPDATE, DELETE or CONNECT")
            }
            Self::Missing { side } => write!(f, "the request has no {side}"),
            Self::Unreadable { side, part } => write!(f, "{side}{part} cannot be read"),
            Self::NoName { side } => write!(f, "neither {side} nor the request has a name"),
            Self::NoKind { side } => {
                write!(f, "neither {side} nor the request has a version and a kind")
            }
            Self::TooLong { bytes } => {
                write!(f, "the object's name and type are {bytes} bytes long")
            }
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Object => "object",
            Self::OldObject => "oldObject",
        })
    }
}
