//! A real server, presented to by a replica's part, asked as an API server would ask.

use axum::Router;
use axum::routing::post;
use chassis::readiness::Readiness;
use rstest::rstest;
use serve::{Options, Server, TlsHandle};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::certificate::testing::{entry_with, epoch, material, present, settings, successor};
use crate::certificate::{Cell, CertificateMetrics, Presenter, serve_from_files};

/// A server whose certificate comes out of the cells.
struct Process {
    question: Question,
    files: Cell<Material>,
    entry: Cell<LiveEntry>,
    stop: CancellationToken,
}

impl Process {
    async fn start(router: Router) -> Self {
        let tls = TlsHandle::empty();
        let address = ([127, 0, 0, 1], 0).into();
        let server = Server::bind(address, Options::new(tls.clone()))
            .await
            .unwrap();
        let question = Question {
            port: server.local_addr().port(),
            server_name: settings().server_name().to_owned(),
            path: "/mutate--v1-pod?timeout=3s".to_owned(),
            body: Bytes::from_static(b"{\"a\":1}"),
            time_limit: Duration::from_secs(10),
        };
        let (files, entry, stop) = (Cell::default(), Cell::default(), CancellationToken::new());
        let presenter = Presenter {
            tls,
            condition: Readiness::default().condition("certificate"),
            metrics: CertificateMetrics::default(),
            settings: Arc::new(settings()),
        };
        tokio::spawn(serve_from_files(
            presenter,
            files.clone(),
            entry.clone(),
            stop.clone(),
        ));
        tokio::spawn(server.run(router, stop.clone()));
        Self {
            question,
            files,
            entry,
            stop,
        }
    }

    async fn ask(&self, trust: &Bundle) -> Result<ProbeAnswer, ProbeError> {
        self_probe(&self.question, trust).await
    }

    async fn ask_as_callers(&self) -> Result<ProbeAnswer, ProbeError> {
        self.ask(&callers_trust(&self.entry.seen(), &self.files.seen()))
            .await
    }

    /// The certificate is taken into use by another task.
    async fn until_answered(&self) -> ProbeAnswer {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
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

fn echo() -> Router {
    Router::new().route("/mutate--v1-pod", post(async |body: String| body))
}

#[tokio::test]
async fn an_answer_comes_over_the_certificate_that_callers_trust_before_and_after_a_rotation() {
    let process = Process::start(echo()).await;
    assert!(matches!(
        process.ask_as_callers().await,
        Err(ProbeError::NoTrust)
    ));
    let old = material(epoch());
    process.files.set(Some(old.clone()).into());
    process.entry.set(Sighting::Absent);
    let answer = process.until_answered().await;
    assert_eq!(
        (answer.status, &answer.body[..]),
        (StatusCode::OK, &b"{\"a\":1}"[..])
    );

    let new = successor(epoch(), Bundle::read(&old.authorities));
    process
        .entry
        .set(Some(entry_with(old.authorities.clone())).into());
    process.files.set(Some(new.clone()).into());
    process.ask_as_callers().await.unwrap();
    process
        .entry
        .set(Some(entry_with(new.authorities.clone())).into());
    // Whichever of the two leaves is served at this instant, no caller notices.
    process.ask_as_callers().await.unwrap();
    let new_alone = Bundle::read(&new.authorities)
        .certificates()
        .take(1)
        .cloned()
        .collect::<Vec<_>>();
    let new_alone = Bundle::of(new_alone);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while process.ask(&new_alone).await.is_err() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the new leaf is never served"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn strangers_and_other_names_are_refused() {
    let process = Process::start(echo()).await;
    let served = material(epoch());
    process.files.set(Some(served.clone()).into());
    process.entry.set(Sighting::Absent);
    process.until_answered().await;

    let stranger = Bundle::read(&material(epoch()).authorities);
    let refused = process.ask(&stranger).await;
    assert!(
        matches!(refused, Err(ProbeError::Handshake(_))),
        "{refused:?}"
    );
    let question = Question {
        server_name: "webhook.default.svc".to_owned(),
        ..process.question.clone()
    };
    let refused = self_probe(&question, &Bundle::read(&served.authorities)).await;
    assert!(
        matches!(refused, Err(ProbeError::Handshake(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_bad_status_is_an_answer_and_no_answer_is_an_error() {
    let hang = async || {
        std::future::pending::<()>().await;
    };
    let process = Process::start(Router::new().route("/hang", post(hang))).await;
    process.files.set(Some(material(epoch())).into());
    process.entry.set(Sighting::Absent);
    assert_eq!(process.until_answered().await.status, StatusCode::NOT_FOUND);

    let trust = callers_trust(&process.entry.seen(), &process.files.seen());
    let question = Question {
        path: "/hang".to_owned(),
        time_limit: Duration::from_millis(300),
        ..process.question.clone()
    };
    let late = self_probe(&question, &trust).await;
    assert!(matches!(late, Err(ProbeError::Timeout(_))), "{late:?}");
    let question = Question {
        path: "no path".to_owned(),
        ..question
    };
    let wrong = self_probe(&question, &trust).await;
    assert!(matches!(wrong, Err(ProbeError::Question(_))), "{wrong:?}");
}

#[tokio::test]
async fn nobody_listening_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let question = Question {
        port,
        server_name: settings().server_name().to_owned(),
        path: "/".to_owned(),
        body: Bytes::new(),
        time_limit: Duration::from_secs(5),
    };
    let trust = Bundle::read(&material(epoch()).authorities);
    let refused = self_probe(&question, &trust).await;
    assert!(
        matches!(refused, Err(ProbeError::Connect { .. })),
        "{refused:?}"
    );
}

#[rstest]
#[case::entry_and_files(present(entry_with(material(epoch()).authorities)), true)]
#[case::entry_without_bundle(present(entry_with("")), false)]
#[case::no_entry(Sighting::Absent, true)]
#[case::not_known_yet(Sighting::Unknown, false)]
fn trust_is_the_live_bundle_or_what_it_will_be(
    #[case] entry: Sighting<LiveEntry>,
    #[case] anybody: bool,
) {
    let files = material(epoch());
    let own = Bundle::read(&files.authorities);
    let files = present(files);
    let trust = callers_trust(&entry, &files);
    assert_eq!(!trust.is_empty(), anybody);
    assert_eq!(trust == own, matches!(entry, Sighting::Absent));
    assert!(callers_trust::<Material>(&Sighting::Absent, &Sighting::Absent).is_empty());
}
