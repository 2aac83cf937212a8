//! KCP's certificate, where it is the authority itself.
//!
//! The public gateway serves with the very certificate that signs the watchers'. Go's TLS
//! takes that; rustls does not, since an authority is no server. It is taken here, too: the holder of that key could sign
//! any server's certificate. Invariant: the exception holds for a certificate that is, byte for byte, one of the bundle, in its time, for its names, and not
//! restricted to something else than serving; all others go through the library's own verifier. That the peer has
//! its key is proved by the handshake as ever.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::parse_x509_certificate;

use super::material::{Validity, validity};

#[derive(Debug)]
pub(super) struct AuthorityAsLeaf {
    authorities: Vec<CertificateDer<'static>>,
    chains: Arc<WebPkiServerVerifier>,
}

impl AuthorityAsLeaf {
    pub(super) fn new(
        authorities: Vec<CertificateDer<'static>>,
        chains: Arc<WebPkiServerVerifier>,
    ) -> Self {
        Self {
            authorities,
            chains,
        }
    }
}

impl ServerCertVerifier for AuthorityAsLeaf {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.authorities.iter().any(|it| it == end_entity) {
            return self.chains.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            );
        }
        let (_, parsed) = parse_x509_certificate(end_entity)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        may_serve(&parsed, now).map_err(Error::InvalidCertificate)?;
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

fn may_serve(certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), CertificateError> {
    match validity(
        certificate,
        SystemTime::UNIX_EPOCH + Duration::from_secs(now.as_secs()),
    ) {
        Validity::Until(_) => {}
        Validity::Over => return Err(CertificateError::Expired),
        Validity::ToCome => return Err(CertificateError::NotValidYet),
    }
    let usage = certificate
        .extended_key_usage()
        .map_err(|_| CertificateError::BadEncoding)?;
    if usage.is_none_or(|usage| usage.value.any || usage.value.server_auth) {
        Ok(())
    } else {
        Err(CertificateError::InvalidPurpose)
    }
}
