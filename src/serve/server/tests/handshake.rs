//! Before the first request.

use std::sync::Arc;
use std::time::Duration;

use rstest::rstest;
use rustls::SupportedProtocolVersion;
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::fixture::{GET, Leaf, Running, TLS_1_2, TLS_1_3, client_builder, in_time};
use crate::{Limits, TlsHandle};

#[rstest]
#[case::tls_1_2(TLS_1_2)]
#[case::tls_1_3(TLS_1_3)]
#[tokio::test]
async fn both_versions_are_served(#[case] versions: &[&'static SupportedProtocolVersion]) {
    let server = Running::with(Limits::default()).await;
    let mut client = server
        .try_connect(server.client_config(versions))
        .await
        .unwrap();
    let version = client.stream.get_ref().1.protocol_version();
    assert_eq!(version, Some(versions[0].version));
    for _ in 0..2 {
        let answer = client.ask(GET).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
        assert!(!answer.closes(), "{}", answer.header);
    }
    assert_eq!(
        (
            server.statistics.snapshot().accepted,
            server.statistics.snapshot().requests
        ),
        (1, 2)
    );
}

#[rstest]
#[case::both(&["h2", "http/1.1"], Some("http/1.1"))]
#[case::none(&[], None)]
#[tokio::test]
async fn h2_is_not_offered(#[case] offered: &[&str], #[case] agreed: Option<&str>) {
    let server = Running::with(Limits::default()).await;
    let mut config = server.client_config(TLS_1_3);
    config.alpn_protocols = offered
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let client = server.try_connect(config).await.unwrap();
    assert_eq!(
        client.stream.get_ref().1.alpn_protocol(),
        agreed.map(str::as_bytes)
    );
}

#[tokio::test]
async fn a_client_of_h2_alone_is_refused() {
    let server = Running::with(Limits::default()).await;
    let mut config = server.client_config(TLS_1_3);
    config.alpn_protocols = vec![b"h2".to_vec()];
    assert!(server.try_connect(config).await.is_err());
    server
        .until(|seen| seen.handshake_failures == 1 && seen.open == 0)
        .await;
}

#[tokio::test]
async fn plain_http_gets_an_explanation() {
    let server = Running::with(Limits::default()).await;
    let mut tcp = TcpStream::connect(server.address).await.unwrap();
    tcp.write_all(GET.as_bytes()).await.unwrap();
    let mut answer = String::new();
    in_time(tcp.read_to_string(&mut answer)).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.0 400 Bad Request\r\n"),
        "{answer}"
    );
    server
        .until(|seen| seen.plain_http == 1 && seen.open == 0)
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
        ..Limits::default()
    })
    .await;
    let mut tcp = TcpStream::connect(server.address).await.unwrap();
    tcp.write_all(bytes).await.unwrap();
    let _ = in_time(tcp.read(&mut [0; 16])).await;
    server
        .until(|seen| seen.handshake_timeouts == 1 && seen.open == 0)
        .await;
}

#[tokio::test]
async fn a_probe_of_the_port_is_no_failure() {
    let server = Running::with(Limits::default()).await;
    drop(TcpStream::connect(server.address).await.unwrap());
    server
        .until(|seen| seen.closed_before_handshake == 1 && seen.open == 0)
        .await;
    assert_eq!(server.statistics.snapshot().handshake_failures, 0);
}

#[tokio::test]
async fn garbage_is_a_failed_handshake() {
    let server = Running::with(Limits::default()).await;
    let mut tcp = TcpStream::connect(server.address).await.unwrap();
    tcp.write_all(&[0; 64]).await.unwrap();
    server
        .until(|seen| seen.handshake_failures == 1 && seen.open == 0)
        .await;
}

#[tokio::test]
async fn without_a_certificate_connections_end_until_one_comes() {
    let server = Running::start(|options| options.tls = TlsHandle::empty()).await;
    assert!(
        server
            .try_connect(server.client_config(TLS_1_3))
            .await
            .is_err()
    );
    server
        .until(|seen| seen.without_certificate == 1 && seen.open == 0)
        .await;

    server.tls.replace(server.leaf.config());
    assert_eq!(server.connect().await.ask(GET).await.status, 200);
}

#[tokio::test]
async fn a_new_certificate_is_for_new_handshakes() {
    let mut server = Running::with(Limits::default()).await;
    let mut old = server.connect().await;
    assert_eq!(old.ask(GET).await.status, 200);

    let next = Leaf::new();
    server.tls.replace(next.config());
    let trusting_the_old = server.try_connect(server.client_config(TLS_1_3)).await;
    assert!(trusting_the_old.is_err(), "the old leaf is still served");
    server.leaf = next;
    let mut new = server.connect().await;
    let shown = new.stream.get_ref().1.peer_certificates().unwrap()[0].clone();
    assert_eq!(shown, server.leaf.cert);
    assert_eq!(new.ask(GET).await.status, 200);
    assert_eq!(old.ask(GET).await.status, 200, "the old connection goes on");
}

#[tokio::test]
async fn a_session_of_the_old_certificate_is_not_resumed() {
    let server = Running::with(Limits::default()).await;
    let config = server.client_config(TLS_1_3);
    let handshake_of = async |config: &rustls::ClientConfig| {
        let mut client = server.try_connect(config.clone()).await.unwrap();
        // Tickets come with the first bytes read.
        assert_eq!(client.ask(GET).await.status, 200);
        client.stream.get_ref().1.handshake_kind().unwrap()
    };
    assert_eq!(handshake_of(&config).await, rustls::HandshakeKind::Full);
    assert_eq!(handshake_of(&config).await, rustls::HandshakeKind::Resumed);
    server.tls.replace(server.leaf.config());
    assert_eq!(handshake_of(&config).await, rustls::HandshakeKind::Full);
}

#[rstest]
#[case::with(true, "1")]
#[case::without(false, "0")]
#[tokio::test]
async fn handlers_see_who_calls(#[case] shows_certificate: bool, #[case] certificates: &str) {
    let visitor = Leaf::new();
    let server = Running::with(Limits::default()).await;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(visitor.roots().into(), provider);
    let verifier = verifier.allow_unauthenticated().build().unwrap();
    let builder = crate::config_builder()
        .unwrap()
        .with_client_cert_verifier(verifier);
    let config = builder.with_single_cert(vec![server.leaf.cert.clone()], server.leaf.key());
    server.tls.replace(config.unwrap());

    let client = client_builder(TLS_1_3).with_root_certificates(server.leaf.roots());
    let client = if shows_certificate {
        client
            .with_client_auth_cert(vec![visitor.cert.clone()], visitor.key())
            .unwrap()
    } else {
        client.with_no_client_auth()
    };
    let mut client = server.try_connect(client).await.unwrap();
    let address = client.stream.get_ref().0.local_addr().unwrap();
    let answer = client
        .ask("GET /peer HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    assert_eq!(answer.body, format!("{address} {certificates}"));
}
