//! The files of a certificate that the gateway and the watcher mount, signed by [`testkit::pki::Authority`].

use serde_json::{Value, json};
use testkit::pki::rcgen::{CertificateParams, Error, SanType};
use testkit::pki::{Authority, Leaf};

/// A certificate, its key and the trusted authorities, all PEM.
#[derive(Debug, Clone)]
pub(crate) struct Certificates {
    /// The trusted authorities.
    pub(crate) trusted: String,
    /// The certificate.
    pub(crate) certificate: String,
    key: String,
}

impl Certificates {
    /// A new certificate of `signer`, whose holder trusts these authorities.
    pub(crate) fn issue(
        signer: &Authority,
        common_name: &str,
        names: &[&str],
        trusted: &[&Authority],
    ) -> Result<Self, Error> {
        let leaf = leaf(signer, common_name, names, |_| ())?;
        Ok(Self {
            trusted: trusted.iter().map(|it| it.pem()).collect(),
            key: leaf.key_pem(),
            certificate: leaf.pem,
        })
    }

    /// Content of the Secret.
    pub(crate) fn files(&self) -> Value {
        json!({ "ca.crt": self.trusted, "tls.crt": self.certificate, "tls.key": self.key })
    }
}

/// A certificate for DNS names, with changed parameters.
pub(crate) fn leaf(
    signer: &Authority,
    common_name: &str,
    names: &[&str],
    change: impl FnOnce(&mut CertificateParams),
) -> Result<Leaf, Error> {
    let names: Result<Vec<SanType>, Error> = names
        .iter()
        .map(|&name| Ok(SanType::DnsName(name.try_into()?)))
        .collect();
    let names = names?;
    signer.leaf_with(common_name, |params| {
        params.subject_alt_names = names;
        change(params);
    })
}
