//! Certificates of the watcher, which are reloaded when their files change.
//!
//! One pair of certificate and key has two uses: serving certificate for API servers, and client certificate for KCP. The
//! public watcher reads the pair once for the first use and per event for the second use, so that they differ until a
//! restart. Here both uses follow the files within two polls. Invalid files never replace a valid set, and are logged once.
//! A poll may read files in the middle of a change, so a problem counts when two polls have found it. Serving requires only
//! the pair: with an invalid `CA_CERT`, the watcher still responds to reviews and spools events.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use component_base::files::{self, Fingerprint, fingerprint};
use component_base::telemetry::error_chain;
use rustls::ClientConfig;
use serve::TlsHandle;
use serve::pair::{CertificatePair, PairError};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

pub use self::lapse::CertificateLapse;
use self::material::Authorities;
pub use self::material::CertificateError;
use self::material::{CA_CERT, TLS_CERT, TLS_KEY};

mod lapse;
mod material;
mod server_leaf;

/// Maximum size of a file, in bytes. No Secret can be larger.
pub const FILE_BYTES: usize = 1 << 20;

/// Time between two reads of the files. It is short compared to the kubelet, which needs up to a minute to update a file.
pub const POLL: Duration = Duration::from_secs(2);

/// Resolution of the dates of certificates. The last second belongs to the validity.
const SECOND: Duration = Duration::from_secs(1);

/// Paths of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateOptions {
    /// `CA_CERT`: the bundle of CA certificates. A server certificate of KCP is trusted if one of these CAs issued it. KCP
    /// may also serve with one of these CA certificates itself, as the public gateway does.
    pub authorities: PathBuf,
    /// `TLS_CERT`: the certificate of the watcher and the intermediate certificates.
    pub certificate: PathBuf,
    /// `TLS_KEY`: the key of the certificate, in PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// The active certificates. Clones share them.
#[derive(Clone)]
pub struct Certificates {
    shared: Arc<Shared>,
}

/// The active certificates and the problems of their files, for metrics and readiness.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateReport {
    /// Number of complete sets that have become active.
    pub generation: u64,
    /// End of the validity of the presented certificate; `None` if there is no certificate.
    pub not_after: Option<SystemTime>,
    /// Whether the presented certificate has expired. API servers reject an expired certificate.
    pub expired: bool,
    /// SHA-256 of the active file of `CA_CERT`, in hexadecimal digits; `None` if there is none.
    pub bundle_sha256: Option<String>,
    /// Current problem of the files.
    pub problem: Option<String>,
    /// Number of problems so far.
    pub refusals: u64,
}

/// TLS configuration for requests to KCP, or the reason why there is none. Each set of certificates has a separate configuration.
pub(crate) type OutboundState = Result<Arc<ClientConfig>, Arc<CertificateError>>;

struct Shared {
    options: CertificateOptions,
    tls: TlsHandle,
    outbound: watch::Sender<OutboundState>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The pair that is presented to API servers.
    pair: Option<Fingerprint>,
    /// The bundle that is used for KCP together with this pair.
    bundle: Option<Fingerprint>,
    /// Problem of the files, which is reported if it persists.
    problem: Option<String>,
    report: CertificateReport,
}

impl Certificates {
    /// Reads the files for the first time. A problem of the files is reported and is not an error, because the files may
    /// become valid later.
    #[must_use]
    pub fn load(options: CertificateOptions) -> Self {
        let certificates = Self {
            shared: Arc::new(Shared {
                options,
                tls: TlsHandle::empty(),
                outbound: watch::Sender::new(Err(Arc::new(CertificateError::Unread))),
                state: Mutex::default(),
            }),
        };
        certificates.poll(SystemTime::now());
        certificates
    }

    /// Returns the TLS configuration for API servers: TLS 1.3 only, and empty until the first valid pair.
    #[must_use]
    pub fn tls(&self) -> TlsHandle {
        self.shared.tls.clone()
    }

    /// Returns the active certificates and the problems of their files.
    #[must_use]
    pub fn report(&self) -> CertificateReport {
        self.lock().report.clone()
    }

    /// Reads the files every [`POLL`] until `cancel`.
    pub async fn run(self, cancel: CancellationToken) {
        files::poll(POLL, cancel, move || self.poll(SystemTime::now())).await;
    }

    /// Returns the TLS configuration for KCP, with its changes.
    pub(crate) fn outbound(&self) -> watch::Receiver<OutboundState> {
        self.shared.outbound.subscribe()
    }

    /// Reads the files once.
    pub(crate) fn poll(&self, now: SystemTime) {
        let options = &self.shared.options;
        let certificate = read(TLS_CERT, &options.certificate);
        let key = read(TLS_KEY, &options.key).map(Zeroizing::new);
        let bundle = read(CA_CERT, &options.authorities);
        let mut state = self.lock();
        state.look_at(now);
        let pair = certificate.and_then(|certificate| Ok((certificate, key?)));
        match self.adopt(&mut state, pair, bundle, now) {
            Ok(()) => state.settle(),
            Err(error) => {
                state.refuse(&error);
                self.shared.outbound.send_if_modified(|outbound| {
                    let unusable = outbound.is_err();
                    if unusable {
                        *outbound = Err(Arc::new(error));
                    }
                    unusable
                });
            }
        }
    }

    /// Activates the valid part of the files. The pair comes first, because it does not require the CA bundle.
    fn adopt(
        &self,
        state: &mut State,
        pair: Result<(Vec<u8>, Zeroizing<Vec<u8>>), CertificateError>,
        bundle: Result<Vec<u8>, CertificateError>,
        now: SystemTime,
    ) -> Result<(), CertificateError> {
        let (certificate, key) = pair?;
        let new_pair = Some(fingerprint(&[&certificate, &key]));
        if let Ok(bundle) = &bundle
            && state.pair == new_pair
            && state.bundle == Some(fingerprint(&[bundle]))
            && !state.report.expired
        {
            return Ok(());
        }
        let pair = CertificatePair::from_pem(&certificate, &key)?;
        pair.validity().check(now)?;
        if new_pair != state.pair {
            self.shared.tls.replace(material::server_config(&pair)?);
            state.pair = new_pair;
            state.report.not_after = Some(pair.validity().not_after);
            // The new pair is not used for KCP yet.
            state.bundle = None;
            state.look_at(now);
        }
        let bundle = bundle?;
        let of_bundle = |error: PairError| CertificateError::File(CA_CERT, error.into());
        let authorities = Authorities::read(&bundle, now).map_err(of_bundle)?;
        let skipped = authorities.skipped;
        let config = material::client_config(&pair, authorities).map_err(of_bundle)?;
        state.bundle = Some(fingerprint(&[&bundle]));
        state.report.bundle_sha256 = Some(format!("{:x}", Sha256::digest(&bundle)));
        state.report.generation += 1;
        let generation = state.report.generation;
        tracing::info!(generation, skipped, "certificates reloaded");
        let outbound = Ok(Arc::new(config));
        self.shared.outbound.send_modify(|it| *it = outbound);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn look_at(&mut self, now: SystemTime) {
        let not_after = self.report.not_after;
        self.report.expired = not_after.is_some_and(|last| now >= last + SECOND);
    }

    fn settle(&mut self) {
        self.problem = None;
        if self.report.problem.take().is_some() {
            tracing::info!("certificate files valid again");
        }
    }

    /// Reports a problem once, if it persists for two polls or if there is no active set.
    fn refuse(&mut self, error: &CertificateError) {
        let text = error_chain(error);
        let lasts = self.problem.as_ref() == Some(&text);
        let report = &mut self.report;
        report.problem.take_if(|_| !lasts);
        if report.problem.is_none() && (lasts || report.generation == 0) {
            report.problem = Some(text.clone());
            report.refusals += 1;
            let active = report.generation;
            tracing::error!(error = text, active, "failed to reload certificates");
        }
        self.problem = Some(text);
    }
}

fn read(file: &'static str, path: &Path) -> Result<Vec<u8>, CertificateError> {
    let content = files::read(path, FILE_BYTES);
    content.map_err(|error| CertificateError::File(file, error.into()))
}

#[cfg(test)]
mod tests;
