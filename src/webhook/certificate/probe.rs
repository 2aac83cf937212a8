//! Does this process answer a review that comes the way an API server's does?
//!
//! Invariant: the question goes over a new TLS connection, to the name that an API server would ask for, and trusts
//! only what an API server would trust. Deliberately absent: what to ask, what a right answer is, and when to ask.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::task::AbortOnDropHandle;
use tower::BoxError;

use super::{Bundle, LiveEntry, Material, Sighting};

/// Far more than an answer to one Pod takes.
const ANSWER_LIMIT: usize = 1024 * 1024;

/// What to ask.
#[derive(Clone, Debug)]
pub struct Question {
    /// The port of this process's server, on 127.0.0.1.
    pub port: u16,
    /// The name in the URL of an API server.
    pub server_name: String,
    /// Path and query.
    pub path: String,
    /// A JSON document.
    pub body: Bytes,
    /// For everything: connecting, handshake, answer.
    pub time_limit: Duration,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The body.
    pub body: Bytes,
}

/// There was no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No CA is known, or none that is valid now.
    #[error("caBundle has no valid CA certificate")]
    NoTrust,
    /// Name, path or trust cannot be used.
    #[error("failed to build the probe request")]
    Question(#[source] BoxError),
    /// Nobody listens.
    #[error("failed to connect to port {port}")]
    Connect {
        /// On 127.0.0.1.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
    /// An API server would not trust us, or there is no certificate yet.
    #[error("TLS handshake failed")]
    Handshake(#[source] io::Error),
    /// Connected, but the exchange failed.
    #[error("incomplete response")]
    Exchange(#[source] BoxError),
    /// Too slow.
    #[error("no response within {0:?}")]
    Timeout(Duration),
}

/// What API servers trust: the live `caBundle`, or, while there is no entry and nobody calls, what the `caBundle` will
/// be.
#[must_use]
pub fn callers_trust<T: AsRef<Material>>(
    entry: &Sighting<LiveEntry>,
    source: &Sighting<T>,
) -> Bundle {
    match (entry, source) {
        (Sighting::Present(live), _) => Bundle::read(&live.ca_bundle),
        (Sighting::Absent, Sighting::Present(found)) => {
            Bundle::read(&(**found).as_ref().authorities)
        }
        (Sighting::Absent | Sighting::Unknown, _) => Bundle::default(),
    }
}

/// Asks ourselves. Needs no rights.
///
/// # Errors
/// [`ProbeError`] when no complete answer came in time; an answer with a bad status is an answer.
pub async fn self_probe(question: &Question, trust: &Bundle) -> Result<ProbeAnswer, ProbeError> {
    let limit = question.time_limit;
    timeout(limit, ask(question, trust))
        .await
        .map_err(|_| ProbeError::Timeout(limit))?
}

async fn ask(question: &Question, trust: &Bundle) -> Result<ProbeAnswer, ProbeError> {
    let request = request(question)?;
    let stream = connect(question, trust).await?;
    let exchange = |error: hyper::Error| ProbeError::Exchange(error.into());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(exchange)?;
    // An error of the connection is seen by the exchange as well.
    let _driver = AbortOnDropHandle::new(tokio::spawn(connection));
    let (head, body) = sender
        .send_request(request)
        .await
        .map_err(exchange)?
        .into_parts();
    let body = Limited::new(body, ANSWER_LIMIT).collect().await;
    Ok(ProbeAnswer {
        status: head.status,
        body: body.map_err(ProbeError::Exchange)?.to_bytes(),
    })
}

fn request(question: &Question) -> Result<Request<Full<Bytes>>, ProbeError> {
    Request::post(&question.path)
        .header(HOST, &question.server_name)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(question.body.clone()))
        .map_err(|error| ProbeError::Question(error.into()))
}

async fn connect(question: &Question, trust: &Bundle) -> Result<TlsStream<TcpStream>, ProbeError> {
    let anchors = trust.valid(Timestamp::now()).anchors();
    if anchors.is_empty() {
        return Err(ProbeError::NoTrust);
    }
    let refused = |error: BoxError| ProbeError::Question(error);
    let name = ServerName::try_from(question.server_name.clone())
        .map_err(|error| refused(error.into()))?;
    // A configuration of its own: with a shared one a resumed session would not show the certificate.
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(error.into()))?
        .with_root_certificates(anchors)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let port = question.port;
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await
        .map_err(|source| ProbeError::Connect { port, source })?;
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(ProbeError::Handshake)
}

#[cfg(test)]
mod tests;
