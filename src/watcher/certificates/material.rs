//! Conversion of the content of the files to TLS configurations for both directions. Each configuration is new, so that no
//! session is resumed after a change of certificates.

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

/// Environment variable with the path of the CA bundle of KCP.
pub(super) const CA_CERT: &str = "CA_CERT";
/// Environment variable with the path of the certificate of the watcher, which is used as server and as client certificate.
pub(super) const TLS_CERT: &str = "TLS_CERT";
/// Environment variable with the path of the key of this certificate.
pub(super) const TLS_KEY: &str = "TLS_KEY";

/// Reason why the certificates cannot be used. Errors contain no content of a file.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The files have not been read yet.
    #[error("certificate files not read yet")]
    Unread,
    /// A file could not be read, or its content is not usable. The error contains the environment variable of the file.
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

/// The CA certificates that are trusted for KCP.
pub(super) struct Authorities {
    certificates: Vec<CertificateDer<'static>>,
    roots: RootCertStore,
    /// Number of unusable certificates in the bundle (expired, or not X.509).
    pub(super) skipped: usize,
}

impl Authorities {
    /// Reads all usable certificates of the bundle, as the public watcher does. During a rotation the bundle contains the
    /// old and the new CA.
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
            // A certificate that is not valid yet is kept, because the bundle is not read again when its validity starts.
            Ok(()) | Err(PairError::NotYetValid) => {}
            Err(error) => return Err(error),
        }
        let added = self.roots.add(certificate.clone());
        added.map_err(PairError::Rejected)?;
        self.certificates.push(certificate);
        Ok(())
    }
}

/// Returns the TLS configuration for API servers: TLS 1.3 only, no client certificate.
pub(super) fn server_config(pair: &CertificatePair) -> Result<ServerConfig, PairError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(PairError::Rejected)?
        .with_no_client_auth()
        .with_cert_resolver(pair.resolver());
    config.alpn_protocols = vec![HTTP_1.to_vec()];
    Ok(config)
}

/// Returns the TLS configuration for KCP. It presents the pair, and trusts only `authorities`, not the CAs of the system.
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
