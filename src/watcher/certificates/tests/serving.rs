//! What API servers see: the protocol, and the certificate of the hour.

use std::net::SocketAddr;

use axum::Router;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::*;

async fn serve(certificates: &Certificates) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let loopback = "127.0.0.1:0".parse().unwrap();
    let options = serve::Options::new(certificates.tls());
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
    let mut roots = RootCertStore::empty();
    roots.add(AUTHORITY.certificate.der.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(address).await?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?;
    Ok(stream.get_ref().1.peer_certificates().unwrap()[0].clone())
}

#[tokio::test]
async fn api_servers_speak_tls_1_3_or_not_at_all() {
    let leaf = leaf();
    let (address, serving) = serve(&Secret::of(&AUTHORITY, &leaf).load()).await;
    assert_eq!(seen(address, &TLS13).await.unwrap(), leaf.der);
    assert!(seen(address, &TLS12).await.is_err());
    serving.abort();
}

/// The public watcher shows the old one until it is restarted.
#[tokio::test]
async fn the_certificate_that_is_shown_follows_the_files() {
    let mut secret = Secret::of(&AUTHORITY, &leaf());
    let certificates = secret.load();
    let (address, serving) = serve(&certificates).await;
    let next = leaf();
    assert_ne!(seen(address, &TLS13).await.unwrap(), next.der);
    secret.swap(
        &AUTHORITY.certificate.pem,
        &next.pem,
        &next.key.serialize_pem(),
    );
    certificates.poll(today());
    assert_eq!(seen(address, &TLS13).await.unwrap(), next.der);
    serving.abort();
}
