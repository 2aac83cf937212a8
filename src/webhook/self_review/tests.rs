//! Tests with a real server that serves the certificate of a replica, and with requests in the format of an API server.

use axum::Router;
use axum::routing::post;
use component_base::readiness::Readiness;
use rstest::rstest;
use serve::{Options, Server, TlsHandle};
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use std::sync::Arc;

use super::*;
use crate::certificate::fixtures::{entry_with, epoch, material, present, settings, successor};
use crate::certificate::{
    CertificateMetrics, CertificateServer, CertificateSettings, LiveEntry, Material, Observed,
    StoredCertificate, callers_trust,
};

/// Time limit of conditions that hold soon. A new certificate is served after a pause of five seconds.
const PATIENCE: Duration = Duration::from_secs(30);

fn stored(material: Material) -> Observed<StoredCertificate> {
    present(material.into())
}

/// A server whose certificate is set through the watch channels.
struct Process {
    port: u16,
    settings: CertificateSettings,
    files: watch::Sender<Observed<StoredCertificate>>,
    entry: watch::Sender<Observed<LiveEntry>>,
    stop: CancellationToken,
}

impl Process {
    async fn start(router: Router) -> Self {
        let tls = TlsHandle::empty();
        let address = ([127, 0, 0, 1], 0).into();
        let server = Server::bind(address, Options::tls(tls.clone()))
            .await
            .unwrap();
        let port = server.local_addr().port();
        let (files, entry, stop) = (
            watch::Sender::default(),
            watch::Sender::default(),
            CancellationToken::new(),
        );
        let certificates = CertificateServer {
            tls,
            condition: Readiness::default().check("certificate"),
            metrics: CertificateMetrics::default(),
            settings: Arc::new(settings()),
            active: None,
            deferred: None,
            next: None,
            valid_from: None,
        };
        tokio::spawn(certificates.run(files.subscribe(), entry.subscribe()));
        tokio::spawn(server.run(router, stop.clone()));
        Self {
            port,
            settings: settings(),
            files,
            entry,
            stop,
        }
    }

    fn probe(&self) -> Probe<'_> {
        Probe {
            port: self.port,
            server_name: self.settings.server_name(),
            path: "/mutate--v1-pod?timeout=3s",
            body: "{\"a\":1}",
            time_limit: Duration::from_secs(10),
        }
    }

    async fn ask(&self, trust: &Bundle) -> Result<(StatusCode, Bytes), BoxError> {
        self.probe().send(trust).await
    }

    async fn ask_as_callers(&self) -> Result<(StatusCode, Bytes), BoxError> {
        self.ask(&callers_trust(&self.entry.borrow(), &self.files.borrow()))
            .await
    }

    /// Waits for a response. Another task activates the certificate.
    async fn until_answered(&self) -> (StatusCode, Bytes) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            match self.ask_as_callers().await {
                Ok(answer) => return answer,
                Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Returns whether the request failed because of `cause`.
fn is_refused(result: &Result<(StatusCode, Bytes), BoxError>, cause: &str) -> bool {
    matches!(result, Err(error) if error_chain(&**error).contains(cause))
}

fn echo() -> Router {
    Router::new().route("/mutate--v1-pod", post(async |body: String| body))
}

#[tokio::test]
async fn an_answer_comes_over_the_certificate_that_callers_trust_before_and_after_a_rotation() {
    let process = Process::start(echo()).await;
    let untrusted = process.ask_as_callers().await;
    let no_trust = "caBundle has no valid CA certificate";
    assert!(is_refused(&untrusted, no_trust), "{untrusted:?}");
    let old = material(epoch());
    process.files.send_replace(stored(old.clone()));
    process.entry.send_replace(Observed::Absent);
    let (status, body) = process.until_answered().await;
    assert_eq!((status, &body[..]), (StatusCode::OK, &b"{\"a\":1}"[..]));

    let new = successor(epoch(), &Bundle::read(&old.authorities));
    process
        .entry
        .send_replace(Some(entry_with(old.authorities.clone())).into());
    process.files.send_replace(stored(new.clone()));
    process.ask_as_callers().await.unwrap();
    process
        .entry
        .send_replace(Some(entry_with(new.authorities.clone())).into());
    // Either of the two leaves may be served at this moment; both are accepted.
    process.ask_as_callers().await.unwrap();
    let new_alone = Bundle::read(&new.authorities)
        .certificates()
        .take(1)
        .cloned()
        .collect::<Vec<_>>();
    let new_alone = Bundle::of(new_alone);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while process.ask(&new_alone).await.is_err() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the new leaf is never served"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn another_ca_and_other_names_are_refused() {
    let process = Process::start(echo()).await;
    let served = material(epoch());
    process.files.send_replace(stored(served.clone()));
    process.entry.send_replace(Observed::Absent);
    process.until_answered().await;

    let other = Bundle::read(&material(epoch()).authorities);
    let refused = process.ask(&other).await;
    assert!(is_refused(&refused, "UnknownIssuer"), "{refused:?}");
    let probe = Probe {
        server_name: "webhook.default.svc",
        ..process.probe()
    };
    let refused = probe.send(&Bundle::read(&served.authorities)).await;
    let not_for_name = "certificate not valid for name";
    assert!(is_refused(&refused, not_for_name), "{refused:?}");
}

#[tokio::test]
async fn a_bad_status_is_an_answer_and_no_answer_is_an_error() {
    let hang = async || {
        std::future::pending::<()>().await;
    };
    let process = Process::start(Router::new().route("/hang", post(hang))).await;
    process.files.send_replace(stored(material(epoch())));
    process.entry.send_replace(Observed::Absent);
    assert_eq!(process.until_answered().await.0, StatusCode::NOT_FOUND);

    let trust = callers_trust(&process.entry.borrow(), &process.files.borrow());
    let probe = Probe {
        path: "/hang",
        time_limit: Duration::from_millis(300),
        ..process.probe()
    };
    let late = probe.send(&trust).await;
    assert!(is_refused(&late, "no response within 300ms"), "{late:?}");
    let probe = Probe {
        path: "no path",
        ..probe
    };
    let wrong = probe.send(&trust).await;
    assert!(is_refused(&wrong, "invalid uri character"), "{wrong:?}");
}

#[tokio::test]
async fn a_closed_port_is_named() {
    // The socket does not listen, so connections are refused, and it keeps the port from other tests.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let settings = settings();
    let probe = Probe {
        port: closed.local_addr().unwrap().port(),
        server_name: settings.server_name(),
        path: "/",
        body: "",
        time_limit: PATIENCE,
    };
    let trust = Bundle::read(&material(epoch()).authorities);
    let refused = probe.send(&trust).await;
    assert!(is_refused(&refused, "Connection refused"), "{refused:?}");
}

#[rstest]
#[case::proper(200, r#"{"response":{"uid":"self-review","allowed":true}}"#, true)]
#[case::denied(200, r#"{"response":{"uid":"self-review","allowed":false}}"#, false)]
#[case::anothers(200, r#"{"response":{"uid":"other","allowed":true}}"#, false)]
#[case::no_json(200, "ok", false)]
#[case::an_error(500, r#"{"response":{"uid":"self-review","allowed":true}}"#, false)]
fn only_a_proper_answer_counts(#[case] status: u16, #[case] body: &str, #[case] proper: bool) {
    let status = StatusCode::from_u16(status).unwrap();
    assert_eq!(is_valid(status, body.as_bytes()), proper);
}

#[test]
fn the_review_is_one() {
    let review = policy::admission::review::parse(REVIEW.as_bytes()).unwrap();
    assert!(review.dry_run);
}
