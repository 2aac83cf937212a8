//! The authority of the bench: who believes whom, and how a gateway tells of it.
//!
//! Invariant: all keys are ECDSA P-256, as in the bench of admission. Deliberately absent: rotation, and sessions that are
//! resumed: a handshake that is counted is a whole one.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Signs for everybody who takes part.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) pem: String,
}

/// A certificate with its key; told to a process that plays a part.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Leaf {
    pub(super) pem: String,
    pub(super) key_pem: String,
}

impl Authority {
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);
        Ok(Self { issuer, pem })
    }

    /// For loopback, in the name of `common_name`.
    pub(super) fn leaf(&self, common_name: &str) -> anyhow::Result<Leaf> {
        let mut params = CertificateParams::new(vec![HOST.to_owned(), NAME.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        Ok(Leaf {
            pem: params.signed_by(&key, &self.issuer)?.pem(),
            key_pem: key.serialize_pem(),
        })
    }
}

impl Leaf {
    pub(super) fn der(&self) -> anyhow::Result<CertificateDer<'static>> {
        CertificateDer::from_pem_slice(self.pem.as_bytes()).context("a certificate")
    }

    fn key(&self) -> anyhow::Result<PrivateKeyDer<'static>> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).context("a key")
    }
}

/// Of who connects: believes the authority, and shows `leaf` if there is one.
pub(super) fn client(authority: &str, leaf: Option<&Leaf>) -> anyhow::Result<Arc<ClientConfig>> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots(authority)?);
    let mut config = match leaf {
        Some(leaf) => builder.with_client_auth_cert(vec![leaf.der()?], leaf.key()?)?,
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// What checks certificates of the authority.
pub(super) fn verifier(authority: &str) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let roots = Arc::new(roots(authority)?);
    Ok(WebPkiClientVerifier::builder_with_provider(roots, provider).build()?)
}

/// Of who is connected to: shows `leaf`, and wants to see a certificate of the authority.
pub(super) fn server(authority: &str, leaf: &Leaf) -> anyhow::Result<Arc<ServerConfig>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier(authority)?)
        .with_single_cert(vec![leaf.der()?], leaf.key()?)?;
    Ok(Arc::new(config))
}

/// The line that a gateway puts into the requests of this client (`SANITIZE_SET`, with `cert` and `subject`).
pub(super) fn forwarded(client: &CertificateDer<'_>, common_name: &str) -> String {
    let hash = Sha256::digest(client)
        .iter()
        .fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
    let base64 = BASE64.encode(client);
    let lines: Vec<&str> = (0..base64.len())
        .step_by(LINE)
        .map(|begin| &base64[begin..(begin + LINE).min(base64.len())])
        .collect();
    let pem = format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    );
    let certificate = url_encoded(&pem);
    format!(
        "x-forwarded-client-cert: Hash={hash};Cert=\"{certificate}\";Subject=\"CN={common_name}\"\r\n"
    )
}

fn url_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

fn roots(authority: &str) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    Ok(roots)
}

/// Where everything is.
pub(super) const HOST: &str = "127.0.0.1";
/// Beside it: what API servers ask for.
pub(super) const NAME: &str = "localhost";
const LINE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_forwarded_as_envoy_does_it() {
        let line = forwarded(&CertificateDer::from(vec![0_u8; 60]), "a");
        assert!(line.starts_with("x-forwarded-client-cert: Hash="), "{line}");
        assert!(
            line.contains("Cert=\"-----BEGIN%20CERTIFICATE-----%0AAAAA"),
            "{line}"
        );
        assert!(line.contains("AAAA%0AAAAA"), "lines of 64: {line}");
        assert!(
            line.ends_with("-----END%20CERTIFICATE-----%0A\";Subject=\"CN=a\"\r\n"),
            "{line}"
        );
    }
}
