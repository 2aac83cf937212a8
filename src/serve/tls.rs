//! The current certificate, and the handshake.
//!
//! Invariant: a handshake uses one complete [`ServerConfig`]. Replacing it changes certificate, trust and session cache in
//! one step. The crypto provider is always specified explicitly, and never the process default.

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

use crate::io::TlsSocket;
use crate::metrics::Counter;
use crate::pair::CertificatePair;
use crate::server::Shared;

/// The only protocol of this server. The API server calls webhooks with HTTP/1.1 in any case.
const HTTP_1: &[u8] = b"http/1.1";

/// Response to plain HTTP on the TLS port, similar to the response of the server of Go, so that `curl http://` shows the reason.
const PLAIN_HTTP_ANSWER: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\nThis port speaks HTTPS only.\n";

/// Certificates of the client, leaf first, as the handshake verified them. A request extension, which is present only if
/// the [`ServerConfig`] requests client certificates and the client presented one.
#[derive(Clone, Debug)]
pub struct PeerCertificates(pub Arc<[CertificateDer<'static>]>);

/// Returns a builder with the provider and the TLS versions of this crate, for callers that verify clients.
///
/// # Errors
/// The provider has no cipher suite for a version.
pub fn config_builder() -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, rustls::Error> {
    ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        // TLS 1.3 is preferred, and 1.2 is for older clients. rustls does not support earlier versions.
        .with_safe_default_protocol_versions()
}

/// Returns a configuration that requests no client certificate, with TLS 1.2 and 1.3.
///
/// # Errors
/// The errors of [`config_builder`].
pub fn server_config(pair: &CertificatePair) -> Result<ServerConfig, rustls::Error> {
    let builder = config_builder()?.with_no_client_auth();
    Ok(builder.with_cert_resolver(pair.resolver()))
}

/// TLS configuration for the next handshake. Clones share the configuration.
#[derive(Clone, Debug)]
pub struct TlsHandle {
    current: Arc<ArcSwapOption<ServerConfig>>,
}

impl TlsHandle {
    /// Creates a handle without a certificate. Connections are closed at once and counted until [`TlsHandle::replace`].
    #[must_use]
    pub fn empty() -> Self {
        Self {
            current: Arc::new(ArcSwapOption::empty()),
        }
    }

    /// Creates a handle that serves `config` from the start.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        let handle = Self::empty();
        handle.replace(config);
        handle
    }

    /// Serves `config` from the next handshake on. Open connections continue with their configuration.
    ///
    /// Pass a new configuration, not a changed clone of the last one: a clone shares the session cache, and a resumed
    /// session presents no client certificate again. ALPN is set to `http/1.1`, the only supported protocol.
    pub fn replace(&self, mut config: ServerConfig) {
        config.alpn_protocols = vec![HTTP_1.to_vec()];
        self.current.store(Some(Arc::new(config)));
    }

    /// Returns whether there is no certificate to serve.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.current.load().is_none()
    }

    pub(crate) fn current(&self) -> Option<Arc<ServerConfig>> {
        self.current.load_full()
    }
}

/// Performs the handshake on a new connection. Returns `None` if it failed, which is counted.
pub(crate) async fn accept(
    tls: &TlsHandle,
    shared: &Shared,
    tcp: TcpStream,
) -> Option<TlsStream<TlsSocket>> {
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

/// Returns the TLS session, or the counter of the failure.
async fn handshake(
    mut tcp: TcpStream,
    config: Option<Arc<ServerConfig>>,
) -> Result<TlsStream<TlsSocket>, Counter> {
    let config = config.ok_or(Counter::WithoutCertificate)?;
    let mut first = [0];
    match tcp.peek(&mut first).await {
        Ok(0) | Err(_) => return Err(Counter::ClosedBeforeHandshake),
        Ok(_) if first[0].is_ascii_uppercase() => {
            // The first byte is the first letter of a method; TLS starts with 0x16. An error of the response is ignored.
            let _ = answer_plain_http(&mut tcp).await;
            return Err(Counter::PlainHttp);
        }
        Ok(_) => {}
    }
    let socket = TlsSocket::new(tcp);
    let mut accepted = TlsAcceptor::from(config).accept(socket).await;
    if let Ok(stream) = &mut accepted {
        stream.get_mut().0.completed();
    }
    accepted.map_err(|error| {
        tracing::debug!(%error, "TLS handshake failed");
        if rejects_certificate(&error) {
            Counter::CertificateRejections
        } else {
            Counter::HandshakeFailures
        }
    })
}

/// Returns whether the client has sent an alert about the certificate. The client of Go, and therefore the API server,
/// sends `bad_certificate` for an unknown CA, an expired certificate and another name. Other clients send different alerts.
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
    // Reads the received bytes, because otherwise closing would reset the connection and discard the response.
    let _ = tcp.read(&mut [0; 4096]).await?;
    tcp.write_all(PLAIN_HTTP_ANSWER).await?;
    tcp.shutdown().await
}

#[cfg(test)]
mod tests;
