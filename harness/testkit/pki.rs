//! Certificate authorities and certificates for tests, and TLS configurations of servers and clients.
//!
//! By default certificates are valid from 2020 to 2100, for the names `127.0.0.1` and `localhost`, and for servers and clients.
//! Functions return [`rcgen::Error`] or a rustls error only if a test sets invalid parameters.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use rcgen;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A certificate with its key.
#[derive(Debug)]
pub struct Leaf {
    /// Certificate in DER.
    pub der: CertificateDer<'static>,
    /// Certificate in PEM.
    pub pem: String,
    /// Private key.
    pub key: KeyPair,
}

/// A certificate authority.
#[derive(Debug)]
pub struct Authority {
    /// Certificate of the authority.
    pub certificate: Leaf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates a self-signed CA with this common name.
    pub fn new(common_name: &str) -> Result<Self, rcgen::Error> {
        Self::with(common_name, |_| ())
    }

    /// Creates a self-signed CA with changed parameters.
    pub fn with(
        common_name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Result<Self, rcgen::Error> {
        Self::signed_with(KeyPair::generate()?, common_name, change)
    }

    fn signed_with(
        key: KeyPair,
        common_name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Result<Self, rcgen::Error> {
        let mut params = params(common_name, &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        change(&mut params);
        let certificate = params.self_signed(&key)?;
        let own_key = KeyPair::from_pem(&key.serialize_pem())?;
        Ok(Self {
            certificate: Leaf::new(&certificate, own_key),
            issuer: Issuer::new(params, key),
        })
    }

    /// Creates a CA with this common name and a known key in PEM. Its certificate is new, but all certificates with this name
    /// and key verify the certificates that it signs.
    pub fn of_key(common_name: &str, key: &str) -> Result<Self, rcgen::Error> {
        Self::signed_with(KeyPair::from_pem(key)?, common_name, |_| ())
    }

    /// Returns the certificate of the CA in PEM.
    pub fn pem(&self) -> &str {
        &self.certificate.pem
    }

    /// Creates a certificate with this common name.
    pub fn leaf(&self, common_name: &str) -> Result<Leaf, rcgen::Error> {
        self.leaf_with(common_name, |_| ())
    }

    /// Creates a certificate with changed parameters.
    pub fn leaf_with(
        &self,
        common_name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Result<Leaf, rcgen::Error> {
        self.leaf_of(KeyPair::generate()?, common_name, change)
    }

    /// Creates a certificate for an existing key.
    pub fn leaf_of(
        &self,
        key: KeyPair,
        common_name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Result<Leaf, rcgen::Error> {
        let mut params = params(common_name, &["127.0.0.1", "localhost"])?;
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Leaf::new(&certificate, key))
    }

    /// Returns a root store with this CA only.
    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        // A certificate from this module can be parsed.
        let _ = roots.add(self.certificate.der.clone());
        roots
    }

    /// Returns a verifier for client certificates of this CA.
    pub fn client_verifier(
        &self,
    ) -> Result<Arc<dyn ClientCertVerifier>, rustls::server::VerifierBuilderError> {
        client_verifier(self.roots())
    }
}

impl Leaf {
    fn new(certificate: &Certificate, key: KeyPair) -> Self {
        let (der, pem) = (certificate.der().clone(), certificate.pem());
        Self { der, pem, key }
    }

    /// Returns the key in the type of rustls.
    pub fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }

    /// Returns the key in PEM.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Returns the configuration of a server with this certificate and these ALPN protocols. With a CA the server requires a
    /// client certificate of this CA.
    pub fn server_config(
        &self,
        alpn: &[&str],
        clients: Option<&Authority>,
    ) -> Result<ServerConfig, rustls::Error> {
        self.server_config_of(alpn, clients.map(Authority::roots))
    }

    /// Returns the same configuration for clients of several CAs.
    pub fn server_config_of(
        &self,
        alpn: &[&str],
        clients: Option<RootCertStore>,
    ) -> Result<ServerConfig, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?;
        let builder = match clients.map(client_verifier) {
            Some(verifier) => builder.with_client_cert_verifier(
                verifier.map_err(|error| rustls::Error::General(error.to_string()))?,
            ),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(vec![self.der.clone()], self.key_der())?;
        config.alpn_protocols = protocols(alpn);
        Ok(config)
    }
}

fn client_verifier(
    roots: RootCertStore,
) -> Result<Arc<dyn ClientCertVerifier>, rustls::server::VerifierBuilderError> {
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    builder.build()
}

/// Returns the configuration of a client that trusts these roots and has an optional client certificate.
pub fn client_config(
    roots: RootCertStore,
    certificate: Option<&Leaf>,
    alpn: &[&str],
) -> Result<ClientConfig, rustls::Error> {
    client_config_of(rustls::DEFAULT_VERSIONS, roots, certificate, alpn)
}

/// Returns the configuration of a client with these versions of TLS.
pub fn client_config_of(
    versions: &[&'static SupportedProtocolVersion],
    roots: RootCertStore,
    certificate: Option<&Leaf>,
    alpn: &[&str],
) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)?
        .with_root_certificates(roots);
    let mut config = match certificate {
        Some(leaf) => builder.with_client_auth_cert(vec![leaf.der.clone()], leaf.key_der())?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = protocols(alpn);
    Ok(config)
}

fn protocols(alpn: &[&str]) -> Vec<Vec<u8>> {
    alpn.iter().map(|it| it.as_bytes().to_vec()).collect()
}

/// Returns the crypto provider of all tests: aws-lc, as in the product.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Sets a validity period in the past.
pub fn expired(params: &mut CertificateParams) {
    params.not_after = date_time_ymd(2021, 1, 1);
}

/// Sets a validity period in the future.
pub fn not_yet_valid(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2099, 1, 1);
}

/// Returns a time in January 2027, at which certificates are valid unless they are [`expired`] or [`not_yet_valid`].
pub fn today() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(500_000)
}

fn params(common_name: &str, names: &[&str]) -> Result<CertificateParams, rcgen::Error> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2100, 1, 1);
    Ok(params)
}
