//! One certificate authority for all programs of a bench, and the header in which a gateway forwards a certificate.
//!
//! All keys are ECDSA P-256. TLS sessions are not resumed: a handshake that is counted is a whole one.

use std::fmt::Write as _;
use std::path::Path;
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
use sha2::{Digest as _, Sha256};

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate with its key.
pub(crate) struct Leaf {
    pem: String,
    key_pem: String,
}

impl Authority {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);
        Ok(Self { issuer, pem })
    }

    /// A certificate for [`NAME`] and loopback with this common name.
    pub(crate) fn leaf(&self, common_name: &str) -> anyhow::Result<Leaf> {
        let key = KeyPair::generate()?;
        Ok(Leaf {
            pem: self.sign(common_name, &key)?.pem(),
            key_pem: key.serialize_pem(),
        })
    }

    /// A certificate with this common name for each, of one key.
    pub(crate) fn certificates(
        &self,
        common_names: impl Iterator<Item = String>,
    ) -> anyhow::Result<Vec<CertificateDer<'static>>> {
        let key = KeyPair::generate()?;
        let sign = |name: String| Ok(self.sign(&name, &key)?.der().clone());
        common_names.map(sign).collect()
    }

    fn sign(&self, common_name: &str, key: &KeyPair) -> anyhow::Result<rcgen::Certificate> {
        let mut params = CertificateParams::new([NAME.to_owned(), "127.0.0.1".to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        Ok(params.signed_by(key, &self.issuer)?)
    }

    /// Of a client that trusts the authority and presents `leaf`, if any.
    pub(crate) fn client(&self, leaf: Option<&Leaf>) -> anyhow::Result<Arc<ClientConfig>> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(self.roots()?);
        let mut config = match leaf {
            Some(leaf) => builder.with_client_auth_cert(vec![leaf.der()?], leaf.key()?)?,
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    /// Of a server that presents `leaf` and requires a certificate of the authority.
    pub(crate) fn server(&self, leaf: &Leaf) -> anyhow::Result<Arc<ServerConfig>> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(self.verifier()?)
            .with_single_cert(vec![leaf.der()?], leaf.key()?)?;
        Ok(Arc::new(config))
    }

    /// Verifies certificates of the authority.
    pub(crate) fn verifier(&self) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let roots = Arc::new(self.roots()?);
        Ok(WebPkiClientVerifier::builder_with_provider(roots, provider).build()?)
    }

    /// Writes `ca.crt`, and `tls.crt` and `tls.key` of the leaf.
    pub(crate) fn write(&self, leaf: &Leaf, folder: &Path) -> anyhow::Result<()> {
        let files = [
            ("ca.crt", &self.pem),
            ("tls.crt", &leaf.pem),
            ("tls.key", &leaf.key_pem),
        ];
        for (file, content) in files {
            std::fs::write(folder.join(file), content).context(file)?;
        }
        Ok(())
    }

    fn roots(&self) -> anyhow::Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes())?)?;
        Ok(roots)
    }
}

impl Leaf {
    fn der(&self) -> anyhow::Result<CertificateDer<'static>> {
        CertificateDer::from_pem_slice(self.pem.as_bytes()).context("a certificate")
    }

    fn key(&self) -> anyhow::Result<PrivateKeyDer<'static>> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).context("a key")
    }
}

/// The header line of a gateway for requests of this client (Envoy, `SANITIZE_SET` with `cert` and `subject`).
pub(crate) fn forwarded(client: &CertificateDer<'_>, common_name: &str) -> String {
    let hash = Sha256::digest(client)
        .iter()
        .fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
    let base64 = BASE64.encode(client);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for begin in (0..base64.len()).step_by(64) {
        pem += &base64[begin..(begin + 64).min(base64.len())];
        pem.push('\n');
    }
    pem += "-----END CERTIFICATE-----\n";
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
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

/// The server name of every certificate: that of the webhook's Service, which the webhook requires of its own.
pub(crate) const NAME: &str = "rt-bootstrapper-webhook-service.kyma-system.svc";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_is_forwarded_as_envoy_does_it() {
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
