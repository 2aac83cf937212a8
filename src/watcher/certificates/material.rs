//! From the content of the files to TLS configurations of both directions. Each is fresh, so that no session is resumed
//! across a change of certificates.

use std::error::Error;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::CertificateDer;
use serve::pair::{CertificatePair, PairError, Validity, certificates_from_pem};

use super::server_leaf::CaAsServerLeafVerifier;

const HTTP_1: &[u8] = b"http/1.1";

/// The three files, by the environment variables that name them: the authorities of KCP.
pub(super) const CA_CERT: &str = "CA_CERT";
/// The watcher's certificate, as server and as client.
pub(super) const TLS_CERT: &str = "TLS_CERT";
/// Its key.
pub(super) const TLS_KEY: &str = "TLS_KEY";

/// Why the certificates cannot be used. Nothing of a file's content is in it.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The files were not read so far.
    #[error("certificate files not read yet")]
    Unread,
    /// A file was not read, or its content cannot be used; it is named by its environment variable.
    #[error("file of {0}")]
    File(
        &'static str,
        #[source] Box<dyn Error + Send + Sync + 'static>,
    ),
}

impl From<PairError> for CertificateError {
    fn from(error: PairError) -> Self {
        let file = if error.is_of_key() { TLS_KEY } else { TLS_CERT };
        Self::File(file, error.into())
    }
}

/// The certificates by which KCP is known.
pub(super) struct Authorities {
    certificates: Vec<CertificateDer<'static>>,
    roots: RootCertStore,
    /// Certificates of the bundle that are of no use (expired, or not X.509).
    pub(super) skipped: usize,
}

impl Authorities {
    /// Takes every certificate of the bundle that is of use, as the public watcher does: during a rotation the old and
    /// the new one stand in it.
    pub(super) fn read(bundle: &[u8], now: SystemTime) -> Result<Self, PairError> {
        let mut fault = PairError::NoCertificate;
        let mut authorities = Self {
            certificates: Vec::new(),
            roots: RootCertStore::empty(),
            skipped: 0,
        };
        for certificate in certificates_from_pem(bundle)? {
            if let Err(error) = authorities.add(certificate, now) {
                fault = error;
                authorities.skipped += 1;
            }
        }
        if authorities.certificates.is_empty() {
            return Err(fault);
        }
        Ok(authorities)
    }

    fn add(
        &mut self,
        certificate: CertificateDer<'static>,
        now: SystemTime,
    ) -> Result<(), PairError> {
        match Validity::of(&certificate)?.check(now) {
            // The bundle is not read again when the time of one of its certificates comes.
            Ok(()) | Err(PairError::NotYetValid) => {}
            Err(error) => return Err(error),
        }
        let added = self.roots.add(certificate.clone());
        added.map_err(PairError::Rejected)?;
        self.certificates.push(certificate);
        Ok(())
    }
}

/// For API servers: TLS 1.3 and nothing else, no client certificate.
pub(super) fn server_config(pair: &CertificatePair) -> Result<ServerConfig, PairError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(PairError::Rejected)?
        .with_no_client_auth()
        .with_cert_resolver(pair.resolver());
    config.alpn_protocols = vec![HTTP_1.to_vec()];
    Ok(config)
}

/// For KCP: the pair is shown, and only `authorities` are trusted, never the system's.
pub(super) fn client_config(
    pair: &CertificatePair,
    authorities: Authorities,
) -> Result<ClientConfig, PairError> {
    let roots = Arc::new(authorities.roots);
    let chains = WebPkiServerVerifier::builder_with_provider(roots, provider())
        .build()
        .map_err(|error| PairError::Rejected(rustls::Error::General(error.to_string())))?;
    let verifier = CaAsServerLeafVerifier {
        authorities: authorities.certificates,
        chains,
    };
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(PairError::Rejected)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(pair.resolver());
    config.alpn_protocols = vec![HTTP_1.to_vec()];
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
