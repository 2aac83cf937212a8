//! Tests of the server certificates that the watcher trusts, and of the client certificate that it presents.

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

use super::*;
use testkit::pki::rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, SanType};
use testkit::pki::{Leaf, expired, not_yet_valid};

/// Sends one request on a new channel.
async fn post_to(kcp: &Kcp, certificates: &Certificates) -> Result<(), PostError> {
    post(&channel(&kcp.address.to_string(), certificates, timeouts())).await
}

fn session_fault(error: &PostError) -> String {
    assert!(matches!(error, PostError::Unreachable(_)), "{error:?}");
    component_base::telemetry::error_chain(error)
}

/// The client supports TLS 1.2 and 1.3.
#[rstest]
#[case::new(&TLS13)]
#[case::old(&TLS12)]
#[tokio::test]
async fn the_clients_certificate_is_presented(#[case] version: &'static SupportedProtocolVersion) {
    let authority = Authority::new("one").unwrap();
    let (server, client) = (
        authority.leaf(RUNTIME).unwrap(),
        authority.leaf(RUNTIME).unwrap(),
    );
    let kcp = Kcp::start(ServerTls::of_versions(&[version], &server, &[&authority])).await;
    let certificates = Secret::of(&authority, &client).load();
    post_to(&kcp, &certificates).await.unwrap();
    assert_eq!(kcp.received()[0].client, client.der);
}

/// Sends one request from a watcher that trusts `bundle` to a KCP with the certificate `server`.
async fn against(
    server: &Leaf,
    bundle: &str,
    address: impl FnOnce(&Kcp) -> String,
) -> Result<(), PostError> {
    let clients = Authority::new("clients").unwrap();
    let kcp = Kcp::start(ServerTls::new(server, &[&clients])).await;
    let client = clients.leaf(RUNTIME).unwrap();
    let secret = Secret::new(bundle, &client.pem, &client.key_pem());
    post(&channel(&address(&kcp), &secret.load(), timeouts())).await
}

fn as_it_is(kcp: &Kcp) -> String {
    kcp.address.to_string()
}

#[rstest]
#[case::the_first(0)]
#[case::the_second(1)]
#[tokio::test]
async fn each_authority_of_the_bundle_is_believed(#[case] of: usize) {
    let authorities = [
        Authority::new("old").unwrap(),
        Authority::new("new").unwrap(),
    ];
    let [old, new] = &authorities;
    let bundle = format!("{}{}", old.pem(), new.pem());
    let server = authorities[of].leaf(RUNTIME).unwrap();
    against(&server, &bundle, as_it_is).await.unwrap();
}

#[tokio::test]
async fn another_authority_is_refused() {
    // The two CAs have the same name, as the CA of an attacker would have.
    let (ours, theirs) = (
        Authority::new("one").unwrap(),
        Authority::new("one").unwrap(),
    );
    let refused = against(&theirs.leaf(RUNTIME).unwrap(), ours.pem(), as_it_is).await;
    let fault = session_fault(&refused.unwrap_err());
    assert!(
        fault.contains("UnknownIssuer") || fault.contains("BadSignature"),
        "{fault}"
    );
}

#[rstest]
#[case::expired(expired, "expired")]
#[case::not_yet_valid(not_yet_valid, "not valid yet")]
#[tokio::test]
async fn a_server_out_of_its_time_is_refused(
    #[case] bend: fn(&mut CertificateParams),
    #[case] expected: &str,
) {
    let authority = Authority::new("one").unwrap();
    let server = authority.leaf_with(RUNTIME, bend).unwrap();
    let refused = against(&server, authority.pem(), as_it_is).await;
    let fault = session_fault(&refused.unwrap_err());
    assert!(fault.contains(expected), "{fault}");
}

#[tokio::test]
async fn a_server_of_another_name_is_refused() {
    let authority = Authority::new("one").unwrap();
    let server = authority
        .leaf_with(RUNTIME, |params| params.subject_alt_names.clear())
        .unwrap();
    let refused = against(&server, authority.pem(), as_it_is).await;
    session_fault(&refused.unwrap_err());
    // By host name instead of IP address, as in production.
    let server = authority.leaf(RUNTIME).unwrap();
    let by_name = |kcp: &Kcp| format!("localhost:{}", kcp.address.port());
    against(&server, authority.pem(), by_name).await.unwrap();
}

/// Returns a CA whose own certificate is valid for a server on this machine.
fn serving_authority(change: impl FnOnce(&mut CertificateParams)) -> Authority {
    let names = |params: &mut CertificateParams| {
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
        change(params);
    };
    Authority::with("one", names).unwrap()
}

/// The public gateway serves with the certificate of the CA itself.
#[rstest]
#[case::as_it_is(|_: &mut CertificateParams| (), "")]
#[case::out_of_its_time(not_yet_valid, "NotValidYet")]
#[case::of_another_name(|params: &mut CertificateParams| params.subject_alt_names.clear(), "not valid for")]
#[case::for_clients_only(|params: &mut CertificateParams| {
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
}, "InvalidPurpose")]
#[tokio::test]
async fn a_server_with_the_authoritys_own_certificate_is_trusted(
    #[case] bend: fn(&mut CertificateParams),
    #[case] fault: &str,
) {
    let authority = serving_authority(bend);
    let clients = Authority::new("clients").unwrap();
    let kcp = Kcp::start(ServerTls::new(&authority.certificate, &[&clients])).await;
    let secret = Secret::of(&authority, &clients.leaf(RUNTIME).unwrap());
    let certificates = secret.load();
    let posted = post_to(&kcp, &certificates).await;
    match posted {
        Ok(()) => assert_eq!(fault, ""),
        Err(error) => {
            let told = session_fault(&error);
            assert!(!fault.is_empty() && told.contains(fault), "{told}");
        }
    }
}

/// Only the CA certificates in the bundle may be used in this way.
#[tokio::test]
async fn another_authoritys_certificate_and_a_forged_one_are_not_trusted_as_server() {
    let (ours, theirs) = (serving_authority(|_| ()), serving_authority(|_| ()));
    let clients = Authority::new("clients").unwrap();
    // The public certificate of the trusted CA, with another key.
    let forged = Leaf {
        key: KeyPair::generate().unwrap(),
        pem: String::new(),
        der: ours.certificate.der.clone(),
    };
    let servers = [
        (&ours.leaf(RUNTIME).unwrap(), true),
        (&theirs.leaf(RUNTIME).unwrap(), false),
        (&theirs.certificate, false),
        (&forged, false),
    ];
    for (server, believed) in servers {
        let kcp = Kcp::start(ServerTls::new(server, &[&clients])).await;
        let secret = Secret::of(&ours, &clients.leaf(RUNTIME).unwrap());
        let certificates = secret.load();
        let posted = post_to(&kcp, &certificates).await;
        assert_eq!(posted.is_ok(), believed, "{posted:?}");
    }
}

#[tokio::test]
async fn a_client_that_kcp_does_not_trust_gets_an_error() {
    let authority = Authority::new("one").unwrap();
    let kcp = Kcp::of(&authority).await;
    let other = Authority::new("another").unwrap().leaf(RUNTIME).unwrap();
    let certificates = Secret::of(&authority, &other).load();
    let error = post_to(&kcp, &certificates).await;
    let error = component_base::telemetry::error_chain(&error.unwrap_err());
    assert!(
        error.contains("UnknownCA")
            || error.contains("BadCertificate")
            || error.contains("DecryptError"),
        "{error}"
    );
    assert_eq!(kcp.received().len(), 0);
}

#[tokio::test]
async fn without_certificates_nothing_is_sent() {
    let fixture = Fixture::new().await;
    let leaf = fixture.authority.leaf(RUNTIME).unwrap();
    let secret = Secret::new("", &leaf.pem, &leaf.key_pem());
    let channel = channel(&fixture.kcp.address.to_string(), &secret.load(), timeouts());
    let error = post(&channel).await.unwrap_err();
    assert_eq!((error.reason(), error.kind()), ("request-setup", "setup"));
    assert_eq!(
        component_base::telemetry::error_chain(&error),
        "no valid certificates: file of CA_CERT: no certificate"
    );
    assert_eq!(fixture.kcp.opened(), 0);
}
