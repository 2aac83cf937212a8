//! Readiness by a real request: ready only after this process answered a review as an API server sends it. It comes over
//! a new TLS connection, to the name that an API server asks for, and trusts only what an API server trusts.

use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime};

use api::names::WEBHOOK_PATH;
use axum::body::Bytes;
use chassis::readiness::Condition;
use chassis::telemetry::error_chain;
use http::header::{CONTENT_TYPE, HOST};
use http::uri::InvalidUri;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::ConfigExt as _;
use tokio::time::{sleep, timeout};
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
    /// Nothing listens, or an API server would not accept the certificate, or there is none yet.
    #[error("probe request failed")]
    Exchange(#[source] legacy::Error),
    #[error("incomplete response")]
    Body(#[source] BoxError),
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
        let trust = trust.valid(SystemTime::now());
        if trust.is_empty() {
            return Err(ProbeError::NoTrust);
        }
        let invalid = |error: BoxError| ProbeError::Request(error);
        let uri = format!("https://{}:{}{}", Ipv4Addr::LOCALHOST, self.port, self.path);
        let uri: Uri = uri
            .parse()
            .map_err(|error: InvalidUri| invalid(error.into()))?;
        let mut config = Config::new(uri.clone());
        config.root_cert = Some(trust.certificates().map(|it| it.to_vec()).collect());
        config.tls_server_name = Some(self.server_name.to_owned());
        let request = Request::post(uri)
            .header(HOST, self.server_name)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from_static(self.body.as_bytes())))
            .map_err(|error| invalid(error.into()))?;
        // Not shared: a resumed session would not present the certificate.
        let connector = config.rustls_https_connector();
        let connector = connector.map_err(|error| invalid(error.into()))?;
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let response = client.request(request).await;
        let response = response.map_err(ProbeError::Exchange)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), RESPONSE_LIMIT);
        let body = body.collect().await.map_err(ProbeError::Body)?;
        Ok((status, body.to_bytes()))
    }
}

#[cfg(test)]
mod tests;
