//! The serving certificate out of files, for installations with an issuer of their own.
//!
//! Read again and again and compared by content: a mounted Secret changes by a swap of symbolic links above the files,
//! which no watch on the files themselves would tell. Invariant: nothing is judged here. Files read in the middle of a
//! swap do not match, are not taken into use by anyone, and match at the next reading.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use chassis::telemetry::error_chain;
use tokio::time::{MissedTickBehavior, interval};

use super::Material;
use super::observe::{Cell, Sighting};

/// The kubelet takes about a minute to bring a changed Secret; ten seconds more do not matter.
const EVERY: Duration = Duration::from_secs(10);

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The directory.
    pub directory: PathBuf,
    /// The leaf and its intermediates.
    pub certificate: String,
    /// The leaf's key.
    pub key: String,
    /// The CAs that callers should trust. Need not exist: then the `caBundle` is somebody else's business.
    pub authorities: String,
}

impl CertificateFiles {
    /// With the names that a mounted `kubernetes.io/tls` Secret gives.
    #[must_use]
    pub fn in_directory(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            certificate: "tls.crt".to_owned(),
            key: "tls.key".to_owned(),
            authorities: "ca.crt".to_owned(),
        }
    }

    async fn read(&self) -> io::Result<Material> {
        let file = |name: &str| tokio::fs::read(self.directory.join(name));
        let authorities = match file(&self.authorities).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        Ok(Material {
            chain: file(&self.certificate).await?,
            key: file(&self.key).await?,
            authorities,
        })
    }
}

/// Reads the files every 10 s, for ever.
pub async fn watch_files(files: CertificateFiles, cell: Cell<Material>) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = None;
    loop {
        ticks.tick().await;
        let read = files.read().await;
        let problem = read.as_ref().err().map(|error| error_chain(error));
        if let Some(error) = &problem
            && told != problem
        {
            let directory = files.directory.display();
            tracing::warn!(%directory, error, "failed to read certificate files");
        }
        told = problem;
        let unchanged = matches!(
            (&cell.seen(), &read),
            (Sighting::Present(known), Ok(found)) if **known == *found
        );
        if !unchanged {
            cell.set(read.ok().into());
        }
    }
}

#[cfg(test)]
mod tests;
