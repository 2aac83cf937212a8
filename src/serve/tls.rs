//! The certificate in use, and the handshake.
//!
//! Invariant: a handshake sees one finished [`ServerConfig`]; replacing it changes certificate, trust and session
//! cache in one step. The crypto provider is always named, never the process default.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::crypto::aws_lc_rs;
use rustls::{ConfigBuilder, ServerConfig, WantsVerifier};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::metrics::Counter;
use crate::pair::CertificatePair;
use crate::server::Shared;

/// The only protocol this server speaks; the API server calls webhooks by HTTP/1.1 anyway.
const HTTP_1: &[u8] = b"http/1.1";

/// What Go's server says to plain HTTP on its TLS port; a person with `curl http://` should see why.
const PLAIN_HTTP_ANSWER: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\nThis port speaks HTTPS only.\n";

/// The peer's certificates, leaf first, as the handshake verified them. A request extension, present only if
/// the [`ServerConfig`] asks for client certificates and the peer gave one.
#[derive(Clone, Debug)]
pub struct PeerCertificates(pub Arc<[CertificateDer<'static>]>);

/// Begins a configuration with the provider and the versions of this crate, for callers that verify clients.
///
/// # Errors
/// The provider lacks a cipher suite for a version.
pub fn config_builder() -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, rustls::Error> {
    ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        // TLS 1.3 preferred, 1.2 for older clients; nothing below exists in rustls.
        .with_safe_default_protocol_versions()
}

/// A configuration that asks clients for no certificate: TLS 1.2 and 1.3.
///
/// # Errors
/// As [`config_builder`].
pub fn server_config(pair: &CertificatePair) -> Result<ServerConfig, rustls::Error> {
    let builder = config_builder()?.with_no_client_auth();
    Ok(builder.with_cert_resolver(pair.resolver()))
}

/// What the server presents to the next handshake. Clones share it.
#[derive(Clone, Debug)]
pub struct TlsHandle {
    current: Arc<ArcSwapOption<ServerConfig>>,
}

impl TlsHandle {
    /// No certificate yet: connections are closed at once and counted until [`TlsHandle::replace`].
    #[must_use]
    pub fn empty() -> Self {
        Self {
            current: Arc::new(ArcSwapOption::empty()),
        }
    }

    /// Serves `config` from the start.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        let handle = Self::empty();
        handle.replace(config);
        handle
    }

    /// Serves `config` from the next handshake on; open connections go on with what they have.
    ///
    /// Give a freshly built configuration, not a changed clone of the last one: a clone shares the session
    /// cache, and a resumed session is not asked for its client certificate again.
    /// ALPN is set to `http/1.1`, the only protocol spoken here.
    pub fn replace(&self, mut config: ServerConfig) {
        config.alpn_protocols = vec![HTTP_1.to_vec()];
        self.current.store(Some(Arc::new(config)));
    }

    /// Whether there is a certificate to serve.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.current.load().is_none()
    }

    pub(crate) fn current(&self) -> Option<Arc<ServerConfig>> {
        self.current.load_full()
    }
}

/// The handshake on a new connection. `None`: it failed, and is counted.
pub(crate) async fn accept(
    tls: &TlsHandle,
    shared: &Shared,
    tcp: TcpStream,
) -> Option<TlsStream<TcpStream>> {
    let handshake = timeout(shared.limits.handshake, handshake(tcp, tls.current()));
    let stream = handshake.await.unwrap_or(Err(Counter::HandshakeTimeouts));
    let count = |counter: &Counter| {
        shared.statistics.add_one(*counter);
        if *counter == Counter::CertificateRejections {
            shared.statistics.add_one(Counter::HandshakeFailures);
        }
    };
    stream.inspect_err(count).ok()
}

/// The TLS session; the error says as what its absence counts.
async fn handshake(
    mut tcp: TcpStream,
    config: Option<Arc<ServerConfig>>,
) -> Result<TlsStream<TcpStream>, Counter> {
    let config = config.ok_or(Counter::WithoutCertificate)?;
    let mut first = [0];
    match tcp.peek(&mut first).await {
        Ok(0) | Err(_) => return Err(Counter::ClosedBeforeHandshake),
        Ok(_) if first[0].is_ascii_uppercase() => {
            // A method's first letter; TLS begins with 0x16. Whether the answer arrives does not matter.
            let _ = answer_plain_http(&mut tcp).await;
            return Err(Counter::PlainHttp);
        }
        Ok(_) => {}
    }
    let accepted = TlsAcceptor::from(config).accept(tcp).await;
    accepted.map_err(|error| {
        tracing::debug!(%error, "TLS handshake failed");
        if rejects_certificate(&error) {
            Counter::CertificateRejections
        } else {
            Counter::HandshakeFailures
        }
    })
}

/// Whether the peer has sent an alert about the certificate. Go's client, and so the API server, sends `bad_certificate` for an
/// unknown CA, an expired certificate and another name; other clients tell them apart.
fn rejects_certificate(error: &io::Error) -> bool {
    use rustls::AlertDescription as Alert;
    let error = error.get_ref().and_then(|it| it.downcast_ref());
    matches!(
        error,
        Some(rustls::Error::AlertReceived(
            Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
        ))
    )
}

async fn answer_plain_http(tcp: &mut TcpStream) -> io::Result<()> {
    // What has come is taken, or closing would reset the connection and the answer with it.
    let _ = tcp.read(&mut [0; 4096]).await?;
    tcp.write_all(PLAIN_HTTP_ANSWER).await?;
    tcp.shutdown().await
}

#[cfg(test)]
mod tests;
