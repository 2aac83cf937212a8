//! The serving certificate in files, for installations with an issuer of their own.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chassis::files::{FileError, poll, read};
use chassis::telemetry::error_chain;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Material, Observed, StoredCertificate};

/// The kubelet takes about a minute to update a mounted Secret.
const INTERVAL: Duration = Duration::from_secs(10);

/// The largest file that is read, in bytes: no Secret can be larger.
const FILE_BYTES: usize = 1 << 20;

/// Reads `tls.crt`, `tls.key` and `ca.crt` of the directory every 10 s until `cancel`.
///
/// `ca.crt` need not exist: then another client writes the `caBundle`. Files that are read during a swap do not match;
/// no replica serves them, and they match at the next reading.
pub(super) async fn watch_files(
    directory: PathBuf,
    certificate: watch::Sender<Observed<StoredCertificate>>,
    cancel: CancellationToken,
) {
    let logged = Arc::new(Mutex::new(None));
    let look = move || {
        let material = material(&directory);
        let failure = material.as_ref().err().map(|error| error_chain(error));
        let mut logged = logged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &failure
            && *logged != failure
        {
            let directory = directory.display();
            tracing::warn!(%directory, error, "failed to read certificate files");
        }
        *logged = failure;
        let found = Observed::from(material.ok().map(StoredCertificate::from));
        certificate.send_if_modified(|known| {
            let changed = *known != found;
            *known = found;
            changed
        });
    };
    poll(INTERVAL, cancel, look).await;
}

fn material(directory: &Path) -> Result<Material, FileError> {
    let file = |name| read(&directory.join(name), FILE_BYTES);
    Ok(Material {
        chain: file("tls.crt")?,
        key: file("tls.key")?,
        authorities: match file("ca.crt") {
            Err(FileError::NotFound) => Vec::new(),
            content => content?,
        },
    })
}

#[cfg(test)]
mod tests;
