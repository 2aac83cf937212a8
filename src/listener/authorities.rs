//! Whom the fleet's certificates must be signed by, and the check of one certificate against that.
//!
//! Invariant: a certificate passes only if its chain ends at an authority in force now, its dates hold, and its usages
//! allow client authentication. The check is rustls's own, the one a TLS server would make. Which client has passed is
//! remembered with the authorities that it passed under ([`known`]), so one that is taken away counts no more from the
//! next request on; dates are looked at every time.
//!
//! Deliberately absent: intermediate certificates (the fleet's PKI has one level), revocation lists, and files: the
//! caller watches the bundle and calls [`Authorities::replace`].

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::certificate::ClientCertificate;
use crate::forwarded::Print;
use known::Known;

mod known;

/// Why a bundle is no set of authorities.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    /// Not PEM.
    #[error("CA bundle: not valid PEM")]
    Pem(#[source] pem::Error),
    /// A certificate in it cannot be an authority.
    #[error("CA bundle: unusable certificate")]
    Certificate(#[source] rustls::Error),
    /// There is none in it.
    #[error("CA bundle: no usable certificate")]
    Unusable(#[source] VerifierBuilderError),
}

/// Why a certificate is not believed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChainError {
    #[error("certificate not issued for clients by a trusted CA, or not valid now")]
    Chain(#[source] rustls::Error),
    #[error("key usage of the certificate excludes signatures")]
    Usage,
}

/// The certificate authorities in force. Clones share them.
#[derive(Clone)]
pub struct Authorities {
    current: Arc<ArcSwap<Force>>,
}

/// One bundle.
pub(crate) struct Force {
    verifier: Arc<dyn ClientCertVerifier>,
    known: Known,
}

impl Authorities {
    /// Reads a PEM bundle; during a rotation it holds the old and the new authority.
    ///
    /// # Errors
    /// Not PEM, a certificate that cannot be an authority, or none at all.
    pub fn from_pem(bundle: &[u8]) -> Result<Self, AuthoritiesError> {
        Ok(Self {
            current: Arc::new(ArcSwap::from_pointee(Force::new(chain_verifier(bundle)?))),
        })
    }

    /// Puts another bundle in force, from the next request on.
    ///
    /// # Errors
    /// As [`Authorities::from_pem`]; the old bundle then stays in force.
    pub fn replace(&self, bundle: &[u8]) -> Result<(), AuthoritiesError> {
        let force = Force::new(chain_verifier(bundle)?);
        self.current.store(Arc::new(force));
        Ok(())
    }

    /// Those of one request: its header is looked up and checked under the same.
    pub(crate) fn in_force(&self) -> Arc<Force> {
        self.current.load_full()
    }
}

impl Force {
    fn new(verifier: Arc<dyn ClientCertVerifier>) -> Self {
        Self {
            verifier,
            known: Known::default(),
        }
    }

    /// The client of a header that was believed before, if it is to be believed still.
    pub(crate) fn known(&self, print: &Print, now: SystemTime) -> Option<Arc<ClientCertificate>> {
        self.known.client(
            print,
            i64::try_from(since_1970(now).as_secs()).unwrap_or(i64::MAX),
        )
    }

    /// Whether a client is to be believed; if so, it is remembered by its header.
    pub(crate) fn verify(
        &self,
        print: Print,
        client: ClientCertificate,
        now: SystemTime,
    ) -> Result<Arc<ClientCertificate>, ChainError> {
        if !client.may_sign() {
            return Err(ChainError::Usage);
        }
        let now = UnixTime::since_unix_epoch(since_1970(now));
        self.verifier
            .verify_client_cert(client.der(), &[], now)
            .map_err(ChainError::Chain)?;
        let client = Arc::new(client);
        self.known.add(print, Arc::clone(&client));
        Ok(client)
    }
}

/// A clock before 1970 is wrong; at 1970 no certificate holds.
fn since_1970(now: SystemTime) -> Duration {
    now.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

impl fmt::Debug for Authorities {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Authorities")
            .finish_non_exhaustive()
    }
}

pub(crate) fn chain_verifier(
    bundle: &[u8],
) -> Result<Arc<dyn ClientCertVerifier>, AuthoritiesError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        let certificate = certificate.map_err(AuthoritiesError::Pem)?;
        roots
            .add(certificate)
            .map_err(AuthoritiesError::Certificate)?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(AuthoritiesError::Unusable)
}

#[cfg(test)]
mod tests;
