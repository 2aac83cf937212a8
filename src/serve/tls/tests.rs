use testkit::pki::Authority;

use super::*;

#[test]
fn a_handle_is_shared_and_offers_no_h2_whatever_it_is_given() {
    let leaf = Authority::new("one").unwrap().leaf("localhost").unwrap();
    let pair = CertificatePair::from_pem(leaf.pem.as_bytes(), leaf.key_pem().as_bytes()).unwrap();
    let mut config = server_config(&pair).unwrap();
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
