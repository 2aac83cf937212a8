use rstest::rstest;

use super::*;

struct Pem {
    cert: String,
    key: String,
}

fn pair() -> Pem {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    Pem {
        cert: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
    }
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
    let Pem { cert, key } = pair();
    let config = config(&cert, &key).unwrap();
    assert_eq!(config.alpn_protocols, [b"http/1.1".to_vec()]);
}

#[test]
fn a_chain_keeps_its_order() {
    let (leaf, issuer) = (pair(), pair());
    let chain = format!("{}{}", leaf.cert, issuer.cert);
    let identity = identity_from_pem(chain.as_bytes(), leaf.key.as_bytes()).unwrap();
    let first = CertificateDer::from_pem_slice(leaf.cert.as_bytes()).unwrap();
    assert_eq!((identity.chain.len(), &identity.chain[0]), (2, &first));
}

#[rstest]
#[case::empty_cert(String::new(), pair().key, "NoCertificate")]
#[case::text_for_cert("not a certificate".to_owned(), pair().key, "NoCertificate")]
#[case::cert_without_end("-----BEGIN CERTIFICATE-----\nAAAA\n".to_owned(), pair().key, "CertificatePem")]
#[case::hollow_cert(hollow("CERTIFICATE"), pair().key, "Refused")]
#[case::empty_key(pair().cert, String::new(), "KeyPem")]
#[case::hollow_key(pair().cert, hollow("PRIVATE KEY"), "Refused")]
#[case::swapped(pair().key, pair().cert, "NoCertificate")]
#[case::key_of_another(pair().cert, pair().key, "KeyMismatch")]
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
    let key = PrivateKeyDer::from_pem_slice(pair().key.as_bytes()).unwrap();
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
    let Pem { cert, key } = pair();
    let mut config = config(&cert, &key).unwrap();
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
