//! The observed certificate and webhook entry. All tasks of a process share one watch of each. The certificate is in a
//! Secret, or in files for installations with a separate issuer.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use component_base::files::{FileError, poll, read};
use component_base::readiness::ReadinessCheck;
use component_base::telemetry::error_chain;
use component_base::watch::watch_object;
use futures::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::Preconditions;
use serve::pair::{CertificatePair, PairError};

use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::{Bundle, Certificates, ENTRY, SECRET};

/// Interval of reading the files. The kubelet takes about a minute to update a mounted Secret.
const INTERVAL: Duration = Duration::from_secs(10);

/// Maximum size of a file that is read, in bytes. No Secret can be larger.
const FILE_BYTES: usize = 1 << 20;

/// The last observed state of an object. `Unknown` ends with the first complete list and does not recur.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Observed<T> {
    /// Not observed yet.
    #[default]
    Unknown,
    Absent,
    Present(Arc<T>),
}

/// The unverified content of a TLS Secret or of three files. The key has no `Debug` and is zeroized.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Material {
    /// `tls.crt`: the leaf and its intermediate certificates, in PEM.
    pub(crate) chain: Vec<u8>,
    /// `tls.key`: the key of the leaf, in PEM.
    pub(crate) key: Zeroizing<Vec<u8>>,
    /// `ca.crt`: the CAs that API servers should trust, in PEM. May be empty with certificate files.
    pub(crate) authorities: Vec<u8>,
}

/// A certificate that is stored in the Secret or in files. Files have no fields except the material.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct StoredCertificate {
    pub(super) identity: Preconditions,
    /// Type of the Secret, which is immutable.
    pub(super) type_: Option<String>,
    pub(super) immutable: bool,
    /// The three keys or files; empty if a key or file is missing.
    pub(super) material: Material,
}

/// The webhook entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveEntry {
    /// Resource version of the webhook configuration.
    pub(super) resource_version: String,
    /// Index of the entry in `webhooks`, in that version.
    pub(super) index: usize,
    /// The `caBundle`; empty if it is missing.
    pub(super) ca_bundle: Vec<u8>,
}

impl<T> From<Option<T>> for Observed<T> {
    fn from(object: Option<T>) -> Self {
        object.map_or(Self::Absent, |object| Self::Present(Arc::new(object)))
    }
}

impl Material {
    fn in_files(directory: &Path) -> Result<Self, FileError> {
        let file = |name| read(&directory.join(name), FILE_BYTES);
        Ok(Self {
            chain: file("tls.crt")?,
            key: file("tls.key")?.into(),
            authorities: match file("ca.crt") {
                Err(FileError::NotFound) => Vec::new(),
                content => content?,
            },
        })
    }

    /// Parses the pair of certificate and key.
    pub(super) fn pair(&self) -> Result<CertificatePair, PairError> {
        CertificatePair::from_pem(&self.chain, &self.key)
    }
}

impl From<Material> for StoredCertificate {
    fn from(material: Material) -> Self {
        Self {
            material,
            ..Self::default()
        }
    }
}

impl StoredCertificate {
    pub(super) fn read(secret: Secret) -> Self {
        let mut data = secret.data.unwrap_or_default();
        let mut value = |key| data.remove(key).unwrap_or_default().0;
        Self {
            identity: Preconditions {
                uid: secret.metadata.uid,
                resource_version: secret.metadata.resource_version,
            },
            type_: secret.type_,
            immutable: secret.immutable == Some(true),
            material: Material {
                chain: value("tls.crt"),
                key: value("tls.key").into(),
                authorities: value("ca.crt"),
            },
        }
    }
}

impl LiveEntry {
    /// Returns the entry with this name; `None` if the configuration has no such entry.
    pub(super) fn read(configuration: MutatingWebhookConfiguration, name: &str) -> Option<Self> {
        let mut entries = configuration.webhooks.into_iter().flatten().enumerate();
        let (index, entry) = entries.find(|(_, entry)| entry.name == name)?;
        Some(Self {
            resource_version: configuration.metadata.resource_version.unwrap_or_default(),
            index,
            ca_bundle: entry.client_config.ca_bundle.unwrap_or_default().0,
        })
    }
}

/// Returns the CAs that API servers trust: the live `caBundle`, or the future `caBundle` while there is no entry.
pub(crate) fn callers_trust(
    entry: &Observed<LiveEntry>,
    certificate: &Observed<StoredCertificate>,
) -> Bundle {
    match (entry, certificate) {
        (Observed::Present(live), _) => Bundle::read(&live.ca_bundle),
        (Observed::Absent, Observed::Present(stored)) => Bundle::read(&stored.material.authorities),
        (Observed::Absent | Observed::Unknown, _) => Bundle::default(),
    }
}

impl Certificates {
    pub(super) async fn watch_secret(&self, condition: ReadinessCheck) {
        let api = Api::namespaced(self.client.clone(), &self.settings.namespace);
        watch_object(api, SECRET, condition)
            .map(|secret| secret.map(StoredCertificate::read))
            .for_each(async |stored| _ = self.certificate.send_replace(stored.into()))
            .await;
    }

    /// Reads `tls.crt`, `tls.key` and `ca.crt` of the directory every 10 s. Never ends.
    ///
    /// `ca.crt` is optional; without it another client writes the `caBundle`. Files that are read during an update do not
    /// match. No replica serves them, and they match at the next read.
    pub(super) async fn watch_files(&self, directory: &Path) {
        let (directory, certificate) = (directory.to_owned(), self.certificate.clone());
        let logged = Arc::new(Mutex::new(None));
        let look = move || {
            let material = Material::in_files(&directory);
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
        poll(INTERVAL, CancellationToken::new(), look).await;
    }

    pub(super) async fn watch_entry(&self, condition: ReadinessCheck) {
        let api = Api::all(self.client.clone());
        watch_object(api, &self.settings.configuration, condition)
            .map(|found| found.and_then(|it| LiveEntry::read(it, ENTRY)))
            .for_each(async |live| _ = self.entry.send_replace(live.into()))
            .await;
    }
}

#[cfg(test)]
mod files_tests;
#[cfg(test)]
mod tests;
