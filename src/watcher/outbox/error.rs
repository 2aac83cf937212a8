//! Why the disk is not in use.

use std::io::{self, ErrorKind};

/// What the disk refused. None of it loses an event of a process that lives on: all of it is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpoolError {
    #[error("failed to open the spool directory")]
    Open(#[source] io::Error),
    #[error("spool directory is in use by another process")]
    Held,
    #[error("failed to list the spool directory")]
    List(#[source] io::Error),
    #[error("failed to create a segment")]
    Create(#[source] io::Error),
    #[error("failed to write to a segment")]
    Append(#[source] io::Error),
    #[error("write to the disk timed out")]
    Stalled,
    #[error("failed to start the writer thread")]
    Thread(#[source] io::Error),
    #[error("spool is full and its compaction is running")]
    Full,
    #[error("failed to sync the spool to disk")]
    Sync(#[source] io::Error),
    #[error("failed to encode a record")]
    Compact(#[source] io::Error),
}

impl SpoolError {
    pub(super) fn opening(error: io::Error) -> Self {
        if error.kind() == ErrorKind::WouldBlock {
            Self::Held
        } else {
            Self::Open(error)
        }
    }

    /// Whether the folder itself is gone, so that its path must be opened anew.
    pub(super) fn folder_is_gone(&self) -> bool {
        match self {
            Self::Held | Self::Full | Self::Stalled | Self::Thread(_) => false,
            Self::Open(error)
            | Self::List(error)
            | Self::Create(error)
            | Self::Append(error)
            | Self::Sync(error)
            | Self::Compact(error) => matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::StaleNetworkFileHandle
            ),
        }
    }
}
