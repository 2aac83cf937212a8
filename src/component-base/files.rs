//! Small files that may change at any time, such as those of a mounted Secret or `ConfigMap`.
//!
//! The kubelet replaces symbolic links, which a watch on the files would not detect. Therefore the files are read
//! periodically and compared by content. Files that are read one after the other may be of two revisions. The next read
//! corrects that.

use std::fs::{File, metadata};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Reason why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file does not exist.
    #[error("not found")]
    NotFound,
    /// The file is not a regular file; reading a pipe, for instance, would block.
    #[error("not a regular file")]
    NotRegular,
    /// The file exceeds this limit, in bytes.
    #[error("exceeds {0} bytes")]
    TooLarge(usize),
    /// The operating system returned an error.
    #[error("not readable")]
    Io(#[source] io::Error),
}

/// Hash of the content of files, for comparison without a copy of a key in memory.
pub type Fingerprint = [u8; 32];

/// Reads a regular file of at most `limit` bytes. Blocks the thread.
///
/// # Errors
/// [`FileError`].
pub fn read(path: &Path, limit: usize) -> Result<Vec<u8>, FileError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => FileError::NotFound,
        _ => FileError::Io(error),
    };
    let about = metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(FileError::NotRegular);
    }
    // Growing would leave copies of a key in memory.
    let size = usize::try_from(about.len()).unwrap_or(limit);
    let mut content = Vec::with_capacity(size.min(limit));
    let file = File::open(path).map_err(failed)?;
    let mut file = file.take(limit as u64 + 1);
    file.read_to_end(&mut content).map_err(failed)?;
    if content.len() > limit {
        return Err(FileError::TooLarge(limit));
    }
    Ok(content)
}

/// Returns the fingerprint of contents in this order.
#[must_use]
pub fn fingerprint(contents: &[&[u8]]) -> Fingerprint {
    let mut hash = Sha256::new();
    for content in contents {
        hash.update((content.len() as u64).to_be_bytes());
        hash.update(content);
    }
    hash.finalize().into()
}

/// Calls `check` at once and then every `period` until `cancel`, on a thread that may block.
pub async fn poll(
    period: Duration,
    cancel: CancellationToken,
    check: impl Fn() + Clone + Send + 'static,
) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while cancel.run_until_cancelled(ticks.tick()).await.is_some() {
        // An error means that the callback panicked or that the tokio runtime is shutting down.
        let _ = tokio::task::spawn_blocking(check.clone()).await;
    }
}

#[cfg(test)]
mod tests;
