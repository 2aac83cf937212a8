//! Readiness by a real request: ready only after this process answered a review as an API server sends it. It comes over
//! a new TLS connection, to the name that an API server asks for, and trusts only what an API server trusts.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use api::names::WEBHOOK_PATH;
use axum::body::Bytes;
use chassis::readiness::Condition;
use chassis::telemetry::error_chain;
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
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::task::AbortOnDropHandle;
use tower::BoxError;

use crate::certificate::Bundle;

/// How often it is tried until it succeeds.
const INTERVAL: Duration = Duration::from_millis(500);

/// Time limit of a try. The API server itself gives up after 3 s.
const TIME_LIMIT: Duration = Duration::from_secs(3);

/// The largest response body, in bytes; far more than the answer to one Pod.
const RESPONSE_LIMIT: usize = 1024 * 1024;

/// A review of a Pod that requests nothing.
const REVIEW: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"self-review","resource":{"group":"","version":"v1","resource":"pods"},"operation":"CREATE","dryRun":true,"object":{"metadata":{"annotations":{}},"spec":{"containers":[]}}}}"#;

/// There was no complete response.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error("caBundle has no valid CA certificate")]
    NoTrust,
    #[error("failed to build the probe request")]
    Request(#[source] BoxError),
    #[error("failed to connect to port {0}")]
    Connect(u16, #[source] io::Error),
    /// An API server would not accept the certificate, or there is none yet.
    #[error("TLS handshake failed")]
    Handshake(#[source] io::Error),
    #[error("incomplete response")]
    Exchange(#[source] BoxError),
    #[error("no response within {0:?}")]
    Timeout(Duration),
}

/// A request to this process, on 127.0.0.1.
#[derive(Clone, Copy)]
struct Probe<'a> {
    port: u16,
    server_name: &'a str,
    path: &'a str,
    body: &'static str,
    time_limit: Duration,
}

/// Sends reviews until there is a valid answer. Then it stays ready: what may fail later (an expired certificate, a lost
/// watch) has a condition of its own, and a false alarm here would make every replica unready at once.
pub async fn until_answered(
    port: u16,
    server_name: &str,
    trust: impl Fn() -> Bundle,
    condition: &Condition,
) {
    condition.not_ready("no response to the self-review yet");
    let probe = Probe {
        port,
        server_name,
        path: WEBHOOK_PATH,
        body: REVIEW,
        time_limit: TIME_LIMIT,
    };
    loop {
        match probe.send(&trust()).await {
            Ok((status, body)) if is_valid(status, &body) => {
                condition.ready();
                tracing::info!("self-review succeeded");
                return;
            }
            Ok((status, _)) => {
                condition.not_ready(format!("self-review answered with status {status}"));
            }
            Err(error) => condition.not_ready(error_chain(&error)),
        }
        sleep(INTERVAL).await;
    }
}

fn is_valid(status: StatusCode, body: &[u8]) -> bool {
    let answer: Result<serde_json::Value, _> = serde_json::from_slice(body);
    status == StatusCode::OK
        && answer.is_ok_and(|answer| {
            answer["response"]["uid"] == "self-review" && answer["response"]["allowed"] == true
        })
}

impl Probe<'_> {
    async fn send(&self, trust: &Bundle) -> Result<(StatusCode, Bytes), ProbeError> {
        timeout(self.time_limit, self.exchange(trust))
            .await
            .map_err(|_| ProbeError::Timeout(self.time_limit))?
    }

    async fn exchange(&self, trust: &Bundle) -> Result<(StatusCode, Bytes), ProbeError> {
        let request = Request::post(self.path)
            .header(HOST, self.server_name)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from_static(self.body.as_bytes())))
            .map_err(|error| ProbeError::Request(error.into()))?;
        let stream = TokioIo::new(self.connect(trust).await?);
        let failed = |error: hyper::Error| ProbeError::Exchange(error.into());
        let (mut sender, connection) = http1::handshake(stream).await.map_err(failed)?;
        // An error of the connection fails the request as well.
        let _driver = AbortOnDropHandle::new(tokio::spawn(connection));
        let response = sender.send_request(request).await.map_err(failed)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), RESPONSE_LIMIT);
        let body = body.collect().await.map_err(ProbeError::Exchange)?;
        Ok((status, body.to_bytes()))
    }

    async fn connect(&self, trust: &Bundle) -> Result<TlsStream<TcpStream>, ProbeError> {
        let anchors = trust.valid(Timestamp::now()).anchors();
        if anchors.is_empty() {
            return Err(ProbeError::NoTrust);
        }
        let name = ServerName::try_from(self.server_name.to_owned())
            .map_err(|error| ProbeError::Request(error.into()))?;
        // Not shared: a resumed session would not present the certificate.
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| ProbeError::Request(error.into()))?
            .with_root_certificates(anchors)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))
            .await
            .map_err(|error| ProbeError::Connect(self.port, error))?;
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .map_err(ProbeError::Handshake)
    }
}

#[cfg(test)]
mod tests;
