//! A client certificate for verifiers, and the CAs that verify it.
//!
//! Invariant: a certificate is accepted only if its chain ends at a CA that is trusted now, it is within its validity, and
//! its usages allow client authentication, as verified by rustls-webpki. There are no intermediate certificates (the PKI of
//! the fleet has one level). Verified certificates are cached together with the CA bundle, so a removed CA is not trusted
//! from the next request on. The validity is checked at every request.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use sha2::{Digest as _, Sha256};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// Maximum length of a runtime ID, in bytes. Runtime IDs of Kyma are UUIDs.
const RUNTIME_ID_BYTES: usize = 128;

/// Maximum number of cached clients: two certificates for each of 10,000 runtimes, about two kilobytes each. In a full
/// cache a new client replaces any other client.
const CACHED_CLIENTS: usize = 20_000;

/// ID of a runtime.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuntimeId(Arc<str>);

impl RuntimeId {
    /// Parses a runtime ID: 1 to 128 bytes without control characters.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bounded = (1..=RUNTIME_ID_BYTES).contains(&text.len());
        (bounded && !text.chars().any(char::is_control)).then(|| Self(text.into()))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RuntimeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A parsed client certificate: well-formed X.509 without trailing bytes. Verifiers only get certificates with valid chain,
/// validity and usages.
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    der: CertificateDer<'static>,
    common_name: Option<String>,
    alternative_names: AlternativeNames,
    /// Whether the key may sign a handshake: there is no key usage, or it contains digital signatures.
    may_sign: bool,
    /// Start and end of the validity, in seconds since 1970.
    dates: (i64, i64),
}

/// Reason why a certificate is rejected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("certificate: not valid X.509")]
    Malformed,
    #[error("certificate not issued for clients by a trusted CA, or not valid now")]
    Chain(#[source] webpki::Error),
    #[error("key usage of the certificate excludes signatures")]
    Usage,
}

/// A CA bundle that cannot be used: not PEM, a certificate that cannot be a CA, or no certificate.
#[derive(Debug, thiserror::Error)]
#[error("CA bundle: not usable")]
pub struct TrustAnchorsError(#[source] pub(crate) Box<dyn StdError + Send + Sync>);

impl ClientCertificate {
    pub(crate) fn read(der: CertificateDer<'static>) -> Result<Self, CertificateError> {
        let (behind, parsed) =
            parse_x509_certificate(&der).map_err(|_| CertificateError::Malformed)?;
        if !behind.is_empty() {
            return Err(CertificateError::Malformed);
        }
        let alternative_names = AlternativeNames::read(&parsed)?;
        let may_sign = parsed
            .key_usage()
            .map_err(|_| CertificateError::Malformed)?
            .is_none_or(|usage| usage.value.digital_signature());
        let common_name = common_name(&parsed);
        let dates = parsed.validity();
        let dates = (dates.not_before.timestamp(), dates.not_after.timestamp());
        Ok(Self {
            der,
            common_name,
            alternative_names,
            may_sign,
            dates,
        })
    }

    /// Returns the common name of the subject, if there is exactly one and it is not empty.
    #[must_use]
    pub fn common_name(&self) -> Option<&str> {
        self.common_name.as_deref()
    }

    /// Returns the subject alternative names that are DNS names, URIs or IP addresses, as text: first all DNS names, then
    /// all URIs, then all addresses. A name of one kind may have the text of a name of another kind, so compare a DNS name
    /// with [`dns_names`](Self::dns_names).
    #[must_use]
    pub fn alternative_names(&self) -> &[String] {
        &self.alternative_names.all
    }

    /// Returns the subject alternative names that are DNS names.
    #[must_use]
    pub fn dns_names(&self) -> &[String] {
        self.alternative_names.of(NameKind::Dns)
    }

    /// Returns whether a subject alternative name has this text, and is of the kind that the text has: an IP address, a URI
    /// if it contains a colon, or otherwise a DNS name.
    #[cfg(feature = "tls")]
    pub(crate) fn is_named(&self, name: &str) -> bool {
        let names = self.alternative_names.of(NameKind::of_text(name));
        names.iter().any(|it| it == name)
    }

    /// Returns the certificate in DER format.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }
}

fn common_name(certificate: &X509Certificate<'_>) -> Option<String> {
    let mut names = certificate.subject().iter_common_name();
    let name = names.next()?.as_str().ok()?;
    (names.next().is_none() && !name.is_empty()).then(|| name.to_owned())
}

/// Kind of a subject alternative name, in the order of [`AlternativeNames::all`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NameKind {
    Dns,
    Uri,
    Ip,
}

impl NameKind {
    #[cfg(feature = "tls")]
    fn of_text(text: &str) -> Self {
        if text.parse::<Ipv4Addr>().is_ok() || text.parse::<Ipv6Addr>().is_ok() {
            Self::Ip
        } else if text.contains(':') {
            Self::Uri
        } else {
            Self::Dns
        }
    }
}

/// Subject alternative names as text, sorted by their kind.
#[derive(Clone, Debug)]
struct AlternativeNames {
    all: Vec<String>,
    kinds: Vec<NameKind>,
}

impl AlternativeNames {
    fn read(certificate: &X509Certificate<'_>) -> Result<Self, CertificateError> {
        let extension = certificate
            .subject_alternative_name()
            .map_err(|_| CertificateError::Malformed)?;
        let names = extension.map_or(&[][..], |extension| &extension.value.general_names);
        let mut names: Vec<_> = names.iter().filter_map(text).collect();
        names.sort_by_key(|(kind, _)| *kind);
        let (kinds, all) = names.into_iter().unzip();
        Ok(Self { all, kinds })
    }

    fn of(&self, kind: NameKind) -> &[String] {
        let start = self.kinds.partition_point(|it| *it < kind);
        let end = self.kinds.partition_point(|it| *it <= kind);
        &self.all[start..end]
    }
}

fn text(name: &GeneralName<'_>) -> Option<(NameKind, String)> {
    match *name {
        GeneralName::DNSName(text) => Some((NameKind::Dns, text.to_owned())),
        GeneralName::URI(text) => Some((NameKind::Uri, text.to_owned())),
        GeneralName::IPAddress(bytes) => {
            let v4 = || <[u8; 4]>::try_from(bytes).map(|it| Ipv4Addr::from(it).to_string());
            let v6 = || <[u8; 16]>::try_from(bytes).map(|it| Ipv6Addr::from(it).to_string());
            let address = v4().or_else(|_| v6()).ok()?;
            Some((NameKind::Ip, address))
        }
        _ => None,
    }
}

/// CAs that sign the certificates of the fleet. Clones share the CAs.
#[derive(Clone, Debug)]
pub struct TrustAnchors(Arc<ArcSwap<TrustBundle>>);

impl TrustAnchors {
    /// Parses a PEM bundle. During a rotation it contains the old and the new CA.
    ///
    /// # Errors
    /// The bundle is not usable.
    pub fn from_pem(bundle: &[u8]) -> Result<Self, TrustAnchorsError> {
        let bundle = TrustBundle::from_pem(bundle).map_err(TrustAnchorsError)?;
        Ok(Self(Arc::new(ArcSwap::from_pointee(bundle))))
    }

    /// Replaces the bundle, from the next request on. Verified clients are verified again, unless the CAs are unchanged.
    ///
    /// # Errors
    /// The errors of [`TrustAnchors::from_pem`]. The old bundle then stays active.
    pub fn replace(&self, bundle: &[u8]) -> Result<(), TrustAnchorsError> {
        let bundle = TrustBundle::from_pem(bundle).map_err(TrustAnchorsError)?;
        if bundle.anchors != self.bundle().anchors {
            self.0.store(Arc::new(bundle));
        }
        Ok(())
    }

    /// Returns the bundle for one request. The same bundle must be used for the cache lookup and the verification.
    pub(crate) fn bundle(&self) -> Arc<TrustBundle> {
        self.0.load_full()
    }
}

/// One CA bundle, with the clients that were verified with it.
pub(crate) struct TrustBundle {
    anchors: Vec<TrustAnchor<'static>>,
    cache: Mutex<VerificationCache>,
}

/// SHA-256 of a certificate.
type Fingerprint = [u8; 32];

#[derive(Default)]
struct VerificationCache {
    clients: HashMap<Fingerprint, Arc<ClientCertificate>>,
    /// Keys of `clients`, in any order.
    fingerprints: Vec<Fingerprint>,
}

impl VerificationCache {
    fn insert(&mut self, fingerprint: Fingerprint, client: Arc<ClientCertificate>) {
        if self.clients.insert(fingerprint, client).is_some() {
            return;
        }
        if self.fingerprints.len() < CACHED_CLIENTS {
            self.fingerprints.push(fingerprint);
            return;
        }
        // The hash is used as a random number.
        let [a, b, c, d, ..] = fingerprint;
        let at = u32::from_le_bytes([a, b, c, d]) as usize % CACHED_CLIENTS;
        let evicted = std::mem::replace(&mut self.fingerprints[at], fingerprint);
        self.clients.remove(&evicted);
    }
}

impl TrustBundle {
    fn from_pem(bundle: &[u8]) -> Result<Self, Box<dyn StdError + Send + Sync>> {
        let mut anchors = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(bundle) {
            anchors.push(anchor_from_trusted_cert(&certificate?)?.to_owned());
        }
        if anchors.is_empty() {
            return Err("no certificate".into());
        }
        let cache = Mutex::default();
        Ok(Self { anchors, cache })
    }

    /// Returns the client with this certificate, from the cache or after a verification, if it is valid now.
    pub(crate) fn client(
        &self,
        der: CertificateDer<'static>,
        now: SystemTime,
    ) -> Result<Arc<ClientCertificate>, CertificateError> {
        let fingerprint = Sha256::digest(&der).into();
        // A clock before 1970 is wrong. No certificate is valid in 1970.
        let now = now.duration_since(SystemTime::UNIX_EPOCH);
        let now = UnixTime::since_unix_epoch(now.unwrap_or_default());
        if let Some(client) = self.cached(&fingerprint, now) {
            return Ok(client);
        }
        let client = ClientCertificate::read(der)?;
        self.verify(&client, now)?;
        let client = Arc::new(client);
        self.cache().insert(fingerprint, Arc::clone(&client));
        Ok(client)
    }

    fn cached(&self, fingerprint: &Fingerprint, now: UnixTime) -> Option<Arc<ClientCertificate>> {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let client = self.cache().clients.get(fingerprint).cloned();
        client.filter(|client| (client.dates.0..=client.dates.1).contains(&now))
    }

    fn verify(&self, client: &ClientCertificate, now: UnixTime) -> Result<(), CertificateError> {
        if !client.may_sign {
            return Err(CertificateError::Usage);
        }
        let leaf = EndEntityCert::try_from(&client.der).map_err(CertificateError::Chain)?;
        let (algorithms, usage) = (ALL_VERIFICATION_ALGS, KeyUsage::client_auth());
        leaf.verify_for_usage(algorithms, &self.anchors, &[], now, usage, None, None)
            .map(drop)
            .map_err(CertificateError::Chain)
    }

    fn cache(&self) -> MutexGuard<'_, VerificationCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TrustBundle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TrustBundle")
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
