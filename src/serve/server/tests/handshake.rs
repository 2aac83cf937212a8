//! Tests of connections before the first request.

use std::time::Duration;

use rstest::rstest;
use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, SupportedProtocolVersion};
use testkit::pki::{Authority, client_config, client_config_of, provider};
use testkit::tls::{RawClient, RawTlsClient};
use tokio::net::TcpStream;

use super::fixture::{GET, Running, TLS_1_2, TLS_1_3, limits, presenting};
use crate::{Counter, Limits, TlsHandle, Transport};

#[rstest]
#[case::tls_1_2(TLS_1_2)]
#[case::tls_1_3(TLS_1_3)]
#[tokio::test]
async fn both_versions_are_served(#[case] versions: &[&'static SupportedProtocolVersion]) {
    let server = Running::with(limits()).await;
    let mut client = server
        .try_connect(server.client_config(versions))
        .await
        .unwrap();
    let version = client.stream().get_ref().1.protocol_version();
    assert_eq!(version, Some(versions[0].version));
    for _ in 0..2 {
        let answer = client.ask(GET).await.unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
        assert!(!answer.closes(), "{}", answer.head);
    }
    assert_eq!(
        (
            server.statistics.get(Counter::Accepted),
            server.statistics.get(Counter::Requests)
        ),
        (1, 2)
    );
}

#[rstest]
#[case::both(&["h2", "http/1.1"], Some("http/1.1"))]
#[case::none(&[], None)]
#[tokio::test]
async fn h2_is_not_offered(#[case] offered: &[&str], #[case] agreed: Option<&str>) {
    let server = Running::with(limits()).await;
    let config = client_config(server.authority.roots(), None, offered).unwrap();
    let client = server.try_connect(config).await.unwrap();
    assert_eq!(
        client.stream().get_ref().1.alpn_protocol(),
        agreed.map(str::as_bytes)
    );
}

#[tokio::test]
async fn a_client_of_h2_alone_is_refused() {
    let server = Running::with(limits()).await;
    let config = client_config(server.authority.roots(), None, &["h2"]).unwrap();
    assert!(server.try_connect(config).await.is_err());
    server
        .until(|seen| seen.get(Counter::HandshakeFailures) == 1 && seen.get(Counter::Open) == 0)
        .await;
}

#[tokio::test]
async fn plain_http_gets_an_explanation() {
    let server = Running::with(limits()).await;
    let mut client = RawClient::connect(server.address).await.unwrap();
    client.send(GET).await.unwrap();
    let answer = String::from_utf8(client.rest().await.unwrap()).unwrap();
    assert!(
        answer.starts_with("HTTP/1.0 400 Bad Request\r\n"),
        "{answer}"
    );
    server
        .until(|seen| seen.get(Counter::PlainHttp) == 1 && seen.get(Counter::Open) == 0)
        .await;
}

#[rstest]
#[case::silence(b"")]
#[case::half_a_client_hello(&[0x16, 3, 1, 2, 0, 1, 0, 1])]
#[tokio::test]
async fn a_handshake_has_a_time(#[case] bytes: &[u8]) {
    let handshake = Duration::from_millis(50);
    let server = Running::with(Limits {
        handshake,
        ..limits()
    })
    .await;
    let mut client = RawClient::connect(server.address).await.unwrap();
    client.send(bytes).await.unwrap();
    client.rest().await.unwrap();
    server
        .until(|seen| seen.get(Counter::HandshakeTimeouts) == 1 && seen.get(Counter::Open) == 0)
        .await;
}

/// Each connection could keep 64 KiB in memory without credentials.
#[tokio::test]
async fn a_large_handshake_that_is_not_complete_is_closed() {
    let server = Running::with(limits()).await;
    let mut client = RawClient::connect(server.address).await.unwrap();
    // Two records of 16 KiB, with the start of a ClientHello of nearly 64 KiB.
    let record = [0x16, 3, 1, 0x40, 0];
    let mut first = vec![0; 0x4000];
    first[..4].copy_from_slice(&[1, 0, 0xff, 0]);
    let hello = [&record[..], &first, &record, &[0; 0x4000]].concat();
    // The server may close the connection before it has received everything.
    let _ = client.send(&hello).await;
    server
        .until(|seen| seen.get(Counter::HandshakeFailures) == 1 && seen.get(Counter::Open) == 0)
        .await;
    assert_eq!(server.statistics.get(Counter::HandshakeTimeouts), 0);
}

#[tokio::test]
async fn a_probe_of_the_port_is_no_failure() {
    let server = Running::with(limits()).await;
    drop(TcpStream::connect(server.address).await.unwrap());
    server
        .until(|seen| seen.get(Counter::ClosedBeforeHandshake) == 1 && seen.get(Counter::Open) == 0)
        .await;
    assert_eq!(server.statistics.get(Counter::HandshakeFailures), 0);
}

#[tokio::test]
async fn garbage_is_a_failed_handshake() {
    let server = Running::with(limits()).await;
    let mut client = RawClient::connect(server.address).await.unwrap();
    client.send([0; 64]).await.unwrap();
    server
        .until(|seen| seen.get(Counter::HandshakeFailures) == 1 && seen.get(Counter::Open) == 0)
        .await;
    assert_eq!(server.statistics.get(Counter::CertificateRejections), 0);
}

#[rstest]
#[case::unknown_ca(TLS_1_3, "localhost", false)]
#[case::unknown_ca_tls_1_2(TLS_1_2, "localhost", false)]
#[case::another_name(TLS_1_3, "elsewhere", true)]
#[case::another_name_tls_1_2(TLS_1_2, "elsewhere", true)]
#[tokio::test]
async fn a_client_that_rejects_the_certificate_is_counted_apart(
    #[case] versions: &[&'static SupportedProtocolVersion],
    #[case] name: &'static str,
    #[case] is_trusted: bool,
) {
    let server = Running::with(limits()).await;
    let other = Authority::new("other").unwrap();
    let authority = if is_trusted {
        &server.authority
    } else {
        &other
    };
    let config = client_config_of(versions, authority.roots(), None, &[]).unwrap();
    let connected = RawTlsClient::connect_tls(server.address, name, config).await;
    assert!(connected.is_err());
    server
        .until(|seen| seen.get(Counter::HandshakeFailures) == 1 && seen.get(Counter::Open) == 0)
        .await;
    assert_eq!(server.statistics.get(Counter::CertificateRejections), 1);
}

/// The handshake fails for another reason, after which the client sends another alert, or none.
#[rstest]
#[case::no_common_version(TLS_1_2, &[])]
#[case::no_common_protocol(TLS_1_3, &["h2"])]
#[tokio::test]
async fn a_failure_of_the_protocol_is_no_rejected_certificate(
    #[case] versions: &[&'static SupportedProtocolVersion],
    #[case] offered: &[&str],
) {
    let server = Running::with(limits()).await;
    let leaf = server.authority.leaf("localhost").unwrap();
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(TLS_1_3)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der.clone()], leaf.key_der());
    server.tls.replace(config.unwrap());
    let config = client_config_of(versions, server.authority.roots(), None, offered).unwrap();
    assert!(server.try_connect(config).await.is_err());
    server
        .until(|seen| seen.get(Counter::HandshakeFailures) == 1 && seen.get(Counter::Open) == 0)
        .await;
    assert_eq!(server.statistics.get(Counter::CertificateRejections), 0);
}

#[tokio::test]
async fn without_a_certificate_connections_end_until_one_comes() {
    let tls = TlsHandle::empty();
    let server = Running::start(|options| options.transport = Transport::Tls(tls.clone())).await;
    assert!(
        server
            .try_connect(server.client_config(TLS_1_3))
            .await
            .is_err()
    );
    server
        .until(|seen| seen.get(Counter::WithoutCertificate) == 1 && seen.get(Counter::Open) == 0)
        .await;

    let leaf = server.authority.leaf("localhost").unwrap();
    tls.replace(presenting(&leaf));
    assert_eq!(server.connect().await.ask(GET).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_new_certificate_is_for_new_handshakes() {
    let mut server = Running::with(limits()).await;
    let mut old = server.connect().await;
    assert_eq!(old.ask(GET).await.unwrap().status, 200);

    let next = Authority::new("two").unwrap();
    let leaf = next.leaf("localhost").unwrap();
    server.tls.replace(presenting(&leaf));
    let trusting_the_old = server.try_connect(server.client_config(TLS_1_3)).await;
    assert!(trusting_the_old.is_err(), "the old leaf is still served");
    server.authority = next;
    let mut new = server.connect().await;
    let shown = new.stream().get_ref().1.peer_certificates().unwrap()[0].clone();
    assert_eq!(shown, leaf.der);
    assert_eq!(new.ask(GET).await.unwrap().status, 200);
    assert_eq!(
        old.ask(GET).await.unwrap().status,
        200,
        "the old connection goes on"
    );
}

#[tokio::test]
async fn a_session_of_the_old_certificate_is_not_resumed() {
    let server = Running::with(limits()).await;
    let config = server.client_config(TLS_1_3);
    let handshake_of = async |config: &rustls::ClientConfig| {
        let mut client = server.try_connect(config.clone()).await.unwrap();
        // Session tickets arrive with the first bytes.
        assert_eq!(client.ask(GET).await.unwrap().status, 200);
        client.stream().get_ref().1.handshake_kind().unwrap()
    };
    assert_eq!(handshake_of(&config).await, rustls::HandshakeKind::Full);
    assert_eq!(handshake_of(&config).await, rustls::HandshakeKind::Resumed);
    let leaf = server.authority.leaf("localhost").unwrap();
    server.tls.replace(presenting(&leaf));
    assert_eq!(handshake_of(&config).await, rustls::HandshakeKind::Full);
}

#[rstest]
#[case::with(true, "1")]
#[case::without(false, "0")]
#[tokio::test]
async fn handlers_get_the_certificates_of_the_client(
    #[case] shows_certificate: bool,
    #[case] certificates: &str,
) {
    let visitors = Authority::new("visitors").unwrap();
    let visitor = visitors.leaf("visitor").unwrap();
    let server = Running::with(limits()).await;
    let verifier = WebPkiClientVerifier::builder_with_provider(visitors.roots().into(), provider());
    let verifier = verifier.allow_unauthenticated().build().unwrap();
    let builder = crate::config_builder()
        .unwrap()
        .with_client_cert_verifier(verifier);
    let leaf = server.authority.leaf("localhost").unwrap();
    let config = builder.with_single_cert(vec![leaf.der.clone()], leaf.key_der());
    server.tls.replace(config.unwrap());

    let shown = shows_certificate.then_some(&visitor);
    let client = client_config(server.authority.roots(), shown, &[]).unwrap();
    let mut client = server.try_connect(client).await.unwrap();
    let address = client.stream().get_ref().0.local_addr().unwrap();
    let answer = client
        .ask("GET /peer HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(answer.body, format!("{address} {certificates}"));
}
