//! From PEM to TLS configurations of both directions.
//!
//! Invariant: what comes out of here can make a handshake now: the key belongs to the certificate and the dates hold. Each
//! configuration is fresh, so that no session is resumed across a change of certificates. The provider is always named,
//! never the process default.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, InconsistentKeys, RootCertStore, ServerConfig};
use rustls_pki_types::pem::{PemObject, SectionKind};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::parse_x509_certificate;

use super::error::{CertificateError, CertificateFile};
use super::server_leaf::AuthorityAsLeaf;

const HTTP_1: &[u8] = b"http/1.1";

/// The watcher's certificate and key.
pub(super) struct Pair {
    key: Arc<CertifiedKey>,
    /// When the certificate expires.
    pub(super) not_after: SystemTime,
}

/// Whom to believe to be KCP.
pub(super) struct Authorities {
    certificates: Vec<CertificateDer<'static>>,
    roots: RootCertStore,
    /// Certificates of the bundle that are of no use (expired, or not X.509).
    pub(super) skipped: usize,
}

impl Pair {
    pub(super) fn read(
        certificate: &[u8],
        key: &[u8],
        now: SystemTime,
    ) -> Result<Self, CertificateError> {
        let file = CertificateFile::Certificate;
        let chain: Vec<CertificateDer<'static>> = sections(file, certificate)?;
        let leaf = chain.first().ok_or(CertificateError::NoCertificate(file))?;
        let (_, leaf) =
            parse_x509_certificate(leaf).map_err(|_| CertificateError::Malformed(file))?;
        let not_after = match validity(&leaf, now) {
            Validity::Until(not_after) => not_after,
            Validity::Over => return Err(CertificateError::Expired(file)),
            Validity::ToCome => return Err(CertificateError::NotYetValid(file)),
        };
        let key = private_key(key)?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                CertificateError::Mismatched
            }
            other => CertificateError::Refused(other),
        })?;
        Ok(Self {
            key: Arc::new(key),
            not_after,
        })
    }

    /// For API servers: TLS 1.3 and nothing else, no client certificate.
    pub(super) fn server_config(&self) -> Result<ServerConfig, CertificateError> {
        let resolver = Arc::new(SingleCertAndKey::from(self.key.clone()));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(CertificateError::Refused)?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![HTTP_1.to_vec()];
        Ok(config)
    }

    /// For KCP: this certificate is shown, and only `authorities` are believed, never the system's.
    pub(super) fn client_config(
        &self,
        authorities: Authorities,
    ) -> Result<ClientConfig, CertificateError> {
        let Authorities {
            certificates,
            roots,
            ..
        } = authorities;
        let refused = |error: rustls::client::VerifierBuilderError| {
            CertificateError::Refused(rustls::Error::General(error.to_string()))
        };
        let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(refused)?;
        let verifier = AuthorityAsLeaf::new(certificates, chains);
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(CertificateError::Refused)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let resolver = Arc::new(SingleCertAndKey::from(self.key.clone()));
        let mut config = builder.with_client_cert_resolver(resolver);
        config.alpn_protocols = vec![HTTP_1.to_vec()];
        Ok(config)
    }
}

impl Authorities {
    /// Takes every certificate of the bundle that is of use, as the public watcher does: during a rotation the old and
    /// the new one stand in it.
    pub(super) fn read(bundle: &[u8], now: SystemTime) -> Result<Self, CertificateError> {
        let file = CertificateFile::Authorities;
        let found: Vec<CertificateDer<'static>> = sections(file, bundle)?;
        let mut fault = CertificateError::NoCertificate(file);
        let mut authorities = Self {
            certificates: Vec::new(),
            roots: RootCertStore::empty(),
            skipped: 0,
        };
        for certificate in found {
            match authorities.add(certificate, now) {
                Ok(()) => {}
                Err(error) => {
                    fault = error;
                    authorities.skipped += 1;
                }
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
    ) -> Result<(), CertificateError> {
        let file = CertificateFile::Authorities;
        let (_, parsed) =
            parse_x509_certificate(&certificate).map_err(|_| CertificateError::Malformed(file))?;
        // One that is yet to come is kept: nobody reads the bundle again when its time has come.
        if validity(&parsed, now) == Validity::Over {
            return Err(CertificateError::Expired(file));
        }
        self.roots
            .add(certificate.clone())
            .map_err(CertificateError::Refused)?;
        self.certificates.push(certificate);
        Ok(())
    }
}

/// Where a moment lies to a certificate's dates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Validity {
    Until(SystemTime),
    Over,
    ToCome,
}

/// Both dates are part of the time between them.
pub(super) fn validity(certificate: &X509Certificate<'_>, now: SystemTime) -> Validity {
    // A clock before 1970 is wrong; at 1970 no certificate holds.
    let now = now.duration_since(SystemTime::UNIX_EPOCH);
    let now = i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(i64::MAX);
    let dates = certificate.validity();
    if now > dates.not_after.timestamp() {
        return Validity::Over;
    }
    if now < dates.not_before.timestamp() {
        return Validity::ToCome;
    }
    let until = u64::try_from(dates.not_after.timestamp()).unwrap_or_default();
    Validity::Until(SystemTime::UNIX_EPOCH + Duration::from_secs(until))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn sections<T: PemObject>(file: CertificateFile, pem: &[u8]) -> Result<Vec<T>, CertificateError> {
    T::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|_| CertificateError::HalfWritten(file))
}

/// The first private key, in whatever format it is: the label may lie, as the public watcher's own tests have it.
fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, CertificateError> {
    let keys: Vec<(SectionKind, Vec<u8>)> = sections(CertificateFile::Key, pem)?;
    let key = keys.into_iter().find(|(kind, _)| {
        use SectionKind::{EcPrivateKey, PrivateKey, RsaPrivateKey};
        matches!(kind, PrivateKey | RsaPrivateKey | EcPrivateKey)
    });
    let (_, der) = key.ok_or(CertificateError::NoKey)?;
    PrivateKeyDer::try_from(der).map_err(|_| CertificateError::NoKey)
}
