//! Verification of a server certificate of KCP that is itself one of the trusted CA certificates.
//!
//! The public gateway serves with the certificate that signs the certificates of watchers. The TLS library of Go accepts
//! that. `rustls` rejects it, because a CA is not a server. The watcher accepts it too, because the holder of that key
//! could sign any server certificate. The exception applies to a certificate that is byte for byte in the bundle, is
//! currently valid, matches the server name, and is not restricted to a use other than serving. The verifier of the library
//! checks all other certificates.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serve::pair::{PairError, Validity};
use x509_parser::parse_x509_certificate;

#[derive(Debug)]
pub(super) struct CaAsServerLeafVerifier {
    pub(super) authorities: Vec<CertificateDer<'static>>,
    pub(super) chains: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for CaAsServerLeafVerifier {
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
        may_serve(end_entity, now).map_err(Error::InvalidCertificate)?;
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

fn may_serve(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now.as_secs());
    let valid = Validity::of(certificate).and_then(|validity| validity.check(now));
    valid.map_err(|error| match error {
        PairError::Expired => CertificateError::Expired,
        PairError::NotYetValid => CertificateError::NotValidYet,
        _ => CertificateError::BadEncoding,
    })?;
    let (_, parsed) =
        parse_x509_certificate(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let usage = parsed.extended_key_usage();
    let usage = usage.map_err(|_| CertificateError::BadEncoding)?;
    if usage.is_none_or(|usage| usage.value.any || usage.value.server_auth) {
        Ok(())
    } else {
        Err(CertificateError::InvalidPurpose)
    }
}
