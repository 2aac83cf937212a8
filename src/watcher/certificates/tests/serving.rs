//! Tests of the TLS protocol and the certificate that API servers receive.

use std::net::SocketAddr;

use axum::Router;
use rustls::SupportedProtocolVersion;
use rustls::pki_types::CertificateDer;
use rustls::version::{TLS12, TLS13};
use testkit::pki::client_config_of;
use testkit::tls::RawClient;

use super::*;

async fn serve(certificates: &Certificates) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let loopback = "127.0.0.1:0".parse().unwrap();
    let options = serve::Options::tls(certificates.tls());
    let bound = serve::Server::bind(loopback, options).await.unwrap();
    let address = bound.local_addr();
    let serving = tokio::spawn(async move {
        let _ = bound.run(Router::new(), CancellationToken::new()).await;
    });
    (address, serving)
}

async fn seen(
    address: SocketAddr,
    version: &'static SupportedProtocolVersion,
) -> std::io::Result<CertificateDer<'static>> {
    let config = client_config_of(&[version], AUTHORITY.roots(), None, &[]).unwrap();
    let client = RawClient::connect_tls(address, "localhost", config).await?;
    Ok(client.stream().get_ref().1.peer_certificates().unwrap()[0].clone())
}

#[tokio::test]
async fn api_servers_speak_tls_1_3_or_not_at_all() {
    let leaf = leaf();
    let (address, serving) = serve(&Secret::of(&AUTHORITY, &leaf).load()).await;
    assert_eq!(seen(address, &TLS13).await.unwrap(), leaf.der);
    assert!(seen(address, &TLS12).await.is_err());
    serving.abort();
}

/// The public watcher presents the old certificate until it is restarted.
#[tokio::test]
async fn the_certificate_that_is_shown_follows_the_files() {
    let mut secret = Secret::of(&AUTHORITY, &leaf());
    let certificates = secret.load();
    let (address, serving) = serve(&certificates).await;
    let next = leaf();
    assert_ne!(seen(address, &TLS13).await.unwrap(), next.der);
    secret.renew(AUTHORITY.pem(), &next);
    certificates.poll(today());
    assert_eq!(seen(address, &TLS13).await.unwrap(), next.der);
    serving.abort();
}
