//! Readiness check with a real request: the process is ready only after it responded to a review in the format of an API
//! server. The request uses a new TLS connection, connects to the same name as an API server, and trusts only CAs that an
//! API server trusts.

use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime};

use api::names::WEBHOOK_PATH;
use axum::body::Bytes;
use component_base::backoff::Backoff;
use component_base::readiness::ReadinessCheck;
use component_base::telemetry::error_chain;
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::ConfigExt as _;
use tokio::time::{sleep, timeout};
use tower::BoxError;

use crate::certificate::{Bundle, Certificates};

/// Backoff between two attempts until one succeeds. The first attempt is made before the certificate is served, which takes
/// some milliseconds.
const RETRY: Backoff = Backoff {
    base: Duration::from_millis(20),
    cap: Duration::from_millis(500),
};

/// Time limit of an attempt. The timeout of the API server is 3 s.
const TIME_LIMIT: Duration = Duration::from_secs(3);

/// Maximum size of the response body, in bytes, which is much more than a response for one Pod.
const RESPONSE_LIMIT: usize = 1024 * 1024;

/// Review of a Pod that requests no feature.
const REVIEW: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"self-review","resource":{"group":"","version":"v1","resource":"pods"},"operation":"CREATE","dryRun":true,"object":{"metadata":{"annotations":{}},"spec":{"containers":[]}}}}"#;

/// Request to this process, on 127.0.0.1.
#[derive(Clone, Copy)]
struct Probe<'a> {
    port: u16,
    server_name: &'a str,
    path: &'a str,
    body: &'static str,
    time_limit: Duration,
}

/// Sends reviews until there is a valid response. After that the check stays ready. Later failures (an expired certificate,
/// a failed watch) have separate checks, and a false alarm here would make all replicas unready at once.
pub async fn until_answered(port: u16, certificates: &Certificates, condition: &ReadinessCheck) {
    condition.not_ready("no response to the self-review yet");
    let mut failures = 0;
    while let Err(error) = review(port, certificates).await {
        condition.not_ready(error);
        sleep(RETRY.delay(failures, fastrand::u64(..))).await;
        failures = failures.saturating_add(1);
    }
    condition.ready();
    tracing::info!("self-review succeeded");
}

/// Sends one review.
///
/// # Errors
/// A human-readable text, if there is no valid response.
pub async fn review(port: u16, certificates: &Certificates) -> Result<(), String> {
    let probe = Probe {
        port,
        server_name: certificates.server_name(),
        path: WEBHOOK_PATH,
        body: REVIEW,
        time_limit: TIME_LIMIT,
    };
    match probe.send(&certificates.callers_trust()).await {
        Ok((status, body)) if is_valid(status, &body) => Ok(()),
        Ok((status, _)) => Err(format!("self-review answered with status {status}")),
        Err(error) => {
            let error = error_chain(&*error);
            Err(format!("no answer to the self-review: {error}"))
        }
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
    /// Returns the response, if it is complete. The error is a human-readable text.
    async fn send(&self, trust: &Bundle) -> Result<(StatusCode, Bytes), BoxError> {
        let answer = timeout(self.time_limit, self.exchange(trust)).await;
        answer.map_err(|_| format!("no response within {:?}", self.time_limit))?
    }

    async fn exchange(&self, trust: &Bundle) -> Result<(StatusCode, Bytes), BoxError> {
        let trust = trust.valid(SystemTime::now());
        if trust.is_empty() {
            return Err("caBundle has no valid CA certificate".into());
        }
        let uri = format!("https://{}:{}{}", Ipv4Addr::LOCALHOST, self.port, self.path);
        let uri: Uri = uri.parse()?;
        let mut config = Config::new(uri.clone());
        config.root_cert = Some(trust.certificates().map(|it| it.to_vec()).collect());
        config.tls_server_name = Some(self.server_name.to_owned());
        let request = Request::post(uri)
            .header(HOST, self.server_name)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from_static(self.body.as_bytes())))?;
        // Not shared, because a resumed session would not present the certificate.
        let client = Client::builder(TokioExecutor::new()).build(config.rustls_https_connector()?);
        let response = client.request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), RESPONSE_LIMIT);
        Ok((status, body.collect().await?.to_bytes()))
    }
}

#[cfg(test)]
mod tests;
