//! The serving certificate in files, for installations with an issuer of their own.

use std::io;
use std::path::Path;
use std::time::Duration;

use chassis::telemetry::error_chain;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::{Material, Observed, StoredCertificate};

/// The kubelet takes about a minute to update a mounted Secret.
const INTERVAL: Duration = Duration::from_secs(10);

/// Reads `tls.crt`, `tls.key` and `ca.crt` of the directory every 10 s and compares the content: a mounted Secret changes
/// by a swap of symbolic links above the files, which no watch on the files would tell. Never ends.
///
/// `ca.crt` need not exist: then another client writes the `caBundle`. Files that are read during a swap do not match;
/// no replica serves them, and they match at the next reading.
pub(super) async fn watch_files(
    directory: &Path,
    certificate: &watch::Sender<Observed<StoredCertificate>>,
) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut logged = None;
    loop {
        ticks.tick().await;
        let read = read(directory).await;
        let failure = read.as_ref().err().map(|error| error_chain(error));
        if let Some(error) = &failure
            && logged != failure
        {
            let directory = directory.display();
            tracing::warn!(%directory, error, "failed to read certificate files");
        }
        logged = failure;
        let found = read.ok().map(StoredCertificate::from);
        certificate.send_if_modified(|known| {
            let unchanged =
                matches!((&*known, &found), (Observed::Present(old), Some(new)) if **old == *new);
            if !unchanged {
                *known = found.into();
            }
            !unchanged
        });
    }
}

async fn read(directory: &Path) -> io::Result<Material> {
    let file = |name| tokio::fs::read(directory.join(name));
    let authorities = match file("ca.crt").await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    Ok(Material {
        chain: file("tls.crt").await?,
        key: file("tls.key").await?,
        authorities,
    })
}

#[cfg(test)]
mod tests;
