//! For tests: a certificate authority and the header that a gateway would write; and, in `running`, a listener and a
//! client that speaks raw bytes.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

pub(crate) use self::running::{Client, Running, forwarded, in_time, options, post, post_to};
use crate::{Authorities, CertificateCheck, RuntimeIdFromCommonName};

mod running;

pub(crate) const RUNTIME: &str = "0b7c9a6e-runtime-1";
pub(crate) const DOMAIN: &str = "one.skr.example";
pub(crate) const GATEWAY: &str = "spiffe://cluster.local/ns/istio-system/sa/gateway";
pub(crate) const EVENT: &str = r#"{"watched":{"Namespace":"ns","Name":"n"},"watchedGvk":{"group":"g","version":"v","kind":"K"}}"#;

/// 2027-01-15, within the dates of [`Authority::leaf`].
pub(crate) fn today() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(500_000)
}

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) certificate: Leaf,
}

pub(crate) struct Leaf {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) pem: String,
    pub(crate) key_pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = params("a test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let certificate = Leaf {
            der: certificate.der().clone(),
            pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        };
        let issuer = Issuer::new(params, key);
        Self {
            issuer,
            certificate,
        }
    }

    /// A watcher's certificate, valid in 2026 and 2027, but for `change`.
    pub(crate) fn leaf(&self, change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let mut params = params(RUNTIME);
        params.subject_alt_names = vec![rcgen::SanType::DnsName(DOMAIN.try_into().unwrap())];
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf {
            der: certificate.der().clone(),
            pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    pub(crate) fn authorities(&self) -> Authorities {
        Authorities::from_pem(self.certificate.pem.as_bytes()).unwrap()
    }

    pub(crate) fn check(&self) -> CertificateCheck {
        CertificateCheck {
            clock: today,
            ..CertificateCheck::new(self.authorities(), RuntimeIdFromCommonName)
        }
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2026, 1, 1);
    params.not_after = date_time_ymd(2028, 1, 1);
    params
}

impl Leaf {
    /// URL-encoded as Envoy does it.
    pub(crate) fn encoded(&self) -> String {
        url_encode(&self.pem)
    }

    pub(crate) fn hash(&self) -> String {
        let digest = Sha256::digest(&self.der);
        digest.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
    }

    /// The element that a gateway writes for this client.
    pub(crate) fn element(&self) -> String {
        format!(
            r#"Hash={};Cert="{}";Subject="CN={RUNTIME},O=Kyma";URI=;DNS={DOMAIN}"#,
            self.hash(),
            self.encoded()
        )
    }

    pub(crate) fn identity(&self) -> crate::Identity {
        crate::identity_from_pem(self.pem.as_bytes(), self.key_pem.as_bytes()).unwrap()
    }

    pub(crate) fn key(&self) -> rustls_pki_types::PrivateKeyDer<'static> {
        rustls_pki_types::PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).unwrap()
    }
}

pub(crate) fn url_encode(text: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    text.chars().fold(String::new(), |mut encoded, character| {
        if plain(character) {
            encoded.push(character);
        } else {
            write!(encoded, "%{:02X}", u32::from(character)).unwrap();
        }
        encoded
    })
}
