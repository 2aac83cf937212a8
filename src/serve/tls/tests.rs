use rstest::rstest;
use testkit::pki::{Authority, Leaf};

use super::*;

/// A certificate and its key.
fn pair() -> Leaf {
    let authority = Authority::new("one").unwrap();
    authority.leaf("localhost").unwrap()
}

fn config(cert: &str, key: &str) -> Result<ServerConfig, TlsError> {
    server_config(identity_from_pem(cert.as_bytes(), key.as_bytes())?)
}

/// Well-formed PEM around bytes that are no certificate and no key.
fn hollow(label: &str) -> String {
    format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n")
}

#[test]
fn a_pair_makes_a_config_for_http_1_alone() {
    let leaf = pair();
    let config = config(&leaf.pem, &leaf.key_pem()).unwrap();
    assert_eq!(config.alpn_protocols, [b"http/1.1".to_vec()]);
}

#[test]
fn a_chain_keeps_its_order() {
    let (leaf, issuer) = (pair(), pair());
    let chain = format!("{}{}", leaf.pem, issuer.pem);
    let identity = identity_from_pem(chain.as_bytes(), leaf.key_pem().as_bytes()).unwrap();
    assert_eq!(identity.chain, [leaf.der, issuer.der]);
}

#[rstest]
#[case::empty_cert(String::new(), pair().key_pem(), "NoCertificate")]
#[case::text_for_cert("not a certificate".to_owned(), pair().key_pem(), "NoCertificate")]
#[case::cert_without_end("-----BEGIN CERTIFICATE-----\nAAAA\n".to_owned(), pair().key_pem(), "CertificatePem")]
#[case::hollow_cert(hollow("CERTIFICATE"), pair().key_pem(), "Refused")]
#[case::empty_key(pair().pem, String::new(), "KeyPem")]
#[case::hollow_key(pair().pem, hollow("PRIVATE KEY"), "Refused")]
#[case::swapped(pair().key_pem(), pair().pem, "NoCertificate")]
#[case::key_of_another(pair().pem, pair().key_pem(), "KeyMismatch")]
fn bad_material_is_named(#[case] cert: String, #[case] key: String, #[case] variant: &str) {
    let error = config(&cert, &key).unwrap_err();
    let debug = format!("{error:?}");
    assert!(debug.starts_with(variant), "{debug}");
    let inner = std::error::Error::source(&error).map(ToString::to_string);
    assert!(
        inner.is_none_or(|inner| !error.to_string().contains(&inner)),
        "{error} repeats its source"
    );
}

#[test]
fn an_empty_chain_is_refused() {
    let key = PrivateKeyDer::from_pem_slice(pair().key_pem().as_bytes()).unwrap();
    let refused = server_config(Identity {
        chain: Vec::new(),
        key,
    });
    assert!(
        matches!(refused, Err(TlsError::NoCertificate)),
        "{refused:?}"
    );
}

#[test]
fn a_handle_is_shared_and_offers_no_h2_whatever_it_is_given() {
    let leaf = pair();
    let mut config = config(&leaf.pem, &leaf.key_pem()).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let handle = TlsHandle::empty();
    let other = handle.clone();
    assert!(other.is_empty());
    handle.replace(config);
    assert!(!other.is_empty());
    assert_eq!(
        other.current().unwrap().alpn_protocols,
        [b"http/1.1".to_vec()]
    );
}
