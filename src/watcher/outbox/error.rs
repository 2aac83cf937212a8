//! Why the disk is not in use.

use std::io::{self, ErrorKind};

/// What the disk refused. None of it loses an event of a process that lives on: all of it is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpoolError {
    #[error("the spool's folder cannot be opened")]
    Open(#[source] io::Error),
    #[error("another process uses the spool's folder")]
    Held,
    #[error("the spool's folder cannot be listed")]
    List(#[source] io::Error),
    #[error("a new segment cannot be created")]
    Create(#[source] io::Error),
    #[error("a segment takes no more records")]
    Append(#[source] io::Error),
    #[error("the disk does not answer")]
    Stalled,
    #[error("the thread that writes cannot be started")]
    Thread(#[source] io::Error),
    #[error("the spool has all the bytes that it may have, and its compaction has not ended")]
    Full,
    #[error("what was written cannot be made to last")]
    Sync(#[source] io::Error),
    #[error("what is to be told cannot be written as a whole")]
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
